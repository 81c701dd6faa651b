"""A recorded session once more: the same configurations in the same order, the same probes, on this box.

What was recorded may be anybody's: the model is this box's file with the same header, the engine is this box's, the
values of every setting are checked as if they were typed, and further options and variables are only taken over when
the operator has seen them (`options_of`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import msgspec

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError
from kvtui.core.secrets import REDACTED
from kvtui.core.text import clean
from kvtui.engines.kinds import KINDS
from kvtui.procedure.next_action import next_action
from kvtui.procedure.preset import Preset, check_field, with_tasks
from kvtui.procedure.proposals import repeat
from kvtui.procedure.setup import TuneRequest, begin
from kvtui.procedure.situation import Action, Close, Finish, Launch, Offer, Situation, Skip
from kvtui.procedure.tune import Tuning
from kvtui.session.codec import from_builtins
from kvtui.session.state import RunRecord, SessionState

_DEVICE_NAMES = frozenset(("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))
_TYPE = re.compile(r"[A-Za-z0-9_]{1,16}\Z")
_RANGES: dict[str, tuple[float, float]] = {
    "n_ctx": (1, 1 << 24),
    "n_batch": (1, 1 << 16),
    "n_ubatch": (1, 1 << 16),
    "n_parallel": (1, 256),
    "n_gpu_layers": (0, 9999),
    "n_cpu_moe": (0, 9999),
    "threads": (0, 9999),
    "cache_ram_mib": (-1, 1 << 24),
    "gpu_memory_utilization": (0.01, 1.0),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What the recorded runs gave to their engine beside the settings that kvtui knows."""

    extra: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


def options_of(recorded: SessionState) -> Options:
    """The further options and variables of the runs to be repeated; an engine may read files or run programs for them.

    Variables that choose a GPU are left out: they name those of the other box. Raises InputError when values are not
    in the report.
    """
    configs = [run.config for run in _runs(recorded)]
    extra = dict.fromkeys(word for config in configs for word in config.extra)
    env = dict.fromkeys(pair for config in configs for pair in config.env if pair[0] not in _DEVICE_NAMES)
    if any(REDACTED in word for word in [*extra, *(value for _, value in env)]):
        raise InputError(
            "the report leaves out values that were given to the engine, so it cannot be repeated from it",
            hint="replay the session itself, or a report without them",
        )
    return Options(tuple(extra), tuple(env))


def prepare_replay(recorded: SessionState, request: TuneRequest, note: Callable[[str], None]) -> Tuning:
    """A new session that does again what `recorded` did. `request` may name the model file, the engine and the GPUs;
    its other values are not used.

    Raises what `setup.prepare` raises, InputError also for another model, or a setting that cannot be one.
    """
    runs = _runs(recorded)
    plan = _plan(recorded, request)
    for run in runs:
        _check(run)
    kind = recorded.started.engine.kind
    request = replace(
        request,
        model=request.model or recorded.started.model.path,
        engine=request.engine or (kind if kind in KINDS and request.engine_bin is None else None),
    )
    first = runs[0].config
    tuning = begin(
        request,
        plan,
        note,
        header_sha256=recorded.started.model.header_sha256,
        like=replace(first, env=_own(first.env)),
    )
    tuning.choose = Replay.of(recorded, tuning)
    return tuning


@dataclass(frozen=True, slots=True)
class Replay:
    """What comes next in a replay: the recorded runs one after the other, each step closed by what is measured now.

    `numbers` of the recorded runs are theirs; the new ones count from 1 in the same order.
    """

    recorded: SessionState

    @classmethod
    def of(cls, recorded: SessionState, tuning: Tuning) -> Replay:
        """`recorded` as it is to be done on this box: its model file, its GPUs."""
        started = tuning.store.state.started

        def here(config: RunConfig) -> RunConfig:
            ours = tuple(p for p in started.base.env if p[0] in _DEVICE_NAMES)
            return replace(config, model=started.base.model, env=(*ours, *_own(config.env)))

        runs = tuple(replace(run, config=here(run.config)) for run in _runs(recorded))
        return cls(replace(recorded, started=started, runs=runs, decided=(), recommended=()))

    def __call__(self, sit: Situation) -> Action:
        """See kvtui.procedure.next_action."""
        step = sit.state.current_step
        done = sum(r.outcome in ("ok", "failed", "void") for r in sit.state.runs)
        waiting = self.recorded.runs[done:]
        if step is None:
            return next_action(sit)
        if waiting and waiting[0].step <= step.number:
            return self._launch(sit, waiting[0], done + 1)
        return self._closing(sit, step.number)

    def _launch(self, sit: Situation, run: RunRecord, number: int) -> Launch:
        launch = repeat(replace(sit, state=self.recorded), run)
        advice = replace(
            launch.advice,
            title=f"Run {run.number} again: {run.subject or run.purpose}",
            why=f"replayed, run {number} of {len(self.recorded.runs)}",
        )
        change = launch.change
        if change is not None:
            numbers = {r.number: n for n, r in enumerate(self.recorded.runs, 1)}
            against = numbers.get(change.against_run)
            change = None if against is None else replace(change, against_run=against)
        return replace(launch, advice=advice, change=change)

    def _closing(self, sit: Situation, step: int) -> Action:
        """How the procedure goes on without another launch in this step."""
        action = next_action(sit)
        if isinstance(action, Close | Finish | Offer):
            return action
        if isinstance(action, Skip):
            return replace(action, offer=None)
        runs = [r for r in sit.state.runs if r.step == step]
        if not runs:
            return Close(step, "skipped", "not run in the session that is replayed")
        held = runs[-1].counts and sit.stable(runs[-1]).ok
        return Close(
            step,
            "passed" if held else "failed",
            f"all runs of the replayed session are done; the procedure would go on with: {action.advice.title}",
        )


def _runs(recorded: SessionState) -> tuple[RunRecord, ...]:
    """The runs that came to an end. Raises InputError when none did."""
    runs = tuple(r for r in recorded.runs if r.outcome in ("ok", "failed", "void") and not r.interrupted)
    if not runs:
        raise InputError("no run of that session came to an end, so there is nothing to repeat")
    return runs


def _own(env: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in env if pair[0] not in _DEVICE_NAMES)


def _plan(recorded: SessionState, request: TuneRequest) -> Preset:
    """The recorded plan, every value held to what a preset may hold, the texts of the operator's own tasks with it;
    `--tasks` puts others in their place."""
    try:
        plan: Preset = from_builtins(recorded.started.plan, Preset)
        for field in fields(Preset):
            value = getattr(plan, field.name)
            if value is not None and field.name not in ("name", "tasks"):
                check_field(field.name, list(value) if isinstance(value, tuple) else value)
    except (msgspec.ValidationError, ValueError) as error:
        raise InputError(f"the plan of that session cannot be followed: {clean(str(error), 160)}") from error
    if request.tasks is not None:
        return with_tasks(plan, request.tasks)
    if plan.tasks and not plan.own_tasks:
        raise InputError(
            "that session asked tasks of the operator's own, which are not in it",
            hint="give their folder with --tasks",
        )
    return plan


def _check(run: RunRecord) -> None:
    config = run.config
    for name, (low, high) in _RANGES.items():
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            raise InputError(f"run {run.number}: {name} is {clean(str(value), 40)}, which no engine takes")
    for name in ("type_k", "type_v"):
        if not _TYPE.match(getattr(config, name)):
            raise InputError(f"run {run.number}: {name} is not the name of a cache type")
    if not 1 <= run.step <= 5:
        raise InputError(f"run {run.number}: there is no step {run.step}")
    for name, value in config.env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            raise InputError(f"run {run.number}: {clean(name, 40)} is no name of a variable")
    if any("\0" in word for word in config.extra):
        raise InputError(f"run {run.number}: an option holds a character that no option can")
