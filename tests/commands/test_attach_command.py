"""`kvtui attach` end to end: the list, one engine, refusals; and the real engine against what its launch proves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.core.config import RunConfig
from kvtui.engines.find import embedded_engine
from kvtui.engines.llama_server.client import EngineClient
from kvtui.engines.process import free_port
from kvtui.procedure.checks import compare
from tests import tiny_model
from tests.engines.attach.conftest import StandIn, patient, stand_in  # noqa: F401 - fixtures
from tests.engines.attach.test_logread import start_up

Start = Callable[..., StandIn]
READY_S = 120.0


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema"] == "kvtui.attach/1"
    return found


def checks(found: dict[str, Any]) -> dict[str, tuple[str, str, str, str]]:
    return {c["setting"]: (c["asked"], c["actual"], c["state"], c["evidence"]) for c in found["checks"]}


@pytest.mark.usefixtures("patient")
class TestStandIn:
    def test_the_list(self, stand_in: Start, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
        running = stand_in("llama-server", "-m", "a.gguf", "-c", "4096", "--api-key", "s3cret")
        assert main(["attach"]) == 0
        text = capsys.readouterr().out
        assert f"{running.pid}  llama-server" in text
        assert f"http://127.0.0.1:{running.port}" in text
        assert "ctx 4096" in text
        assert str(running.log) in text
        assert main(["attach", "--json"]) == 0
        shown = document(capsys)
        one = next(e for e in shown["engines"] if e["pid"] == running.pid)
        assert one["requested"] == {"ctx": {"value": 4096, "source": "-c 4096"}}
        assert one["log"] == {"kind": "file", "where": str(running.log), "why": None}
        assert "s3cret" not in json.dumps(shown)
        assert one["command"][-2:] == ["--api-key", "***"]

    def test_one_engine(self, stand_in: Start, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
        running = stand_in(
            "llama-server",
            "-c",
            "4096",
            "-ctk",
            "q8_0",
            "-ctv",
            "f16",
            log_text=start_up(4096),
            LLAMA_ARG_N_PARALLEL="1",
        )
        assert main(["attach", "--pid", str(running.pid), "--json"]) == 1
        found = document(capsys)
        assert found["requested"]["n_parallel"] == {"value": 1, "source": "LLAMA_ARG_N_PARALLEL=1"}
        assert found["url"] == f"http://127.0.0.1:{running.port}"
        assert {
            name: row for name, row in checks(found).items() if row[2] != "unproven" or row[0] != "-"
        } == {
            "K cache type": ("q8_0", "q8_0", "proven", "log"),
            "V cache type": ("f16", "q8_0", "differs", "log"),
            "context": ("4096", "4096", "proven", "log"),
            "usable per slot": ("4096", "2048", "differs", "/slots"),
            "parallel slots": ("1", "2", "differs", "/slots"),
        }
        assert {f["id"] for f in found["findings"]} >= {"setting-differs"}
        assert main(["attach", "--url", f"127.0.0.1:{running.port}"]) == 1
        text = capsys.readouterr().out
        assert f"process {running.pid}" in text
        assert "V cache type" in text

    def test_a_log_from_elsewhere(
        self,
        stand_in: Start,  # noqa: F811
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        running = stand_in("llama-server")
        (tmp_path / "a.log").write_bytes(b"\n" * 3 + start_up(8192))
        assert main(["attach", "--pid", str(running.pid), "--log", str(tmp_path / "a.log"), "--json"]) == 0
        found = document(capsys)
        assert checks(found)["context"] == ("-", "8192", "proven", "log")
        assert found["log"]["first_line"] == 4
        line = next(c["line"] for c in found["checks"] if c["setting"] == "context")
        assert b"n_ctx " in (tmp_path / "a.log").read_bytes().split(b"\n")[line - 1]

    def test_a_key_from_a_file(
        self,
        stand_in: Start,  # noqa: F811
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        running = stand_in("llama-server", mode="key")
        (tmp_path / "keys").write_text("# first\n\ns3cret\nother\n")
        assert main(["attach", "--pid", str(running.pid)]) == 2
        assert "it wants an API key" in capsys.readouterr().err
        assert main(["attach", "--pid", str(running.pid), "--api-key-file", str(tmp_path / "keys")]) == 0
        assert "s3cret" not in capsys.readouterr().out
        (tmp_path / "keys").write_text("# none\n")
        assert main(["attach", "--pid", str(running.pid), "--api-key-file", str(tmp_path / "keys")]) == 2
        assert "holds no API key" in capsys.readouterr().err

    def test_ollama_says_what_spilled(
        self,
        stand_in: Start,  # noqa: F811
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        running = stand_in(
            "ollama", "serve", mode="ollama", OLLAMA_KV_CACHE_TYPE="q8_0", OLLAMA_CONTEXT_LENGTH="4096"
        )
        assert main(["attach", "--pid", str(running.pid), "--json"]) == 1
        found = document(capsys)
        assert checks(found) == {
            "KV cache type": ("q8_0", "-", "unproven", ""),
            "context per request": ("4096", "8192", "differs", "/api/ps"),
        }
        assert {f["id"] for f in found["findings"]} == {
            "setting-unproven",
            "setting-differs",
            "spill-to-host",
        }

    def test_vllm_by_address(self, stand_in: Start, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
        running = stand_in("not-told", mode="vllm")
        assert main(["attach", "--url", f"http://127.0.0.1:{running.port}", "--json"]) == 0
        found = document(capsys)
        assert (found["engine"], found["pid"], found["model"]) == ("vllm", None, "org/model")
        assert checks(found)["KV cache type"] == ("-", "fp8", "proven", "/metrics")
        assert checks(found)["longest request"] == ("-", "32768", "proven", "/v1/models")
        assert checks(found)["block size"] == ("-", "16", "proven", "/metrics")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pid", "1073741824"], "no such process"),
        (["--pid", str(__import__("os").getpid())], "not an engine"),
        (["--url", "http://127.0.0.1:1"], "no engine answers there"),
        (["--url", "ftp://x"], "not an address"),
        (["--url", "http://[::1", "--json"], "not an address"),
        (["--url", "unix:/no/such.sock"], "no engine answers there"),
        (["--url", "https://127.0.0.1:1", "--cacert", "/no/such"], "No such file"),
    ],
)
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # httpcore leaves a socket open
def test_nothing_to_read(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", *options]) == 2
    output = capsys.readouterr()
    assert said in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight KV heads of 64 in two layers: 4 KiB of f16 KV for each token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_model, "N_HEAD", 8)
        patch.setattr(tiny_model, "N_HEAD_KV", 8)
        return tiny_model.write_tiny_model(tmp_path_factory.mktemp("models") / "wide.gguf")


@contextmanager
def engine(model: Path, log: Path, *options: str) -> Iterator[int]:
    """The embedded engine started by somebody else, at its default verbosity unless `options` say more."""
    port = free_port()
    argv = [sys.executable, "-P", "-m", "kvtui.engines.embedded", "-m", str(model), "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*argv, "-t", "1", "-ngl", "0", *options], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + READY_S
        with EngineClient(f"http://127.0.0.1:{port}") as client:
            while client.health() != "ready":
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.engine
@pytest.mark.usefixtures("patient")
class TestRealEngine:
    def test_attach_shows_every_value_that_the_launch_proves(
        self, tiny_swa_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pytest.importorskip("xllamacpp")
        config = RunConfig(
            str(tiny_swa_model),
            2048,
            "q8_0",
            "q4_0",
            "on",
            n_parallel=2,
            n_batch=256,
            n_ubatch=64,
            n_gpu_layers=0,
            threads=1,
        )
        launched = embedded_engine().launch(config, tmp_path / "engine.log", lambda lines: None)
        try:
            launched.wait_ready(READY_S, Event(), lambda progress: None)
            proven = {
                c.setting: (c.asked, c.actual, c.state, c.line)
                for c in compare(config, launched.facts())
                if c.state != "unproven"
            }
            assert main(["attach", "--pid", str(launched.pid), "--json"]) in (0, 1)
            found = document(capsys)
        finally:
            launched.stop()
        assert len(proven) >= 10
        shown = {c["setting"]: (c["asked"], c["actual"], c["state"], c["line"]) for c in found["checks"]}
        assert {name: row[1:] for name, row in shown.items() if name in proven} == {
            name: row[1:] for name, row in proven.items()
        }
        assert {n: r[0] for n, r in shown.items() if r[0] != "-"} == {
            n: proven[n][0] for n in shown if shown[n][0] != "-"
        }
        assert found["inference"] is None
        assert found["log"]["where"] == str(tmp_path / "engine.log")
        assert found["seconds"] < 20

    @pytest.mark.parametrize(
        ("options", "types"),
        [
            (("-c", "262144", "-ctk", "q8_0", "-ctv", "q8_0"), "q8_0/q8_0"),
            (
                (
                    "-c",
                    "262144",
                ),
                "f16/f16 or bf16/bf16",
            ),
            (("-c", "4096", "-ctk", "q8_0", "-ctv", "q8_0"), None),
        ],
        ids=["q8_0", "f16", "too-small-to-tell"],
    )
    def test_types_are_inferred_from_memory_where_the_log_is_silent(
        self,
        options: tuple[str, ...],
        types: str | None,
        wide_model: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        pytest.importorskip("xllamacpp")
        with engine(
            wide_model, tmp_path / "engine.log", *options, "-np", "1", "-ub", "32", "-fa", "on"
        ) as pid:
            assert main(["attach", "--pid", str(pid), "--json"]) == 1
            found = document(capsys)
        assert found["inference"]["types"] == types, found["inference"]
        state = "unproven" if types is None else "inferred"
        assert checks(found)["K cache type"][2] == state
        assert found["inference"]["basis"] == "host"
        assert found["inference"]["tolerance_bytes"] > 0
        assert any(f["id"] == "kv-unproven" for f in found["findings"])
