"""The app in a terminal of 80x24 on the real engine, driven by the keys that a person would press."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pexpect
import psutil
import pyte
import pytest

from kvtui.session.store import list_folders, load

pytestmark = [pytest.mark.engine, pytest.mark.pty, pytest.mark.timeout(600)]

Engines = Callable[[], list[psutil.Process]]


class Terminal:
    """A terminal of 80x24 with kvtui in it."""

    def __init__(self, environment: dict[str, str], *argv: str) -> None:
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.child = pexpect.spawn(
            sys.executable, ["-m", "kvtui", *argv], env=environment, dimensions=(24, 80), timeout=60
        )
        self.raw = b""

    def text(self) -> str:
        """What is on the screen now."""
        self.feed(0.05)
        return "\n".join(self.screen.display)

    def feed(self, seconds: float) -> None:
        """Read what is written within `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                data = self.child.read_nonblocking(65536, timeout=max(0.01, end - time.monotonic()))
            except pexpect.TIMEOUT:
                return
            except pexpect.EOF:
                return
            self.raw += data
            self._stream.feed(data)

    def wait_for(self, *words: str, seconds: float = 120) -> str:
        """The screen as soon as it shows one of `words`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            shown = self.text()
            if any(word in shown for word in words):
                return shown
            if not self.child.isalive():
                break
        raise AssertionError(f"never shown: {words}\n{self.text()}")

    def press(self, *keys: str) -> None:
        """Press keys, slowly enough for a person."""
        for key in keys:
            self.child.send(key)
            self.feed(0.3)

    def status(self) -> int | None:
        """The exit status, once it has ended."""
        end = time.monotonic() + 30
        while self.child.isalive() and time.monotonic() < end:
            self.feed(0.1)
        self.child.close()
        return self.child.exitstatus


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """Opens terminals and closes them."""
    opened: list[Terminal] = []

    def start(*argv: str) -> Terminal:
        opened.append(Terminal(environment, *argv))
        return opened[-1]

    yield start
    for one in opened:
        one.child.close(force=True)


def start_engine(app: Terminal, engines_of: Engines) -> None:
    """Accept the first recommendation and wait until its engine lives."""
    app.wait_for("a accept")
    app.press("a")
    end = time.monotonic() + 60
    while not engines_of():
        assert time.monotonic() < end, "no engine was started"
        app.feed(0.05)


def restored(raw: bytes) -> bool:
    """The alternate screen was left again after it was entered."""
    return raw.rfind(b"\x1b[?1049l") > raw.rfind(b"\x1b[?1049h") >= 0


def test_a_session_from_the_first_recommendation_to_the_verdict(
    terminal: Callable[..., Terminal],
    tiny_swa_model: Path,
    tiny_preset: Path,
    data_dir: Path,
    engines_of: Engines,
) -> None:
    app = terminal("tune", "-m", str(tiny_swa_model), "--preset", str(tiny_preset))
    shown = app.wait_for("a accept")
    assert "Measure the floor" in shown
    app.press("?")
    app.wait_for("Keys here")
    app.press("\x1b")
    app.wait_for("a accept")
    for _ in range(12):
        app.press("a")
        app.wait_for("a accept", "report", "holds", seconds=120)
        (folder,) = list_folders(data_dir / "sessions")
        end = time.monotonic() + 120
        while load(folder).current_run is not None and time.monotonic() < end:
            app.feed(0.2)
        if load(folder).verdict is not None:
            break
        app.wait_for("a accept", "report", seconds=60)
        if load(folder).verdict is not None:
            break
    state = load(folder)
    assert state.verdict is not None
    assert state.verdict.outcome in ("done", "findings")
    assert {d.by for d in state.decided} == {"operator"}
    app.wait_for("2K")
    app.press("q")
    assert app.status() in (0, 1)
    assert restored(app.raw)
    assert engines_of() == []


def test_quitting_while_the_engine_runs_asks_first_and_leaves_nothing_behind(
    terminal: Callable[..., Terminal],
    tiny_model: Path,
    tiny_preset: Path,
    data_dir: Path,
    engines_of: Engines,
) -> None:
    app = terminal("tune", "-m", str(tiny_model), "--preset", str(tiny_preset))
    start_engine(app, engines_of)
    app.press("q")
    if app.child.isalive():
        app.press("y")
    assert app.status() is not None
    assert restored(app.raw)
    assert engines_of() == []
    (folder,) = list_folders(data_dir / "sessions")
    assert load(folder).verdict is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_the_terminal_and_end_the_engine(
    terminal: Callable[..., Terminal],
    tiny_model: Path,
    tiny_preset: Path,
    engines_of: Engines,
    number: signal.Signals,
) -> None:
    app = terminal("tune", "-m", str(tiny_model), "--preset", str(tiny_preset))
    start_engine(app, engines_of)
    app.child.kill(number)
    assert app.status() == 128 + number
    assert restored(app.raw)
    end = time.monotonic() + 10
    while engines_of() and time.monotonic() < end:
        time.sleep(0.05)
    assert engines_of() == []


def test_a_lost_connection_leaves_no_engine(
    terminal: Callable[..., Terminal], tiny_model: Path, tiny_preset: Path, engines_of: Engines
) -> None:
    app = terminal("tune", "-m", str(tiny_model), "--preset", str(tiny_preset))
    start_engine(app, engines_of)
    with suppress(pexpect.ExceptionPexpect):
        app.child.close(force=False)
    end = time.monotonic() + 15
    while engines_of() and time.monotonic() < end:
        time.sleep(0.05)
    assert engines_of() == []


def test_a_bad_model_leaves_the_terminal_sane_and_one_clear_line(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"no model at all" * 100)
    app = terminal("tune", "-m", str(path))
    assert app.status() == 2
    assert restored(app.raw)
    after = app.raw[app.raw.rfind(b"\x1b[?1049l") :]
    assert b"kvtui: " in after
    assert b"model.gguf" in after
    assert b"Traceback" not in app.raw
