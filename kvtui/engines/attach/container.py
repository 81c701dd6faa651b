"""What docker or podman tell of a container that may not be looked into from outside."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvtui.core.text import clean
from kvtui.engines.attach.processes import Container

_LIMIT_S = 1.0
_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Inspected:
    """Of one container: its name, its environment, and the ports of the host that lead into it by its own port."""

    name: str
    env: Mapping[str, str]
    ports: Mapping[int, int]


def inspect(container: Container) -> Inspected | None:
    """What the runtime says; None where its program is missing, refuses, or takes more than a second."""
    program = shutil.which(container.runtime)
    if program is None:
        return None
    try:
        done = subprocess.run(
            (program, "inspect", container.id),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=True,
        )
        return read_inspect(done.stdout[:_BYTES])
    except (OSError, subprocess.SubprocessError):
        return None


def unit_property(unit: str, *, user: bool, name: str = "Environment") -> str:
    """`systemctl show -p NAME UNIT`, empty where it cannot be asked; needs no privileges."""
    program = shutil.which("systemctl")
    if program is None:
        return ""
    command = (program, *(("--user",) if user else ()), "show", "-p", name, "--", unit)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout[:_BYTES].decode("utf-8", "replace")


def read_inspect(text: bytes) -> Inspected | None:
    """The output of `docker inspect` or `podman inspect`; None for what is none."""
    try:
        document = json.loads(text)
        one = document[0]
        config = one.get("Config") or {}
        ports = (one.get("NetworkSettings") or {}).get("Ports") or {}
        env = [str(item) for item in config.get("Env") or ()]
        return Inspected(clean(str(one.get("Name", "")).lstrip("/"), 200), _variables(env), _published(ports))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _variables(items: list[str]) -> dict[str, str]:
    pairs = (item.partition("=") for item in items)
    return {clean(name, 200): clean(value) for name, equals, value in pairs if equals}


def _published(ports: Mapping[str, Any]) -> dict[int, int]:
    found = {}
    for inside, outside in ports.items():
        number = inside.partition("/")[0]
        host = next((o.get("HostPort") for o in outside or ()), None)
        if number.isdecimal() and host is not None and str(host).isdecimal():
            found[int(number)] = int(host)
    return found
