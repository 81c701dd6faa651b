from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from kvtui.core.errors import InputError
from kvtui.gpu.samples import Sample
from kvtui.procedure.live import Decider, Observer, Progress
from kvtui.session.events import Decided
from kvtui.session.state import SessionState
from kvtui.tui.live import LOG_LINES
from kvtui.tui.mailbox import Batch, Mailbox
from kvtui.tui.work import Work
from tests.tui import story


def drained(mailbox: Mailbox, work: Work) -> Batch:
    assert work.join(10)
    return mailbox.take()


def test_the_screen_is_woken_once_between_two_looks() -> None:
    woken: list[int] = []
    mailbox = Mailbox(lambda: woken.append(1))
    mailbox.log(["a"])
    mailbox.log(["b"])
    mailbox.note("x")
    assert len(woken) == 1
    batch = mailbox.take()
    assert (batch.log, batch.note) == (["a", "b"], "x")
    mailbox.note("y")
    assert len(woken) == 2


def test_progress_and_samples_wait_for_the_next_look() -> None:
    woken: list[int] = []
    mailbox = Mailbox(lambda: woken.append(1))
    mailbox.progress(Progress(1, 1, "old"))
    mailbox.progress(Progress(1, 1, "new"))
    for n in range(10_000):
        mailbox.sample(Sample(n, "load", n, None, None, "rss"))
    assert not woken
    batch = mailbox.take()
    assert batch.progress is not None
    assert batch.progress.what == "new"
    assert batch.samples[-1].t == 9999
    assert len(batch.samples) < 5000


def test_a_flood_of_log_lines_is_bounded_and_still_counted() -> None:
    mailbox = Mailbox(lambda: None)
    for n in range(30):
        mailbox.log([f"{n}"] * 1000)
    batch = mailbox.take()
    assert len(batch.log) == LOG_LINES
    assert len(batch.log) + batch.log_dropped == 30_000
    assert batch.log[-1] == "29"


class Tuning:
    """The smallest thing that can be worked on."""

    def __init__(self, root: Path, body: Callable[[Observer, Decider, Flag], object]) -> None:
        self.store = story.SessionStore.create(story.started(), root)
        self._body = body

    def run(self, observer: Observer, decider: Decider, cancel: Flag) -> SessionState:
        with self.store:
            self._body(observer, decider, cancel)
            return self.store.state


def work_on(root: Path, body: Callable[[Observer, Decider, Flag], object]) -> tuple[Mailbox, Work]:
    mailbox = Mailbox(lambda: None)
    work: Work = Work(lambda note: Tuning(root, body), mailbox)  # type: ignore[arg-type,return-value]
    work.start()
    return mailbox, work


def test_a_crash_of_the_thread_is_one_clear_line_and_a_file(tmp_path: Path) -> None:
    def body(observer: Observer, decider: Decider, cancel: Flag) -> None:
        raise ZeroDivisionError("1/0 \x1b[2J")

    hook = threading.excepthook
    batch = drained(*work_on(tmp_path, body))
    assert batch.failure.startswith("kvtui has a defect: ZeroDivisionError: 1/0 ; details in ")
    assert batch.ended
    crash = Path(batch.failure.split("details in ")[1])
    assert "Traceback" in crash.read_text()
    assert threading.excepthook is hook


def test_a_known_error_is_its_own_line() -> None:
    def begin(note: Callable[[str], None]) -> Any:
        raise InputError("model.gguf: no such file", hint="check the path")

    mailbox = Mailbox(lambda: None)
    work = Work(begin, mailbox)
    work.start()
    batch = drained(mailbox, work)
    assert batch.failure == "model.gguf: no such file: check the path"
    assert batch.ended


def test_a_question_waits_for_its_answer_and_cancelling_withdraws_it(tmp_path: Path) -> None:
    answers: list[Decided] = []

    def body(observer: Observer, decider: Decider, cancel: Flag) -> None:
        state = story.fold_of(story.ev.Recommended)
        answers.append(decider.decide(story.advice("x"), state))
        answers.append(decider.decide(story.advice("y"), state))

    mailbox, work = work_on(tmp_path, body)
    work.answer(Decided("", 1, "skip", "operator", reason="no"))
    work.cancel()
    batch = drained(mailbox, work)
    assert [a.choice for a in answers] in (["skip"], [])
    assert not batch.failure
    assert batch.ended


@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_work_ends_without_an_error(tmp_path: Path, late: bool) -> None:
    begun = Flag()

    def body(observer: Observer, decider: Decider, cancel: Flag) -> None:
        begun.set()
        decider.decide(story.advice("x"), story.fold_of(story.ev.Recommended))

    mailbox, work = work_on(tmp_path, body)
    if late:
        begun.wait(5)
    work.cancel()
    assert not drained(mailbox, work).failure


def test_who_quits_early_finds_a_report_of_what_was_measured(tmp_path: Path) -> None:
    def body(observer: Observer, decider: Decider, cancel: Flag) -> None:
        decider.decide(story.advice("x"), story.fold_of(story.ev.Recommended))

    mailbox, work = work_on(tmp_path, body)
    work.cancel()
    batch = drained(mailbox, work)
    assert not batch.failure
    (folder,) = tmp_path.iterdir()
    assert "No verdict: the session is unfinished." in (folder / "report.md").read_text(encoding="utf-8")
    assert (folder / "report.json").is_file()
