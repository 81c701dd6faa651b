"""Verdicts on answers, by code. A grader returns what the answer misses, the empty string when it is right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from kvtui.core.text import clean
from kvtui.probes.evaluate import CannotEvaluate, call, parse_function
from kvtui.probes.matching import TooSlow, matches
from kvtui.probes.own_tasks import is_pattern
from kvtui.probes.thinking import answer_of

Grader = Callable[[str], str]

_MAX_TEXT = 64_000
_MAX_ANSWER = 8000
_FENCE = re.compile(r"```[a-zA-Z]*\n(.*?)(?:```|\Z)", re.DOTALL)
_NUMBER = re.compile(r"\d+")


def after_thinking(answer: str) -> str:
    """The answer without reasoning before it, cut at a length that no right answer reaches."""
    return answer_of(answer[:_MAX_TEXT])[:_MAX_ANSWER].strip("\n")


def number(expected: str) -> Grader:
    """The first number in the answer is `expected`."""

    def grade(answer: str) -> str:
        first = _NUMBER.search(after_thinking(answer))
        if first is None:
            return "no number in the answer"
        found = first.group()
        return "" if found == expected else f"{found[:20]} instead of {expected}"

    return grade


def function(name: str, cases: Sequence[tuple[Sequence[object], object]]) -> Grader:
    """The answer holds a Python function `name` that gives the right value for every `(arguments, value)`."""

    def grade(answer: str) -> str:
        text = after_thinking(answer)
        fenced = _FENCE.search(text)
        try:
            made = parse_function(fenced.group(1) if fenced else text, name)
            for arguments, value in cases:
                got = call(made, arguments)
                if got != value:
                    shown = ", ".join(map(repr, arguments))
                    return f"{name}({shown}) is {repr(got)[:40]}, not {value!r}"
        except CannotEvaluate as reason:
            return str(reason)
        return ""

    return grade


def tool_call(tool: str, arguments: Mapping[str, object]) -> Grader:
    """The first JSON object in the answer calls `tool` with exactly `arguments` (text compared without case)."""

    def grade(answer: str) -> str:
        text = after_thinking(answer)
        start = text.find("{")
        if start < 0:
            return "no JSON object in the answer"
        try:
            made, _end = json.JSONDecoder().raw_decode(text[start:])
        except (ValueError, RecursionError):
            return "not valid JSON"
        named = made.get("tool")
        if named != tool:
            return f"tool {clean(named, 40)} instead of {tool}" if isinstance(named, str) else "names no tool"
        given = made.get("arguments")
        if not isinstance(given, dict):
            return "no arguments"
        wrong = [
            name
            for name in {**arguments, **given}
            if _folded(given.get(name)) != _folded(arguments.get(name))
        ]
        return f"wrong argument {clean(wrong[0], 40)}" if wrong else ""

    return grade


def numbered_list(items: Sequence[str], ending: str, last_line: str) -> Grader:
    """The answer is `1. Item` and `ending` for each item, in order, one a line, and then `last_line`."""
    wanted = [f"{index}. {item.capitalize()}{ending}" for index, item in enumerate(items, 1)]

    def grade(answer: str) -> str:
        lines = [line.rstrip() for line in after_thinking(answer).splitlines() if line.strip()]
        if not lines or lines[-1] != last_line:
            return f"does not end with {last_line}"
        if len(lines) - 1 != len(wanted):
            return f"{len(lines) - 1} items, not {len(wanted)}"
        for got, want in zip(lines, wanted, strict=False):
            if got != want:
                return f"line {got[:40]!r} instead of {want!r}"
        return ""

    return grade


def expectation(expected: Sequence[str]) -> Grader:
    """The answer holds every text of `expected`, and what matches each regular expression among them."""

    def grade(answer: str) -> str:
        text = after_thinking(answer)
        for wanted in expected:
            try:
                found = matches(wanted[1:-1], text) if is_pattern(wanted) else wanted in text
            except TooSlow:
                return f"{clean(wanted, 80)} takes too long on this answer"
            if not found:
                return f"misses {clean(wanted, 80)}"
        return ""

    return grade


def _folded(value: object) -> object:
    """Text without case, outer blanks and final full stop; anything else as it is."""
    return value.strip().rstrip(".").casefold() if isinstance(value, str) else value
