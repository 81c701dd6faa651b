"""Which probes a run asks for, in which order, and how their results are recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event as Flag

from kvtui.core.errors import RequestError
from kvtui.engines.base import Running
from kvtui.gpu.conditions import Window
from kvtui.probes.asking import Asking
from kvtui.probes.concurrency import measure_concurrency, measure_full_pool
from kvtui.probes.depth import depth_for, measure_depth
from kvtui.probes.prompt import PromptStyle, chat_style, deepest, raw_style
from kvtui.probes.speed import measure_speed, shallow_depth
from kvtui.probes.stability import Level, measure_stability, stability_depth
from kvtui.probes.suite import Suite
from kvtui.probes.tasks import run_tasks
from kvtui.procedure.marks import marked
from kvtui.procedure.progress import ProgressMeter
from kvtui.procedure.situation import Launch, Situation
from kvtui.session import events as ev
from kvtui.session.store import now


@dataclass(frozen=True, slots=True)
class Bench:
    """A running engine with everything a probe needs. `usable` is what one slot may use, in tokens; `level` waits
    until the engine is idle and tells its memory in bytes; `window` begins to collect a measurement's conditions."""

    ask: Asking
    usable: int
    meter: ProgressMeter
    record: Callable[[ev.Event], None]
    cancel: Flag
    level: Level
    window: Callable[[], Window]


def probe(sit: Situation, launch: Launch, number: int, bench: Bench) -> None:
    """Ask everything that `launch.probes` names; each result is recorded as soon as it is there."""
    wanted = launch.probes
    style = _style(sit, number, bench)
    if wanted.speed is not None:
        _speed(sit, number, bench, style, wanted.speed)
    if wanted.tasks:
        _tasks(sit, launch, number, bench, style)
    if wanted.deep is not None:
        _deep(sit, number, bench, style, wanted.deep)
    if wanted.concurrency:
        _concurrency(sit, launch, number, bench, style)
    if wanted.stability:
        _stability(sit, launch, number, bench, style)


def jobs_of(launch: Launch) -> int:
    """How many probes a run has, for its overall progress."""
    wanted = launch.probes
    return sum(
        (
            wanted.speed is not None,
            bool(wanted.tasks),
            bool(wanted.tasks) and _is_baseline(launch),
            wanted.deep is not None,
            wanted.deep is not None and shallow_depth(wanted.deep) is not None,
            wanted.concurrency > 0,
            wanted.concurrency > 1 and launch.config.kv_unified,
            wanted.stability > 0,
        )
    )


def _style(sit: Situation, number: int, bench: Bench) -> PromptStyle:
    """The model's own template, or plain prompts where there is none or the engine does not apply it on request."""
    if not sit.state.started.model.has_chat_template:
        return raw_style(bench.ask)
    try:
        style = chat_style(bench.ask)
    except RequestError as error:
        bench.record(ev.PromptsChosen(now(), number, "raw", str(error)))
        return raw_style(bench.ask)
    bench.record(ev.PromptsChosen(now(), number, "chat"))
    return style


def _speed(sit: Situation, number: int, bench: Bench, style: PromptStyle, depth: int) -> None:
    plan = sit.plan
    depth = min(depth, deepest(bench.usable, plan.decode_tokens))
    window = bench.window()
    speed = measure_speed(
        bench.ask, style, depth, plan.decode_tokens, plan.repeats, progress=bench.meter, cancel=bench.cancel
    )
    speed = marked(speed, window.close(), sit.state.started.host.cores)
    bench.record(ev.SpeedMeasured(now(), number, speed))
    bench.meter.job_done()


def _is_baseline(launch: Launch) -> bool:
    return launch.purpose == "baseline"


def _tasks(sit: Situation, launch: Launch, number: int, bench: Bench, style: PromptStyle) -> None:
    """The suite, and in the baseline a second time: only outputs that repeat can be compared with."""
    depths, own = launch.probes.tasks, sit.plan.own_tasks
    suite = Suite(depths, own, bench.usable, fresh=True)
    results = run_tasks(bench.ask, style, suite, progress=bench.meter, cancel=bench.cancel)
    bench.record(ev.TasksMeasured(now(), number, results))
    bench.meter.job_done()
    if _is_baseline(launch):
        again = run_tasks(bench.ask, style, suite, progress=bench.meter, cancel=bench.cancel)
        bench.record(ev.TasksRepeated(now(), number, again))
        bench.meter.job_done()


def _deep(sit: Situation, number: int, bench: Bench, style: PromptStyle, wanted: int) -> None:
    plan = sit.plan
    shallow = shallow_depth(wanted)
    if shallow is not None:
        _speed(sit, number, bench, style, shallow)
    window = bench.window()
    speed, recall = measure_depth(
        bench.ask,
        style,
        min(wanted, depth_for(bench.ask, style, bench.usable, plan.decode_tokens)),
        plan.recall_positions,
        plan.decode_tokens,
        plan.repeats,
        progress=bench.meter,
        cancel=bench.cancel,
    )
    speed = marked(speed, window.close(), sit.state.started.host.cores)
    bench.record(ev.SpeedMeasured(now(), number, speed))
    bench.record(ev.RecallMeasured(now(), number, recall))
    bench.meter.job_done()


def _concurrency(sit: Situation, launch: Launch, number: int, bench: Bench, style: PromptStyle) -> None:
    n, plan, unified = launch.probes.concurrency, sit.plan, launch.config.kv_unified
    share = bench.usable // n if unified else bench.usable
    if plan.max_per_request is not None:
        share = min(share, plan.max_per_request)
    depth = deepest(share, plan.decode_tokens)
    bench.meter.say(f"{n} requests at the same time")
    result = measure_concurrency(
        bench.ask, style, n, depth, plan.decode_tokens, bench.level, cancel=bench.cancel
    )
    bench.record(ev.ConcurrencyMeasured(now(), number, result))
    bench.meter.job_done()
    if unified and n > 1:
        bench.meter.say(f"{n} requests for more than the pool they share")
        full = measure_full_pool(bench.ask, style, n, bench.usable, plan.decode_tokens, cancel=bench.cancel)
        bench.record(ev.FullPoolMeasured(now(), number, full))
        bench.meter.job_done()


def _stability(sit: Situation, launch: Launch, number: int, bench: Bench, style: PromptStyle) -> None:
    n_decode = sit.plan.decode_tokens
    result = measure_stability(
        bench.ask,
        style,
        stability_depth(bench.usable, n_decode),
        n_decode,
        launch.probes.stability,
        bench.level,
        progress=bench.meter,
        cancel=bench.cancel,
    )
    bench.record(ev.StabilityMeasured(now(), number, result))
    bench.meter.job_done()


def usable_per_slot(launch: Launch, running: Running) -> int:
    """Tokens one request may use: what the log proves, else what was asked."""
    slots = running.facts().slots
    if slots is not None and slots.n_ctx_slot is not None:
        return slots.n_ctx_slot
    config = launch.config
    return config.n_ctx if config.kv_unified else config.n_ctx // config.n_parallel
