"""Graders: what is right passes in any dress a model gives it, what is wrong fails with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.probes import graders, matching

NUMBER = graders.number("5926")
FEE = graders.function("fee", [((9,), 5), ((10,), 5), ((11,), 9)])
TIMER = graders.tool_call("set_timer", {"minutes": 25})
MESSAGE = graders.tool_call("send_message", {"to": "Mia", "text": "dinner is ready"})
LIST = graders.numbered_list(("copper", "glass"), " - ok", "OVER")
OWN = graders.expectation(("apples", r"/^the answer .* \d+/"))

RIGHT_FEE = "def fee(weight):\n    if weight <= 10:\n        return 5\n    return 9"


@pytest.mark.parametrize(
    ("grade", "answer"),
    [
        (NUMBER, " 5926."),
        (NUMBER, "It is **5926**, not 1."),
        (NUMBER, "<think>1111? no</think>\n\n5926"),
        (FEE, RIGHT_FEE),
        (FEE, f"```python\n{RIGHT_FEE}\n```"),
        (FEE, f"Here it is:\n\n```\n{RIGHT_FEE}"),
        (FEE, "def fee(w):\n    return 9 if w > 10 else 5\n"),
        (TIMER, ' {"tool": "set_timer", "arguments": {"minutes": 25}}'),
        (TIMER, '```json\n{"arguments": {"minutes": 25.0},\n "tool": "set_timer"}\n``` done'),
        (MESSAGE, '{"tool": "send_message", "arguments": {"to": "mia", "text": "Dinner is ready."}}'),
        (NUMBER, "<thought>1111? no</thought>5926"),
        (OWN, "first\nthe answer is 12 apples"),
        (OWN, "<think>no</think>the answer has 7 apples"),
        (LIST, "1. Copper - ok\n2. Glass - ok\nOVER"),
        (LIST, "\n1. Copper - ok  \n\n2. Glass - ok\nOVER\n"),
    ],
)
def test_right(grade: graders.Grader, answer: str) -> None:
    assert grade(answer) == ""


@pytest.mark.parametrize(
    ("grade", "answer", "why"),
    [
        (NUMBER, "", "no number in the answer"),
        (NUMBER, "1234, or 5926", "1234 instead of 5926"),
        (NUMBER, "59261", "59261 instead of 5926"),
        (NUMBER, "<think>5926</think> none", "no number in the answer"),
        (FEE, "", "no function fee"),
        (FEE, "if weight <= 10 return 5", "not valid Python"),
        (FEE, RIGHT_FEE.replace("<=", "<"), "fee(10) is 9, not 5"),
        (FEE, RIGHT_FEE.replace("fee", "cost"), "no function fee"),
        (FEE, "def fee(weight):\n    while True:\n        pass", "does not end"),
        (FEE, "def fee(weight):\n    return open('/etc/passwd')", "uses Call"),
        (TIMER, "set_timer(25)", "no JSON object in the answer"),
        (TIMER, '{"tool": "set_timer", "arguments": {"minutes": 25}', "not valid JSON"),
        (
            TIMER,
            '{"tool": "get_weather", "arguments": {"minutes": 25}}',
            "tool get_weather instead of set_timer",
        ),
        (TIMER, '{"tool": "set_timer", "arguments": {"minutes": 20}}', "wrong argument minutes"),
        (TIMER, '{"tool": "set_timer", "arguments": {"minutes": "25"}}', "wrong argument minutes"),
        (TIMER, '{"tool": "set_timer", "arguments": {"minutes": 25, "city": "Oslo"}}', "wrong argument city"),
        (TIMER, '{"tool": "set_timer", "arguments": {}}', "wrong argument minutes"),
        (TIMER, '{"tool": "set_timer", "arguments": [25]}', "no arguments"),
        (TIMER, '{"tool": ["set_timer"], "arguments": {"minutes": 25}}', "names no tool"),
        (TIMER, '{"tool": "\\u001b[2Jx", "arguments": {}}', "tool x instead of set_timer"),
        (TIMER, '{"a":' * 100_000, "not valid JSON"),
        (NUMBER, "<think>5926 or is it", "no number in the answer"),
        (OWN, "the answer is twelve apples", "misses /^the answer .* \\d+/"),
        (OWN, "so: the answer is 12 apples", "misses /^the answer .* \\d+/"),
        (OWN, "the answer is 12 pears", "misses apples"),
        (OWN, "<think>the answer is 12 apples", "misses apples"),
        (LIST, "", "does not end with OVER"),
        (LIST, "1. Copper - ok\n2. Glass - ok", "does not end with OVER"),
        (LIST, "1. Copper - ok\nOVER", "1 items, not 2"),
        (LIST, "1. Copper - ok\n2. glass - ok\nOVER", "line '2. glass - ok' instead of '2. Glass - ok'"),
        (LIST, "1. Glass - ok\n2. Copper - ok\nOVER", "line '1. Glass - ok' instead of '1. Copper - ok'"),
        (LIST, "1. Copper\n2. Glass\nOVER", "line '1. Copper' instead of '1. Copper - ok'"),
        (LIST, "Sure!\n1. Copper - ok\n2. Glass - ok\nOVER", "3 items, not 2"),
    ],
)
def test_wrong(grade: graders.Grader, answer: str, why: str) -> None:
    assert grade(answer) == why


@given(st.text(max_size=300) | st.text(alphabet='{}[]":, dfe\n()*-0123456789tool', max_size=300))
def test_no_answer_breaks_a_grader(answer: str) -> None:
    for grade in (NUMBER, FEE, TIMER, MESSAGE, LIST):
        assert grade(answer).isprintable()


def test_an_expression_that_never_ends_on_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_LIMIT_S", 0.3)
    assert graders.expectation(("/^(a+)+$/",))("a" * 60 + "b") == "/^(a+)+$/ takes too long on this answer"
