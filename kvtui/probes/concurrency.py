"""Several requests at once: what fails only then, and how fast each is."""

from __future__ import annotations

from threading import Barrier, Event, Thread
from time import monotonic

from kvtui.core.errors import Cancelled, EngineGone, RequestError
from kvtui.probes.asking import Asking, Completion
from kvtui.probes.prompt import PromptStyle, build_haystack
from kvtui.probes.results import ConcurrencyResult

_Outcome = Completion | RequestError | EngineGone | Cancelled


def measure_concurrency(
    ask: Asking,
    style: PromptStyle,
    n: int,
    depth: int,
    n_decode: int,
    seed: int = 0,
    cancel: Event | None = None,
) -> ConcurrencyResult:
    """Send `n` prompts of `depth` tokens at the same moment, none sharing a prefix, and decode `n_decode` each.

    `ask` is used by `n` threads at once. An answer cut short because the pool was full counts as failed.
    Raises EngineGone and Cancelled, after all requests have ended.
    """
    prompts = [list(build_haystack(ask, style, depth, seed=(seed, index, n)).ids) for index in range(n)]
    outcomes: list[_Outcome | None] = [None] * n
    together = Barrier(n)

    def request(index: int) -> None:
        together.wait()
        try:
            outcomes[index] = ask.complete(
                prompts[index], n_decode, cache_prompt=False, ignore_eos=True, cancel=cancel
            )
        except (RequestError, EngineGone, Cancelled) as error:
            outcomes[index] = error

    threads = [Thread(target=request, args=(i,), name=f"request-{i}", daemon=True) for i in range(n)]
    started = monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _result(depth, n_decode, outcomes, monotonic() - started)


def _result(depth: int, n_decode: int, outcomes: list[_Outcome | None], seconds: float) -> ConcurrencyResult:
    for kind in (Cancelled, EngineGone):
        for outcome in outcomes:
            if isinstance(outcome, kind):
                raise outcome
    errors, rates = [], []
    for outcome in outcomes:
        if isinstance(outcome, Completion):
            made = outcome.timing.generated_tokens
            if outcome.truncated or made < n_decode:
                errors.append(f"ended after {made:,} of {n_decode:,} tokens")
            elif outcome.timing.decode_tps is not None:
                rates.append(outcome.timing.decode_tps)
        else:
            errors.append("the request broke off" if outcome is None else str(outcome))
    return ConcurrencyResult(len(outcomes), depth, len(errors), tuple(errors), tuple(rates), seconds)
