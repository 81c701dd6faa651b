"""The thread that runs the procedure, and the two ways in which it talks to the screen."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvtui.core.errors import Cancelled, KvtuiError
from kvtui.core.text import clean
from kvtui.tui.mailbox import Mailbox

if TYPE_CHECKING:
    from kvtui.procedure.tune import Tuning
    from kvtui.session.events import Decided
    from kvtui.session.records import Recommendation
    from kvtui.session.state import SessionState

Job = Callable[[Callable[[str], None]], "Tuning"]


class Work:
    """One job in one daemon thread. The engine that it starts dies with it.

    The screen answers questions with `answer` and ends the work with `cancel`; neither waits.
    """

    def __init__(self, job: Job, mailbox: Mailbox) -> None:
        self.error: KvtuiError | None = None
        self._job = job
        self._mailbox = mailbox
        self._cancel = threading.Event()
        self._answers: queue.SimpleQueue[Decided | None] = queue.SimpleQueue()
        self._folder: Path | None = None
        self._hook = threading.excepthook
        self._thread = threading.Thread(target=self._run, name="kvtui-work", daemon=True)

    def start(self) -> None:
        """Begin; from here on a crash of the thread is reported to the screen."""
        threading.excepthook = self._crashed
        self._thread.start()

    @property
    def running(self) -> bool:
        """True until the thread has ended."""
        return self._thread.is_alive()

    def cancel(self) -> None:
        """Ask it to end; a question that waits is withdrawn."""
        self._cancel.set()
        self._answers.put(None)

    def answer(self, decided: Decided) -> None:
        """The decision that `decide` waits for."""
        self._answers.put(decided)

    def join(self, seconds: float) -> bool:
        """Wait at most `seconds` for the thread; True when it has ended."""
        self._thread.join(seconds)
        if not self._thread.is_alive():
            threading.excepthook = self._hook
        return not self._thread.is_alive()

    def decide(self, recommendation: Recommendation, state: SessionState) -> Decided:
        """Decider: show the question and wait for the answer. Raises Cancelled."""
        self._mailbox.question(recommendation, state)
        decided = self._answers.get()
        if decided is None or self._cancel.is_set():
            raise Cancelled
        return decided

    def _run(self) -> None:
        try:
            self._work()
        except Cancelled:
            pass
        except KvtuiError as error:
            self.error = error
            self._mailbox.failure(error.line())
        finally:
            self._mailbox.ended()

    def _work(self) -> None:
        tuning = self._job(self._mailbox.note)
        # Whoever quits is not kept waiting for what can be loaded now.
        from kvtui.report import document, markdown, privacy, write  # noqa: F401

        with tuning.store as store:
            self._folder = store.folder
            self._mailbox.folder(store.folder)
            self._mailbox.state(store.state)
            try:
                tuning.run(self._mailbox, self, self._cancel)
            except Cancelled:
                with suppress(KvtuiError):
                    write(store.folder)
                raise
        self._mailbox.reports(write(store.folder))

    def _crashed(self, args: threading.ExceptHookArgs) -> None:
        if args.thread is not self._thread:
            self._hook(args)
            return
        text = "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
        where = self._keep(text)
        self._mailbox.failure(
            clean(f"kvtui has a defect: {args.exc_type.__name__}: {args.exc_value}{where}", 400)
        )

    def _keep(self, text: str) -> str:
        if self._folder is None:
            return ""
        path = self._folder / "crash.txt"
        try:
            path.write_text(text, encoding="utf-8")
        except OSError:
            return ""
        return f"; details in {path}"
