"""Discovery and a whole look at stand-ins; docker and systemctl where /proc is closed; GPU and host memory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from kvtui.engines.attach import container, look, memory, processes
from kvtui.engines.attach.http_facts import Access, Address
from kvtui.engines.attach.logplace import given_file
from kvtui.engines.attach.processes import Container, Listening, container_of, engine_at, hosts_of
from kvtui.gpu.nvml import NvmlMissing
from tests.engines.attach.conftest import StandIn
from tests.engines.attach.test_logread import start_up

Start = Callable[..., StandIn]


def test_discovery_lists_engines_with_what_they_were_asked(stand_in: Start) -> None:
    server = stand_in("llama-server", "-m", "a\x1b[2J.gguf", "-c", "4096", LLAMA_ARG_CACHE_TYPE_K="q8_0")
    daemon = stand_in("ollama", "serve", mode="ollama", OLLAMA_KV_CACHE_TYPE="q4_0")
    other = stand_in("some-server", "-m", "a.gguf")
    found = {one.process.pid: one for one in look.discover()}
    assert other.pid not in found
    assert list(found) == sorted(found, key=lambda pid: found[pid].process.started)
    one = found[server.pid]
    assert (one.process.kind, one.asked.model) == ("llama-server", "a.gguf")
    assert one.asked.values == {"ctx": 4096, "cache_type_k": "q8_0"}
    assert one.process.listening == (Listening("127.0.0.1", server.port),)
    assert one.address is not None
    assert one.address.url == f"http://127.0.0.1:{server.port}"
    assert found[daemon.pid].asked.values == {"kv_type": "q4_0"}
    assert processes.listener_on(server.port) is not None
    assert processes.still_runs(one.process)
    server.process.kill()
    server.process.wait()
    assert not processes.still_runs(one.process)
    assert engine_at(server.pid) is None


def test_a_configuration_file_that_is_none_keeps_no_engine_out_of_the_list(
    stand_in: Start, tmp_path: Path
) -> None:
    """Whoever may start a process here could otherwise keep everybody from looking at any."""
    folders = [tmp_path / name / "llama.cpp" for name in ("folder", "pipe", "endless")]
    for folder in folders:
        folder.mkdir(parents=True)
    (folders[0] / "config.ini").mkdir()
    os.mkfifo(folders[1] / "config.ini")
    (folders[2] / "config.ini").symlink_to("/dev/zero")
    writer = os.open(folders[1] / "config.ini", os.O_RDWR)  # a pipe that is open for writing has no end
    try:
        pids = {stand_in("llama-server", XDG_CONFIG_HOME=str(folder.parent)).pid for folder in folders}
        assert pids <= {one.process.pid for one in look.discover()}
    finally:
        os.close(writer)


@pytest.mark.usefixtures("patient")
def test_a_look_merges_log_answers_and_memory(stand_in: Start) -> None:
    running = stand_in("llama-server", "-c", "4096", "-ctk", "q8_0", log_text=start_up(4096))
    process = engine_at(running.pid)
    assert process is not None
    seen = look.look(look.describe(process, {}), Access())
    assert seen.log.facts.main is not None
    assert seen.log.facts.main.n_ctx == 4096
    assert seen.log.facts.requested["cache_type_k"] == "q8_0"
    assert seen.http.proven["n_slots"].value == 2
    assert seen.host.anonymous
    assert seen.gpu_bytes is None
    assert seen.gpu_why


def test_a_server_that_never_answers_does_not_hold_up_its_log(stand_in: Start) -> None:
    running = stand_in(mode="slow", log_text=start_up(4096))
    process = engine_at(running.pid)
    assert process is not None
    began = time.monotonic()
    seen = look.look(look.describe(process, {}), Access())
    assert time.monotonic() - began < 4
    assert seen.log.facts.main is not None
    assert not seen.http.answered


@pytest.mark.usefixtures("patient")
def test_an_address_without_a_process(stand_in: Start, tmp_path: Path) -> None:
    running = stand_in()
    (tmp_path / "a.log").write_bytes(start_up(4096))
    seen = look.look_at_address(
        "llama-server",
        Address(f"http://127.0.0.1:{running.port}"),
        Access(),
        log=given_file(str(tmp_path / "a.log")),
    )
    assert seen.process is None
    assert seen.log.facts.main is not None
    assert "not seen from here" in seen.asked.unread[0]


@pytest.mark.parametrize(
    ("group", "found"),
    [
        ("0::/system.slice/docker-" + "ab" * 32 + ".scope", Container("docker", "ab" * 32)),
        ("0::/machine.slice/libpod-" + "cd" * 32 + ".scope/container", Container("podman", "cd" * 32)),
        ("12:memory:/docker/" + "ab" * 32, Container("docker", "ab" * 32)),
        ("0::/kubepods/burstable/pod1-2/" + "ef" * 32, Container("kubernetes", "ef" * 32)),
        ("0::/system.slice/ollama.service", None),
        ("", None),
    ],
)
def test_containers_by_control_group(group: str, found: Container | None) -> None:
    assert container_of(group) == found


def test_wildcards_are_reached_through_loopback() -> None:
    listening = (
        Listening("0.0.0.0", 1),
        Listening("::", 2),
        Listening("10.1.2.3", 3),
        Listening("fe80::1", 4),
    )
    assert list(hosts_of(listening)) == ["127.0.0.1:1", "[::1]:2", "10.1.2.3:3", "[fe80::1]:4"]


INSPECTED = [
    {
        "Name": "/llm\x1b[1m",
        "Config": {"Env": ["LLAMA_ARG_CTX_SIZE=4096", "broken"]},
        "NetworkSettings": {
            "Ports": {"8080/tcp": [{"HostIp": "0.0.0.0", "HostPort": "18080"}], "9/tcp": None}
        },
    }
]


@pytest.fixture
def closed(stand_in: Start) -> processes.EngineProcess:
    """An engine whose environment and ports may not be looked at."""
    process = engine_at(stand_in("llama-server", "--port", "0").pid)
    assert process is not None
    return replace(process, env=None, listening=None, denied=("environment", "ports"))


def program(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_docker_tells_what_proc_denies(
    closed: processes.EngineProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told.json").write_text(json.dumps(INSPECTED))
    program(
        tmp_path, "docker", f'[ "$1 $2" = "inspect {"ab" * 32}" ] && cat {tmp_path}/told.json', monkeypatch
    )
    found = look.describe(replace(closed, container=Container("docker", "ab" * 32)), {})
    assert found.asked.values == {"ctx": 4096}
    assert found.address is not None
    assert found.address.url == "http://127.0.0.1:18080"


def test_systemctl_tells_what_proc_denies(
    closed: processes.EngineProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "systemctl", "echo 'Environment=OLLAMA_KV_CACHE_TYPE=q8_0'", monkeypatch)
    assert look.describe(replace(closed, kind="ollama", unit="ollama.service"), {}).asked.values == {
        "kv_type": "q8_0"
    }
    program(tmp_path, "systemctl", "exit 1", monkeypatch)
    found = look.describe(replace(closed, kind="ollama", unit="ollama.service"), {})
    assert found.asked.unread


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"[3]", b'[{"Config": 7}]', b"[" * 100_000])
def test_what_docker_does_not_tell_is_nothing(text: bytes) -> None:
    assert container.read_inspect(text) in (None, container.Inspected("", {}, {}))


def test_host_memory_counts_what_was_allocated() -> None:
    before = memory.host_memory(os.getpid())
    held = bytearray(b"x" * (64 << 20))
    after = memory.host_memory(os.getpid())
    assert before.anonymous is not None
    assert after.anonymous is not None
    assert len(held) * 0.9 < after.anonymous - before.anonymous < len(held) * 1.5
    assert memory.host_memory(1 << 30) == memory.HostMemory(None, None)


def test_gpu_memory_is_summed_over_devices_and_children(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        mig = None

        def __init__(self, index: int) -> None:
            self.index = index

    class Driver:
        devices = (Device(0), Device(1))

        def processes(self, kind: str, index: int, mig: int | None) -> dict[int, int | None]:
            if kind == "Graphics":
                return {10: 5} if index == 0 else {}
            return {10: 100, 11: 7, 12: None} if index == 0 else {11: 50}

    monkeypatch.setattr("kvtui.gpu.nvml.open_nvml", lambda limit: Driver())
    assert memory.gpu_memory({10: (10, 11), 12: (12,)}, 5).by_pid == {10: 157}


def test_a_driver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Event()

    def hang(limit: float) -> None:
        ended.wait(30)
        raise NvmlMissing("at last")

    monkeypatch.setattr("kvtui.gpu.nvml.open_nvml", hang)
    assert "did not answer" in memory.gpu_memory({1: (1,)}, 0.1).why
    ended.set()
