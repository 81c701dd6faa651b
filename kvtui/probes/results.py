"""What the probes measured. Depths and counts are tokens, rates tokens per second, times seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

TaskFamily = Literal["retrieval", "code-edit", "tool-selection", "long-instruction", "own"]
"""`own`: a task of the operator's. The other four are built in."""
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

    `repeats` holds each measurement; the rates are medians over them. `throttled` is what held the GPU's clocks down
    and in which share (0 to 1) of the time, `others_cpu` how many CPU cores other programs kept busy.
    """

    depth: int
    prompt_tps: float | None
    decode_tps: float | None
    first_token_s: float | None
    repeats: tuple[Timing, ...]
    gpu_util: int | None = None
    note: str = ""
    throttled: tuple[tuple[str, float], ...] = ()
    others_cpu: float | None = None

    @property
    def decode_range(self) -> tuple[float, float] | None:
        """Slowest and fastest decode of the repeats; None when fewer than two were measured."""
        return _range([t.decode_tps for t in self.repeats])

    @property
    def prompt_range(self) -> tuple[float, float] | None:
        """Slowest and fastest prefill of the repeats that processed the whole prompt; None below two."""
        return _range(
            [t.prompt_tps for t in self.repeats if t.cached_tokens * 100 <= max(t.prompt_tokens, 1600)]
        )


def _range(rates: Sequence[float | None]) -> tuple[float, float] | None:
    known = [rate for rate in rates if rate is not None]
    return (min(known), max(known)) if len(known) > 1 else None


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
class Choice:
    """The likeliest tokens at generated position `index`, the likeliest first.

    `logprobs` are natural logarithms of probabilities over the whole vocabulary, before sampling.
    """

    index: int
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task at one depth, greedy. `tokens` are the generated token ids, for the comparison of runs; empty where
    the engine does not tell them.

    `why` says what the grader missed; `error` the engine's refusal (then `passed` is False and `tokens` empty).
    `graded` is False for a task without an expectation, which counts for divergence only. `ate_answer`: reasoning
    took all the room before an answer began. `choices` are empty where the engine tells no probabilities.
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
    graded: bool = True
    ate_answer: bool = False
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """One output held against the baseline run's output of the same prompt.

    `first_token` is the index of the first generated token that differs, None when all are equal. Where an engine
    tells no tokens, text is compared: then `first_token` is None and `first_char` the first character that differs.
    Beyond the first difference two outputs are answers to different texts, so `top_agreement` (share of positions
    with the same likeliest token) and `shift` (mean change in probability, 0.0 to 1.0, of the token that the baseline
    chose) cover `compared` positions up to and including it; None where no probabilities were told.
    `repeats`: the baseline gave the same output twice; None when it was not asked twice.
    """

    task: str
    depth: int
    identical: bool
    first_token: int | None
    baseline_tokens: int
    passed: bool
    baseline_passed: bool
    first_char: int | None = None
    compared: int = 0
    top_agreement: float | None = None
    shift: float | None = None
    repeats: bool | None = None
    graded: bool = True


@dataclass(frozen=True, slots=True)
class ConcurrencyResult:
    """`requested` simultaneous requests of `depth` tokens each: how many failed, and each one's speed.

    `queued` is how many were begun only after another had ended, None where that cannot be told; `first_token_s`
    has one time for each request that succeeded. `memory_bytes` is the engine's level when all had ended.
    """

    requested: int
    depth: int
    failed: int
    errors: tuple[str, ...]
    decode_tps: tuple[float, ...]
    seconds: float
    first_token_s: tuple[float, ...] = ()
    queued: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FullPoolResult:
    """`requested` simultaneous requests that together need more than the `pool` of cells they share.

    `depth` is the prompt of each and `answer` what each was to generate, in tokens. `failed` is how many the engine
    broke off; `recovered` whether one request alone worked afterwards.
    """

    requested: int
    depth: int
    answer: int
    pool: int
    failed: int
    errors: tuple[str, ...]
    recovered: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class StabilityRequest:
    """One of the repeated requests. `memory_bytes` is the engine's level when it was idle again."""

    timing: Timing | None
    memory_bytes: int | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class StabilityResult:
    """A nearly full context, again and again: `depth` tokens of prompt and `n_decode` of answer, never cached.

    `start_bytes` is the engine's idle level before the first. `asked` may be more than `requests`: the repeats end
    with an engine that is gone.
    """

    depth: int
    n_decode: int
    asked: int
    start_bytes: int | None
    requests: tuple[StabilityRequest, ...]
    seconds: float

    @property
    def failed(self) -> int:
        """How many requests failed or were not answered to the end."""
        return sum(bool(r.error) for r in self.requests)
