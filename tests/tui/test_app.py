"""The app as a person uses it, on a recorded story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvtui.session import events as ev
from kvtui.session.store import SessionStore, load
from kvtui.tui.app import FAILED, INTERRUPTED, KvtuiApp
from kvtui.tui.screens.details import (
    BudgetScreen,
    HelpScreen,
    LogScreen,
    NextScreen,
    RunsScreen,
    StepsScreen,
    VerdictScreen,
)
from kvtui.tui.screens.dialogs import ChangeDialog, ConfirmDialog, ReasonDialog
from kvtui.tui.screens.evidence import EvidenceScreen
from kvtui.tui.screens.procedure import ProcedureScreen
from tests.tui import story
from tests.tui.conftest import screen_text, until


def app_on(root: Path, pace: float = 0.0, *, unattended: bool = False, **kw: Any) -> KvtuiApp:
    return KvtuiApp(story.job(root, pace, **kw), unattended=unattended)  # type: ignore[arg-type]


def asked(app: KvtuiApp) -> Callable[[], bool]:
    return lambda: app.live.question is not None and isinstance(app.screen, ProcedureScreen)


async def test_accepting_everything_leads_to_the_verdict_and_the_report(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        for n in range(5):
            await until(pilot, asked(app))
            assert len(app.live.state.recommended) == n + 1  # type: ignore[union-attr]
            await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, VerdictScreen) and app.live.reports)
        await pilot.pause()
        text = screen_text(app)
        assert "✓ done: 4K context at q8_0/q8_0 holds" in text
        assert "report.md" in text.replace("\n", "")
        await pilot.press("escape")
        assert isinstance(app.screen, ProcedureScreen)
        await pilot.press("q")
    assert app.return_value == 0
    decided = load(app.live.folder).decided  # type: ignore[arg-type]
    assert {d.by for d in decided} == {"operator"}


async def test_an_unattended_session_accepts_by_itself_and_space_stops_that(tmp_path: Path) -> None:
    app = app_on(tmp_path, unattended=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await until(pilot, lambda: "accepted in" in screen_text(app))
        await until(pilot, lambda: len(app.live.state.runs) == 1)  # type: ignore[union-attr]
        await until(pilot, asked(app))
        await pilot.press("space")
        await until(pilot, lambda: "paused" in screen_text(app))
        await until(pilot, lambda: "Space go on" in screen_text(app))
        await pilot.pause(3.2)
        assert len(app.live.state.runs) == 1  # type: ignore[union-attr]
        await pilot.press("a")
        await until(pilot, lambda: len(app.live.state.runs) == 2)  # type: ignore[union-attr]
    decided = app.live.state.decided  # type: ignore[union-attr]
    assert [d.by for d in decided] == ["unattended", "operator"]


async def test_everything_of_the_sketch_is_on_80_by_24(tmp_path: Path) -> None:
    app = app_on(tmp_path, 0.05)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("a")
        await until(pilot, lambda: app.live.run is not None and app.live.run.load_s is not None)
        await until(pilot, lambda: "proven" in screen_text(app) and "peak" in screen_text(app))
        text = screen_text(app)
        for wanted in (
            "step 1 of 5",
            "Steps",
            "asked",
            "actual",
            "✓ proven",
            "Host memory",
            "weights 235",
            "why",
            "risk",
            "q quit",
        ):
            assert wanted in text, wanted
        assert "▶ Running: weights floor" in text
        assert len(text.splitlines()) == 24


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((200, 60), ("Runs", "Log of run", "Steps", "Next")),
        ((40, 24), ("asked", "Next", "q quit")),
        ((60, 15), ("asked", "Next", "q quit")),
        ((36, 10), ("asked", "Next", "q quit")),
        ((30, 8), ("too small: 30x8, needs 36x10",)),
    ],
)
async def test_other_sizes_show_what_fits(
    tmp_path: Path, size: tuple[int, int], wanted: tuple[str, ...]
) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=size) as pilot:
        await until(pilot, asked(app))
        await pilot.press("a")
        await until(pilot, lambda: app.live.question is not None and len(app.live.state.runs) == 1)  # type: ignore[union-attr]
        await pilot.pause()
        text = screen_text(app)
        for word in wanted:
            assert word in text, f"{word}\n{text}"


async def test_any_size_to_any_other_is_survived(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        for width, height in ((200, 60), (1, 1), (40, 24), (79, 11), (300, 12), (36, 90), (80, 24)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
        assert "Weights floor" in screen_text(app)


@pytest.mark.parametrize(
    ("key", "screen", "wanted"),
    [
        ("l", LogScreen, "▶ 0.00.133.371 I llama_kv_cache"),
        ("b", BudgetScreen, "Where the memory is"),
        ("r", RunsScreen, "weights floor"),
        ("n", NextScreen, "Exact command"),
        ("t", StepsScreen, "gate"),
        ("question_mark", HelpScreen, "Keys everywhere"),
        ("f1", HelpScreen, "Do what is recommended."),
        ("e", EvidenceScreen, "Line 15 of run-01.log"),
    ],
)
async def test_each_key_opens_its_screen_and_escape_leads_back(
    tmp_path: Path, key: str, screen: type, wanted: str
) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(100, 40)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("a")
        await until(pilot, lambda: app.live.question is not None and len(app.live.state.runs) == 1)  # type: ignore[union-attr]
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, screen))
        await until(pilot, lambda: wanted in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ProcedureScreen))


async def test_long_lines_of_the_log_are_read_with_the_arrows(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("a")
        await until(pilot, lambda: app.live.question is not None and len(app.live.state.runs) == 1)  # type: ignore[union-attr]
        await pilot.press("l")
        await until(pilot, lambda: "llama_kv_cache" in screen_text(app))
        assert "back" not in screen_text(app).split("\n")[23].replace("Esc back", "")
        await pilot.press("right")
        await until(pilot, lambda: "← back" in screen_text(app))
        assert "V (f16)" in screen_text(app)
        await pilot.press("left")
        await until(pilot, lambda: "← back" not in screen_text(app))


async def test_evidence_follows_the_selected_row(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(100, 40)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("a")
        await until(pilot, lambda: app.live.question is not None and len(app.live.state.runs) == 1)  # type: ignore[union-attr]
        await pilot.press("down", "down", "down", "e")
        await until(pilot, lambda: "Line 7 of run-01.log" in screen_text(app))
        await pilot.press("escape", "up", "up", "up", "e")
        await until(pilot, lambda: "Peaks of run 1" in screen_text(app))
        await pilot.press("escape", "up", "e")
        await until(pilot, lambda: "medians over the repeats" in screen_text(app))


async def test_another_value_can_be_picked_or_typed_and_is_checked(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("a")
        await until(pilot, lambda: app.live.question is not None and len(app.live.state.runs) == 1)  # type: ignore[union-attr]
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, ChangeDialog))
        await until(pilot, lambda: "tokens of KV cache to allocate" in screen_text(app))
        assert screen_text(app).rstrip().endswith("Enter choose  Esc back  ? help  q quit")
        await pilot.press("end", "enter")
        await until(pilot, lambda: "engine option  now none" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "Change one variable" in screen_text(app))
        await pilot.press("home", "enter")
        await until(pilot, lambda: "context  now 512" in screen_text(app))
        await pilot.press("end", "enter", *"banana", "enter")
        await until(pilot, lambda: "is not a number from" in screen_text(app))
        assert screen_text(app).rstrip().endswith("F1 help  Ctrl+Q quit"), "? and q would be typed"
        await pilot.press(*["backspace"] * 6, *"4K", "enter")
        await until(pilot, lambda: isinstance(app.screen, ReasonDialog))
        await pilot.press(*"more", "enter")
        await until(pilot, lambda: len(app.live.state.decided) == 2)  # type: ignore[union-attr]
    last = app.live.state.decided[-1]  # type: ignore[union-attr]
    assert (last.choice, last.variable, last.value, last.by) == ("change", "context", "4K", "operator")
    assert last.reason == "more"


async def test_the_last_run_can_be_run_again_and_only_when_there_is_one(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        assert {"again", "insist"} <= app.screen.unavailable()  # type: ignore[attr-defined]
        await pilot.press("a")
        await until(pilot, lambda: app.live.question is not None and len(app.live.state.runs) == 1)  # type: ignore[union-attr]
        await pilot.press("g")
        await until(pilot, lambda: isinstance(app.screen, ReasonDialog))
        await pilot.press(*"noise", "enter")
        await until(pilot, lambda: len(app.live.state.decided) == 2)  # type: ignore[union-attr]
    last = app.live.state.decided[-1]  # type: ignore[union-attr]
    assert (last.choice, last.reason) == ("retry", "noise")


async def test_what_is_advised_against_can_be_insisted_on(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        question = app.live.question
        assert question is not None
        question.recommendation = replace(
            question.recommendation, kind="skip", title="Leave out 64K of context"
        )
        assert "insist" not in app.screen.unavailable()  # type: ignore[attr-defined]
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, ReasonDialog))
        await pilot.press(*"sure", "enter")
        await until(pilot, lambda: app.live.state.decided)  # type: ignore[union-attr]
    last = app.live.state.decided[-1]  # type: ignore[union-attr]
    assert (last.choice, last.reason, last.by) == ("insist", "sure", "operator")


async def test_skipping_asks_for_a_reason_that_is_kept(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, ReasonDialog))
        await pilot.press(*"too q", "enter")
        await until(pilot, lambda: app.live.state.decided)  # type: ignore[union-attr]
    assert (app.live.state.decided[0].choice, app.live.state.decided[0].reason) == ("skip", "too q")  # type: ignore[union-attr]


async def test_stopping_here_wants_a_yes(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, ProcedureScreen))
        assert app.live.question is not None
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("y")
        await until(pilot, lambda: app.live.state.decided)  # type: ignore[union-attr]
    assert app.live.state.decided[0].choice == "stop"  # type: ignore[union-attr]


async def test_leaving_asks_only_while_an_engine_runs(tmp_path: Path) -> None:
    app = app_on(tmp_path, 0.05)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("a")
        await until(pilot, lambda: app.live.state.current_run is not None)  # type: ignore[union-attr]
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ProcedureScreen))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("ctrl+c")
    assert app.return_value == INTERRUPTED
    assert app.work is not None
    assert app.work.join(5)


async def test_leaving_between_runs_needs_no_question(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("q")
    assert app.return_value == INTERRUPTED


async def test_copying_says_where_the_command_also_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = app_on(Path("root"))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app.live.question is not None and " a accept" in screen_text(app))
        before = screen_text(app).split("\n")
        await pilot.press("y")
        await until(pilot, lambda: "copied" in screen_text(app))
        assert app.clipboard.startswith("llama-server -m ")
        after = screen_text(app).split("\n")
        rows = [n for n, row in enumerate(after) if row != before[n]]
        message = " ".join(after[n].strip() for n in rows)
        assert message == f"next command copied, also kept in {app.live.folder}/command.sh"
        assert rows in ([23], [22, 23]), "the footer is covered, what stands above it can be read"
    assert (app.live.folder / "command.sh").read_text().strip() == app.clipboard  # type: ignore[operator]


async def test_a_crash_of_the_work_is_one_line_on_a_living_screen(tmp_path: Path) -> None:
    class Broken(story.StoryTuning):
        def run(self, observer: Any, decider: Any, cancel: Any) -> Any:
            with self.store:
                raise RuntimeError("[/] it broke")

    app = KvtuiApp(lambda note: Broken(tmp_path))  # type: ignore[arg-type,return-value]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Stopped by an error" in screen_text(app))
        assert "RuntimeError: [/] it broke" in screen_text(app)
        await pilot.press("q")
    assert app.return_value == FAILED


async def test_a_job_that_cannot_begin_ends_the_app_with_its_error(tmp_path: Path) -> None:
    from kvtui.core.errors import InputError

    def begin(note: Any) -> Any:
        raise InputError("nothing.gguf: no such file")

    app = KvtuiApp(begin)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.return_value is not None)
    assert app.startup_error is not None
    assert app.startup_error.line() == "nothing.gguf: no such file"


HOSTILE = [
    "[/]",
    "m [Q4_K_M].gguf",
    "[@click=app.quit]x[/]",
    "\x1b]52;c;aGk=\x07",
    "\x1b[2J",
    "日本語",
    "🦙",
    "x" * 5000,
]


async def test_hostile_names_are_drawn_and_obeyed_nowhere(tmp_path: Path) -> None:
    started = story.started()
    model = replace(started.model, name=" ".join(HOSTILE), file_name=HOSTILE[1])

    class Hostile(story.StoryTuning):
        def __init__(self) -> None:
            self.store = SessionStore.create(replace(started, model=model), tmp_path)
            self._pace = 0.0
            self._events = [ev.StepStarted(story.AT, 1)]
            for n, name in enumerate(HOSTILE, 1):
                advice = story.advice(
                    name, why=name, risk=name, before=name, after=name, effect=name, command=name
                )
                self._events += [
                    ev.Recommended(story.AT, 1, None, advice),
                    ev.Decided(story.AT, 1, "accept", "operator"),
                ]
                self._events += story.run_events(n, 1, name, replace(story.BASE, type_k=name))

    app = KvtuiApp(lambda note: Hostile())  # type: ignore[arg-type,return-value]
    async with app.run_test(size=(150, 40), notifications=True) as pilot:
        for n in range(len(HOSTILE)):
            await until(pilot, asked(app))
            screens = (("n",), ("escape", "r"), ("escape", "y"), ("c",), ("escape", "ctrl+p"))
            for keys in screens if n == len(HOSTILE) - 1 else screens[:1]:
                await pilot.press(*keys)
                assert all(c.isprintable() or c == "\n" for c in screen_text(app))
            await pilot.press("escape", "a")
            await until(pilot, lambda n=n: len(app.live.state.runs) > n and app.live.run.outcome)
        assert app.return_value is None


async def test_the_palette_offers_what_works_now(tmp_path: Path) -> None:
    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.press("ctrl+p", *"accept")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await until(pilot, lambda: app.live.state.runs)  # type: ignore[union-attr]


async def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    from kvtui.tui.widgets import Lines

    app = app_on(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, asked(app))
        await pilot.pause()
        before = [w._dirty_regions.copy() for w in app.screen.query(Lines)]
        app.screen.draw()  # type: ignore[attr-defined]
        assert [w._dirty_regions for w in app.screen.query(Lines)] == before
