"""The private daemon from launch to end, against a program that stands in for Ollama."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event

import psutil
import pytest

from kvtui.core.errors import Cancelled, EngineGone, StartError
from kvtui.procedure.checks import compare
from tests.engines.ollama.conftest import CONFIG, Stand


@pytest.mark.parametrize("era", ["0.33", "0.12"])
def test_what_was_asked_is_proven_in_every_era(stand: Stand, era: str) -> None:
    config = replace(CONFIG, n_parallel=2)
    with stand.started(stand.program(era), config) as running:
        daemon = running.pid
        running.wait_ready(30, Event(), lambda p: None)
        runner = psutil.Process(running.pid)
        assert runner.ppid() == daemon
        processes = [psutil.Process(daemon), runner]
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)
    facts = running.facts()
    rows = {row.setting: (row.actual, row.state) for row in compare(config, facts)}
    assert rows["K cache type"] == rows["V cache type"] == ("q8_0", "proven")
    assert rows["context"] == ("1024", "proven")
    assert rows["parallel slots"] == ("2", "proven")
    assert rows["batch"] == rows["micro-batch"] == ("256", "proven")
    assert facts.main is not None
    assert facts.slots is not None
    assert facts.slots.n_ctx_slot == 512
    kv_mib = 2 * 1024 * 64 * 2 * 34 / 32 / 2**20
    assert facts.main.kv_mib == pytest.approx(kv_mib, abs=facts.main.kv_rounding_mib)


def test_the_old_engine_that_drops_a_type_is_caught(stand: Stand) -> None:
    config = replace(CONFIG, flash_attn="off")
    with stand.asked(stand.program("0.12"), config) as (running, _client):
        pass
    rows = {row.setting: row for row in compare(config, running.facts())}
    assert (rows["K cache type"].actual, rows["K cache type"].state) == ("f16", "differs")
    assert "ollama-kv-type-ignored" in {finding.id for finding in running.facts().findings}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("oom", "model requires more system memory"),
        ("crash-at-load", "terminated: signal: killed"),
        ("refuses", "before it was ready: Error: listen tcp"),
    ],
)
def test_a_load_that_fails(stand: Stand, fault: str, words: str) -> None:
    with (
        stand.started(stand.program("0.12", fault), CONFIG) as running,
        pytest.raises(StartError, match=words) as caught,
    ):
        running.wait_ready(30, Event(), lambda p: None)
    assert caught.value.kind == "crashed"
    assert fault != "oom" or running.facts().failures[0].kind == "oom"


def test_a_model_that_is_gone_is_named(stand: Stand) -> None:
    with stand.started(stand.program(), CONFIG) as running:
        (stand.folder / "models" / "manifests").rename(stand.folder / "elsewhere")
        with pytest.raises(StartError, match="Ollama has no model tiny:latest") as caught:
            running.wait_ready(30, Event(), lambda p: None)
    assert caught.value.kind == "missing"
    assert "ollama pull" in caught.value.hint


def test_a_load_that_hangs_and_one_that_is_stopped(stand: Stand) -> None:
    cancel = Event()
    with stand.started(stand.program("0.33", "hang"), CONFIG) as running:
        with pytest.raises(Cancelled):
            running.wait_ready(30, cancel, lambda p: cancel.set() if p.stage == "loading the model" else None)
        with pytest.raises(StartError) as caught:
            running.wait_ready(0.2, Event(), lambda p: None)
    assert caught.value.kind == "hung"


@pytest.mark.parametrize(
    ("fault", "words"),
    [("crash", "runner ended: .*signal: killed"), ("reload", "loaded the model anew")],
)
def test_figures_of_two_loads_are_never_mixed(stand: Stand, fault: str, words: str) -> None:
    with stand.asked(stand.program(), CONFIG) as (_running, client):
        prompt = client.tokenize(f"fault: {fault}", add_special=True, parse_special=False)
        with pytest.raises(EngineGone, match=words):
            client.complete(prompt, 4, cache_prompt=True)


def test_a_request_ends_when_it_is_cancelled(stand: Stand) -> None:
    with stand.asked(stand.program(), CONFIG) as (_running, client):
        prompt = client.tokenize("fault: slow", add_special=True, parse_special=False)
        cancel = Event()
        began = time.monotonic()
        with pytest.raises(Cancelled):
            client.complete(prompt, 4, cache_prompt=True, on_token=lambda n: cancel.set(), cancel=cancel)
    assert time.monotonic() - began < 10
