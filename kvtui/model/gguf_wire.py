"""The GGUF header on the wire: a cursor over the file and the records that it reads.

Format: GGUF v2 and v3, little- or big-endian: magic, version, tensor count, key count, then the keys with
their values, then the tensor table. Only header bytes are read, in pieces of at most `CHUNK`; strings of
arrays are stepped over, never built. Every length is checked against the file's size before it is used.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, Protocol

from kvtui.core.errors import ModelFileError
from kvtui.core.text import clean
from kvtui.model.ggml_types import TENSOR_TYPES

CHUNK = 1024 * 1024
MAX_HEADER = 512 * 1024 * 1024
MAX_KEY = 65_535
MAX_KEYS = 65_536
MAX_TENSORS = 131_072
MAX_KEPT_ARRAY = 1024  # longer arrays are described, not kept; the engine has at most 512 layers
MAX_KEPT_NUMBERS = 65_536  # over all kept arrays: each takes up to 36 bytes here and may take one in the file
MAX_KEPT_STRING = 16_384
MAX_ELEMENTS = (1 << 63) - 1
_UNKNOWN_TENSOR_TYPES = range(43, 1024)  # forks number their types here; the size then comes from the offsets

STRING, ARRAY, BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "b", 10: "Q", 11: "q", 12: "d"}
_NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "array", "u64", "i64", "f64")
_UNUSUAL_SCALARS = frozenset(("u8", "i8", "u16", "i16", "i32", "u64", "i64"))
_UNUSUAL_ARRAYS = _UNUSUAL_SCALARS - {"i32"}


class ByteReader(Protocol):
    """A file that is read forward: what is open on disk, or what comes over the network."""

    def read(self, n: int, /) -> bytes:
        """From 1 to `n` of the next bytes; empty at the end."""


class ArrayInfo(NamedTuple):
    """An array that is described and not kept: element type and number of elements."""

    type: str
    length: int


Scalar = int | float | bool | str
Value = Scalar | tuple[int | float | bool, ...] | ArrayInfo


class RawTensor(NamedTuple):
    """One row of the tensor table. `offset` counts from the start of the data; `n_bytes` None: unknown type."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    n_bytes: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class Part:
    """The header of one file: everything before the tensor data. `end` is its length in bytes.

    `size` is that of the whole file, None where nobody tells. `stored_as` names the types of the integers and
    integer arrays that are not stored as the engine wants them (u32).
    """

    version: int
    metadata: dict[str, Value]
    tensors: tuple[RawTensor, ...]
    end: int
    alignment: int
    sha256: str
    size: int | None
    stored_as: dict[str, str]


class Cursor:
    """Reads forward through a file; every byte it passes goes into the hash."""

    def __init__(self, path: str, file: ByteReader, size: int | None) -> None:
        self.path = path
        self.size = MAX_HEADER if size is None else size
        self.kept = 0
        self.order = "<"
        self._file = file
        self._buf = b""
        self._base = 0
        self._pos = 0
        self._hash = hashlib.sha256()
        self._u64 = struct.Struct("<Q")

    @property
    def offset(self) -> int:
        """Where the next byte is read from, counted from the start of the file."""
        return self._base + self._pos

    @property
    def left(self) -> int:
        """Bytes between here and the end of the file."""
        return self.size - self.offset

    def fail(self, reason: str) -> NoReturn:
        raise ModelFileError(self.path, reason, offset=self.offset)

    def set_order(self, order: str) -> None:
        self.order = order
        self._u64 = struct.Struct(order + "Q")

    def digest(self) -> str:
        """SHA-256 of everything passed so far, in hex."""
        self._hash.update(self._buf[: self._pos])
        self._buf, self._base, self._pos = self._buf[self._pos :], self.offset, 0
        return self._hash.hexdigest()

    def _fill(self, n: int, what: str) -> None:
        if n > self.left:
            self.fail(f"truncated: {what} of {n:,} bytes, {self.left:,} are left")
        if self.offset + n > MAX_HEADER:
            self.fail(f"the header is longer than {MAX_HEADER >> 20} MiB")
        keep = self._buf[self._pos :]
        self._hash.update(self._buf[: self._pos])
        self._base, self._pos = self.offset, 0
        missing = n - len(keep)
        self._buf = keep + self._file.read(max(missing, min(CHUNK, self.left - len(keep))))
        while len(self._buf) < n:
            more = self._file.read(n - len(self._buf))
            if not more:
                self.fail(f"truncated: {what} of {n:,} bytes ends early")
            self._buf += more

    def take(self, n: int, what: str) -> bytes:
        """The next `n` bytes. `n` must be small: the caller bounds it."""
        if self._pos + n > len(self._buf):
            self._fill(n, what)
        out = self._buf[self._pos : self._pos + n]
        self._pos += n
        return out

    def skip(self, n: int, what: str) -> None:
        """Passes over `n` bytes without keeping them."""
        if n > self.left:
            self.fail(f"truncated: {what} of {n:,} bytes, {self.left:,} are left")
        if self.offset + n > MAX_HEADER:
            self.fail(f"the header is longer than {MAX_HEADER >> 20} MiB")
        while n:
            step = min(n, CHUNK)
            self.take(step, what)
            n -= step

    def number(self, code: str, what: str) -> int:
        """One integer of struct format `code`."""
        raw = self.take(struct.calcsize("<" + code), what)
        value: int = struct.unpack(self.order + code, raw)[0]
        return value

    def u64(self, what: str) -> int:
        value: int = self._u64.unpack(self.take(8, what))[0]
        return value

    def text(self, limit: int, what: str) -> str:
        """A string, as far as `limit` bytes, cleaned."""
        length = self.u64(what)
        if length > self.left:
            self.fail(f"truncated: {what} of {length:,} bytes, {self.left:,} are left")
        raw = self.take(min(length, limit), what)
        self.skip(length - len(raw), what)
        return clean(raw.decode("utf-8", "replace"), limit)

    def skip_strings(self, count: int) -> None:
        """Steps over `count` strings: reads their lengths only."""
        unpack = self._u64.unpack_from
        while count:
            if self._pos + 8 > len(self._buf):
                self._fill(8, "string array")
            buf, pos = self._buf, self._pos
            try:
                for todo in range(count, 0, -1):  # noqa: B007 - how far it got is the result
                    pos += 8 + unpack(buf, pos)[0]
                count = 0
            except (struct.error, OverflowError):  # the buffer ends before the next length
                count = todo
            if pos <= len(buf):
                self._pos = pos
            else:
                self._pos = len(buf)
                self.skip(pos - len(buf), "string in an array")


def read_part(path: str, file: ByteReader, size: int | None) -> Part:
    """The header of one GGUF file of `size` bytes (None: not known). Raises ModelFileError for anything else."""
    cursor = Cursor(path, file, size)
    version = _preamble(cursor)
    n_tensors, n_keys = cursor.u64("tensor count"), cursor.u64("key count")
    # A key takes at least 13 bytes (length, name, type, value), a tensor 24: larger counts cannot be true.
    if n_keys > MAX_KEYS or n_keys * 13 > cursor.left:
        cursor.fail(f"absurd number of keys: {n_keys:,}")
    if n_tensors > MAX_TENSORS or n_tensors * 24 > cursor.left:
        cursor.fail(f"absurd number of tensors: {n_tensors:,}")
    metadata: dict[str, Value] = {}
    stored_as: dict[str, str] = {}
    for _ in range(n_keys):
        _read_pair(cursor, metadata, stored_as)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        cursor.fail(f"general.alignment is not a power of two: {clean(str(alignment), 64)}")
    tensors, names = [], set()
    for _ in range(n_tensors):
        tensor = _read_tensor(cursor, alignment)
        if tensor.name in names:
            cursor.fail(f"duplicate tensor {clean(tensor.name, 128)}")
        names.add(tensor.name)
        tensors.append(tensor)
    end = cursor.offset
    return Part(version, metadata, tuple(tensors), end, alignment, cursor.digest(), size, stored_as)


def _preamble(cursor: Cursor) -> int:
    if cursor.size == 0:
        cursor.fail("the file is empty")
    magic = cursor.take(min(4, cursor.size), "magic")
    if magic != b"GGUF":
        raise ModelFileError(cursor.path, "not a GGUF file", offset=0)
    raw = cursor.take(4, "version")
    version = int.from_bytes(raw, "little")
    if version and not version & 0xFFFF:
        cursor.set_order(">")
        version = int.from_bytes(raw, "big")
    if version not in (2, 3):
        raise ModelFileError(cursor.path, f"GGUF version {version} is not readable (2 and 3 are)", offset=4)
    return version


def _read_pair(cursor: Cursor, metadata: dict[str, Value], stored_as: dict[str, str]) -> None:
    at = cursor.offset
    length = cursor.u64("key")
    if not 0 < length <= MAX_KEY:
        raise ModelFileError(cursor.path, f"key of {length:,} bytes", offset=at)
    key = clean(cursor.take(length, "key").decode("utf-8", "replace"), MAX_KEY)
    if key in metadata:
        raise ModelFileError(cursor.path, f"duplicate key {clean(key, 128)}", offset=at)
    kind = cursor.number("I", "value type")
    if kind == ARRAY:
        metadata[key], element = _read_array(cursor, key)
        if element in _UNUSUAL_ARRAYS:
            stored_as[key] = f"{element} array"
        return
    metadata[key] = _read_value(cursor, kind, key)
    if _NAMES[kind] in _UNUSUAL_SCALARS:
        stored_as[key] = _NAMES[kind]


def _read_value(cursor: Cursor, kind: int, key: str) -> Value:
    if kind == STRING:
        return cursor.text(MAX_KEPT_STRING, "string")
    code = _SCALARS.get(kind)
    if code is None:
        cursor.fail(f"unknown value type {kind} of key {clean(key, 128)}")
    value: int | float = struct.unpack(
        cursor.order + code, cursor.take(struct.calcsize("<" + code), "value")
    )[0]
    return bool(value) if kind == BOOL else value


def _read_array(cursor: Cursor, key: str) -> tuple[Value, str]:
    """An array's value and the type of its elements."""
    kind, length = cursor.number("I", "array type"), cursor.u64("array length")
    if kind == ARRAY:
        cursor.fail(f"nested array in key {clean(key, 128)}")
    if kind == STRING:
        if length * 8 > cursor.left:
            cursor.fail(f"truncated: array of {length:,} strings, {cursor.left:,} bytes are left")
        cursor.skip_strings(length)
        return ArrayInfo("str", length), "str"
    code = _SCALARS.get(kind)
    if code is None:
        cursor.fail(f"unknown array type {kind} of key {clean(key, 128)}")
    n_bytes = length * struct.calcsize("<" + code)
    if length > MAX_KEPT_ARRAY:
        cursor.skip(n_bytes, "array")
        return ArrayInfo(_NAMES[kind], length), _NAMES[kind]
    cursor.kept += length
    if cursor.kept > MAX_KEPT_NUMBERS:
        cursor.fail(f"more than {MAX_KEPT_NUMBERS:,} numbers in arrays: no model has as many")
    values = struct.unpack(f"{cursor.order}{length}{code}", cursor.take(n_bytes, "array"))
    return tuple(bool(v) for v in values) if kind == BOOL else values, _NAMES[kind]


def _read_tensor(cursor: Cursor, alignment: int) -> RawTensor:
    name = cursor.text(MAX_KEPT_STRING, "tensor name")
    n_dims = cursor.number("I", "dimensions")
    if n_dims > 4:
        cursor.fail(f"tensor {clean(name, 128)} with {n_dims:,} dimensions")
    shape = tuple(cursor.u64("dimension") for _ in range(n_dims))
    kind = cursor.number("I", "tensor type")
    offset = cursor.u64("tensor offset")
    values = 1
    for size in shape:
        values *= size
        if values > MAX_ELEMENTS:
            cursor.fail(f"tensor {clean(name, 128)} is absurdly large")
    if offset % alignment:
        cursor.fail(f"tensor {clean(name, 128)} is not aligned to {alignment}")
    known = TENSOR_TYPES.get(kind)
    if known is None:
        if kind not in _UNKNOWN_TENSOR_TYPES:
            cursor.fail(f"unknown type {kind} of tensor {clean(name, 128)}")
        return RawTensor(name, shape, f"type-{kind}", None, offset)
    if (shape[0] if shape else 1) % known.block:
        cursor.fail(f"rows of tensor {clean(name, 128)} are not whole blocks of {known.name}")
    return RawTensor(name, shape, known.name, values // known.block * known.n_bytes, offset)
