"""What the screen knows: the session's state, and what is never recorded (progress, samples, log, questions).

The session's modules are imported when there is a session: the first paint does not wait for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvtui.gpu.samples import Phase, Sample
    from kvtui.procedure.live import Progress
    from kvtui.session.events import Event
    from kvtui.session.records import Recommendation
    from kvtui.session.state import RunRecord, SessionState

LOG_LINES = 5000
BUCKETS = 512
FIRST_BUCKET_S = 0.5
LATE_S = 2.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """The highest reading (bytes, None: no reading) of a span of time, and the phase it began in."""

    value: int | None
    phase: Phase


class Trace:
    """Memory of one run for the chart: at most BUCKETS spans of equal length, which doubles when they are full.

    A column once drawn stays as it is until the length doubles, so a live chart costs one column a second.
    """

    def __init__(self, host: bool, width_s: float = FIRST_BUCKET_S) -> None:
        self.host = host
        self.width_s = width_s
        self.buckets: list[Bucket] = []
        self.peak: int | None = None
        self.peak_phase: Phase | None = None
        self.last: int | None = None
        self._start: float | None = None

    def value_of(self, sample: Sample) -> int | None:
        """What the chart shows: the whole device on a GPU, the engine's own memory where host memory stands in."""
        return sample.engine_bytes if self.host else sample.used_bytes

    def add(self, sample: Sample) -> None:
        """One more reading; samples come in order of time."""
        value = self.value_of(sample)
        if self._start is None:
            self._start = sample.t
        self.last = value
        if value is not None and (self.peak is None or value > self.peak):
            self.peak, self.peak_phase = value, sample.phase
        index = int((sample.t - self._start) / self.width_s)
        while index >= BUCKETS:
            pairs = zip(self.buckets[::2], [*self.buckets[1::2], None], strict=False)
            self.buckets = [_merge(a, b) for a, b in pairs]
            self.width_s *= 2
            index = int((sample.t - self._start) / self.width_s)
        if len(self.buckets) < index:
            # A sampler that was merely late left no gap; one that was silent for long did.
            late = (index - len(self.buckets)) * self.width_s < LATE_S
            filler = self.buckets[-1] if late else Bucket(None, sample.phase)
            self.buckets += [filler] * (index - len(self.buckets))
        here = Bucket(value, sample.phase)
        if len(self.buckets) == index:
            self.buckets.append(here)
        else:
            self.buckets[-1] = _merge(self.buckets[-1], here)

    def columns(self, count: int) -> list[Bucket]:
        """The trace as at most `count` columns, each of the same number of neighbouring spans."""
        together = -(-len(self.buckets) // max(count, 1))
        if together <= 1:
            return self.buckets
        return [
            reduce(_merge, self.buckets[at : at + together]) for at in range(0, len(self.buckets), together)
        ]


def _merge(a: Bucket, b: Bucket | None) -> Bucket:
    if b is None:
        return a
    known = [x.value for x in (a, b) if x.value is not None]
    return Bucket(max(known) if known else None, a.phase)


def trace_of(run: RunRecord | None, host: bool) -> Trace:
    """The chart of a run that is over, from its recorded series; empty without one."""
    return trace_of_series(run.memory.series if run and run.memory else (), host)


def trace_of_series(series: Sequence[Sample], host: bool) -> Trace:
    """The chart of a recorded series, whose readings are thinned: a span is never shorter than two of them."""
    span = series[-1].t - series[0].t if series else 0.0
    trace = Trace(host, max(FIRST_BUCKET_S, 2 * span / max(len(series), 1)))
    for sample in series:
        trace.add(sample)
    return trace


@dataclass(slots=True)
class Question:
    """A recommendation that waits for a decision. `seconds_left` counts down when unattended and not paused."""

    recommendation: Recommendation
    state: SessionState
    seconds_left: int | None = None


@dataclass(slots=True)
class Live:
    """Everything that the views read. Changed on the screen's own thread only."""

    state: SessionState | None = None
    folder: Path | None = None
    note: str = ""
    progress: Progress | None = None
    sample: Sample | None = None
    trace: Trace = field(default_factory=lambda: Trace(True))
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    log_total: int = 0
    log_run: int | None = None
    question: Question | None = None
    paused: bool = False
    unattended: bool = False
    working: bool = False
    failure: str = ""
    reports: tuple[Path, ...] = ()

    @property
    def host(self) -> bool:
        """True where host memory stands in for VRAM."""
        return self.state is not None and self.state.started.device.kind == "host"

    def take_events(self, events: Sequence[Event], state: SessionState) -> None:
        """Follow the session; a run that begins starts a new chart and a new log."""
        from kvtui.session.events import RunStarted

        first, self.state = self.state is None, state
        if first:
            self.trace = trace_of(self.run, self.host)
            if any(d.by == "unattended" for d in state.decided):
                # Resumed: it goes on as it was left.
                self.unattended = True
                self.paused = state.decided[-1].by == "operator"
        for event in events:
            if isinstance(event, RunStarted):
                self.trace = Trace(self.host)
                self.sample = None
                self.progress = None
                self.log.clear()
                self.log_total = 0
                self.log_run = event.run

    def take_samples(self, samples: Iterable[Sample]) -> None:
        """Memory readings, oldest first."""
        for sample in samples:
            self.trace.add(sample)
            self.sample = sample

    def take_log(self, lines: Sequence[str]) -> None:
        """New lines of the running engine's log."""
        self.log.extend(lines)
        self.log_total += len(lines)

    @property
    def run(self) -> RunRecord | None:
        """The run on the screen: the one in progress, else the latest."""
        if self.state is None or not self.state.runs:
            return None
        return self.state.current_run or self.state.runs[-1]

    def command(self) -> tuple[str, str]:
        """What `copy` copies and what it is: the proven command, the proposed one, else the current run's."""
        if self.state is None:
            return "", ""
        verdict = self.state.verdict
        if verdict is not None and verdict.command:
            return verdict.command, "final command"
        if self.question is not None and self.question.recommendation.command:
            return self.question.recommendation.command, "next command"
        run = self.run
        if run is None:
            return "", ""
        from kvtui.core.shell import command_line

        return command_line(run.argv, run.env), f"command of run {run.number}"
