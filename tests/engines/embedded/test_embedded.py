"""The embedded engine: the real llama.cpp behind llama-server's command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from threading import Event

import pytest

from kvtui.core.config import RunConfig
from kvtui.engines.base import Engine
from kvtui.engines.embedded import server as module
from kvtui.engines.llama_server.client import EngineClient
from kvtui.logs.facts import EngineFacts
from tests.engines.conftest import READY_S, ignore

RUN = (sys.executable, "-P", "-m", "kvtui.engines.embedded")


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*RUN, *argv), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("version", "build"), [("2026.10.11549", "11549"), ("1.2.dev3", "0"), ("7", "7")])
def test_the_build_is_the_packages_last_number(version: str, build: str) -> None:
    assert module.build_number(version) == build


def test_without_the_wheel_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "PACKAGE", "not-installed-anywhere")
    assert module.main(["-m", "x.gguf"]) == 1
    assert capsys.readouterr().err == "the embedded engine is not installed: pip install 'kvtui[demo]'\n"


def test_help_needs_no_wheel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "PACKAGE", "not-installed-anywhere")
    assert module.main(["--help"]) == 0
    assert "--cache-type-k TYPE" in capsys.readouterr().out


def test_a_mistake_is_one_line_and_status_1() -> None:
    answer = run("-ctk", "q9_0")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == 'error while handling argument "-ctk": Unsupported cache type: q9_0\n'


@pytest.mark.engine
def test_version_names_the_real_build() -> None:
    package = metadata.version("xllamacpp")
    answer = run("--version")
    assert answer.stdout.startswith(f"version: {package.rsplit('.', 1)[-1]} (")
    assert package in answer.stdout


@pytest.mark.engine
def test_a_missing_model_is_the_engines_own_error() -> None:
    answer = run("-m", "nowhere.gguf", "--port", "0")
    assert answer.returncode == 1
    assert "failed to open GGUF file 'nowhere.gguf'" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.engine
def test_a_truncated_model_is_the_engines_own_error(tiny_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_model.read_bytes()[:50_000])
    answer = run("-m", str(broken), "--port", "0")
    assert answer.returncode == 1
    assert "broken.gguf" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.engine
def test_a_taken_port_is_the_engines_own_error(tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = run("-m", str(tiny_model), "--port", str(taken.getsockname()[1]))
    assert answer.returncode == 1
    assert "couldn't bind HTTP server socket" in answer.stderr
    assert "Traceback" not in answer.stderr


def facts_of(engine: Engine, config: RunConfig, folder: Path) -> EngineFacts:
    process = engine.launch(config, folder / "engine.log", ignore)
    try:
        process.wait_ready(READY_S, Event(), ignore)
    finally:
        assert process.stop() == 0
    return process.facts()


@pytest.mark.engine
def test_what_is_asked_is_what_the_log_proves(embedded: Engine, tiny_swa_model: Path, tmp_path: Path) -> None:
    asked = RunConfig(
        model=str(tiny_swa_model),
        n_ctx=2048,
        type_k="q8_0",
        type_v="q4_0",
        flash_attn="on",
        n_parallel=2,
        n_batch=256,
        n_ubatch=128,
        n_gpu_layers=0,
        threads=1,
    )
    facts = facts_of(embedded, asked, tmp_path)
    assert facts.build == f"b{metadata.version('xllamacpp').rsplit('.', 1)[-1]}"
    assert facts.outcome == "ready"
    main = facts.main
    assert main is not None
    assert (main.n_ctx, main.n_ctx_seq, main.n_seq_max) == (2048, 1024, 2)
    assert (main.n_batch, main.n_ubatch, main.kv_unified) == (256, 128, False)
    assert main.flash_attn == "enabled"
    assert [(c.kind, c.cells, c.layers, c.streams, c.type_k, c.type_v) for c in main.caches] == [
        ("non-SWA", 1024, 1, 2, "q8_0", "q4_0"),
        ("SWA", 768, 5, 2, "q8_0", "q4_0"),
    ]

    unified = replace(asked, kv_unified=True, swa_full=True, type_k="f16", type_v="f16", flash_attn="off")
    main = facts_of(embedded, unified, tmp_path).main
    assert main is not None
    assert (main.n_ctx_seq, main.kv_unified, main.flash_attn) == (2048, True, "disabled")
    assert [(c.cells, c.streams, c.type_k) for c in main.caches] == [(2048, 1, "f16"), (2048, 1, "f16")]


@pytest.mark.engine
def test_a_context_that_the_engine_refuses_is_a_start_error_with_its_sentence(
    embedded: Engine, tiny_model: Path, tmp_path: Path
) -> None:
    from kvtui.core.errors import StartError

    config = RunConfig(str(tiny_model), 512, type_v="q8_0", flash_attn="off", n_gpu_layers=0)
    process = embedded.launch(config, tmp_path / "log", ignore)
    try:
        with pytest.raises(StartError, match="quantized V cache requires flash_attn") as caught:
            process.wait_ready(READY_S, Event(), ignore)
    finally:
        process.stop()
    assert caught.value.kind == "crashed"


@pytest.mark.engine
def test_term_ends_an_idle_engine_cleanly_and_fast(
    embedded: Engine, tiny_model: Path, tmp_path: Path
) -> None:
    process = embedded.launch(
        RunConfig(str(tiny_model), 512, n_gpu_layers=0, threads=1), tmp_path / "log", ignore
    )
    process.wait_ready(READY_S, Event(), ignore)
    began = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - began < 8
    assert "memory breakdown" in process.log_path.read_text()


@pytest.mark.engine
def test_term_ends_an_engine_in_the_middle_of_a_request(tiny_model: Path) -> None:
    """The request is cut off; waiting for it could take minutes."""
    command = (*RUN, "-m", str(tiny_model), "-c", "4096", "-np", "1", "--port", "0", "-t", "1")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as engine:
        try:
            assert engine.stderr is not None
            url = (
                next(line for line in engine.stderr if "listening on" in line)
                .split("listening on ")[1]
                .strip()
            )
            body = json.dumps(
                {"prompt": "a b " * 1000, "n_predict": 2000, "ignore_eos": True, "stream": True}
            )
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"{url}/completion", data=body.encode(), timeout=30) as answer:
                assert answer.readline().startswith(b"data:")
                engine.send_signal(signal.SIGTERM)
                assert engine.wait(10) == 0
        finally:
            engine.kill()


@pytest.mark.engine
def test_term_while_loading_ends_it(tiny_model: Path) -> None:
    with subprocess.Popen((*RUN, "-m", str(tiny_model), "--port", "0"), stderr=subprocess.PIPE) as engine:
        assert engine.stderr is not None
        engine.stderr.readline()
        engine.terminate()
        engine.stderr.read()
        assert engine.wait(10) in (0, -signal.SIGTERM)


@pytest.mark.engine
def test_it_answers_health_while_it_loads_or_is_ready(client: EngineClient) -> None:
    assert client.health() == "ready"
    with EngineClient(f"http://127.0.0.1:{os.getpid() % 1000 + 1}") as nobody:
        assert nobody.health() == "silent"
