"""TOML that anybody may have written."""

from __future__ import annotations

import time

import pytest

from kvtui.core.toml_text import read_toml


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 40_000 + " = 1",
        "[a" + ".a" * 40_000 + "]",
        '"a b"' + ' . "a b"' * 20_000 + " = 1",
        "x = [{ a" + ".a" * 40_000 + " = 1 }]",
        "a = " + "[" * 100_000,
        '"""' * 40_000 + ".a" * 40_000,
        "a = 1..",
    ],
)
def test_what_would_take_minutes_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r".") as caught:
        read_toml(text)
    assert len(str(caught.value)) < 200
    assert time.process_time() - began < 2


def test_dots_in_texts_are_no_keys() -> None:
    dots = "One. Two. " * 500
    text = f'a.b = \'\'\'{dots}\'\'\'\nc = "{dots}"\nd = \'{dots}\'\n# {dots}\ne = """\n{dots}\\""""\n'
    assert read_toml(text) == {"a": {"b": dots}, "c": dots, "d": dots, "e": dots + '"'}
