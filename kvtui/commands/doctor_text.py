"""`kvtui doctor` for a person: engines first, then every check with what to paste."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from kvtui.commands.doctor_checks import Box, Check
from kvtui.engines.survey import EngineFound

_SIGNS = {"ok": "ok", "note": "note", "missing": "MISSING"}
_WIDTH = 78


def overview(box: Box, found: Sequence[Check]) -> str:
    """The whole answer, at most 80 columns but for paths and lines to paste."""
    lines = ["engines"]
    for engine in box.engines:
        lines += _engine(engine)
    lines.append("")
    for check in found:
        lines += _check(check)
    missing = sum(check.state == "missing" for check in found)
    lines += ["", f"{missing} missing" if missing else "the procedure can be run: kvtui tune -m MODEL"]
    return "\n".join(lines)


def _engine(engine: EngineFound) -> Iterator[str]:
    if engine.program is None:
        yield f"  {engine.kind:<13} not found"
        return
    yield f"  {engine.kind:<13} {engine.program} ({engine.source})"
    able = engine.abilities
    facts = [engine.version.removeprefix("version: ")] if engine.version else []
    if able is not None:
        if able.compiler:
            facts.append(f"built with {able.compiler}" + (f" for {able.target}" if able.target else ""))
        if able.backends:
            facts.append(f"backends {', '.join(able.backends)}")
        if able.devices is not None:
            facts.append(f"devices {', '.join(f'{d.name} {d.description}' for d in able.devices) or 'none'}")
        if able.cache_types:
            facts.append(f"KV types {' '.join(able.cache_types)}")
    yield from _wrapped("; ".join(facts), " " * 16)


def _check(check: Check) -> Iterator[str]:
    yield from textwrap.wrap(
        f"{_SIGNS[check.state]:<8} {check.what}", _WIDTH, subsequent_indent=" " * 9, break_long_words=False
    )
    yield from _wrapped(check.why, " " * 9)
    for line in check.get:
        yield f"           {line}"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False
    )
