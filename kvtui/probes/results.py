"""What the probes measured. Depths and counts are tokens, rates tokens per second, times seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TaskFamily = Literal["retrieval", "code-edit", "tool-selection", "long-instruction"]
TASK_FAMILIES: tuple[TaskFamily, ...] = ("retrieval", "code-edit", "tool-selection", "long-instruction")


@dataclass(frozen=True, slots=True)
class Timing:
    """One request as the engine timed it, with our own clock beside it.

    `prompt_tokens` is the whole prompt, `cached_tokens` the part that came from the prompt cache (rates
    exclude it), `first_token_s` and `wall_s` are by kvtui's clock from sending the request.
    """

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    prompt_tps: float | None
    decode_tps: float | None
    first_token_s: float | None
    wall_s: float
    prompt_s: float
    decode_s: float
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SpeedResult:
    """Speed at one depth: `depth` tokens of prompt really processed (cache off), then decode.

    `repeats` holds each measurement; the rates are medians over them.
    """

    depth: int
    prompt_tps: float | None
    decode_tps: float | None
    first_token_s: float | None
    repeats: tuple[Timing, ...]
    gpu_util: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class NeedleResult:
    """One planted fact. `position` is where in the depth it stands, 0.0 (start) to 1.0 (end)."""

    position: float
    token_offset: int
    key: str
    expected: str
    answer: str
    found: bool


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Recall at one depth: facts planted at several positions, graded by code."""

    depth: int
    needles: tuple[NeedleResult, ...]
    seconds: float

    @property
    def found(self) -> int:
        """How many of the planted facts came back."""
        return sum(n.found for n in self.needles)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task at one depth, greedy. `tokens` are the generated token ids, for the comparison of runs.

    `why` says what the grader missed; `error` the engine's refusal (then `passed` is False and `tokens` empty).
    """

    task: str
    family: TaskFamily
    depth: int
    passed: bool
    why: str
    text: str
    tokens: tuple[int, ...]
    timing: Timing | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One output held against the baseline run's output of the same prompt.

    `first_token` is the index of the first generated token that differs, None when all are equal.
    """

    task: str
    depth: int
    identical: bool
    first_token: int | None
    baseline_tokens: int
    passed: bool
    baseline_passed: bool


@dataclass(frozen=True, slots=True)
class ConcurrencyResult:
    """`requested` simultaneous requests of `depth` tokens each: how many failed, and each one's speed."""

    requested: int
    depth: int
    failed: int
    errors: tuple[str, ...]
    decode_tps: tuple[float, ...]
    seconds: float
