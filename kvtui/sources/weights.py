"""How many bytes the weights in a Hugging Face folder are.

Sizes come from each safetensors file's own header (8 bytes of length, then JSON with the place of every tensor),
else from the index, else from the files as they are.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Any, Literal

from kvtui.core.errors import ModelFileError
from kvtui.core.text import clean
from kvtui.sources.files import json_object, listing, read_json

INDEX = "model.safetensors.index.json"
_MAX_FILES = 1024
_MAX_HEADER = 32 << 20  # of the largest models, a few MiB
_MAX_BYTES = 1 << 60
_REPEATED = ("consolidated", "original")  # the same weights once more, in another layout


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """Bytes of all tensors, and what says so: the files' headers, the index, or the size of the files."""

    n_bytes: int
    source: Literal["headers", "index", "files"]
    notes: tuple[str, ...] = ()


def weights_in(folder: str) -> WeightFiles | None:
    """The weights of a folder, None where there are none. Raises ModelFileError for a file that is damaged."""
    names = listing(folder)
    index = read_json(os.path.join(folder, INDEX)) if INDEX in names else None
    wanted = _named(index) if index is not None else _lone(names)
    if not wanted:
        return _total(index) if index is not None else _other(folder, names)
    missing = [name for name in wanted if not os.path.isfile(os.path.join(folder, name))]
    if missing:
        note = f"{len(missing)} of {len(wanted)} weight files are not here"
        known = _total(index) if index is not None else None
        return WeightFiles(known.n_bytes, "index", (note,)) if known else None
    return WeightFiles(sum(_tensor_bytes(os.path.join(folder, name)) for name in wanted), "headers")


def _named(index: dict[str, Any]) -> list[str]:
    """The files that the index names; a name that leads out of the folder is none."""
    places = index.get("weight_map")
    if not isinstance(places, dict):
        return []
    names = {
        n
        for n in places.values()
        if isinstance(n, str) and os.path.basename(n) == n and n not in ("", ".", "..")
    }
    return sorted(names)[:_MAX_FILES]


def _lone(names: list[str]) -> list[str]:
    found = [n for n in names if n.endswith(".safetensors")]
    return [n for n in found if not n.startswith(_REPEATED)][:_MAX_FILES] or found[:_MAX_FILES]


def _total(index: dict[str, Any]) -> WeightFiles | None:
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or not 0 < total < _MAX_BYTES:
        return None
    return WeightFiles(total, "index")


def _other(folder: str, names: list[str]) -> WeightFiles | None:
    found = [n for n in names if n.startswith("pytorch_model") and n.endswith(".bin")]
    sizes = [os.path.getsize(path) for n in found if os.path.isfile(path := os.path.join(folder, n))]
    return WeightFiles(sum(sizes), "files") if sizes else None


def _tensor_bytes(path: str) -> int:
    """Bytes of the tensors in one safetensors file. Raises ModelFileError: unreadable, or another size than its header
    says, which the format's own readers refuse too."""
    shown = clean(path)
    try:
        size, length, head = _head(path)
    except OSError as error:
        raise ModelFileError(shown, clean(error.strerror or "cannot be read", 200)) from error
    if not 0 < length <= min(_MAX_HEADER, size - 8):
        raise ModelFileError(shown, "not a safetensors file, or cut off")
    end = 0
    for name, tensor in json_object(head, path).items():
        place = tensor.get("data_offsets") if isinstance(tensor, dict) and name != "__metadata__" else None
        if place is not None:
            end = max(end, _end(place, shown))
    more = size - 8 - length - end
    if more < 0:
        raise ModelFileError(shown, f"cut off: {-more:,} bytes are missing")
    if more > 0:
        raise ModelFileError(shown, f"damaged: its header says nothing of {more:,} of its bytes")
    return end


def _head(path: str) -> tuple[int, int, bytes]:
    """The file's size, the length that it gives to its header, and the header, empty where it cannot be so long."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        return size, length, file.read(length) if length <= min(_MAX_HEADER, size) else b""


def _end(place: Any, shown: str) -> int:
    """Where a tensor ends among the file's bytes. Raises ModelFileError for a place that is none."""
    if isinstance(place, list) and len(place) == 2 and all(type(n) is int for n in place):
        begin, end = place
        if 0 <= begin <= end < _MAX_BYTES:
            return int(end)
    raise ModelFileError(shown, "damaged: its header gives a tensor no place in the file")
