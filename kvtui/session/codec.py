"""Events as JSON lines and back."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from kvtui.core.errors import SessionError
from kvtui.core.text import clean
from kvtui.session.events import EVENT_TYPES, SCHEMA, Event
from kvtui.session.migrate import migrated


class Unparsable(SessionError):
    """A line that is not even JSON."""


def _tag(cls: type[Event]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


_BY_TAG = {_tag(cls): cls for cls in EVENT_TYPES}
_MAX_INT = (1 << 63) - 1
_DEEPEST = 64
_NO_NUMBERS = frozenset(("NaN", "Infinity", "-Infinity"))
_EXACT = frozenset(("argv", "command_line", "env", "expect", "extra", "program", "prompt"))
"""What goes back to the system or the engine as it stands; whoever shows it quotes or cleans it."""


def to_builtins(value: Any) -> Any:
    """A recorded value (or any nesting of them) as plain dicts, lists and scalars, for JSON."""
    return msgspec.to_builtins(value, str_keys=True)


def from_builtins(value: Any, kind: Any) -> Any:
    """The inverse of `to_builtins`. Raises msgspec.ValidationError for a wrong shape."""
    return msgspec.convert(value, kind, strict=False, str_keys=True)


def encode(event: Event) -> bytes:
    """One event as one line of strict JSON, newline included; pure ASCII, so a torn write cannot split a character.

    Numbers that JSON has no word for are written as `"NaN"`, `"Infinity"` and `"-Infinity"`. Raises SessionError
    for an event that could not be read back, so that no such line ever gets into a session.
    """
    fields = to_builtins(event)
    document = {"v": SCHEMA, "type": _tag(type(event)), **fields}
    try:
        line = _dumps(document)
    except ValueError:
        line = _dumps(_finite(document))
    decode(line)
    return line


def _dumps(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def decode(line: bytes) -> Event | None:
    """The event on one line, None for a type this version does not know.

    Raises Unparsable when the line is not JSON (which a write that was cut short leaves behind), any other
    SessionError when it is JSON but not an event, or from a newer schema.
    """
    return _event(_document(line))


def decode_foreign(line: bytes) -> Event | None:
    """Like `decode`, for a line that anybody may have written or edited: text comes without control sequences
    (line breaks stay), and numbers within 64 bits, beyond which they are no bytes. Raises what `decode` raises."""
    document = _document(line)
    try:
        return _event(harmless(document))
    except RecursionError as error:
        raise SessionError("damaged event: nested too deeply") from error


def harmless(value: Any, key: str = "", depth: int = 0) -> Any:
    """A JSON document of somebody else's: text without control sequences, numbers within 64 bits, sizes that are
    numbers (None otherwise).

    Raises RecursionError for one that is nested as nothing that is recorded is.
    """
    if isinstance(value, str):
        if value in _NO_NUMBERS and key.endswith("mib"):
            return None
        if key in _EXACT or value.isprintable():
            return value
        return "\n".join(clean(line, len(line) + 1) for line in value.split("\n"))
    if type(value) is int:
        return max(-_MAX_INT, min(value, _MAX_INT))
    if isinstance(value, float):
        return float(max(-_MAX_INT, min(value, _MAX_INT))) if math.isfinite(value) else None
    if depth > _DEEPEST:
        raise RecursionError
    if isinstance(value, dict):
        return {
            clean(name, 200): harmless(item, key if key in _EXACT else name, depth + 1)
            for name, item in value.items()
        }
    return [harmless(item, key, depth + 1) for item in value] if isinstance(value, list) else value


def _document(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Unparsable(f"not an event: {clean(str(error), 120)}") from error


def _event(document: Any) -> Event | None:
    if not isinstance(document, dict) or not isinstance(document.get("type"), str):
        raise SessionError("not an event: no type")
    version = document.pop("v", None)
    if type(version) is not int or version < 1:
        raise SessionError("not an event: no schema version")
    if version > SCHEMA:
        raise SessionError(
            f"written by a newer kvtui (schema {clean(str(version), 20)}, this one reads up to {SCHEMA})",
            hint="update kvtui to read it",
        )
    if version < SCHEMA:
        document = _of_today(document, version)
    cls = _BY_TAG.get(document.pop("type"))
    if cls is None:
        return None
    try:
        event = from_builtins(document, cls)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise SessionError(f"damaged {_tag(cls)} event: {clean(str(error), 160)}") from error
    assert isinstance(event, Event)
    return event


def _of_today(document: dict[str, Any], version: int) -> dict[str, Any]:
    try:
        return migrated(document, version, SCHEMA)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise SessionError(f"damaged event of schema {version}: {clean(str(error), 160)}") from error
