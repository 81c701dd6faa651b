"""What a rule is, and the case it is asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kvtui.core.config import RunConfig
from kvtui.procedure.situation import Situation
from kvtui.procedure.variables import BY_NAME
from kvtui.session.records import FailureKind
from kvtui.session.state import RunRecord

Cause = Literal[
    "prefill",
    "kv",
    "weights",
    "budget",
    "margin",
    "spill",
    "concurrency",
    "speed",
    "kernel",
    "recall",
    "quality",
    "leak",
    "crash",
    "other",
]
"""What a run that does not hold suffers from. `budget`: nothing failed, the forecast keeps the next stage out."""

RuleKind = Literal["change", "repeat", "will-not-help", "measure-first", "stop", "void", "named"]

MEMORY_CAUSES: frozenset[Cause] = frozenset({"prefill", "kv", "budget", "margin", "spill"})

_CAUSE_OF_FAILURE: dict[FailureKind, Cause] = {
    "compute-oom": "prefill",
    "prefill-oom": "prefill",
    "kv-oom": "kv",
    "weights-oom": "weights",
    "concurrency": "concurrency",
    "crash": "crash",
    "hung": "crash",
    "request": "crash",
}


def cause_of(failure: FailureKind | None) -> Cause:
    """The cause that a failed run's failure points at."""
    return _CAUSE_OF_FAILURE.get(failure, "other") if failure is not None else "other"


@dataclass(frozen=True, slots=True)
class Case:
    """What advice is wanted for: `config`, shown by `run` not to hold because of `cause`.

    `goal` is the context (tokens) that is to be reached, which is `config`'s own where that run failed at it.
    `missing` is the memory (bytes) by which it misses, `freeable` what the smallest micro-batch would free of the
    transient memory that was measured; None where neither log nor samples nor forecast tell.
    """

    sit: Situation
    run: RunRecord
    config: RunConfig
    cause: Cause
    goal: int
    missing: int | None = None
    freeable: int | None = None

    @property
    def beyond(self) -> bool:
        """True when `config` itself holds and the goal is a larger context."""
        return self.goal > self.config.n_ctx


def nothing(case: Case) -> Iterator[RunConfig]:
    """The values of a rule that changes nothing."""
    return iter(())


def plainly(case: Case) -> str:
    """A rule without figures of its own."""
    return ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One piece of advice, as data.

    `when` is the condition in words and `holds` the same as a predicate; `why` is what the operator reads, `figures`
    what the case adds to it. A `change` names one `variable` and its `direction`; `values` gives the configurations
    to try, the nearest first. `memory` and `speed` say which effect to expect (the figure comes from the forecast),
    `risk` what it may cost, `source` where the knowledge is public. `lossy`: outputs may change, so the tasks are
    run again.
    """

    id: str
    kind: RuleKind
    when: str
    holds: Callable[[Case], bool]
    why: str
    source: str
    variable: str = ""
    direction: str = ""
    values: Callable[[Case], Iterator[RunConfig]] = nothing
    figures: Callable[[Case], str] = plainly
    memory: str = ""
    speed: str = ""
    risk: str = ""
    lossy: bool = False

    @property
    def label(self) -> str:
        """The variable as it is written on screen, empty for a rule that changes none."""
        return BY_NAME[self.variable].label if self.variable else ""

    def text(self, case: Case) -> str:
        """Why, with the figures of this case."""
        figures = self.figures(case)
        return f"{self.why}: {figures}" if figures else self.why


def meaningful(case: Case, variable: str) -> bool:
    """True when the engine of this session can be asked for `variable`."""
    names = case.sit.engine.traits.variables
    return not names or variable in names
