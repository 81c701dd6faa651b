"""What engines answer, before it means anything: JSON, event streams, text, ids of tokens. All bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kvtui.core.errors import RequestError
from kvtui.core.text import clean

_LINE_LIMIT = 4 << 20
_STREAM_LIMIT = 256 << 20
_TEXT_LIMIT = 1 << 20
_TOKEN_IDS = range(-1, 1 << 31)


def plain(text: str) -> str:
    """Text for showing and grading: tabs become four blanks, controls go, line breaks stay."""
    lines = text[:_TEXT_LIMIT].replace("\r\n", "\n").expandtabs(4).split("\n")
    return "\n".join(clean(line, _TEXT_LIMIT) for line in lines)


def are_token_ids(values: list[Any]) -> bool:
    """Whether all of `values` can be ids of tokens: 32-bit numbers, -1 (none) included."""
    return all(type(value) is int and value in _TOKEN_IDS for value in values)


def json_object(body: bytes, what: str) -> Any:
    """Parsed JSON. Raises RequestError for rubbish."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the engine's answer to {what} is not JSON") from error


def event_data(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The payloads of an event stream's `data:` and `error:` lines, whatever the chunks' boundaries.

    Raises RequestError when a line or the whole stream has no end.
    """
    pending, total = b"", 0
    for chunk in chunks:
        total += len(chunk)
        pending += chunk
        if total > _STREAM_LIMIT or (len(pending) > _LINE_LIMIT and b"\n" not in chunk):
            raise RequestError("the engine's answer does not end", kind="endless")
        if b"\n" not in chunk:
            continue
        *lines, rest = pending.split(b"\n")
        pending = rest
        for line in lines:
            name, colon, payload = line.rstrip(b"\r").partition(b":")
            if colon and name in (b"data", b"error"):
                yield payload.strip()
