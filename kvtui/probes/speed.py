"""Speed at depth: the whole prompt really processed, then a decode long enough to mean something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from threading import Event

from kvtui.probes.asking import Asking, Completion, Progress, silent
from kvtui.probes.prompt import PromptStyle, build_haystack
from kvtui.probes.results import SpeedResult, Timing

SHALLOW = 512
"""Tokens of prompt that stand for an empty context: a whole micro-batch of the engine's default size."""
_TOO_SHORT_S = 0.2
_DISAGREE = 0.1
_JITTER_S = 0.1
"""Seconds that sending, waking and receiving may take beside what the engine counts."""


class Meter:
    """Tokens done of a fixed total, told to a `Progress` so that the number never goes back."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._before = 0
        self._shown = 0

    def prompt(self, what: str, size: int) -> Callable[[int, int, float], None]:
        """An `on_progress` for a prompt of which `size` tokens count towards the total."""
        self._tell(f"{what} prefill", self._before)

        def on_progress(processed: int, total: int, _seconds: float) -> None:
            left = max(total - processed, 0)
            self._tell(f"{what} {'prefill' if left else 'decode'}", self._before + max(size - left, 0))

        return on_progress

    def finish(self, what: str, size: int) -> None:
        """A request of `size` tokens (prompt that counts, and answer) is done."""
        self._before += size
        self._tell(f"{what} decode", self._before)

    def _tell(self, what: str, done: int) -> None:
        self._shown = min(max(done, self._shown), self._total)
        self._progress(what, self._shown, self._total, "tokens")


def measure_speed(
    ask: Asking,
    style: PromptStyle,
    depth: int,
    n_decode: int,
    repeats: int,
    seed: int = 0,
    progress: Progress = silent,
    cancel: Event | None = None,
) -> SpeedResult:
    """Process `depth` tokens and decode `n_decode`, `repeats` times, each with a prompt of its own.

    The slot must hold `depth + n_decode` tokens and one more. Raises what `Asking` raises.
    """
    meter = Meter(progress, repeats * (depth + n_decode))
    answers = []
    for repeat in range(repeats):
        prompt = list(build_haystack(ask, style, depth, seed=(seed, repeat)).ids)
        answers.append(timed_prefill(ask, prompt, n_decode, meter, cancel))
    return summarise(depth, n_decode, [answer.timing for answer in answers])


def timed_prefill(
    ask: Asking, prompt: list[int], n_decode: int, meter: Meter, cancel: Event | None
) -> Completion:
    """One request with the cache off; end-of-text does not end it."""
    answer = ask.complete(
        prompt,
        n_decode,
        cache_prompt=False,
        ignore_eos=True,
        on_progress=meter.prompt("speed", len(prompt)),
        cancel=cancel,
    )
    meter.finish("speed", len(prompt) + n_decode)
    return answer


def summarise(depth: int, n_decode: int, timings: Sequence[Timing]) -> SpeedResult:
    """Medians over `timings`; the spread, from slowest to fastest, is `decode_range` and `prompt_range` of the result.

    Prompt speed and first-token time count only the requests whose whole prompt was processed. What makes the
    figures mean less than they seem to is said in `note`. The result's depth is what the engine counted where it always
    counted the same: `depth` is an estimate for one that has no tokenizer to ask.
    """
    whole = [t for t in timings if t.cached_tokens <= _negligible(depth)]
    notes = []
    if len(whole) < len(timings) and not whole:
        most = max(t.cached_tokens for t in timings)
        notes.append(f"up to {most:,} of {depth:,} prompt tokens came from the prompt cache")
    if any(t.prompt_tokens != depth for t in timings):
        seen = sorted({t.prompt_tokens for t in timings})
        notes.append(f"the engine counted {', '.join(f'{n:,}' for n in seen)} prompt tokens, not {depth:,}")
    shortest = min((t.generated_tokens for t in timings), default=0)
    if shortest < n_decode:
        notes.append(f"decode ended after {shortest:,} of {n_decode:,} tokens")
    elif timings and (lasted := min(t.decode_s for t in timings)) < _TOO_SHORT_S:
        notes.append(f"decode lasted {lasted:.2f} s, too short for a rate to rely upon")
    notes += [text for text in [clocks_apart(timings)] if text]
    counted = {t.prompt_tokens for t in timings}
    return SpeedResult(
        depth=counted.pop() if len(counted) == 1 else depth,
        prompt_tps=_median(t.prompt_tps for t in whole or timings),
        decode_tps=_median(t.decode_tps for t in timings),
        first_token_s=_median(t.first_token_s for t in whole),
        repeats=tuple(timings),
        note="; ".join(notes),
    )


def shallow_depth(depth: int) -> int | None:
    """The prompt that shows the speed before any depth, for a measurement at `depth`; None where that is shallow."""
    return SHALLOW if depth >= 4 * SHALLOW else None


def clocks_apart(timings: Sequence[Timing]) -> str:
    """What the engine's times and our own clock disagree about by more than a tenth; empty when they agree.

    The median request decides: one that our own thread read late is no fault of the engine's clock.
    """
    found = []
    for what, pairs in (
        ("prefill", [(t.prompt_s, t.first_token_s) for t in timings if t.first_token_s is not None]),
        (
            "decode",
            [(t.decode_s, t.wall_s - t.first_token_s) for t in timings if t.first_token_s is not None],
        ),
    ):
        if not pairs:
            continue
        engines, ours = (median(side) for side in zip(*pairs, strict=True))
        if abs(engines - ours) > max(_DISAGREE * max(engines, ours), _JITTER_S):
            found.append(f"{what} took {engines:.2f} s by the engine's clock and {ours:.2f} s by ours")
    return "; ".join(found)


def _negligible(depth: int) -> int:
    """Cached tokens that do not change a rate: a template's fixed opening, or 1 % of the prompt."""
    return max(16, depth // 100)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
