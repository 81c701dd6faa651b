"""The first screen: go on, tune, demo, sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtui.core.units import KIB
from kvtui.session.store import SessionStore, sessions_dir
from kvtui.tui.app import KvtuiApp
from kvtui.tui.browse import check
from kvtui.tui.screens.details import TextScreen
from kvtui.tui.screens.form import TuneScreen
from kvtui.tui.screens.opening import OpeningScreen
from kvtui.tui.screens.start import SessionsScreen, StartScreen
from tests.sources.conftest import Store
from tests.tiny_model import write_tiny_model
from tests.tui import story
from tests.tui.conftest import screen_text, until


def record(events: list[story.ev.Event], name: str) -> Path:
    first = events[0]
    assert isinstance(first, story.ev.SessionStarted)
    with SessionStore.create(story.replace(first, session=name), sessions_dir()) as store:
        for event in events[1:]:
            store.append(event)
        return store.folder


async def test_without_sessions_there_is_nothing_to_go_on_with() -> None:
    app = KvtuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "none yet" in screen_text(app))
        assert "Go on" not in screen_text(app)
        assert "Tune a model" in screen_text(app)
        await pilot.press("q")
    assert app.return_value == 0


async def test_the_last_unfinished_session_is_offered_first() -> None:
    record(story.story(), "20261128-101010-aaaa")
    record(story.up_to(story.ev.SpeedMeasured, 3), "20261129-101010-bbbb")
    app = KvtuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Go on" in screen_text(app))
        assert "2/5 steps, 2 runs" in screen_text(app)
        assert "2 recorded" in screen_text(app)


async def test_a_session_that_cannot_be_resumed_says_why_and_leads_back() -> None:
    record(story.up_to(story.ev.SpeedMeasured, 3), "20261129-101010-bbbb")
    app = KvtuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Go on" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "Cannot begin" in screen_text(app))
        assert "gemma-3-270m-Q4_K_M.gguf" in screen_text(app)
        assert isinstance(app.screen, OpeningScreen)
        await pilot.press("escape")
        assert isinstance(app.screen, StartScreen)


async def test_a_recorded_session_opens_as_its_report() -> None:
    record(story.story(), "20261128-101010-aaaa")
    app = KvtuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "1 recorded" in screen_text(app))
        await pilot.press("end", "up", "enter")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await until(pilot, lambda: "Enter open" in screen_text(app))
        assert "Enter open" in screen_text(app).split("\n")[23], (
            "the keys are in the last line, as everywhere"
        )
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen) and "4K context" in screen_text(app))
        await pilot.press("y")
        assert app.clipboard.startswith("llama-server")
        await pilot.press("escape", "escape")
        assert isinstance(app.screen, StartScreen)


async def test_a_model_is_found_by_typing_and_its_purpose_chosen(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "tiny [Q4].gguf", "llama")
    app = KvtuiApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Tune a model" in screen_text(app))
        await pilot.press("down" if "Go on" in screen_text(app) else "home", "enter")
        await until(pilot, lambda: isinstance(app.screen, TuneScreen))
        app.screen.query_one("#model").value = f"{tmp_path}/ti"  # type: ignore[attr-defined]
        await until(pilot, lambda: "tiny [Q4].gguf" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "Enter goes on" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "What is it for?" in screen_text(app))
        assert "Interactive coding agent" in screen_text(app)
        await pilot.press("escape", "escape")
        assert isinstance(app.screen, StartScreen)


def test_a_path_leads_to_a_model_to_a_list_or_to_a_reason(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 20)
    write_tiny_model(tmp_path / "tiny.gguf", "llama")
    listed = check(f"{tmp_path}/")
    assert [e.name for e in listed.entries] == ["broken.gguf", "tiny.gguf", "models/"]
    assert [e.name for e in check(f"{tmp_path}/MO").entries] == ["models/"]
    assert "llama" in check(str(tmp_path / "tiny.gguf")).model
    assert "no .gguf file and no folder in it" in check(f"{tmp_path}/models").note
    assert check(str(broken)).problem
    assert not check(str(broken)).model
    assert "no such file" in check(f"{tmp_path}/nothing").problem
    assert check("\0").problem
    assert check("~\0").problem
    assert check(f"{tmp_path}/missing/x").problem
    assert "no such file" in check("~nobody-of-that-name/x").problem


def test_a_name_leads_into_the_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = Store(tmp_path / "store")
    monkeypatch.setenv("OLLAMA_MODELS", str(store.root))
    write_tiny_model(tmp_path / "tiny.gguf", "llama")
    store.tag("hf.co/x/y/Q4", store.layer("model", (tmp_path / "tiny.gguf").read_bytes()))
    found = check("hf.co/x/y:Q4")
    assert "llama" in found.model
    assert "Ollama's hf.co/x/y:Q4" in found.model
    assert "ollama pull absent:latest" in check("absent").problem


@pytest.mark.parametrize("typed", ["", "~", "."])
def test_what_is_typed_first_is_a_list(typed: str) -> None:
    assert not check(typed).problem


def test_screenshots_are_made_of_a_recorded_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvtui.core.errors import SessionError
    from kvtui.tui import shots
    from kvtui.tui.shots import make

    assert shots.SIZES == ((80, 24), (160, 48))
    monkeypatch.setattr(shots, "SIZES", ((80, 24),))

    folder = record(story.story(), "20261128-101010-aaaa")
    made = make(folder, tmp_path / "out")
    names = {p.name for p in made}
    assert {"running-80x24.svg", "next-80x24.svg", "verdict-80x24.svg", "help-80x24.svg"} <= names
    assert all(p.stat().st_size > 8 * KIB for p in made)
    text = (tmp_path / "out" / "verdict-80x24.svg").read_text().replace("&#160;", " ")
    assert "4K context at q8_0/q8_0 holds" in text
    with pytest.raises(SessionError, match="no run"):
        make(record(story.up_to(story.ev.StepStarted), "20261127-101010-cccc"), tmp_path / "none")
