"""Writes GGUF headers byte by byte, so that tests do not depend on anybody's writer."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_CODES = {
    U8: "B",
    I8: "b",
    U16: "H",
    I16: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "?",
    U64: "Q",
    I64: "q",
    F64: "d",
}


def string(text: str | bytes, order: str = "<") -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(order + "Q", len(raw)) + raw


def value(item: Any, order: str = "<") -> bytes:
    """Type number and value: bool, int (u32), float (f32), str, or a list of one of them."""
    if isinstance(item, bool):
        return struct.pack(order + "I?", BOOL, item)
    if isinstance(item, int):
        return struct.pack(order + "II", U32, item)
    if isinstance(item, float):
        return struct.pack(order + "If", F32, item)
    if isinstance(item, str):
        return struct.pack(order + "I", STRING) + string(item, order)
    kind = {bool: BOOL, int: U32, float: F32, str: STRING}[type(item[0])] if item else U32
    head = struct.pack(order + "IIQ", ARRAY, kind, len(item))
    if kind == STRING:
        return head + b"".join(string(s, order) for s in item)
    return head + struct.pack(f"{order}{len(item)}{_CODES[kind]}", *item)


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int, order: str = "<") -> bytes:
    return (
        string(name, order)
        + struct.pack(f"{order}I{len(shape)}Q", len(shape), *shape)
        + struct.pack(order + "IQ", kind, offset)
    )


def gguf(
    metadata: Mapping[str, Any] | Iterable[tuple[str, bytes]],
    tensors: Iterable[bytes] = (),
    *,
    version: int = 3,
    order: str = "<",
) -> bytes:
    """A header: `metadata` as values, or as (key, type-and-value bytes) pairs for hostile ones."""
    pairs = (
        [(k, value(v, order)) for k, v in metadata.items()]
        if isinstance(metadata, Mapping)
        else list(metadata)
    )
    rows = list(tensors)
    return (
        b"GGUF"
        + struct.pack(order + "IQQ", version, len(rows), len(pairs))
        + b"".join(string(k, order) + raw for k, raw in pairs)
        + b"".join(rows)
    )


def model(arch: str, **keys: Any) -> dict[str, Any]:
    """Metadata of a model: `block_count=2` becomes `<arch>.block_count`; `__` in a name stands for a dot."""
    defaults: dict[str, Any] = {"context_length": 131072, "embedding_length": 4096, "block_count": 32}
    named = {k.replace("__", "."): v for k, v in keys.items()}
    return {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in (defaults | named).items()}


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
