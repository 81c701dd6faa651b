"""Speed and recall at one depth for the price of one prefill: at 128K tokens a prefill takes minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from time import monotonic

from kvtui.probes.asking import Asking, Progress, silent
from kvtui.probes.prompt import PromptStyle, deepest
from kvtui.probes.recall import ask_all, plant, question_room
from kvtui.probes.results import RecallResult, SpeedResult
from kvtui.probes.speed import Meter, summarise, timed_prefill


def measure_depth(
    ask: Asking,
    style: PromptStyle,
    depth: int,
    positions: Sequence[float],
    n_decode: int,
    repeats: int = 1,
    seed: int = 0,
    progress: Progress = silent,
    cancel: Event | None = None,
) -> tuple[SpeedResult, RecallResult]:
    """Speed and recall at `depth`, the number of tokens in the haystack.

    The haystack is processed once with the cache off and `n_decode` tokens are decoded; further `repeats` decode
    again behind the cached haystack. The slot must be as large as `depth_for` assumes. Raises what `Asking`
    raises, and InputError when `depth` is too small for the facts.
    """
    planted = plant(ask, style, depth, positions, seed)
    meter = Meter(progress, depth + repeats * n_decode + planted.question_tokens)
    prompt = list(planted.haystack.ids)
    timings = [timed_prefill(ask, prompt, n_decode, meter, cancel).timing]
    for _ in range(repeats - 1):
        answer = ask.complete(prompt, n_decode, cache_prompt=True, ignore_eos=True, cancel=cancel)
        meter.finish("speed", n_decode)
        timings.append(answer.timing)
    recall = ask_all(ask, planted, meter, monotonic(), cancel)
    speed = summarise(depth, n_decode, timings)
    return speed, replace(recall, depth=speed.depth)


def depth_for(ask: Asking, style: PromptStyle, usable: int, n_decode: int) -> int:
    """The deepest haystack for `measure_depth` in a slot of `usable` tokens, 0 when there is none."""
    return deepest(usable, max(n_decode, question_room(ask, style)))
