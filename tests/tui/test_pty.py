"""The app in a real (pseudo) terminal: how it starts, what it writes, and that it always ends in time."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.pty
ROOT = Path(__file__).parents[2]
SLACK = 8.0  # a loaded test machine; the figure itself is measured and reported, not asserted


class Terminal:
    """A pseudo-terminal with the app in it, as the leader of its own session."""

    def __init__(self, folder: Path, *args: str, env: dict[str, str] | None = None) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        full = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        full |= {"LANG": "C.UTF-8", "KVTUI_DATA_DIR": str(folder), **(env or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tui.play", str(folder), *args],
            stdin=slave, stdout=slave, stderr=slave, env=full, cwd=ROOT, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.slave = slave
        self.output = b""

    def read(self, seconds: float) -> bytes:
        """What is written within `seconds`."""
        got = b""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.master], [], [], left)[0]:
                try:
                    got += os.read(self.master, 65536)
                except OSError:
                    break
        self.output += got
        return got

    def read_until_still(self) -> None:
        """Everything that is written until nothing is for half a second, for 20 s at most."""
        for _ in range(40):
            if not self.read(0.5):
                return

    def wait_for(self, text: bytes, seconds: float = 20.0) -> float:
        """Seconds until `text` was written; fails when it never is."""
        began = time.monotonic()
        while text not in self.output:
            if time.monotonic() - began > seconds:
                pytest.fail(f"{text!r} was never written")
            self.read(0.02)
        return time.monotonic() - began

    def wait_exit(self, seconds: float = SLACK) -> tuple[int, float]:
        """Exit status and the seconds it took; what is still written is read."""
        began = time.monotonic()
        while self.process.poll() is None:
            if time.monotonic() - began > seconds:
                pytest.fail("the app did not end")
            self.read(0.01)
        return self.process.returncode, time.monotonic() - began

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for fd in (self.master, self.slave):
            with suppress(OSError):
                os.close(fd)

    def is_restored(self) -> bool:
        """Alternate screen and mouse off, cursor on, line mode as before."""
        self.read(0.2)
        out = self.output
        off = all(
            out.rfind(on) < out.rfind(back)
            for on, back in (
                (b"\x1b[?1049h", b"\x1b[?1049l"),
                (b"\x1b[?1000h", b"\x1b[?1000l"),
                (b"\x1b[?25l", b"\x1b[?25h"),
            )
        )
        return off and termios.tcgetattr(self.slave)[3] == self.before[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.mark.parametrize(
    ("flags", "number", "status"),
    [
        ([], signal.SIGTERM, 143),
        ([], signal.SIGHUP, 129),
        ([], signal.SIGINT, 130),
        (["hang"], signal.SIGTERM, 143),
        (["hang"], signal.SIGINT, 130),
    ],
)
def test_a_signal_ends_it_in_order(
    folder: Path, terminals: list[Terminal], flags: list[str], number: int, status: int
) -> None:
    t = Terminal(folder, "0", *flags)
    terminals.append(t)
    t.wait_for(b"Working" if flags else b"accept")
    t.read(0.3)
    t.process.send_signal(number)
    assert t.wait_exit()[0] == status
    assert t.is_restored()


def test_a_closed_terminal_ends_it(folder: Path, terminals: list[Terminal]) -> None:
    t = Terminal(folder, "0", "hang")
    terminals.append(t)
    t.wait_for(b"Working")
    t.read(0.3)
    os.close(t.slave)
    os.close(t.master)
    assert t.process.wait(SLACK) == 129


def test_a_terminal_that_takes_no_output_does_not_keep_it(folder: Path, terminals: list[Terminal]) -> None:
    t = Terminal(folder, "0.02", "unattended")
    terminals.append(t)
    t.wait_for(b"Steps")
    time.sleep(6)  # nobody reads: the pipe fills, the writer blocks
    t.process.send_signal(signal.SIGTERM)
    assert t.process.wait(SLACK) == 143


def test_an_idle_screen_writes_nothing_and_quitting_restores_the_terminal(
    folder: Path, terminals: list[Terminal]
) -> None:
    t = Terminal(folder, "0")
    terminals.append(t)
    t.wait_for(b"accept")
    t.read_until_still()
    assert t.read(2.5) == b""
    os.write(t.master, b"q")
    assert t.wait_exit()[0] == 130
    assert t.is_restored()


def test_a_live_screen_stays_under_8_kb_a_second(folder: Path, terminals: list[Terminal]) -> None:
    t = Terminal(folder, "1")
    terminals.append(t)
    t.wait_for(b"accept")
    os.write(t.master, b"a")
    t.wait_for(b"eta")
    t.read(0.5)
    written = t.read(3.0)
    assert 0 < len(written) / 3 < 8000
    print(f"{len(written) / 3:.0f} B/s")


def test_no_color_sends_no_colour(folder: Path, terminals: list[Terminal]) -> None:
    t = Terminal(folder, "0", env={"NO_COLOR": "1"})
    terminals.append(t)
    t.wait_for(b"accept")
    for code in (b"38;2;", b"48;2;", b"38;5;", b"\x1b[31m", b"\x1b[32m", b";31m", b";32m"):
        assert code not in t.output


def test_without_utf8_only_ascii_is_written(folder: Path, terminals: list[Terminal]) -> None:
    t = Terminal(folder, "0", env={"LANG": "C", "LC_ALL": "C"})
    terminals.append(t)
    t.wait_for(b"accept")
    assert t.output.isascii()
