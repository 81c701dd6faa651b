"""What the host says: memory, processes, CPU. The only module of this folder that knows psutil."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import psutil

from kvtui.core.text import clean

_CGROUP = Path("/sys/fs/cgroup")
_GONE = (psutil.Error, OSError)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DEEPEST = 64
_ALSO_BUSY = ("nice", "irq", "softirq", "steal")
_FAMILY_FIRST_S, _FAMILY_S = 1.0, 10.0  # looking through all processes takes milliseconds
_SHORTEST_S = 0.2  # CPU time is told in hundredths of a second


def memory_total() -> int:
    """Bytes of memory that this machine, or the container we are in, has."""
    return _limited()[0]


def memory_used() -> int:
    """Bytes of that memory that are in use and cannot be freed at once."""
    group = _limited()[1]
    if group is not None and (used := _number(group / "memory.current")) is not None:
        return used - _reclaimable(group)
    memory = psutil.virtual_memory()
    return memory.total - memory.available


def cpu_name() -> str:
    """The processor's name, `unknown` where the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return clean(line.partition(":")[2].strip(), 120)
    except OSError:
        pass
    return clean(platform.processor() or platform.machine() or "unknown", 120)


def process_started(pid: int) -> float | None:
    """When process `pid` began, seconds since the epoch; None if there is none. Zombies count as gone."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except _GONE:
        return None


def resident_bytes(pid: int) -> int | None:
    """Resident host memory of process `pid`, None if it cannot be read."""
    try:
        file = os.open(f"/proc/{pid}/statm", os.O_RDONLY)  # a tenth of what psutil takes, at 10 Hz
        try:
            pages = int(os.read(file, 256).split()[1])
        finally:
            os.close(file)
        return pages * _PAGE if pages else None  # a zombie has none
    except FileNotFoundError:
        pass
    except (OSError, ValueError, IndexError):
        return None
    try:
        rss: int = psutil.Process(pid).memory_info().rss
        return rss or None
    except _GONE:
        return None


def cpu_seconds(pid: int) -> float | None:
    """CPU time (user and system) that process `pid` has used, None if it cannot be read."""
    try:
        times = psutil.Process(pid).cpu_times()
    except _GONE:
        return None
    return times.user + times.system


def command_line_of(pid: int) -> tuple[str, ...]:
    """The words with which process `pid` was started, cleaned; empty if they cannot be read."""
    try:
        return tuple(clean(word, 4096) for word in psutil.Process(pid).cmdline()[:1024])
    except _GONE:
        return ()


def descends(pid: int, ancestor: int) -> bool:
    """Whether process `pid` is `ancestor` or was started by it, however indirectly."""
    for _ in range(_DEEPEST):
        if pid == ancestor:
            return True
        parent = _parent(pid)
        if not parent:
            return False
        pid = parent
    return False


def descendants(pid: int) -> tuple[int, ...]:
    """Processes that `pid` started, however indirectly. Looks at every process there is: not for every reading."""
    children: dict[int, list[int]] = {}
    try:
        everybody = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        everybody = psutil.pids()
    for one in everybody:
        children.setdefault(_parent(one) or 0, []).append(one)
    found, unseen = [], children.get(pid, [])
    while unseen:
        found += unseen
        unseen = [child for one in unseen for child in children.get(one, [])]
    return tuple(sorted(found))


def family(pid: int) -> tuple[int, ...]:
    """Process `pid` and all its descendants."""
    return (pid, *descendants(pid))


class Family:
    """An engine's process with those it started, looked up anew every second at first, later every ten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pid: int | None = None
        self._members: tuple[int, ...] = ()
        self._due = 0.0
        self._wait = _FAMILY_FIRST_S

    def of(self, pid: int | None) -> tuple[int, ...]:
        """Process `pid` and all its descendants; nobody for None."""
        now = self._clock()
        if pid != self._pid:
            self._pid, self._due, self._wait = pid, now, _FAMILY_FIRST_S
        if now >= self._due:
            self._members = () if pid is None else family(pid)
            self._due, self._wait = now + self._wait, min(2 * self._wait, _FAMILY_S)
        return self._members

    def resident_bytes(self, pid: int | None) -> int | None:
        """Resident host memory of all of them, None where none can be read."""
        known = [held for one in self.of(pid) if (held := resident_bytes(one)) is not None]
        return sum(known) if known else None


class LoadMeter:
    """How many cores others keep busy, between one reading and the next."""

    def __init__(self, family: Family | None = None) -> None:
        self._family = family or Family()
        self._members: tuple[int, ...] = ()
        self._before: tuple[float, float] | None = None

    def read(self, engine: int | None) -> float | None:
        """Cores' worth of CPU time of everything but process `engine`, those it started, and kvtui, since last time.

        None the first time, after the engine's processes have changed, and less than 0.2 s after the last time.
        """
        now, members = time.monotonic(), self._family.of(engine)
        if members != self._members:
            self._members, self._before = members, None
        if self._before is not None and now - self._before[0] < _SHORTEST_S:
            return None
        times = psutil.cpu_times()
        busy = times.user + times.system + sum(getattr(times, name, 0.0) for name in _ALSO_BUSY)
        theirs = busy - time.process_time() - sum(cpu_seconds(pid) or 0.0 for pid in members)
        before, self._before = self._before, (now, theirs)
        return None if before is None else max(0.0, theirs - before[1]) / (now - before[0])


def listener(pid: int, port: int) -> int | None:
    """Which of process `pid` and those it started listens on TCP `port`; None if none is seen to."""
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            for connection in one.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return one.pid
    except _GONE:
        pass
    return None


@cache
def _limited() -> tuple[int, Path | None]:
    """The total, and the control group that sets it, None where it is the machine itself."""
    best: tuple[int, Path | None] = psutil.virtual_memory().total, None
    for group in _groups():
        limit = _number(group / "memory.max")
        if limit is not None and limit < best[0]:
            best = limit, group
    old = _number(_CGROUP / "memory" / "memory.limit_in_bytes")
    return (old, None) if old is not None and old < best[0] else best


def _groups() -> list[Path]:
    """Our own control group (version 2) and all above it."""
    try:
        own = next(
            line.rstrip().partition("::")[2].strip("/")
            for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()
            if line.startswith("0::")
        )
    except (OSError, ValueError, StopIteration):
        return []
    group = _CGROUP / own
    return [group, *(above for above in group.parents if above == _CGROUP or _CGROUP in above.parents)]


def _parent(pid: int) -> int | None:
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            return int(os.read(file, 1024).rpartition(b")")[2].split()[1])
        finally:
            os.close(file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, IndexError):
        return None
    try:
        return psutil.Process(pid).ppid()
    except _GONE:
        return None


def _reclaimable(group: Path) -> int:
    """Bytes of file cache that the kernel gives back before it refuses memory."""
    try:
        for line in (group / "memory.stat").read_text("ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "inactive_file":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


def _number(path: Path) -> int | None:
    try:
        text = path.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() else None
