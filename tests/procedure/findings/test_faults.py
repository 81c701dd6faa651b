"""Every fault that ends a run: a real process misbehaves, and what is recorded has a name and a next step."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from kvtui.cli import main
from kvtui.core.config import RunConfig
from kvtui.core.errors import Cancelled, EngineGone, KvtuiError, RequestError, StartError
from kvtui.core.findings import Finding
from kvtui.engines.llama_server.abilities import read_abilities
from kvtui.engines.llama_server.client import EngineClient
from kvtui.engines.llama_server.server import LlamaServer
from kvtui.engines.process import EngineProcess
from kvtui.engines.refusals import ContextSizeError
from kvtui.logs.facts import EngineFacts
from kvtui.procedure.clocks import ClockWatch, Disturbed, Reading, disturbed
from kvtui.procedure.findings.clocks import clock_findings
from kvtui.procedure.findings.faults import FAULTS, fault_findings
from tests.engines import misbehaving
from tests.engines.conftest import READY_S, ignore, misbehave

__all__ = ["misbehave"]

Launch = Callable[..., EngineProcess]


def findings_of(process: EngineProcess, error: KvtuiError) -> tuple[Finding, ...]:
    """What a run records that `error` ended: the engine is ended first, then its log is read to the end."""
    code = process.stop()
    facts = process.facts()
    return (*fault_findings(error, facts, code), *facts.findings)


def named(findings: tuple[Finding, ...], wanted: str) -> Finding:
    errors = [f for f in findings if f.severity == "error"]
    found = next(f for f in findings if f.id == wanted)
    assert errors
    assert found.title
    assert found.why
    assert found.next
    assert found.evidence
    return found


def start_error(process: EngineProcess, timeout_s: float = READY_S) -> StartError:
    with pytest.raises(StartError) as caught:
        process.wait_ready(timeout_s, Event(), ignore)
    return caught.value


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("exits-at-once", "engine-ended"),
        ("says-nothing", "engine-ended"),
        ("segfaults", "engine-ended"),
        ("killed-while-loading", "engine-killed"),
        ("wrong-option", "argument-refused"),
        ("oom-at-load", "oom-weights"),
    ],
)
def test_a_start_that_fails(misbehave: Launch, mode: str, wanted: str) -> None:
    process = misbehave(mode)
    found = findings_of(process, start_error(process))
    named(found, wanted)
    assert len([f for f in found if f.severity == "error"]) == 1


def test_a_program_that_is_not_there(misbehave: Launch) -> None:
    process = misbehave("fine")
    error = StartError("missing", "llama-server ended with status 127: cannot run /x: No such file")
    named(findings_of(process, error), "engine-missing")


def test_ports_that_are_all_taken(misbehave: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = misbehave("fine", pick_port=lambda: taken.getsockname()[1])
        error = start_error(process)
    assert "ss -ltnp" in named(findings_of(process, error), "engine-port-taken").next


def test_a_load_that_hangs_and_503_for_ever(misbehave: Launch) -> None:
    process = misbehave("hangs", quiet_limit_s=1.0)
    named(findings_of(process, start_error(process)), "engine-hung-loading")
    process = misbehave("never-ready")
    ready = Event()
    with pytest.raises(Cancelled):
        process.wait_ready(
            READY_S, ready, lambda at: ready.set() if at.stage == "loading the model" else None
        )
    named(findings_of(process, start_error(process, 0.1)), "engine-hung-loading")


@pytest.mark.parametrize(
    ("mode", "wanted", "kind"),
    [
        ("dies-in-prefill", "oom", EngineGone),
        ("dies-in-decode", "engine-killed", EngineGone),
        ("context-too-small", "request-too-long", ContextSizeError),
        ("pool-full", "pool-exhausted", RequestError),
        ("loads-again", "engine-still-loading", RequestError),
        ("unknown-endpoint", "request-refused", RequestError),
        ("wants-a-key", "access-refused", RequestError),
        ("fine", "server-error", RequestError),
        ("garbage", "answer-unreadable", RequestError),
        ("endless", "answer-endless", RequestError),
        ("hangs-in-generation", "engine-hung-answering", RequestError),
    ],
)
def test_a_request_that_fails(misbehave: Launch, mode: str, wanted: str, kind: type[KvtuiError]) -> None:
    process = misbehave(mode)
    process.wait_ready(READY_S, Event(), ignore)
    with EngineClient(process.base_url, stall_s=1.0) as client, pytest.raises(kind) as caught:
        client.complete([1, 2, 3], 4, cache_prompt=False, cancel=Event())
    found = named(findings_of(process, caught.value), wanted)
    if mode == "context-too-small":
        assert "1802 tokens were sent, the slot has 512" in [e.text for e in found.evidence]


def test_an_engine_that_something_restarts_in_the_middle_of_a_request(tmp_path: Path) -> None:
    loop = ("/bin/sh", "-c", 'while :; do "$@"; done', "loop")
    engine = LlamaServer((*loop, sys.executable, misbehaving.__file__, "dies-and-is-restarted"))
    engine._abilities = read_abilities(misbehaving.HELP, "")
    process = engine.launch(RunConfig(model="m", n_ctx=512), tmp_path / "log", ignore)
    try:
        process.wait_ready(READY_S, Event(), ignore)
        with EngineClient(process.base_url) as client, pytest.raises(EngineGone) as caught:
            client.complete([1, 2, 3], 4, cache_prompt=False)
        deadline = time.monotonic() + 20
        while process.log_path.read_bytes().count(b"listening") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        process.stop()
    named(findings_of(process, caught.value), "engine-restarted")


def test_a_connection_that_is_lost_while_the_engine_goes_on(misbehave: Launch) -> None:
    process = misbehave("fine")
    process.wait_ready(READY_S, Event(), ignore)
    error = EngineGone("the connection to the engine broke at /completion")
    named(findings_of(process, error), "connection-lost")


def test_a_finding_of_the_log_is_not_said_twice() -> None:
    oom = Finding("oom-kv", "error", "The KV cache does not fit", "x", "-c")
    facts = EngineFacts(findings=(oom,))
    assert fault_findings(StartError("crashed", "ended"), facts, 1) == ()
    assert fault_findings(EngineGone("gone"), facts, -6) == ()
    assert fault_findings(RequestError("no", status=500), facts, None)[0].id == "server-error"


def test_every_fault_says_what_to_do() -> None:
    assert len({f.id for f in FAULTS}) == len(FAULTS)
    assert all(f.title and f.why and f.next for f in FAULTS)


def test_a_fault_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "--explain", "engine-hung-loading"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("engine-hung-loading (error): The engine does not get ready")
    assert "dmesg" in said


# Time


BEGAN = Reading(100.0, 200.0, 1_000_000.0)


@pytest.mark.parametrize(
    ("last", "longest", "wanted"),
    [
        (Reading(160.0, 260.0, 1_000_060.0), 0.6, []),
        (Reading(160.0, 260.0, 1_000_060.0), 31.0, ["kvtui-stood-still"]),
        (Reading(160.0, 560.0, 1_000_360.0), 0.6, ["box-slept"]),
        (Reading(160.0, 260.0, 1_003_660.0), 0.6, ["clock-jumped"]),
        (Reading(160.0, 260.0, 996_460.0), 0.6, ["clock-jumped"]),
    ],
)
def test_what_the_clocks_tell(last: Reading, longest: float, wanted: list[str]) -> None:
    found = clock_findings(disturbed(BEGAN, last, longest))
    assert [f.id for f in found] == wanted
    assert all(f.why and f.evidence for f in found)


def test_a_calendar_that_is_set_back_says_so() -> None:
    (found,) = clock_findings(Disturbed(set_by_s=-3600.0))
    assert "back by 1:00:00" in found.title
    assert found.severity == "info"


def test_a_process_that_is_stopped_and_continued_is_seen_to_have_stood_still() -> None:
    ready, told = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with ClockWatch() as clocks:
            os.write(ready[1], b"x")
            while clocks.seen().stood_still_s < 1.5:
                time.sleep(0.05)
        os.write(told[1], f"{clocks.seen().stood_still_s:.2f}".encode())
        os._exit(0)
    os.read(ready[0], 1)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2.2)
    os.kill(pid, signal.SIGCONT)
    assert float(os.read(told[0], 20)) >= 1.5
    os.waitpid(pid, 0)
    for descriptor in (*ready, *told):
        os.close(descriptor)


def test_a_wait_does_not_count_the_time_in_which_kvtui_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvtui.engines import watch

    now = 1000.0
    monkeypatch.setattr(watch.time, "monotonic", lambda: now)
    stopwatch = watch.Stopwatch(1.0)
    for step in (0.5, 0.5, 3600.0, 0.5):
        now += step
        seconds = stopwatch.seconds()
    assert seconds == pytest.approx(2.5)
