"""The likeliest tokens of each generated position, out of what a llama.cpp server tells with `n_probs`."""

from __future__ import annotations

from typing import Any

from kvtui.probes.results import Choice

_MOST = 20
_NEVER = -100.0
"""The logarithm of a probability that is as good as none; the engine's own is the lowest number it has."""
_IDS = range(1 << 31)


def choices_of(told: Any, start: int, count: int) -> list[Choice]:
    """The choices at the `count` positions from `start` on, as an event's `completion_probabilities` tells them.

    Positions that are not told in full are left out. Servers before December 2024 tell texts and no ids: nothing.
    """
    if not isinstance(told, list) or len(told) != count:
        return []
    found = []
    for index, position in enumerate(told, start):
        top = position.get("top_logprobs") if isinstance(position, dict) else None
        ranked = [_ranked(one) for one in (top[:_MOST] if isinstance(top, list) else [])]
        known = [pair for pair in ranked if pair is not None]
        if known and len(known) == len(ranked):
            found.append(Choice(index, tuple(t for t, _ in known), tuple(p for _, p in known)))
    return found


def _ranked(one: Any) -> tuple[int, float] | None:
    """A token's id and the logarithm of its probability. Four digits tell any shift, and a session keeps many."""
    if not isinstance(one, dict):
        return None
    token, logprob = one.get("id"), one.get("logprob")
    if type(token) is not int or token not in _IDS:
        return None
    if isinstance(logprob, bool) or not isinstance(logprob, int | float) or not logprob <= 1e-3:
        return None  # NaN fails every comparison
    return token, round(min(max(float(logprob), _NEVER), 0.0), 4)
