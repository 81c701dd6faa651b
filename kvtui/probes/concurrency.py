"""Several requests at once: what fails only then, how fast each is, who waits, and what a full pool does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Barrier, Event, Thread
from time import monotonic

from kvtui.core.errors import Cancelled, EngineGone, RequestError
from kvtui.probes.asking import Asking, Completion
from kvtui.probes.prompt import PromptStyle, build_haystack
from kvtui.probes.results import ConcurrencyResult, FullPoolResult

_JITTER_S = 0.02
"""Seconds by which threads may see an end too late or a beginning too early."""
_FEWEST = 4
"""Tokens of the request that shows whether an engine works again."""


@dataclass
class _Request:
    """One of the simultaneous requests: when it was sent, begun by the engine and ended, by `monotonic`."""

    prompt: list[int]
    n_decode: int
    outcome: Completion | RequestError | EngineGone | Cancelled | None = None
    sent: float = 0.0
    begun: float | None = None
    ended: float = 0.0

    def send(self, ask: Asking, cancel: Event | None) -> None:
        """Ask, and keep what came of it."""

        def on_progress(_processed: int, _total: int, _seconds: float) -> None:
            if self.begun is None:
                self.begun = monotonic()

        self.sent = monotonic()
        try:
            self.outcome = ask.complete(
                self.prompt,
                self.n_decode,
                cache_prompt=False,
                ignore_eos=True,
                on_progress=on_progress,
                cancel=cancel,
            )
        except (RequestError, EngineGone, Cancelled) as error:
            self.outcome = error
        self.ended = monotonic()

    @property
    def answer(self) -> Completion | None:
        """The answer, when there is a whole one."""
        made = self.outcome
        if not isinstance(made, Completion) or made.truncated or made.timing.generated_tokens < self.n_decode:
            return None
        return made

    @property
    def error(self) -> str:
        """What went wrong, empty when nothing did."""
        if isinstance(self.outcome, Completion):
            if self.answer is not None:
                return ""
            return f"ended after {self.outcome.timing.generated_tokens:,} of {self.n_decode:,} tokens"
        return "the request broke off" if self.outcome is None else str(self.outcome)


def measure_concurrency(
    ask: Asking,
    style: PromptStyle,
    n: int,
    depth: int,
    n_decode: int,
    level: Callable[[], int | None] = lambda: None,
    seed: int = 0,
    cancel: Event | None = None,
) -> ConcurrencyResult:
    """Send `n` prompts of `depth` tokens at the same moment, none sharing a prefix, and decode `n_decode` each.

    `ask` is used by `n` threads at once. An answer cut short because the pool was full counts as failed. `level`
    tells the engine's memory in bytes. Raises EngineGone and Cancelled, after all requests have ended.
    """
    prompts = [list(build_haystack(ask, style, depth, seed=(seed, index, n)).ids) for index in range(n)]
    requests, seconds = _together(ask, [_Request(prompt, n_decode) for prompt in prompts], cancel)
    _raise_end(requests)
    answers = [request.answer for request in requests if request.answer is not None]
    errors = tuple(request.error for request in requests if request.error)
    rates = [answer.timing.decode_tps for answer in answers]
    firsts = [answer.timing.first_token_s for answer in answers]
    return ConcurrencyResult(
        requested=n,
        depth=depth,
        failed=len(errors),
        errors=errors,
        decode_tps=tuple(rate for rate in rates if rate is not None),
        seconds=seconds,
        first_token_s=tuple(first for first in firsts if first is not None),
        queued=_queued(requests),
        memory_bytes=level(),
    )


def measure_full_pool(
    ask: Asking,
    style: PromptStyle,
    n: int,
    pool: int,
    n_decode: int,
    cancel: Event | None = None,
) -> FullPoolResult:
    """Ask `n` slots that share `pool` cells for more than it holds: each prompt fits, all answers together do not.

    Afterwards one short request shows whether the engine still works. Raises EngineGone and Cancelled.
    """
    depth = max(pool // n - n_decode // 2, 1)
    prompts = [list(build_haystack(ask, style, depth, seed=(0x706F6F6C, index, n)).ids) for index in range(n)]
    requests, seconds = _together(ask, [_Request(prompt, n_decode) for prompt in prompts], cancel)
    _raise_end(requests)
    after = _Request(prompts[0][:64], _FEWEST)
    after.send(ask, cancel)
    _raise_end([after])
    errors = tuple(request.error for request in requests if request.error)
    return FullPoolResult(n, depth, n_decode, pool, len(errors), errors, after.answer is not None, seconds)


def _together(ask: Asking, requests: list[_Request], cancel: Event | None) -> tuple[list[_Request], float]:
    """All of `requests` at the same moment; returns them when the last has ended, with the seconds it took."""
    together = Barrier(len(requests))

    def send(request: _Request) -> None:
        together.wait()
        request.send(ask, cancel)

    threads = [
        Thread(target=send, args=(request,), name=f"request-{index}", daemon=True)
        for index, request in enumerate(requests)
    ]
    started = monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return requests, monotonic() - started


def _raise_end(requests: Sequence[_Request]) -> None:
    """The end of the work or of the engine is no result."""
    for kind in (Cancelled, EngineGone):
        for request in requests:
            if isinstance(request.outcome, kind):
                raise request.outcome


def _queued(requests: Sequence[_Request]) -> int | None:
    """How many were begun only after another had ended: there was no slot for them. None where a begin is unknown."""
    whole = [request for request in requests if request.answer is not None]
    begun = [request.begun for request in whole if request.begun is not None]
    if len(whole) < 2 or len(begun) < len(whole):
        return None
    ends = [_end(request) for request in whole]
    return sum(at >= min(ends[:index] + ends[index + 1 :]) - _JITTER_S for index, at in enumerate(begun))


def _end(request: _Request) -> float:
    """When the engine was done: a thread of ours may have learnt of it later."""
    timing = request.answer.timing if request.answer is not None else None
    if timing is None or timing.first_token_s is None:
        return request.ended
    return min(request.ended, request.sent + timing.first_token_s + timing.decode_s)
