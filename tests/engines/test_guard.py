"""The guard: the engine and all that it starts end with whoever launched it, and the guard ends as the engine did."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvtui.engines import guard

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the guard's work is Linux's")

GUARD = (sys.executable, "-I", "-S", guard.__file__)
SLEEPER = (sys.executable, "-c", "import os,time; print(os.getpid(), flush=True); time.sleep(600)")
WRAPPER = ("/bin/sh", "-c", "sleep 600 & echo $!; wait; true")
ESCAPER = ("/bin/sh", "-c", "setsid sh -c 'sleep 600 & echo $!; wait' & sleep 600")


@contextmanager
def guarded(
    *argv: str, then: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket, int]]:
    """A guard with its program: the process, our end of the lifeline, the first number that the program prints."""
    ours, theirs = socket.socketpair()
    more = ("--then", json.dumps(then)) if then else ()
    command = (*GUARD, str(theirs.fileno()), *more, "--", *argv)
    with (
        ours,
        theirs,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, pass_fds=(theirs.fileno(),), start_new_session=True
        ) as process,
    ):
        theirs.close()
        assert process.stdout is not None
        try:
            yield process, ours, int(process.stdout.readline())
        finally:
            ours.close()


def run(*argv: str, text: bool = True) -> subprocess.CompletedProcess[str]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        return subprocess.run(
            (*GUARD, str(theirs.fileno()), "--", *argv),
            capture_output=True,
            text=text,
            pass_fds=(theirs.fileno(),),
            timeout=30,
        )


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_the_guard_tells_the_engines_pid() -> None:
    with guarded(*SLEEPER) as (process, lifeline, engine):
        assert int(lifeline.recv(32)) == engine != process.pid
        assert os.getpgid(engine) == engine


def test_arguments_arrive_unchanged() -> None:
    words = ["a b", "", "--", "*", "é"]
    answer = run(sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
    assert answer.stdout.strip() == repr(words)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_the_guard_ends_as_the_engine_did(code: str, status: int) -> None:
    assert run(sys.executable, "-c", code).returncode == status


def test_a_program_that_cannot_be_run_is_named() -> None:
    answer = run("/nowhere/llama-server")
    assert answer.returncode == guard.CANNOT_RUN
    assert answer.stderr == "cannot run /nowhere/llama-server: No such file or directory\n"


@pytest.mark.parametrize("arguments", [[], ["1"], ["1", "--"], ["x", "--", "true"], ["1", "true", "x"]])
def test_wrong_usage_runs_nothing(arguments: list[str]) -> None:
    answer = subprocess.run((*GUARD, *arguments), capture_output=True, text=True, timeout=30)
    assert answer.returncode == 1
    assert "usage" in answer.stderr


def test_signals_that_python_ignores_are_the_engines_to_handle() -> None:
    shown = run(sys.executable, "-S", "-c", "print(open('/proc/self/status').read())").stdout
    plain = run("/bin/cat", "/proc/self/status").stdout
    assert "SigIgn" in shown
    ignored = int(next(line for line in plain.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


LAUNCHER = """
import os, socket, subprocess, sys, time
ours, theirs = socket.socketpair()
process = subprocess.Popen([*{guard!r}, str(theirs.fileno()), "--", *{program!r}], start_new_session=True,
                           pass_fds=(theirs.fileno(),))
theirs.close()
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("program", [SLEEPER, WRAPPER, ESCAPER], ids=["engine", "wrapper", "escaper"])
def test_the_engine_ends_with_whoever_launched_it(number: signal.Signals, program: tuple[str, ...]) -> None:
    code = LAUNCHER.format(guard=GUARD, program=program)
    with subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        engine = int(launcher.stdout.readline())
        assert is_running(engine)
        launcher.send_signal(number)
        assert ends_within(engine, 5)


@pytest.mark.parametrize("program", [WRAPPER, ESCAPER], ids=["wrapper", "escaper"])
def test_what_a_wrapper_started_ends_with_the_wrapper(program: tuple[str, ...]) -> None:
    with guarded(*program) as (process, lifeline, child):
        wrapper = int(lifeline.recv(32))
        os.kill(wrapper, signal.SIGKILL)
        assert process.wait(5) == -signal.SIGKILL
        assert not is_running(child)


def test_term_goes_on_to_the_engine() -> None:
    with guarded(*SLEEPER) as (process, _, _):
        process.terminate()
        assert process.wait(5) == -signal.SIGTERM


def test_the_last_command_is_run_when_all_has_ended(tmp_path: Path) -> None:
    mark = tmp_path / "ended"
    with guarded(*SLEEPER, then=("/bin/sh", "-c", f"echo done > {mark}")) as (process, lifeline, engine):
        lifeline.close()
        assert process.wait(5) == -signal.SIGTERM
        assert not is_running(engine)
    assert mark.read_text() == "done\n"


def test_a_guard_that_is_killed_takes_the_engine_with_it() -> None:
    with guarded(*SLEEPER) as (process, _, engine):
        process.kill()
        assert ends_within(engine, 5)
