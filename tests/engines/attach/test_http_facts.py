"""What engines say of themselves: real shapes, refusals, rubbish, endless and slow answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.engines.attach.asked import Asked, Setting
from kvtui.engines.attach.http_facts import Access, Address, HttpFacts, address_of, ask, kind_at
from kvtui.engines.attach.kinds import Kind
from kvtui.engines.attach.processes import EngineProcess, Listening
from tests.engines.attach.conftest import StandIn

Start = Callable[..., StandIn]


def url(running: StandIn) -> Address:
    return Address(f"http://127.0.0.1:{running.port}")


def values(facts: HttpFacts) -> dict[str, object]:
    return {name: setting.value for name, setting in facts.proven.items()}


@pytest.mark.usefixtures("patient")
def test_llama_server_is_asked_nothing_that_changes_it(stand_in: Start, tmp_path: Path) -> None:
    running = stand_in(STANDIN_SEEN=str(tmp_path / "seen"))
    facts = ask("llama-server", url(running), Access())
    assert values(facts) == {
        "model": "a",
        "n_ctx_train": 32768,
        "weights_bytes": 1000,
        "n_slots": 2,
        "model_path": "/models/a.gguf",
        "build": "b7000-abc1234",
        "n_ctx_slot": 2048,
        "busy_slots": 0,
        "used_tokens": 7,
    }
    assert facts.proven["n_ctx_slot"].source == "/slots"
    assert facts.answered
    assert sorted((tmp_path / "seen").read_text().splitlines()) == [
        "GET /props",
        "GET /slots",
        "GET /v1/models",
    ]


@pytest.mark.usefixtures("patient")
def test_a_server_that_sleeps_is_not_woken(stand_in: Start, tmp_path: Path) -> None:
    running = stand_in(mode="sleeping", STANDIN_SEEN=str(tmp_path / "seen"))
    facts = ask("llama-server", url(running), Access())
    assert facts.proven["sleeping"].value is True
    assert "/slots" not in (tmp_path / "seen").read_text()


@pytest.mark.usefixtures("patient")
def test_an_api_key(stand_in: Start) -> None:
    running = stand_in(mode="key")
    assert sorted(ask("llama-server", url(running), Access()).problems) == [
        "/props: it wants an API key: --api-key-file FILE",
        "/v1/models: it wants an API key: --api-key-file FILE",
    ]
    assert values(ask("llama-server", url(running), Access("s3cret")))["n_slots"] == 2


@pytest.mark.usefixtures("patient")
def test_ollama(stand_in: Start, tmp_path: Path) -> None:
    running = stand_in("ollama-stand-in", mode="ollama", STANDIN_SEEN=str(tmp_path / "seen"))
    assert values(ask("ollama", url(running), Access())) == {
        "version": "0.33.0",
        "models": [{"name": "m:latest", "context_length": 8192, "size": 3 << 30, "size_vram": 2 << 30}],
        "n_ctx_train": 131072,
    }
    asked = sorted((tmp_path / "seen").read_text().splitlines())
    assert asked == ["GET /api/ps", "GET /api/version", "POST /api/show"]


@pytest.mark.usefixtures("patient")
def test_vllm(stand_in: Start) -> None:
    assert values(ask("vllm", url(stand_in(mode="vllm")), Access())) == {
        "version": "0.33.0",
        "model": "org/model",
        "max_model_len": 32768,
        "kv_cache_dtype": "fp8",
        "kv_blocks": 4096,
        "block_size": 16,
        "gpu_memory_utilization": "0.92",
    }


@pytest.mark.parametrize("mode", ["rubbish", "endless", "slow"])
def test_answers_that_are_none_are_bounded(stand_in: Start, mode: str) -> None:
    running = stand_in(mode=mode)
    began = time.monotonic()
    facts = ask("llama-server", url(running), Access())
    assert time.monotonic() - began < 6
    assert "n_slots" not in facts.proven
    assert "model_path" not in facts.proven
    assert mode == "rubbish" or len(facts.problems) == 2


@pytest.mark.usefixtures("patient")
def test_which_engine_answers(stand_in: Start) -> None:
    for mode, kind in (
        ("llama", "llama-server"),
        ("ollama", "ollama"),
        ("vllm", "vllm"),
        ("key", "llama-server"),
    ):
        assert kind_at(url(stand_in(mode=mode)), Access()) == kind
    assert kind_at(url(stand_in(mode="nothing")), Access()) is None
    assert kind_at(Address("http://127.0.0.1:1"), Access()) is None


@pytest.mark.parametrize(
    ("kind", "reach", "listening", "address"),
    [
        ("llama-server", {}, None, Address("http://127.0.0.1:8080")),
        ("llama-server", {"host": "0.0.0.0", "port": 9}, None, Address("http://127.0.0.1:9")),
        ("llama-server", {"host": "::1", "port": 9}, None, Address("http://[::1]:9")),
        ("llama-server", {"port": 9}, (("10.0.0.5", 7), ("10.0.0.5", 9)), Address("http://10.0.0.5:9")),
        ("llama-server", {"port": 9}, (("::", 7),), Address("http://[::1]:7")),
        ("llama-server", {"host": "/run/l.sock"}, (), Address("http://localhost", "/run/l.sock")),
        ("llama-server", {"host": "l.sock"}, (), Address("http://localhost", "/srv/l.sock")),
        (
            "llama-server",
            {"host": "h", "port": 9, "tls_cert_file": "c.pem", "api_prefix": "/llm"},
            None,
            Address("https://h:9/llm"),
        ),
        ("vllm", {}, None, Address("http://127.0.0.1:8000")),
        ("vllm", {"uds": "/run/v.sock"}, None, Address("http://localhost", "/run/v.sock")),
        ("vllm-worker", {}, (("127.0.0.1", 7),), None),
        ("ollama", {}, None, Address("http://127.0.0.1:11434")),
        ("ollama", {"host": "0.0.0.0:1234"}, None, Address("http://127.0.0.1:1234")),
        ("ollama", {"host": "https://box"}, None, Address("https://box:443")),
        ("ollama", {"host": "[::1]:77"}, None, Address("http://[::1]:77")),
        ("ollama-runner", {}, (), None),
    ],
)
def test_where_a_process_answers(
    kind: Kind,
    reach: dict[str, object],
    listening: tuple[tuple[str, int], ...] | None,
    address: Address | None,
) -> None:
    process = EngineProcess(
        1,
        kind,
        (kind,),
        "someone",
        0.0,
        cwd="/srv",
        listening=None if listening is None else tuple(Listening(*at) for at in listening),
    )
    asked = Asked(reach={name: Setting(value, "") for name, value in reach.items()})
    assert address_of(process, asked) == address


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://h:1e9",
        "http://h:99999",
        "http://",
        "http://a b:99999/ x",
        "ftp://h",
        "h\x1b[31m",
    ],
)
def test_an_address_that_is_none_is_a_problem_of_that_engine(url: str) -> None:
    facts = ask("llama-server", Address(url), Access())
    assert not facts.answered
    assert "not an address" in facts.problems[0]
    assert facts.problems[0].isprintable()


def test_a_host_that_no_resolver_takes() -> None:
    facts = ask("llama-server", Address("http://a..b:9"), Access())
    assert not facts.answered
    assert facts.problems


@pytest.mark.usefixtures("patient")
def test_an_answer_without_bottom_is_a_problem(stand_in: Start) -> None:
    running = stand_in(mode="deep")
    facts = ask("llama-server", url(running), Access())
    assert any("nested too deeply" in problem for problem in facts.problems)


@pytest.mark.usefixtures("patient")
def test_a_key_that_is_said_back_is_not_kept(stand_in: Start) -> None:
    facts = ask("llama-server", url(stand_in(mode="echo")), Access("sk-1234567890"))
    assert values(facts)["build"] == "Bearer ***"
    assert "1234567890" not in str(facts)
