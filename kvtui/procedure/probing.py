"""Which probes a run asks for, in which order, and how their results are recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event as Flag

from kvtui.engines.base import Running
from kvtui.probes.asking import Asking
from kvtui.probes.concurrency import measure_concurrency
from kvtui.probes.depth import depth_for, measure_depth
from kvtui.probes.prompt import PromptStyle, chat_style, deepest, raw_style
from kvtui.probes.speed import measure_speed
from kvtui.probes.tasks import run_tasks
from kvtui.procedure.progress import ProgressMeter
from kvtui.procedure.situation import Launch, Situation
from kvtui.session import events as ev
from kvtui.session.store import now


@dataclass(frozen=True, slots=True)
class Bench:
    """A running engine with everything a probe needs. `usable` is what one slot may use, in tokens."""

    ask: Asking
    usable: int
    meter: ProgressMeter
    record: Callable[[ev.Event], None]
    cancel: Flag


def probe(sit: Situation, launch: Launch, number: int, bench: Bench) -> None:
    """Ask everything that `launch.probes` names; each result is recorded as soon as it is there."""
    wanted = launch.probes
    style = chat_style(bench.ask) if sit.state.started.model.has_chat_template else raw_style(bench.ask)
    if wanted.speed is not None:
        _speed(sit, number, bench, style, wanted.speed)
    if wanted.tasks:
        results = run_tasks(bench.ask, style, wanted.tasks, progress=bench.meter, cancel=bench.cancel)
        bench.record(ev.TasksMeasured(now(), number, results))
        bench.meter.job_done()
    if wanted.deep is not None:
        _deep(sit, number, bench, style, wanted.deep)
    if wanted.concurrency:
        _concurrency(sit, launch, number, bench, style)


def _speed(sit: Situation, number: int, bench: Bench, style: PromptStyle, depth: int) -> None:
    plan = sit.plan
    depth = min(depth, deepest(bench.usable, plan.decode_tokens))
    speed = measure_speed(
        bench.ask, style, depth, plan.decode_tokens, plan.repeats, progress=bench.meter, cancel=bench.cancel
    )
    bench.record(ev.SpeedMeasured(now(), number, speed))
    bench.meter.job_done()


def _deep(sit: Situation, number: int, bench: Bench, style: PromptStyle, depth: int) -> None:
    plan = sit.plan
    depth = min(depth, depth_for(bench.ask, style, bench.usable, plan.decode_tokens))
    speed, recall = measure_depth(
        bench.ask,
        style,
        depth,
        plan.recall_positions,
        plan.decode_tokens,
        plan.repeats,
        progress=bench.meter,
        cancel=bench.cancel,
    )
    bench.record(ev.SpeedMeasured(now(), number, speed))
    bench.record(ev.RecallMeasured(now(), number, recall))
    bench.meter.job_done()


def _concurrency(sit: Situation, launch: Launch, number: int, bench: Bench, style: PromptStyle) -> None:
    n, plan = launch.probes.concurrency, sit.plan
    share = bench.usable // n if launch.config.kv_unified else bench.usable
    if plan.max_per_request is not None:
        share = min(share, plan.max_per_request)
    bench.meter.say(f"{n} requests at the same time")
    result = measure_concurrency(
        bench.ask, style, n, deepest(share, plan.decode_tokens), plan.decode_tokens, cancel=bench.cancel
    )
    bench.record(ev.ConcurrencyMeasured(now(), number, result))
    bench.meter.job_done()


def usable_per_slot(launch: Launch, running: Running) -> int:
    """Tokens one request may use: what the log proves, else what was asked."""
    slots = running.facts().slots
    if slots is not None and slots.n_ctx_slot is not None:
        return slots.n_ctx_slot
    config = launch.config
    return config.n_ctx if config.kv_unified else config.n_ctx // config.n_parallel
