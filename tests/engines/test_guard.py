"""The guard: the engine is that process, and it does not outlive whoever launched it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kvtui.engines import guard

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the guard's work is Linux's")

GUARD = (sys.executable, "-I", "-S", guard.__file__)
SLEEPER = (sys.executable, "-c", "import os,time; print(os.getpid(), flush=True); time.sleep(600)")


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


def test_the_engine_has_the_guards_pid() -> None:
    with subprocess.Popen((*GUARD, str(os.getpid()), "--", *SLEEPER), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.kill()


def test_arguments_arrive_unchanged() -> None:
    words = ["a b", "", "--", "*", "é"]
    show = (sys.executable, "-c", "import sys; print(sys.argv[1:])")
    answer = subprocess.run(
        (*GUARD, str(os.getpid()), "--", *show, *words), capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == repr(words)


def test_a_parent_that_is_gone_already_starts_nothing() -> None:
    answer = subprocess.run((*GUARD, "999999999", "--", "echo", "started"), capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert "gone" in answer.stderr


def test_a_program_that_cannot_be_run_is_named() -> None:
    answer = subprocess.run(
        (*GUARD, str(os.getpid()), "--", "/nowhere/llama-server"), capture_output=True, text=True
    )
    assert answer.returncode == guard.CANNOT_RUN
    assert answer.stderr == "cannot run /nowhere/llama-server: No such file or directory\n"


@pytest.mark.parametrize("arguments", [[], ["1"], ["1", "--"], ["x", "--", "true"], ["1", "true", "x"]])
def test_wrong_usage_runs_nothing(arguments: list[str]) -> None:
    answer = subprocess.run((*GUARD, *arguments), capture_output=True, text=True)
    assert answer.returncode == 1
    assert "usage" in answer.stderr


LAUNCHER = """
import os, subprocess, sys, time
process = subprocess.Popen([*{guard!r}, str(os.getpid()), "--", *{sleeper!r}], start_new_session=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_engine_ends_with_whoever_launched_it(number: signal.Signals) -> None:
    code = LAUNCHER.format(guard=GUARD, sleeper=SLEEPER)
    with subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        engine = int(launcher.stdout.readline())
        assert is_running(engine)
        launcher.send_signal(number)
        assert ends_within(engine, 5)


def test_the_engine_ends_with_the_thread_that_launched_it() -> None:
    """Not wanted, but so it is: whoever launches must stay."""
    started: list[subprocess.Popen[bytes]] = []
    command = (*GUARD, str(os.getpid()), "--", *SLEEPER)

    def launch() -> None:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        process.stdout.readline()
        started.append(process)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    with started[0] as process:
        assert process.wait(5) == -signal.SIGKILL
