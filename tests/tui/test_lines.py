from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.core.text import width
from kvtui.tui.lines import (
    EMPTY,
    Line,
    Span,
    changed_cells,
    columns,
    command_rows,
    fit,
    labelled,
    line,
    rule,
    spread,
    text_of,
    width_of,
    wrap,
)

TEXT = st.text(st.sampled_from("ab 日é─✓"), max_size=12)
LINES = st.lists(st.builds(Span, TEXT, st.sampled_from(["", "dim", "good strong"])), max_size=5).map(tuple)


@given(LINES, st.integers(0, 40), st.booleans())
def test_fit_is_always_exactly_as_wide_as_asked(spans: Line, cells: int, right: bool) -> None:
    assert width_of(fit(spans, cells, right=right)) == cells


@pytest.mark.parametrize(
    ("spans", "cells", "expected"),
    [
        (line("abc"), 5, "abc  "),
        (line("abcdef"), 4, "abc…"),
        (line("ab", Span("cd", "dim")), 4, "abcd"),
        (line("ab", Span("cd", "dim")), 2, "a…"),
        (line("ab", Span("cd", "dim")), 3, "ab…"),
        (EMPTY, 2, "  "),
    ],
)
def test_fit_shows_that_something_was_cut(spans: Line, cells: int, expected: str) -> None:
    assert text_of(fit(spans, cells)) == expected


@given(LINES, LINES)
def test_outside_the_changed_cells_two_lines_look_the_same(before: Line, after: Line) -> None:
    found = changed_cells(before, after)
    wide = max(width_of(before), width_of(after))
    old, new = text_of(fit(before, wide)), text_of(fit(after, wide))
    if found is None:
        assert old == new
        return
    start, end = found
    assert 0 <= start < end <= wide
    if width(old) == len(old) and width(new) == len(new):
        assert old[:start] == new[:start]
        assert old[end:] == new[end:]


def test_a_change_of_tone_alone_is_a_change_and_only_its_cells_are() -> None:
    before = line("state ", Span("proven", "good"), " end")
    after = line("state ", Span("proven", "bad"), " end")
    assert changed_cells(before, after) == (6, 12)
    assert changed_cells(before, line("state ", Span("pro", "good"), Span("ven", "good"), " end")) is None


def test_a_rule_carries_title_and_note_and_fills_the_width() -> None:
    assert text_of(rule(line("Steps"), 20, line("3 of 5"))) == "─ Steps ─── 3 of 5 ─"
    assert width_of(rule(line("a very long title that cannot fit"), 20, line("note"))) == 20
    assert text_of(rule(line("a very long title that cannot fit"), 20, line("note"))).endswith("note ─")


def test_spread_cuts_the_left_and_keeps_the_right() -> None:
    assert text_of(spread(line("a long left side"), line("step 3"), 14)) == "a long … step 3".replace(
        "… ", "…"
    )
    assert width_of(spread(line("left"), line("a right side wider than the line"), 10)) == 10


def test_columns_align_right_where_the_width_is_negative() -> None:
    assert text_of(columns([(line("run"), 5), (line("48.1"), -6)])) == "run    48.1"


def test_wrap_marks_what_its_limit_cut() -> None:
    assert wrap("one two three four", 9) == ["one two", "three", "four"]
    assert wrap("one two three four", 9, 2) == ["one two", "three …"]
    assert wrap("x" * 30, 10, 1) == ["xxxxxxxxx…"]
    assert wrap("anything", 0) == []
    assert labelled("why", "one two three", 16)[1] == line(Span(" " * 8, "dim"), Span("three"))


@pytest.mark.parametrize("cells", [20, 40, 78])
def test_a_command_copied_off_the_screen_is_the_same_command(cells: int) -> None:
    argv = [
        "llama-server",
        "-m",
        "/models/my model [Q4_K_M].gguf",
        "-c",
        "4096",
        "it's",
        'a "b"',
        "$HOME",
        "-fa",
        "on",
    ]
    shown = "\n".join(command_rows(shlex.join(argv), cells))
    script = f"set -- {shown}\nprintf '%s\\0' \"$@\""
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split("\0")[:-1] == argv
