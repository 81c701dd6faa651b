"""Processes of this machine as far as the system shows them. The only module of the engines that knows psutil.

What may not be read is None; other processes' words are cleaned here, where they enter.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import psutil

from kvtui.core.text import clean
from kvtui.engines.attach.kinds import Kind, classify
from kvtui.gpu.host import process_started

_GONE = (psutil.Error, OSError)
_WORDS = 1024
_WORD = 16384
_CONTAINER = re.compile(r"(docker|libpod|crio|cri-containerd)[-/]([0-9a-f]{12,64})")
_BARE_CONTAINER = re.compile(r"/(?:kubepods|docker|lxc|ecs)\S*/([0-9a-f]{64})")
_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a process listens: an address and a TCP port."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container by its runtime (`docker`, `podman`, `kubernetes`) and id."""

    runtime: str
    id: str


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """One engine that runs. `started` is seconds since the epoch.

    `env` and `listening` are None where the system does not let us look, which `denied` says. `unit` is the systemd
    unit, `user_unit` whether it belongs to a user's own manager. `parent` is the engine's process above it, if any.
    """

    pid: int
    kind: Kind
    argv: tuple[str, ...]
    user: str
    started: float
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    listening: tuple[Listening, ...] | None = None
    unit: str | None = None
    user_unit: bool = False
    container: Container | None = None
    parent: int | None = None
    denied: tuple[str, ...] = field(default=())


def engines() -> list[EngineProcess]:
    """All engines of this machine that can be seen, oldest first."""
    kinds: dict[int, tuple[psutil.Process, Kind, list[str]]] = {}
    for process in psutil.process_iter():
        if (found := _classified(process)) is not None:
            kinds[process.pid] = (process, *found)
    sockets = _listening_sockets() if kinds else {}
    read = [_read(p, kind, argv, frozenset(kinds), sockets) for p, kind, argv in kinds.values()]
    return sorted((one for one in read if one is not None), key=lambda one: (one.started, one.pid))


def engine_at(pid: int) -> EngineProcess | None:
    """Process `pid` if it is an engine; None if it is none or is gone."""
    try:
        process = psutil.Process(pid)
    except _GONE:
        return None
    found = _classified(process)
    return None if found is None else _read(process, *found, _above(process), _listening_sockets())


def exists(pid: int) -> bool:
    """Whether there is such a process."""
    return psutil.pid_exists(pid)


def still_runs(process: EngineProcess) -> bool:
    """Whether it is the same process and lives."""
    return process_started(process.pid) == process.started


def listener_on(port: int) -> EngineProcess | None:
    """The engine of this machine that listens on `port` (TCP), None if none is seen to."""
    return next((e for e in engines() if any(at.port == port for at in e.listening or ())), None)


def own_addresses() -> frozenset[str]:
    """The addresses of this machine's network interfaces; those of IPv6 in brackets, as in a URL."""
    try:
        interfaces = psutil.net_if_addrs().values()
    except _GONE:
        return frozenset()
    found = (at for addresses in interfaces for at in addresses)
    return frozenset(
        f"[{at.address}]" if at.family == socket.AF_INET6 else at.address
        for at in found
        if at.family in (socket.AF_INET, socket.AF_INET6)
    )


def _classified(process: psutil.Process) -> tuple[Kind, list[str]] | None:
    try:
        argv = process.cmdline()[:_WORDS]
        if len(argv) == 1 and argv[0].startswith("VLLM::"):
            argv = argv[0].split()
        kind = classify(argv)
        return None if kind is None or process.status() == psutil.STATUS_ZOMBIE else (kind, argv)
    except _GONE:
        return None


def _read(
    process: psutil.Process,
    kind: Kind,
    argv: list[str],
    others: frozenset[int],
    sockets: Mapping[int, tuple[Listening, ...]],
) -> EngineProcess | None:
    denied = []
    try:
        with process.oneshot():
            started, parents = process.create_time(), [p.pid for p in process.parents()]
            user = _user(process)
    except _GONE:
        return None
    env = _environment(process)
    listening = _listening(process, sockets)
    cwd = _cwd(process)
    if env is None:
        denied.append("environment")
    if listening is None:
        denied.append("ports")
    group = _cgroup(process.pid)
    unit = _unit(group)
    return EngineProcess(
        pid=process.pid,
        kind=kind,
        argv=tuple(clean(word, _WORD) for word in argv),
        user=user,
        started=started,
        cwd=cwd,
        env=env,
        listening=listening,
        unit=unit,
        user_unit=unit is not None and "/user@" in group,
        container=container_of(group),
        parent=next((pid for pid in parents if pid in others), None),
        denied=tuple(denied),
    )


def _above(process: psutil.Process) -> frozenset[int]:
    try:
        return frozenset(p.pid for p in process.parents() if _classified(p) is not None)
    except _GONE:
        return frozenset()


def _user(process: psutil.Process) -> str:
    try:
        return clean(process.username(), 64)
    except (*_GONE, KeyError):
        return "?"


def _environment(process: psutil.Process) -> dict[str, str] | None:
    try:
        env = process.environ()
    except _GONE:
        return None
    return {clean(name, 200): clean(value, _WORD) for name, value in env.items()}


def _cwd(process: psutil.Process) -> str | None:
    try:
        return clean(process.cwd(), 4096) or None
    except _GONE:
        return None


def _listening_sockets() -> dict[int, tuple[Listening, ...]]:
    """What the whole machine shows, by process; without privileges it holds our own processes alone."""
    found: dict[int, tuple[Listening, ...]] = {}
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.pid is not None:
                at = Listening(*connection.laddr)
                found[connection.pid] = (*found.get(connection.pid, ()), at)
    except _GONE:
        pass
    return found


def _listening(
    process: psutil.Process, sockets: Mapping[int, tuple[Listening, ...]]
) -> tuple[Listening, ...] | None:
    """The process's own view too: in a container it listens in another network namespace."""
    try:
        os.listdir(f"/proc/{process.pid}/fd")
    except FileNotFoundError:
        return sockets.get(process.pid, ())
    except OSError:
        return sockets.get(process.pid)
    seen = list(sockets.get(process.pid, ()))
    if not seen:
        try:
            seen = [
                Listening(*c.laddr) for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN
            ]
        except _GONE:
            return None
    return tuple(sorted(set(seen), key=lambda at: (at.port, at.address)))


def _cgroup(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return clean(file.read(65536), 65536)
    except OSError:
        return ""


def _unit(group: str) -> str | None:
    units = [u for u in _UNIT.findall(group.replace(" ", "/")) if not u.startswith(("user@", "docker."))]
    return clean(units[-1], 200) if units else None


def container_of(group: str) -> Container | None:
    """The container that a control group's path names."""
    match = _CONTAINER.search(group)
    if match is not None:
        runtime = {"docker": "docker", "libpod": "podman"}.get(match[1], "kubernetes")
        return Container(runtime, match[2])
    bare = _BARE_CONTAINER.search(group)
    return None if bare is None else Container("docker" if "/docker" in group else "kubernetes", bare[1])


def hosts_of(listening: tuple[Listening, ...]) -> Iterator[str]:
    """URLs of this machine at which those sockets answer; a wildcard address is reached through loopback."""
    for at in listening:
        address = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(at.address)  # noqa: S104 - read, not bound
        if address is None:
            address = f"[{at.address}]" if _is_v6(at.address) else at.address
        yield f"{address}:{at.port}"


def _is_v6(address: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, address)
    except OSError:
        return False
    return True
