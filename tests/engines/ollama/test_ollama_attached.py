"""A daemon that is not ours: used as it is, restarted by its operator alone, its log the proof of what that brought."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from kvtui.core.errors import InputError, StartError
from kvtui.engines.base import StartProgress
from kvtui.engines.ollama.attached import AttachedOllama, asked_before, following
from kvtui.engines.process import free_port
from kvtui.procedure.checks import compare
from kvtui.procedure.setup import TuneRequest, choose_engine
from tests.engines.ollama.conftest import CONFIG, Stand


class Service:
    """The operator's daemon, in the log of which one start follows another."""

    def __init__(self, stand: Stand, patch: pytest.MonkeyPatch) -> None:
        self.log = stand.folder / "service.log"
        self.port = free_port()
        self._program = stand.program()
        self._daemon: subprocess.Popen[bytes] | None = None
        found = lambda port: SimpleNamespace(pid=self.pid) if port == self.port else None  # noqa: E731
        patch.setattr("kvtui.engines.attach.processes.listener_on", found)
        patch.setattr("kvtui.engines.attach.processes.engines", list)

    @property
    def pid(self) -> int:
        """The daemon's."""
        assert self._daemon is not None
        return self._daemon.pid

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, **settings: str) -> None:
        """Start it with these variables, in place of the one that runs."""
        self.end()
        env = {**os.environ, "OLLAMA_NUM_PARALLEL": "1", **settings, "OLLAMA_HOST": f"127.0.0.1:{self.port}"}
        with self.log.open("ab") as log:
            self._daemon = subprocess.Popen((self._program, "serve"), env=env, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while b"Listening" not in self.log.read_bytes().rpartition(b"server config")[2]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self) -> None:
        """End it."""
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait()

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        return self._daemon is not None and self._daemon.poll() is None


@pytest.fixture
def service(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> object:
    """One, ended whatever happens."""
    made = Service(stand, monkeypatch)
    yield made
    made.end()


def restarting(service: Service, seen: list[str]) -> Callable[[StartProgress], None]:
    """An operator who does as he is told."""

    def progress(told: StartProgress) -> None:
        words = told.stage.partition("restart Ollama with ")[2]
        if words and words not in seen:
            seen.append(words)
            service.start(**dict(word.split("=") for word in words.split()))

    return progress


def test_a_step_that_changes_the_daemon_waits_for_its_operator(service: Service, stand: Stand) -> None:
    service.start()
    engine = AttachedOllama(service.url, str(service.log))
    assert engine.abilities().version == "0.33.0"
    assert engine.label == f"Ollama 0.33.0 at {service.url}"
    command = engine.command(CONFIG, 0)
    assert command.argv == ("ollama", "serve")
    assert dict(command.env)["OLLAMA_KV_CACHE_TYPE"] == "q8_0"
    assert f"{service.url}/api/generate" in command.follow[0]
    lines: list[str] = []
    seen: list[str] = []
    running = engine.launch(CONFIG, stand.folder / "engine.log", lines.extend)
    try:
        running.wait_ready(30, Event(), restarting(service, seen))
        with running.connect() as client:
            prompt = client.tokenize("hello", add_special=True, parse_special=False)
            assert client.complete(prompt, 4, cache_prompt=False).text == " a b c d"
    finally:
        running.stop()
    assert seen == ["OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0"]
    assert 'Environment="OLLAMA_KV_CACHE_TYPE=q8_0"' in lines
    rows = {row.setting: (row.actual, row.state) for row in compare(CONFIG, running.facts())}
    assert rows["K cache type"] == ("q8_0", "proven")
    assert service.runs


def test_a_daemon_that_is_right_already_is_only_asked_to_load(service: Service, stand: Stand) -> None:
    service.start(OLLAMA_KV_CACHE_TYPE="f16")
    config = replace(CONFIG, type_k="f16", type_v="f16", flash_attn="auto")
    stages: list[str] = []
    running = AttachedOllama(service.url, str(service.log)).launch(
        config, stand.folder / "log", lambda lines: None
    )
    try:
        running.wait_ready(60, Event(), lambda told: stages.append(told.stage))
        assert running.pid != service.pid
    finally:
        running.stop()
    assert not any("restart" in stage for stage in stages)
    assert {row.state for row in compare(config, running.facts()) if row.setting == "K cache type"} == {
        "proven"
    }
    assert service.runs


def test_an_operator_who_never_comes(service: Service, stand: Stand) -> None:
    service.start()
    running = AttachedOllama(service.url, str(service.log)).launch(
        CONFIG, stand.folder / "log", lambda lines: None
    )
    try:
        with pytest.raises(StartError, match="not restarted: restart Ollama with OLLAMA_FLASH") as caught:
            running.wait_ready(1.2, Event(), lambda told: None)
    finally:
        running.stop()
    assert caught.value.kind == "hung"


def test_what_cannot_be_attached_to(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not an address"):
        AttachedOllama("127.0.0.1:11434")
    with pytest.raises(InputError, match="no such file"):
        AttachedOllama("http://127.0.0.1:11434", str(tmp_path / "none.log"))
    with pytest.raises(StartError, match="no Ollama at"):
        AttachedOllama(f"http://127.0.0.1:{free_port()}").abilities()


def test_the_options_that_go_together(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("")
    assert (
        choose_engine(TuneRequest(model="tiny", url="http://h:1", engine_log=str(log))).traits.kind
        == "ollama"
    )
    with pytest.raises(InputError, match="--url"):
        choose_engine(TuneRequest(model="tiny", url="http://h:1", engine="vllm"))
    with pytest.raises(InputError, match="--engine-log goes with --url"):
        choose_engine(TuneRequest(model="tiny", engine_log=str(log)))


def test_the_log_before_is_looked_at_and_the_log_from_now_on_followed(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    config = '"server config" env="map[OLLAMA_KV_CACHE_TYPE:{} OLLAMA_NUM_PARALLEL:2]"'
    start = f"level=INFO source=routes.go:1 msg={config}\n"
    log.write_text(start.format("q8_0") + start.format(""))
    assert asked_before(str(log)) == {"num_parallel": 2}
    log.write_text("nothing of the kind\n")
    assert asked_before(str(log)) == {}
    assert following(str(log))[-2:] == ("--", str(log))
    assert following(None)[:3] == ("journalctl", "-u", "ollama")
