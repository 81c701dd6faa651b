"""The document `kvtui.attach/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvtui.core.secrets import without_secrets
from kvtui.core.units import MIB
from kvtui.engines.attach.asked import Asked, Setting
from kvtui.engines.attach.logplace import LogPlace
from kvtui.engines.attach.look import Found
from kvtui.engines.attach.memory import GpuMemory
from kvtui.engines.attach.processes import EngineProcess
from kvtui.logs import document
from kvtui.procedure.attached.view import Attached

SCHEMA = "kvtui.attach/1"


def list_json(found: Sequence[Found], gpu: GpuMemory) -> dict[str, Any]:
    """Every engine of this machine."""
    return {
        "schema": SCHEMA,
        "engines": [
            _process(one.process)
            | {
                "engine": one.process.kind,
                "url": None if one.address is None else one.address.unix_socket or one.address.url,
                "model": one.asked.model,
                "gpu_mib": _mib(gpu.by_pid.get(one.process.pid)),
                "requested": _settings(one.asked.settings),
                "log": _log(one.log),
            }
            for one in found
        ],
        "gpu": gpu.why or None,
    }


def as_json(view: Attached) -> dict[str, Any]:
    """One engine: what was asked with the source of each value, what is proven, and what differs.

    `actual` is the document `kvtui.log/1` without its findings, and its lines count among those that were read; lines
    of checks and findings count in the log. `log.parts` holds, for each part read, its first line in both counts.
    """
    seen = view.seen
    actual = document.as_json(view.facts)
    for key in ("schema", "findings", "requested"):
        del actual[key]
    return {
        "schema": SCHEMA,
        "engine": seen.kind,
        **(_process(seen.process) if seen.process is not None else {"pid": None}),
        "url": None if seen.address is None else seen.address.unix_socket or seen.address.url,
        "model": model_of(seen.asked, seen.http.proven),
        "requested": _settings(seen.asked.settings),
        "actual": actual,
        "told": _settings(seen.http.proven),
        "checks": [asdict(row) for row in view.rows],
        "inference": None if view.inference is None else asdict(view.inference),
        "memory": {
            "gpu_mib": _mib(seen.gpu_bytes),
            "gpu": seen.gpu_why or None,
            "resident_mib": _mib(seen.host.resident),
            "anonymous_mib": _mib(seen.host.anonymous),
        },
        "findings": [document.finding_json(f) for f in view.findings],
        "log": {
            **_log(seen.place),
            "first_line": seen.log.first_line,
            "parts": [list(part) for part in seen.log.parts],
            "problem": seen.log.problem or None,
        },
        "notes": [*seen.notes, *seen.http.problems],
        "seconds": round(seen.seconds, 3),
    }


def model_of(asked: Asked, told: Mapping[str, Setting]) -> str | None:
    """The model by what was asked, else by what the engine says."""
    found = told.get("model_path") or told.get("model")
    return asked.model or (None if found is None else str(found.value))


def _process(process: EngineProcess) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "parent": process.parent,
        "user": process.user,
        "started": process.started,
        "command": list(without_secrets(process.argv)),
        "listening": None
        if process.listening is None
        else [
            f"{at.address}:{at.port}" if ":" not in at.address else f"[{at.address}]:{at.port}"
            for at in process.listening
        ],
        "unit": process.unit,
        "container": None if process.container is None else asdict(process.container),
        "denied": list(process.denied),
    }


def _settings(settings: Mapping[str, Setting]) -> dict[str, Any]:
    return {name: {"value": s.value, "source": s.source} for name, s in settings.items()}


def _log(place: LogPlace) -> dict[str, Any]:
    return {"kind": place.kind, "where": place.where, "why": place.why or None}


def _mib(n_bytes: int | None) -> float | None:
    return None if n_bytes is None else round(n_bytes / MIB, 2)
