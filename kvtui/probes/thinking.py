"""Reasoning that a model writes before its answer: told apart, closed where a template opened it, and counted."""

from __future__ import annotations

_PAIRS = (
    ("<think>", "</think>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis", "<|channel|>final<|message|>"),
)
"""How reasoning opens and ends: Qwen, DeepSeek, GLM; EXAONE Deep; Seed; Magistral; gpt-oss."""
_OPENING_LIMIT = 64
"""Characters before which an opening must stand; later ones are part of an answer about such marks."""


def answer_of(text: str) -> str:
    """`text` without the reasoning before its answer; empty when the reasoning never ended."""
    for opening, end in _PAIRS:
        head, ended, rest = text.rpartition(end)
        if ended and (opening in head[: _OPENING_LIMIT + len(opening)] or opening not in text):
            return rest
    return "" if unfinished(text) else text


def unfinished(text: str) -> bool:
    """True when `text` begins with reasoning that it never ends."""
    return any(
        opening in text[: _OPENING_LIMIT + len(opening)] and end not in text for opening, end in _PAIRS
    )


def closing(prompt_end: str) -> str:
    """What ends a reasoning part that a template has opened, so that a short answer fits into few tokens."""
    if prompt_end.endswith("<|start|>assistant"):
        return "<|channel|>final<|message|>"
    for opening, end in _PAIRS:
        if prompt_end.rstrip().endswith(opening):
            return f"\n{end}\n\n"
    return ""
