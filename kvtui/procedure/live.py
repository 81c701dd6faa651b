"""What a run tells while it works. The screen and the headless run are two observers of the same thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvtui.gpu.samples import Sample
from kvtui.session.events import Decided, Event
from kvtui.session.records import Recommendation
from kvtui.session.state import SessionState


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work in hand has come. Not recorded.

    `done` and `total` are in `unit` (`tokens`, `answers`, `s`); `rate` is `unit` per second and `eta_s` the remaining
    seconds, None while they cannot be told. `overall` is the share of the run's probes that is done, 0.0 to 1.0.
    """

    step: int
    run: int
    what: str
    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    rate: float | None = None
    eta_s: float | None = None
    overall: float | None = None


class Observer(Protocol):
    """Told from the thread that works; must return at once. Samples come from the sampler's own thread."""

    def event(self, event: Event, state: SessionState) -> None:
        """`event` is on disk and `state` is the session after it."""
        ...

    def progress(self, progress: Progress) -> None:
        """The work in hand moved on."""
        ...

    def sample(self, sample: Sample) -> None:
        """A memory reading."""
        ...

    def log(self, lines: list[str]) -> None:
        """New lines of the engine's log, cleaned."""
        ...


class Decider(Protocol):
    """Asked before each launch; may wait for the operator as long as it likes.

    Raises Cancelled when the work is to end instead.
    """

    def decide(self, recommendation: Recommendation, state: SessionState) -> Decided:
        """What to do with `recommendation`. `at` of the answer is overwritten with the time of recording."""
        ...
