"""Host memory and processes, by real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kvtui.gpu import host
from kvtui.gpu.source import HostSource

MIB = 1 << 20
EATER = "import sys; data = bytearray(int(sys.argv[1])); print('full', flush=True); sys.stdin.read()"
GONE = 2**22 + 5


def test_memory_that_a_process_takes_is_seen() -> None:
    command = (sys.executable, "-c", EATER, str(200 * MIB))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as eater:
        assert eater.stdout is not None
        eater.stdout.readline()
        resident = host.resident_bytes(eater.pid)
        assert resident is not None
        assert 200 * MIB < resident < 300 * MIB
        rss = psutil.Process(eater.pid).memory_info().rss
        assert abs(resident - rss) < 5 * MIB
        reading = HostSource("no GPU").read(eater.pid)
        assert reading.host_bytes is not None
        assert reading.used_bytes is not None
        assert reading.host_bytes >= 200 * MIB
        assert reading.device_process_bytes is None


def test_a_process_that_is_gone_is_missing() -> None:
    assert host.resident_bytes(GONE) is None
    assert host.cpu_seconds(GONE) is None
    assert host.process_started(GONE) is None
    assert host.listener(GONE, 80) is None


def test_a_zombie_counts_as_gone() -> None:
    process = subprocess.Popen((sys.executable, "-c", ""))
    try:
        deadline = time.monotonic() + 10
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.02)
        assert host.process_started(process.pid) is None
        assert host.resident_bytes(process.pid) is None
    finally:
        process.wait()


def test_when_a_process_began() -> None:
    started = host.process_started(os.getpid())
    assert started is not None
    assert 0 < time.time() - started < 3600 * 24


def test_cpu_time_grows_with_work() -> None:
    before = host.cpu_seconds(os.getpid())
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    after = host.cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before >= 0.05


def test_who_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert host.listener(os.getpid(), port) == os.getpid()
    assert host.listener(os.getpid(), port) is None


def test_the_machine() -> None:
    assert host.memory_total() > 100 * MIB
    assert 0 < host.memory_used() < host.memory_total()
    assert host.core_count() >= 1
    assert host.cpu_name().isprintable()
    assert host.cpu_name()


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group tree in which we are in `a/b`."""
    root = tmp_path / "cgroup"
    (root / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(host, "_CGROUP", root)
    monkeypatch.setattr(host, "_groups", lambda: [root / "a" / "b", root / "a", root])
    host._limited.cache_clear()
    yield root  # type: ignore[misc]
    host._limited.cache_clear()


def test_a_limit_anywhere_above_us_counts(cgroup: Path) -> None:
    (cgroup / "a" / "b" / "memory.max").write_text("max\n")
    (cgroup / "a" / "memory.max").write_text(f"{64 * MIB}\n")
    (cgroup / "a" / "memory.current").write_text(f"{40 * MIB}\n")
    (cgroup / "a" / "memory.stat").write_text(f"anon 5\ninactive_file {10 * MIB}\nactive_file 3\n")
    assert host.memory_total() == 64 * MIB
    assert host.memory_used() == 30 * MIB


def test_a_limit_above_the_machine_does_not(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text(f"{1 << 60}\n")
    assert host.memory_total() == psutil.virtual_memory().total


def test_the_limit_of_the_old_hierarchy(cgroup: Path) -> None:
    (cgroup / "memory").mkdir()
    (cgroup / "memory" / "memory.limit_in_bytes").write_text(f"{64 * MIB}\n")
    assert host.memory_total() == 64 * MIB


def test_our_own_groups_are_below_the_root() -> None:
    for group in host._groups():
        assert group == Path("/sys/fs/cgroup") or Path("/sys/fs/cgroup") in group.parents
