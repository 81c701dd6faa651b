"""Reasoning before an answer: told apart whatever marks it, and never taken for an answer when it does not end."""

from __future__ import annotations

import pytest

from kvtui.probes.prompt import chat_style
from kvtui.probes.thinking import answer_of, closing, unfinished
from tests.probes.fake import FakeEngine


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("42", "42"),
        ("", ""),
        ("<think>7? no</think>\n\n42", "\n\n42"),
        ("\n<think>\n</think>42", "42"),
        ("so it is 7</think>42", "42"),
        ("<thought>7</thought>42", "42"),
        ("[THINK]7[/THINK]42", "42"),
        ("<|channel|>analysis<|message|>7<|end|><|start|>assistant<|channel|>final<|message|>42", "42"),
        ("<think>7 and on and", ""),
        ("<think>a<think>b</think>42", "42"),
    ],
)
def test_the_answer_is_what_stands_behind_the_reasoning(text: str, answer: str) -> None:
    assert answer_of(text) == answer


def test_an_answer_about_the_marks_is_an_answer() -> None:
    text = "In the template, the reasoning part of an answer is opened by the mark <think> and so on."
    assert answer_of(text) == text
    assert not unfinished(text)


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("<|im_start|>assistant\n", ""),
        ("<|im_start|>assistant\n<think>\n", "\n</think>\n\n"),
        ("<|Assistant|><think>", "\n</think>\n\n"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", ""),
        ("[|assistant|]<thought>\n", "\n</thought>\n\n"),
        ("<|start|>assistant", "<|channel|>final<|message|>"),
    ],
)
def test_what_a_template_opens_is_closed(opened: str, closed: str) -> None:
    assert closing(opened) == closed
    ask = FakeEngine(template="<|user|>{}" + opened)
    assert ask.text(chat_style(ask).tail) == opened + closed
