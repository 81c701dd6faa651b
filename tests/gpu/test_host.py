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


STARTER = """
import subprocess, sys
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
child = subprocess.Popen((sys.executable, "-c", sys.argv[1], sys.argv[2]), **pipes)
child.stdout.readline(); print(child.pid, flush=True); sys.stdin.read(); child.stdin.close(); child.wait()
"""


def test_what_a_process_starts_is_its_own() -> None:
    """An engine's server may do its work in a process that it starts."""
    command = (sys.executable, "-c", STARTER, EATER, str(100 * MIB))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        child = int(starter.stdout.readline())
        assert host.descends(child, starter.pid)
        assert host.descends(child, os.getpid())
        assert not host.descends(starter.pid, child)
        assert not host.descends(GONE, starter.pid)
        assert host.Family().of(starter.pid) == (starter.pid, child)
        reading = HostSource("no GPU").read(starter.pid)
        alone = host.resident_bytes(starter.pid)
        assert reading.host_bytes is not None
        assert alone is not None
        assert reading.host_bytes >= alone + 100 * MIB


def test_a_family_is_looked_up_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], []
    monkeypatch.setattr(host, "descendants", lambda pid: asked.append((now[0], pid)) or (8, 9))
    family = host.Family(lambda: now[0])
    assert family.of(None) == ()
    for tick in range(80):
        now[0] = tick / 2
        assert family.of(5) == (5, 8, 9)
    assert [at for at, _ in asked] == [0.0, 1.0, 3.0, 7.0, 15.0, 25.0, 35.0]
    family.of(6)
    assert asked[-1] == (39.5, 6), "another engine at once"


def test_how_busy_others_keep_the_machine() -> None:
    """One process that burns CPU counts as the engine's or as somebody else's."""
    burn = "import sys; print('on', flush=True)\nwhile True: pass"
    with subprocess.Popen((sys.executable, "-c", burn), stdout=subprocess.PIPE) as burner:
        assert burner.stdout is not None
        burner.stdout.readline()
        apart, among = host.LoadMeter(), host.LoadMeter()
        assert apart.read(burner.pid) is None, "nothing to compare with yet"
        assert among.read(None) is None
        before = host.cpu_seconds(burner.pid) or 0.0
        began = time.monotonic()
        time.sleep(0.6)
        others, everybody = apart.read(burner.pid), among.read(None)
        burnt = ((host.cpu_seconds(burner.pid) or 0.0) - before) / (time.monotonic() - began)
        assert apart.read(burner.pid) is None, "too soon"
        burner.kill()
    assert others is not None
    assert everybody is not None
    assert everybody - others == pytest.approx(burnt, abs=0.25)
    assert apart.read(None) is None, "another engine"
