"""Screenshots of a recorded session, made by the app itself without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kvtui.core.errors import SessionError
from kvtui.core.text import clean
from kvtui.session import events as ev
from kvtui.session.state import SessionState, fold
from kvtui.session.store import EVENTS, read_events
from kvtui.tui.app import KvtuiApp
from kvtui.tui.files import log_file
from kvtui.tui.live import Live, Question, trace_of_series
from kvtui.tui.work import Job

SIZES = ((80, 24), (160, 48))


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: its name, what was known at that moment, the keys pressed first."""

    name: str
    live: Live
    keys: tuple[str, ...] = ()


def make(folder: Path, out: Path) -> list[Path]:
    """Pictures of the session in `folder` as SVG files in `out`, which is made if it is missing.

    A running step, a recommendation, the evidence of a value, the help, and the verdict if there is one, each in both
    sizes. Raises SessionError for a session that cannot be read or has no run, OSError where `out` cannot be written.
    """
    events, _, _ = read_events(folder / EVENTS)
    out.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_take_all(shots(folder, events), out))


def shots(folder: Path, events: Sequence[ev.Event]) -> list[Shot]:
    """What there is to show of a session. Raises SessionError when nothing was run in it."""
    running = _before_first(events, ev.RunFinished, lambda e: e.step == 3) or _before_first(
        events, ev.RunFinished
    )
    if running is None:
        raise SessionError(f"{folder.name}: no run in this session to show")
    live = _live(folder, fold(events[:running]))
    live.working = True
    finished = events[running]
    if isinstance(finished, ev.RunFinished) and finished.memory is not None:
        series = finished.memory.series
        series = series[: len(series) * 4 // 5]
        live.trace = trace_of_series(series, live.host)
        live.sample = series[-1] if series else None
    taken = [Shot("running", live), Shot("evidence", live, ("e",))]
    asked = _before_first(events, ev.Decided, lambda e: e.step == 4) or _before_first(events, ev.Decided)
    if asked is not None:
        state = fold(events[:asked])
        waiting = _live(folder, state)
        assert state.recommendation is not None
        waiting.question = Question(state.recommendation, state)
        taken += [Shot("next", waiting), Shot("help", waiting, ("question_mark",))]
    end = fold(events)
    if end.verdict is not None:
        done = _live(folder, end)
        done.reports = tuple(sorted(folder.glob("report.*")))
        taken.append(Shot("verdict", done, ("v",)))
    return taken


def _before_first(
    events: Sequence[ev.Event],
    kind: type[ev.Event],
    wanted: Callable[[ev.RunStarted | ev.Decided], bool] | None = None,
) -> int | None:
    """How many events come before the first `kind` whose run (or itself) is `wanted`; None when none is."""
    started: ev.RunStarted | None = None
    for n, event in enumerate(events):
        if isinstance(event, ev.RunStarted):
            started = event
        about = event if isinstance(event, ev.Decided) else started
        if isinstance(event, kind) and about is not None and (wanted is None or wanted(about)):
            return n
    return None


def _live(folder: Path, state: SessionState) -> Live:
    live = Live(folder=folder)
    live.take_events([], state)
    run = live.run
    if run is None:
        return live
    path = log_file(folder, run)
    if path is not None:
        live.log_run = run.number
        rows = path.read_text("utf-8", "replace").splitlines()
        # The last fifth of a log is how the engine ended; what is shown is before that.
        live.take_log([clean(row) for row in rows[: len(rows) if state.verdict else len(rows) * 4 // 5]])
    return live


class _Shown(KvtuiApp):
    """The app with something to show and nothing to do."""

    def begin(self, job: Job) -> None:
        """Nothing is begun."""


async def _take_all(wanted: list[Shot], out: Path) -> list[Path]:
    made: list[Path] = []
    for shot in wanted:
        for size in SIZES:
            app = _Shown(_no_job)
            app.live = shot.live
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                await pilot.press(*shot.keys)
                await pilot.pause(0.3)
                path = out / f"{shot.name}-{size[0]}x{size[1]}.svg"
                path.write_text(app.export_screenshot(title="kvtui"), encoding="utf-8")
                made.append(path)
    return made


def _no_job(note: Callable[[str], None]) -> NoReturn:
    raise AssertionError("nothing is begun here")
