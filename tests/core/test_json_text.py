"""JSON as it is given out."""

from __future__ import annotations

import json

import pytest

from kvtui.core.json_text import json_text


@pytest.mark.parametrize(
    "text",
    ["\x9b31m", "\x7f", "\u202egpj.exe", "\u2066", "\ud800", "\U000e0041", "\x1b[2J", "\u200b", "plain"],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_what_would_steer_a_terminal_is_escaped_and_still_the_same_value(
    text: str, indent: int | None
) -> None:
    written = json_text({text: [text]}, indent)
    assert written.replace("\n", "").isprintable()
    written.encode()
    assert json.loads(written) == {text: [text]}


def test_letters_stay_as_they_are() -> None:
    assert json_text(["größer, 模型, 🦙"]) == '["größer, 模型, 🦙"]'


def test_a_number_without_a_word_in_json_is_missing() -> None:
    document = {"a": float("inf"), "b": (1.5, float("nan")), "c": {"d": -float("inf"), "e": 0.0}}
    assert json.loads(json_text(document)) == {"a": None, "b": [1.5, None], "c": {"d": None, "e": 0.0}}
