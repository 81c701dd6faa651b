"""The events of a session, in the order in which they can happen. Each is one JSON line with `type` and `v`.

Readers ignore types they do not know. A field is only ever added with a default; a change of meaning raises
`SCHEMA`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from kvtui.core.config import RunConfig
from kvtui.core.findings import Finding
from kvtui.engines.base import Missing
from kvtui.gpu.samples import DEFAULT_HZ, DeviceInfo, MemoryRecord
from kvtui.logs.facts import EngineFacts
from kvtui.probes.results import (
    ConcurrencyResult,
    FullPoolResult,
    RecallResult,
    SpeedResult,
    StabilityResult,
    TaskResult,
)
from kvtui.session.records import (
    Change,
    EngineInfo,
    FailureKind,
    Forecast,
    HostInfo,
    ModelInfo,
    Recommendation,
    RunOutcome,
    StepOutcome,
    Verdict,
)

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Event:
    """`at` is UTC in ISO 8601 with milliseconds."""

    at: str


@dataclass(frozen=True, slots=True)
class SessionStarted(Event):
    """Everything that stays the same for the whole session. `plan` is the preset with the operator's options,
    `sample_hz` how often memory is read."""

    session: str
    kvtui: str
    plan: dict[str, Any]
    base: RunConfig
    model: ModelInfo
    engine: EngineInfo
    host: HostInfo
    device: DeviceInfo
    command_line: tuple[str, ...] = ()
    sample_hz: float = DEFAULT_HZ


@dataclass(frozen=True, slots=True)
class SessionResumed(Event):
    """The session goes on in another process; `interrupted_run` was in progress when the last one ended."""

    kvtui: str
    interrupted_run: int | None = None


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """Step `step` (1 to 5) begins."""

    step: int


@dataclass(frozen=True, slots=True)
class Recommended(Event):
    """What was advised, after run `after_run` (None: before the first)."""

    step: int
    after_run: int | None
    recommendation: Recommendation


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """What the operator (or, unattended, kvtui) did with the last recommendation.

    `variable` and `value` are set for `change`. `reason` is the operator's own text. `retry` runs the last run again as
    it was; `insist` runs what was advised against.
    """

    step: int
    choice: Literal["accept", "change", "skip", "stop", "retry", "insist"]
    by: Literal["operator", "unattended"]
    variable: str = ""
    value: str = ""
    reason: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run is about to be launched. `purpose` names what it is for (see kvtui.procedure.steps), `subject` the very
    thing it tries (`stage:32768`), by which a skip or a repeat finds it again."""

    run: int
    step: int
    purpose: str
    config: RunConfig
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    change: Change | None = None
    missing: tuple[Missing, ...] = ()
    follow: tuple[str, ...] = ()
    forecast: Forecast | None = None
    seed: int = 0
    temperature: float = 0.0
    subject: str = ""


@dataclass(frozen=True, slots=True)
class EngineLaunched(Event):
    """The engine's process exists. `started` (seconds since the epoch) tells it from a later process `pid`; `log`
    is the file of its output in the session's folder."""

    run: int
    pid: int
    started: float
    url: str
    log: str = ""


@dataclass(frozen=True, slots=True)
class EngineReady(Event):
    """It answers requests, `load_s` seconds after the launch, and this is what its log proves."""

    run: int
    load_s: float
    facts: EngineFacts


@dataclass(frozen=True, slots=True)
class SpeedMeasured(Event):
    """Speed at one depth."""

    run: int
    result: SpeedResult


@dataclass(frozen=True, slots=True)
class RecallMeasured(Event):
    """Recall at one depth."""

    run: int
    result: RecallResult


@dataclass(frozen=True, slots=True)
class TasksMeasured(Event):
    """The task families at their depths."""

    run: int
    results: tuple[TaskResult, ...]


@dataclass(frozen=True, slots=True)
class PromptsChosen(Event):
    """How the prompts of a run are made: with the model's own chat template, or plain. `reason` says why not the
    template where the model has one."""

    run: int
    style: Literal["chat", "raw"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TasksRepeated(Event):
    """The same tasks at the same depths once more in the same run: whether its outputs repeat."""

    run: int
    results: tuple[TaskResult, ...]


@dataclass(frozen=True, slots=True)
class ConcurrencyMeasured(Event):
    """Simultaneous requests."""

    run: int
    result: ConcurrencyResult


@dataclass(frozen=True, slots=True)
class FullPoolMeasured(Event):
    """Simultaneous requests that together need more than the pool they share."""

    run: int
    result: FullPoolResult


@dataclass(frozen=True, slots=True)
class StabilityMeasured(Event):
    """A nearly full context, again and again."""

    run: int
    result: StabilityResult


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The run is over and counts (or says why not). Nothing of a run is shown as done before this is on disk.

    `facts` are those of the whole log; `engine_s` is the time spent inside the engine (load, prefill, decode).
    """

    run: int
    outcome: RunOutcome
    reason: str
    facts: EngineFacts
    failure: FailureKind | None = None
    exit_code: int | None = None
    memory: MemoryRecord | None = None
    findings: tuple[Finding, ...] = ()
    wall_s: float = 0.0
    engine_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepFinished(Event):
    """A step's gate has been decided."""

    step: int
    outcome: StepOutcome
    summary: str


@dataclass(frozen=True, slots=True)
class StageSkipped(Event):
    """A context stage that was not run, with the figure that says why."""

    context: int
    reason: str


@dataclass(frozen=True, slots=True)
class SessionFinished(Event):
    """The procedure is over. `wall_s` is the time worked, pauses between resumes left out; `own_cpu_s` the CPU time
    that kvtui's last process used."""

    verdict: Verdict
    wall_s: float = 0.0
    own_cpu_s: float = 0.0
    notes: tuple[str, ...] = field(default=())


EVENT_TYPES: tuple[type[Event], ...] = (
    SessionStarted,
    SessionResumed,
    StepStarted,
    Recommended,
    Decided,
    RunStarted,
    EngineLaunched,
    EngineReady,
    SpeedMeasured,
    RecallMeasured,
    TasksMeasured,
    PromptsChosen,
    TasksRepeated,
    ConcurrencyMeasured,
    FullPoolMeasured,
    StabilityMeasured,
    RunFinished,
    StepFinished,
    StageSkipped,
    SessionFinished,
)
