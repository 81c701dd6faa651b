"""The same load on a nearly full context, again and again: does it hold, and does memory stay where it is?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from threading import Event
from time import monotonic

from kvtui.core.errors import EngineGone, RequestError
from kvtui.probes.asking import Asking, Progress, silent
from kvtui.probes.prompt import PromptStyle, build_haystack, deepest
from kvtui.probes.results import StabilityRequest, StabilityResult
from kvtui.probes.speed import Meter

FILL = 0.95
"""Share of a slot that prompt and answer take together."""

Level = Callable[[], int | None]
"""The engine's memory in bytes while it is idle, None where it cannot be read."""


def stability_depth(usable: int, n_decode: int) -> int:
    """The prompt that fills a slot of `usable` tokens to FILL together with `n_decode` generated ones; 0: none does."""
    return min(max(int(usable * FILL) - n_decode, 0), deepest(usable, n_decode))


def measure_stability(
    ask: Asking,
    style: PromptStyle,
    depth: int,
    n_decode: int,
    repeats: int,
    level: Level,
    progress: Progress = silent,
    cancel: Event | None = None,
) -> StabilityResult:
    """Process `depth` tokens and decode `n_decode`, `repeats` times, each with a prompt of its own and no cache.

    A request that fails is kept as one; an engine that is gone ends the repeats. `level` is called before the first
    and after each. Raises Cancelled, and InputError when `depth` is too small for any prompt.
    """
    meter = Meter(progress, repeats * (depth + n_decode))
    start, began = level(), monotonic()
    requests: list[StabilityRequest] = []
    for repeat in range(repeats):
        made, gone = _one(ask, style, depth, n_decode, repeat, level, meter, cancel)
        requests.append(made)
        meter.finish("stability", depth + n_decode)
        if gone:
            break
    return StabilityResult(depth, n_decode, repeats, start, tuple(requests), monotonic() - began)


def _one(
    ask: Asking,
    style: PromptStyle,
    depth: int,
    n_decode: int,
    repeat: int,
    level: Level,
    meter: Meter,
    cancel: Event | None,
) -> tuple[StabilityRequest, bool]:
    """One request, and whether the engine is gone."""
    try:
        prompt = list(build_haystack(ask, style, depth, seed=(0x73746162, repeat)).ids)
        answer = ask.complete(
            prompt,
            n_decode,
            cache_prompt=False,
            ignore_eos=True,
            on_progress=meter.prompt("stability", depth),
            cancel=cancel,
        )
    except RequestError as error:
        return StabilityRequest(None, level(), str(error)), False
    except EngineGone as error:
        return StabilityRequest(None, None, str(error)), True
    made = answer.timing.generated_tokens
    short = "" if made >= n_decode else f"ended after {made:,} of {n_decode:,} tokens"
    return StabilityRequest(answer.timing, level(), short), False


def slope_bytes(levels: Sequence[int | None]) -> float | None:
    """Growth in bytes per request: the median of the slopes between all pairs of known levels, which one odd reading
    does not move. `levels` are in order of the requests; None when fewer than two are known."""
    known = [(index, value) for index, value in enumerate(levels) if value is not None]
    slopes = [
        (later - earlier) / (j - i) for at, (i, earlier) in enumerate(known) for j, later in known[at + 1 :]
    ]
    return median(slopes) if slopes else None
