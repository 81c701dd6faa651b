"""The values a session records beside measurements: who and what took part, what changed, what was advised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvtui.core.config import RunConfig
from kvtui.engines.base import DeviceNeed

RunOutcome = Literal["ok", "failed", "void", "cancelled"]
StepOutcome = Literal["passed", "failed", "skipped", "not-needed"]
FailureKind = Literal[
    "start",
    "weights-oom",
    "kv-oom",
    "compute-oom",
    "prefill-oom",
    "crash",
    "request",
    "hung",
    "refused",
    "concurrency",
]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model file as its header states it. Sizes are bytes; `quant` is the weight quantisation."""

    path: str
    file_name: str
    name: str
    arch: str
    quant: str
    file_bytes: int
    weights_bytes: int
    header_sha256: str
    n_ctx_train: int | None
    n_layer: int | None
    exactness: str
    has_chat_template: bool


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine that was driven. `kind` is the name it is found by (kvtui.engines.find), empty in old sessions.

    `program` is its path, or the words of a command that starts it. `cache_types` are the KV types it says it has.
    `url` is that of an engine of the operator's which was driven as it is, `log` the file it logs to; else empty.
    """

    label: str
    program: tuple[str, ...]
    version: str
    build: str | None
    commit: str | None
    kind: str = ""
    compiler: str | None = None
    target: str | None = None
    backends: tuple[str, ...] = ()
    cache_types: tuple[str, ...] = ()
    url: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class HostInfo:
    """The box: enough to tell whether two sessions ran on the same kind of machine."""

    system: str
    cpu: str
    cores: int
    memory_bytes: int
    python: str


@dataclass(frozen=True, slots=True)
class Change:
    """The one variable that a run changes against an earlier run."""

    variable: str
    option: str
    before: str
    after: str
    against_run: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """Bytes expected before a run was started. `kv_bytes` is from the model file's geometry (`exactness`),
    `conventional_kv_bytes` what the all-layers formula gives, `total_bytes` the whole engine, None until a run
    has measured what is not weights or KV. `short_bytes` is what is missing in a share of the card that the engine
    reserves as a whole (0: enough), None for an engine that takes what it needs. `dry_run` is the engine's own
    forecast where its build can tell one, a device each, host last."""

    kv_bytes: int | None
    conventional_kv_bytes: int | None
    weights_bytes: int | None
    total_bytes: int | None
    exactness: str
    dry_run: tuple[DeviceNeed, ...] = ()
    short_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SettingCheck:
    """One setting: what was asked, what the engine's output proves, and the line that proves it.

    `state` `unproven` means there is no evidence either way; it is never shown as true.
    """

    setting: str
    asked: str
    actual: str
    state: Literal["proven", "differs", "unproven"]
    line: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to do next. One variable, or none for `stop` and `will-not-help`.

    `effect_bytes` is the expected change of the engine's memory (negative: saved), None where it cannot be told.
    `command` is the exact command line of the run it proposes, ready to paste. `rule` is the id of the rule that gave
    it and `source` where its knowledge is public. `variables` are those that may be changed instead, by name (empty:
    all), and `kv_pairs` the pairs of KV types that the engine can be asked for.
    """

    kind: Literal["run", "stop", "will-not-help", "skip"]
    title: str
    why: str
    variable: str = ""
    option: str = ""
    before: str = ""
    after: str = ""
    effect: str = ""
    effect_bytes: int | None = None
    risk: str = ""
    command: str = ""
    config: RunConfig | None = None
    not_this: tuple[str, ...] = ()
    rule: str = ""
    source: str = ""
    variables: tuple[str, ...] = ()
    kv_pairs: tuple[str, ...] = ()


VerdictOutcome = Literal["done", "findings", "failed", "stopped"]
EXIT_STATUS: dict[VerdictOutcome, int] = {"done": 0, "findings": 1, "failed": 3, "stopped": 1}
"""The exit status that a session's end has, on the screen and without one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The configuration that holds: stays where it was meant to be, recalls, and sustains its speed.

    `run` is the number of the run that proved it, None when none did.
    """

    outcome: VerdictOutcome
    title: str
    why: str
    run: int | None = None
    config: RunConfig | None = None
    command: str = ""
    not_measured: tuple[str, ...] = ()
