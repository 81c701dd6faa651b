"""Where the working threads leave what happened. They never wait here, and the screen is woken once a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvtui.tui.live import LOG_LINES

if TYPE_CHECKING:
    from kvtui.gpu.samples import Sample
    from kvtui.procedure.live import Progress
    from kvtui.session.events import Event
    from kvtui.session.records import Recommendation
    from kvtui.session.state import SessionState

MAX_SAMPLES = 4096


@dataclass(slots=True)
class Batch:
    """What came in since the last look; `ended` is True when the work is over, well or not."""

    note: str | None = None
    folder: Path | None = None
    events: list[Event] = field(default_factory=list)
    state: SessionState | None = None
    progress: Progress | None = None
    samples: list[Sample] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    log_dropped: int = 0
    question: tuple[Recommendation, SessionState] | None = None
    failure: str = ""
    reports: tuple[Path, ...] = ()
    ended: bool = False


class Mailbox:
    """Thread-safe. `wake` is called from the working threads, at most once between two looks.

    Progress and samples do not wake: the screen looks once a second anyway.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._batch = Batch()
        self._woken = False

    def take(self) -> Batch:
        """Everything since the last call."""
        with self._lock:
            batch, self._batch = self._batch, Batch()
            self._woken = False
        return batch

    def _put(self, change: Callable[[Batch], None], *, wake: bool = True) -> None:
        with self._lock:
            change(self._batch)
            due = wake and not self._woken
            self._woken = self._woken or due
        if due:
            self._wake()

    def note(self, text: str) -> None:
        """What the preparation does now."""
        self._put(lambda b: setattr(b, "note", text))

    def folder(self, path: Path) -> None:
        """The session's folder is known."""
        self._put(lambda b: setattr(b, "folder", path))

    def failure(self, text: str) -> None:
        """The work ended with an error."""
        self._put(lambda b: setattr(b, "failure", text))

    def reports(self, paths: tuple[Path, ...]) -> None:
        """The report's files are written."""
        self._put(lambda b: setattr(b, "reports", paths))

    def ended(self) -> None:
        """The working thread ends."""
        self._put(lambda b: setattr(b, "ended", True))

    def question(self, recommendation: Recommendation, state: SessionState) -> None:
        """A decision is wanted."""
        self._put(lambda b: setattr(b, "question", (recommendation, state)))

    def event(self, event: Event, state: SessionState) -> None:
        """See Observer."""

        def change(batch: Batch) -> None:
            batch.events.append(event)
            batch.state = state

        self._put(change)

    def state(self, state: SessionState) -> None:
        """The session as it is, without an event: at the start and after a resume."""
        self._put(lambda b: setattr(b, "state", state))

    def progress(self, progress: Progress) -> None:
        """See Observer."""
        self._put(lambda b: setattr(b, "progress", progress), wake=False)

    def sample(self, sample: Sample) -> None:
        """See Observer."""

        def change(batch: Batch) -> None:
            if len(batch.samples) < MAX_SAMPLES:
                batch.samples.append(sample)
            else:
                batch.samples[-1] = sample

        self._put(change, wake=False)

    def log(self, lines: list[str]) -> None:
        """See Observer."""

        def change(batch: Batch) -> None:
            batch.log.extend(lines)
            over = len(batch.log) - LOG_LINES
            if over > 0:
                del batch.log[:over]
                batch.log_dropped += over

        self._put(change)
