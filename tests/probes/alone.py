"""Recall without a measurement of speed, and the tasks at the depth that just fits: what a run asks with more."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from kvtui.probes.asking import Asking, Progress, silent
from kvtui.probes.prompt import PromptStyle, deepest
from kvtui.probes.recall import ask_all, plant
from kvtui.probes.results import RecallResult
from kvtui.probes.speed import Meter
from kvtui.probes.tasks import TASKS


def measure_recall(
    ask: Asking, style: PromptStyle, depth: int, positions: Sequence[float], progress: Progress = silent
) -> RecallResult:
    """A fact at each of `positions` of a haystack of `depth` tokens, each asked for."""
    planted = plant(ask, style, depth, positions, 0)
    meter = Meter(progress, depth + planted.question_tokens)
    started = monotonic()
    ask.complete(list(planted.haystack.ids), 1, cache_prompt=True, on_progress=meter.prompt("recall", depth))
    meter.finish("recall", depth)
    return ask_all(ask, planted, meter, started, None)


def task_depth(usable: int, style: PromptStyle) -> int:
    """The deepest prompt for the suite in a slot of `usable` tokens."""
    return deepest(usable, max(task.n_predict(style.kind) for task in TASKS))
