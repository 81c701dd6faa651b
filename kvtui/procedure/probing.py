"""Which probes a run asks for, in which order, and how their results are recorded."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Flag

from kvtui.engines.base import Running
from kvtui.probes.asking import Asking
from kvtui.probes.concurrency import measure_concurrency
from kvtui.probes.depth import measure_depth
from kvtui.probes.prompt import PromptStyle, chat_style, raw_style
from kvtui.probes.speed import measure_speed
from kvtui.probes.tasks import run_tasks
from kvtui.procedure.progress import ProgressMeter
from kvtui.procedure.situation import Launch, Situation
from kvtui.session import events as ev
from kvtui.session.store import now


def probe(
    sit: Situation,
    launch: Launch,
    number: int,
    ask: Asking,
    running: Running,
    meter: ProgressMeter,
    record: Callable[[ev.Event], None],
    cancel: Flag,
) -> None:
    """Ask everything that `launch.probes` names; each result is recorded as soon as it is there."""
    plan, wanted = sit.plan, launch.probes
    style = chat_style(ask) if sit.state.started.model.has_chat_template else raw_style(ask)
    usable = usable_per_slot(launch, running)
    if wanted.speed is not None:
        speed = measure_speed(
            ask,
            style,
            min(wanted.speed, room(usable, plan.decode_tokens)),
            n_decode=plan.decode_tokens,
            repeats=plan.repeats,
            progress=meter,
            cancel=cancel,
        )
        record(ev.SpeedMeasured(now(), number, speed))
        meter.job_done()
    if wanted.tasks:
        results = run_tasks(ask, style, wanted.tasks, progress=meter, cancel=cancel)
        record(ev.TasksMeasured(now(), number, results))
        meter.job_done()
    if wanted.deep is not None:
        depth = min(wanted.deep, room(usable, plan.decode_tokens))
        speed, recall = measure_depth(
            ask,
            style,
            depth,
            plan.recall_positions,
            n_decode=plan.decode_tokens,
            repeats=plan.repeats,
            progress=meter,
            cancel=cancel,
        )
        record(ev.SpeedMeasured(now(), number, speed))
        record(ev.RecallMeasured(now(), number, recall))
        meter.job_done()
    if wanted.concurrency:
        _concurrency(launch, number, ask, style, usable, plan.decode_tokens, meter, record, cancel)


def _concurrency(
    launch: Launch,
    number: int,
    ask: Asking,
    style: PromptStyle,
    usable: int,
    n_decode: int,
    meter: ProgressMeter,
    record: Callable[[ev.Event], None],
    cancel: Flag,
) -> None:
    n = launch.probes.concurrency
    share = usable // n if launch.config.kv_unified else usable
    meter.say(f"{n} requests at the same time")
    result = measure_concurrency(ask, style, n, room(share, n_decode), n_decode=n_decode, cancel=cancel)
    record(ev.ConcurrencyMeasured(now(), number, result))
    meter.job_done()


def usable_per_slot(launch: Launch, running: Running) -> int:
    """Tokens one request may use: what the log proves, else what was asked."""
    slots = running.facts().slots
    if slots is not None and slots.n_ctx_slot is not None:
        return slots.n_ctx_slot
    config = launch.config
    return config.n_ctx if config.kv_unified else config.n_ctx // config.n_parallel


def room(usable: int, n_decode: int) -> int:
    """The deepest prompt that leaves `n_decode` tokens and the engine's spare cell free."""
    return max(32, usable - n_decode - 16)
