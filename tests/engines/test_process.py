"""Launch, readiness and end of engines that misbehave, and of the real one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Timer

import psutil
import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import Cancelled, EngineGone, StartError
from kvtui.engines.base import Engine, StartProgress
from kvtui.engines.environment import counting_variables, engine_environment
from kvtui.engines.llama_server.client import EngineClient
from kvtui.engines.orphan import end_orphan
from kvtui.engines.process import EngineProcess, free_port
from kvtui.gpu.host import process_started
from tests.benchmarks.launch_cycles import cycles
from tests.engines.conftest import READY_S, ignore

Launch = Callable[..., EngineProcess]


def failure_of(process: EngineProcess, timeout_s: float = READY_S) -> StartError:
    with pytest.raises(StartError) as caught:
        process.wait_ready(timeout_s, Event(), ignore)
    assert "\n" not in caught.value.line()
    return caught.value


def is_gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while process_started(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process_started(pid) is None


def test_a_ready_engine_is_told_and_ended(misbehave: Launch) -> None:
    process = misbehave("fine")
    seen: list[StartProgress] = []
    assert 0 < process.wait_ready(READY_S, Event(), seen.append) < READY_S
    assert process.exit_code() is None
    assert str(process.command.argv[-1]) in process.base_url
    assert process.log_path.read_bytes().endswith(b"listening\n")
    assert process.stop() == -signal.SIGTERM
    assert process.stop() == -signal.SIGTERM
    assert is_gone(process.pid)


def test_an_engine_that_exits_at_once_says_why(misbehave: Launch) -> None:
    error = failure_of(misbehave("exits-at-once"))
    assert (error.kind, error.exit_code) == ("crashed", 1)
    assert error.what.endswith("failed to open GGUF file 'gone.gguf' (No such file or directory)")
    assert "engine.log" in error.hint


def test_an_engine_that_exits_without_a_word(misbehave: Launch) -> None:
    error = failure_of(misbehave("says-nothing"))
    assert (error.kind, error.exit_code) == ("crashed", 3)
    assert "said nothing" in error.what


def test_a_signal_is_named(misbehave: Launch) -> None:
    error = failure_of(misbehave("segfaults"))
    assert (error.kind, error.exit_code) == ("crashed", -signal.SIGSEGV)
    assert "SIGSEGV" in error.what


def test_loading_for_ever_is_hung(misbehave: Launch) -> None:
    process = misbehave("never-ready")
    loading = Event()

    def progress(at: StartProgress) -> None:
        if at.stage == "loading the model":
            loading.set()

    with pytest.raises(Cancelled):
        process.wait_ready(READY_S, loading, progress)
    error = failure_of(process, timeout_s=0.1)
    assert error.kind == "hung"
    assert process.exit_code() is None


def test_doing_nothing_is_hung_long_before_the_time_is_up(misbehave: Launch) -> None:
    began = time.monotonic()
    error = failure_of(misbehave("hangs", quiet_limit_s=3.0))
    assert error.kind == "hung"
    assert time.monotonic() - began < READY_S / 2
    assert "loading model" in error.what
    assert "\x1b" not in error.what


def test_cancel_ends_the_wait(misbehave: Launch) -> None:
    process = misbehave("never-ready")
    cancel = Event()
    Timer(0.3, cancel.set).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        process.wait_ready(READY_S, cancel, ignore)
    assert time.monotonic() - began < READY_S / 2


def test_a_port_that_is_taken_is_tried_once_more_elsewhere(misbehave: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        process = misbehave("fine", pick_port=lambda: next(ports))
        first = process.pid
        process.wait_ready(READY_S, Event(), ignore)
        assert process.pid != first
        assert str(taken.getsockname()[1]) not in process.base_url
        assert is_gone(first)


def test_a_stranger_that_answers_on_the_port_is_not_taken_for_the_engine(misbehave: Launch) -> None:
    stranger = misbehave("fine")
    stranger.wait_ready(READY_S, Event(), ignore)
    taken = int(stranger.base_url.rpartition(":")[2])
    ports = iter([taken, free_port()])
    process = misbehave("starts-slowly", pick_port=lambda: next(ports))
    process.wait_ready(READY_S, Event(), ignore)
    assert process.base_url != stranger.base_url


def test_two_taken_ports_are_one_clear_error(misbehave: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = failure_of(misbehave("fine", pick_port=lambda: taken.getsockname()[1]))
    assert error.kind == "port"
    assert "couldn't bind" in error.what


def test_an_engine_that_ignores_term_is_killed(misbehave: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvtui.engines.process._TERM_S", 0.3)
    process = misbehave("ignores-term")
    process.wait_ready(READY_S, Event(), ignore)
    assert process.stop() == -signal.SIGKILL


def test_what_an_engine_started_ends_with_it(misbehave: Launch, tmp_path: Path) -> None:
    process = misbehave("has-a-child")
    process.wait_ready(READY_S, Event(), ignore)
    child = int((tmp_path / "model").read_text())
    assert process_started(child) is not None
    process.stop()
    assert is_gone(child)


def test_what_a_crashed_engine_started_ends_too(misbehave: Launch, tmp_path: Path) -> None:
    process = misbehave("has-a-child")
    process.wait_ready(READY_S, Event(), ignore)
    child = int((tmp_path / "model").read_text())
    os.kill(process.pid, signal.SIGKILL)
    while process.exit_code() is None:
        time.sleep(0.02)
    assert is_gone(child)


def test_the_process_that_answers_counts_where_the_program_is_a_wrapper(misbehave: Launch) -> None:
    process = misbehave("wrapper")
    wrapper = process.pid
    process.wait_ready(READY_S, Event(), ignore)
    assert process.pid in {child.pid for child in psutil.Process(wrapper).children()}
    answering = process.pid
    process.stop()
    assert is_gone(answering)
    assert is_gone(wrapper)


def test_an_engine_that_dies_while_it_works(misbehave: Launch) -> None:
    for mode, status in (("dies-in-prefill", -signal.SIGABRT), ("dies-in-decode", -signal.SIGKILL)):
        process = misbehave(mode)
        process.wait_ready(READY_S, Event(), ignore)
        with EngineClient(process.base_url) as client, pytest.raises(EngineGone):
            client.complete([1, 2, 3], 4, cache_prompt=False, cancel=Event())
        deadline = time.monotonic() + 5
        while process.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.exit_code() == status
        assert process.stop() == status


def test_a_flood_of_lines_neither_blocks_the_engine_nor_loses_one(tmp_path: Path) -> None:
    from kvtui.engines.llama_server.server import LlamaServer
    from tests.engines import misbehaving

    engine = LlamaServer((sys.executable, misbehaving.__file__, "floods"))
    batches: list[list[str]] = []
    process = engine.launch(RunConfig(model="m", n_ctx=512), tmp_path / "log", batches.append)
    try:
        process.wait_ready(READY_S, Event(), ignore)
    finally:
        process.stop()
    lines = [line for batch in batches for line in batch]
    assert lines[:50_000] == [f"line {n}" for n in range(50_000)]
    assert process.facts().n_lines == 50_001


def test_the_environment_that_counts_is_recorded_and_keys_do_not_reach_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLAMA_ARG_N_CPU_MOE", "4")
    monkeypatch.setenv("LLAMA_API_KEY", "secret")
    monkeypatch.setenv("LLAMA_ARG_API_PREFIX", "/x")
    recorded = dict(counting_variables())
    assert recorded["LLAMA_ARG_N_CPU_MOE"] == "4"
    assert "secret" not in recorded.values()
    env = engine_environment((("GGML_X", "1"),))
    assert env["NO_COLOR"] == "1"
    assert env["GGML_X"] == "1"
    assert env["LLAMA_ARG_N_CPU_MOE"] == "4"
    assert not {"LLAMA_API_KEY", "LLAMA_ARG_API_PREFIX"} & set(env)


def test_an_orphan_that_no_kvtui_launched_is_left_alone() -> None:
    """A session file can be edited: the pid and start time of any process can be written into it."""
    with subprocess.Popen(("sleep", "60"), start_new_session=True) as process:
        started = process_started(process.pid)
        assert started is not None
        assert not end_orphan(process.pid, started)
        assert process.poll() is None
        process.kill()


def test_an_orphan_is_ended_and_a_stranger_with_its_pid_is_not(misbehave: Launch) -> None:
    process = misbehave("fine")
    process.wait_ready(READY_S, Event(), ignore)
    started = process_started(process.pid)
    assert started is not None
    assert not end_orphan(process.pid, started - 3600)
    assert process.exit_code() is None
    assert end_orphan(process.pid, started)
    assert is_gone(process.pid)
    assert not end_orphan(process.pid, started)


@pytest.mark.engine
def test_launching_and_ending_leaves_nothing_behind(
    embedded: Engine, tiny_model: Path, tmp_path: Path
) -> None:
    assert embedded.abilities().options
    left = cycles(3, tiny_model, tmp_path)
    assert left.nothing, left


LAUNCHER = """
import sys, threading, time
from pathlib import Path
from kvtui.core.config import RunConfig
from kvtui.engines.find import embedded_engine
model, log = sys.argv[1:]
config = RunConfig(model=model, n_ctx=512, n_gpu_layers=0, threads=1)
process = embedded_engine().launch(config, Path(log), lambda lines: None)
process.wait_ready(60, threading.Event(), lambda progress: None)
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_no_signal_to_kvtui_leaves_an_engine_running(
    embedded: Engine, tiny_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = (sys.executable, "-c", LAUNCHER, str(tiny_model), str(tmp_path / "log"))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        engine = int(launcher.stdout.readline())
        assert process_started(engine) is not None
        launcher.send_signal(number)
        assert is_gone(engine)


def test_a_log_that_cannot_be_written_is_a_failed_start(tmp_path: Path) -> None:
    from kvtui.engines.llama_server.server import LlamaServer
    from tests.engines import misbehaving

    engine = LlamaServer((sys.executable, misbehaving.__file__, "hangs"))
    with pytest.raises(StartError, match="could not be started: No such file") as caught:
        engine.launch(RunConfig(model="m", n_ctx=512), tmp_path / "gone" / "log", ignore)
    assert caught.value.kind == "missing"


def test_a_command_line_that_is_too_long_is_a_failed_start(tmp_path: Path) -> None:
    from kvtui.engines.llama_server.server import LlamaServer
    from tests.engines import misbehaving

    engine = LlamaServer((sys.executable, misbehaving.__file__, "hangs"))
    with pytest.raises(StartError, match="could not be started"):
        engine.launch(RunConfig(model="m" * 200_000, n_ctx=512), tmp_path / "log", ignore)
