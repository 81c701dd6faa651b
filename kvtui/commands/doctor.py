"""`kvtui doctor`: what is on this box, what is missing, and the lines to paste that bring it."""

from __future__ import annotations

import argparse
import platform
from dataclasses import asdict
from typing import Any

from kvtui import __version__
from kvtui.commands.doctor_box import data_folder, demo_model_installed, devices, terminal, tools
from kvtui.commands.doctor_checks import Box, checks
from kvtui.commands.output import json_out, out
from kvtui.engines.survey import EngineFound, survey

SCHEMA = "kvtui.doctor/1"
FINE, MISSING = 0, 1
_DRIVER_S = 1.5


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "doctor",
        help="GPUs, engines and their abilities, what is missing",
        description="What is on this box: GPUs, engines with their versions and abilities, the demo's model, where"
        " sessions go, the terminal. What is missing comes with the lines to paste that bring it.",
        epilog="exit status: 0 the procedure can be run, 1 something that it needs is missing",
    )
    parser.add_argument("--json", action="store_true", help=f"one JSON document ({SCHEMA})")


def run(args: argparse.Namespace) -> int:
    """Look, print, and say by the exit status whether the procedure can be run."""
    box = look()
    document = as_json(box)
    if args.json:
        json_out(document)
    else:
        from kvtui.commands.doctor_text import overview

        out(overview(box, checks(box)))
    return FINE if document["ok"] else MISSING


def look() -> Box:
    """Everything, in about a second; each look is bounded in time."""
    device, problem = devices(_DRIVER_S)
    return Box(
        device=device,
        device_problem=problem,
        engines=survey(),
        demo_model=demo_model_installed(),
        data=data_folder(),
        terminal=terminal(),
        tools=tools(),
    )


def as_json(box: Box) -> dict[str, Any]:
    """The document `kvtui.doctor/1`."""
    found = checks(box)
    return {
        "schema": SCHEMA,
        "kvtui": __version__,
        "python": platform.python_version(),
        "ok": all(check.state != "missing" for check in found),
        "device": asdict(box.device) if box.device is not None else None,
        "engines": [_engine(engine) for engine in box.engines],
        "demo_model": box.demo_model,
        "data": asdict(box.data),
        "terminal": asdict(box.terminal),
        "tools": box.tools,
        "checks": [asdict(check) for check in found],
    }


def _engine(engine: EngineFound) -> dict[str, Any]:
    able = engine.abilities
    return {
        "kind": engine.kind,
        "program": engine.program,
        "source": engine.source,
        "version": engine.version,
        "problem": engine.problem,
        "build": able.build if able else None,
        "commit": able.commit if able else None,
        "compiler": able.compiler if able else None,
        "target": able.target if able else None,
        "backends": list(able.backends) if able else None,
        "devices": [asdict(d) for d in able.devices] if able and able.devices is not None else None,
        "cache_types": list(able.cache_types) if able else None,
        "flash_attn_takes_value": able.flash_attn_takes_value if able else None,
        "options": sorted(able.options) if able else None,
    }
