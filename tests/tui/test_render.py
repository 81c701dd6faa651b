from __future__ import annotations

import pytest
from rich.style import Style

from kvtui.tui import render
from kvtui.tui.lines import Span, line

HOSTILE = [
    "[/]",
    "model [Q4_K_M].gguf",
    "[@click=app.quit]x[/]",
    r"a\[b",
    "\x1b]52;c;aGk=\x07",
    "\x1b[2J\x9b31m",
    "日本語モデル",
    "🦙 llama",
    "\u202eevil",
    "[link=http://e]z[/link]",
    "x" * 10_000,
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_drawn_as_it_is_and_sends_no_controls(text: str) -> None:
    drawn = render.content(line(Span(text, "bad"))).plain
    assert drawn == render.plain(text)
    assert all(c.isprintable() for c in drawn)
    strip = render.strip(line(Span(text, "bad")), 40, lambda tone: Style())
    assert strip.cell_length == 40
    assert all(c.isprintable() for c in strip.text)


def test_brackets_are_text_and_never_markup() -> None:
    assert render.content("model [Q4_K_M].gguf").plain == "model [Q4_K_M].gguf"
    assert render.paragraph(["[b]x"]).plain == " [b]x"
    assert render.content(line("[/]")).plain == "[/]"


def test_without_utf8_everything_is_ascii_and_as_wide_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "UNICODE", False)
    assert render.plain("✓ proven ▶ 4 → 1 ▁▃▇█ ─│┄ 日") == "+ proven > 4 > 1 _.## -|- ??"
    assert render.strip(line("▕██▌ ▏…"), 10, lambda tone: Style()).text.isascii()


@pytest.mark.parametrize(
    ("env", "mode", "expected"),
    [
        ({"LANG": "en_US.UTF-8"}, 0, True),
        ({"LANG": "C.utf8"}, 0, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, 1, False),
        ({"LC_CTYPE": "C.UTF-8"}, 1, False),
        ({"LC_CTYPE": "C.UTF-8"}, 0, True),
        ({"LANG": "de_DE.ISO-8859-1"}, 0, False),
        ({}, 1, False),
    ],
)
def test_the_locale_decides_and_not_what_python_made_of_it(
    env: dict[str, str], mode: int, expected: bool
) -> None:
    assert render.locale_is_utf8(env, mode) is expected
