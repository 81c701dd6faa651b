"""Where a running engine's output goes, and the exact way to get at it where nobody keeps it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kvtui.core.shell import command_line
from kvtui.core.text import clean
from kvtui.engines.attach.asked import Asked
from kvtui.engines.attach.processes import EngineProcess

PlaceKind = Literal["file", "deleted file", "journal", "container", "none"]

_STDOUT, _STDERR = 1, 2
_LLAMA = ("llama-server", "llama-cpp-python")


@dataclass(frozen=True, slots=True)
class LogPlace:
    """`where` for a person; `path` to open, or `command` to run (it prints the log). `why` where there is none:
    what became of the output, and what to do."""

    kind: PlaceKind
    where: str
    path: str | None = None
    command: tuple[str, ...] = ()
    why: str = ""


def given_file(path: str) -> LogPlace:
    """A file that the operator names."""
    return LogPlace("file", clean(path), path=os.path.expanduser(path))


def given_unit(unit: str, started: float | None, *, user: bool = False) -> LogPlace:
    """The journal of a systemd unit that the operator names, from the start of its process on."""
    return _journal(("-u", unit), unit, started, user=user)


def find_log(process: EngineProcess, asked: Asked, family: Mapping[int, EngineProcess]) -> LogPlace:
    """Where `process` writes its log. `family` are the other engines, for processes that hand it to a parent."""
    for candidate in (_by_option(process, asked), _by_descriptor(process, asked)):
        if candidate is not None:
            return candidate
    if process.container is not None and process.container.runtime in ("docker", "podman"):
        return _container(process)
    if (parent := family.get(process.parent or -1)) is not None:
        return find_log(parent, Asked(), family)
    if process.unit is not None:
        return _journal(("-u", process.unit), process.unit, process.started, user=process.user_unit)
    kind = _target(process.pid, _STDERR)
    if kind.startswith("socket:"):
        return _journal((f"_PID={process.pid}",), f"process {process.pid}", process.started)
    return LogPlace("none", kind or "unknown", why=_why(process, kind))


def in_its_own_root(process: EngineProcess, path: str) -> str:
    """`path` as this process sees it: relative to its directory, and inside its container where it runs in one."""
    if not os.path.isabs(path):
        path = os.path.join(process.cwd or "/", path)
    return f"/proc/{process.pid}/root{path}" if process.container is not None else path


def _by_option(process: EngineProcess, asked: Asked) -> LogPlace | None:
    named = asked.value("log_file") or (process.env or {}).get("LLAMA_LOG_FILE")
    if process.kind not in _LLAMA or not named:
        return None
    return LogPlace("file", clean(str(named)), path=in_its_own_root(process, str(named)))


def _by_descriptor(process: EngineProcess, asked: Asked) -> LogPlace | None:
    """The file behind its standard error, else output; records of JSON go to the output alone."""
    order = (_STDOUT, _STDERR) if asked.value("log_jsonl") else (_STDERR, _STDOUT)
    for number in order:
        path = f"/proc/{process.pid}/fd/{number}"
        try:
            is_file = stat.S_ISREG(os.stat(path).st_mode)
        except OSError:
            continue
        if is_file:
            target = _target(process.pid, number)
            if target.endswith(" (deleted)"):
                return LogPlace("deleted file", clean(target), path=path)
            return LogPlace("file", clean(target), path=path)
    return None


def _target(pid: int, number: int) -> str:
    try:
        return clean(os.readlink(f"/proc/{pid}/fd/{number}"))
    except OSError:
        return ""


def _journal(match: tuple[str, ...], where: str, started: float | None, *, user: bool = False) -> LogPlace:
    command = ["journalctl", *(("--user",) if user else ()), *match, "-o", "cat", "--no-pager", "-q"]
    if started is not None:
        command += ["--since", f"@{int(started)}"]
    return LogPlace("journal", clean(where), command=tuple(command))


def _container(process: EngineProcess) -> LogPlace:
    assert process.container is not None
    runtime, name = process.container.runtime, process.container.id[:12]
    command = (runtime, "logs", "--since", str(int(process.started)), name)
    return LogPlace("container", f"{runtime} {name}", command=command)


def _why(process: EngineProcess, target: str) -> str:
    to = {"/dev/null": "/dev/null, it is thrown away", "": "a place that may not be looked at"}.get(target)
    if to is None and target.startswith("pipe:"):
        to = "a pipe to another program"
    if to is None:
        to = f"a terminal ({target})" if target.startswith(("/dev/pts", "/dev/tty")) else target
    how = "give its log with --log FILE or --journal UNIT"
    if target and process.kind in _LLAMA and target.startswith(("/dev/", "pipe:")):
        how += ", or start it again with " + command_line(("--log-file", "engine.log", "-lv", "4"))
    elif target and target.startswith("/dev/"):
        how += ", or start it again with `> engine.log 2>&1` behind its command"
    elif not target:
        how += f", or run kvtui as {process.user} or root"
    return f"its output goes to {to}: {how}"
