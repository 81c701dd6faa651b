"""Reading a model file's header: what `read_header` returns and how split files are put together."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kvtui.core.errors import ModelFileError
from kvtui.core.text import clean
from kvtui.model.ggml_types import file_type_name
from kvtui.model.gguf_wire import ArrayInfo, ByteReader, Part, Value, read_part

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ArrayInfo",
    "ByteReader",
    "Header",
    "Part",
    "TensorInfo",
    "Value",
    "assemble",
    "read_header",
    "read_part",
    "split_names",
]

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


class TensorInfo(NamedTuple):
    """A tensor: `n_bytes` of data at `offset` in the data section of its part. `shape[0]` is the row length."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    n_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a model file says. Strings are cleaned; sizes are bytes.

    `metadata` holds scalars, tuples for numeric arrays of up to 1,024 elements, and `ArrayInfo` for longer ones
    and for all string arrays. `header_bytes` and `header_sha256` are those of the first part; `file_bytes`,
    `tensors` and `tensor_bytes` go over all `n_parts`. `file_bytes` is what the tensors need where the size of a
    file was not told. `stored_as` names the types of integers that the engine, which wants u32, will not take.
    """

    path: str
    version: int
    arch: str
    name: str
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    header_bytes: int
    header_sha256: str
    n_parts: int
    file_bytes: int
    tensor_bytes: int
    stored_as: Mapping[str, str] = field(default_factory=dict)

    def integer(self, key: str) -> int | None:
        """The integer stored under `<arch>.key`, None where there is none."""
        value = self.metadata.get(f"{self.arch}.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def n_ctx_train(self) -> int | None:
        """Tokens of context that the model was trained on."""
        return self.integer("context_length")

    @property
    def n_layer(self) -> int | None:
        """Blocks in the file, next-token-prediction ones included."""
        return self.integer("block_count")

    @property
    def quant(self) -> str | None:
        """The mix of weight types, as `Q4_K_M`."""
        return file_type_name(self.metadata.get("general.file_type"))

    @property
    def has_chat_template(self) -> bool:
        """Whether the file carries a chat template."""
        return "tokenizer.chat_template" in self.metadata


def read_header(path: str | Path) -> Header:
    """The header of the GGUF file at `path`; any part of a split file stands for the whole.

    Reads the header's bytes only. Raises ModelFileError, with the file, the reason and the byte at which
    reading stopped, for anything that cannot be read: it never blocks on a pipe and never trusts a length.
    """
    names = _existing(os.fspath(path))
    return assemble(names, [_read_file(name) for name in names])


def assemble(names: Sequence[str], parts: Sequence[Part]) -> Header:
    """The header that the `parts` of one model, in order, make together; `names` are their paths or addresses.

    Raises ModelFileError where they do not belong together or a part lacks tensor data that its header promises.
    """
    first = parts[0]
    shown = clean(names[0])
    arch = first.metadata.get("general.architecture")
    if not isinstance(arch, str) or not arch:
        raise ModelFileError(shown, "general.architecture is missing")
    declared = first.metadata.get("split.count")
    if isinstance(declared, int) and declared > 1 and declared != len(parts):
        raise ModelFileError(shown, f"is one of {declared} parts, but is not named as a split file")
    model_name = first.metadata.get("general.name")
    sized = [_sized(part, clean(name)) for part, name in zip(parts, names, strict=True)]
    tensors = tuple(itertools.chain.from_iterable(sized))
    return Header(
        path=shown,
        version=first.version,
        arch=clean(arch, 64),
        name=clean(model_name, 256).strip() if isinstance(model_name, str) else "",
        metadata=MappingProxyType(first.metadata),
        tensors=tensors,
        header_bytes=first.end,
        header_sha256=first.sha256,
        n_parts=len(parts),
        file_bytes=sum(_file_bytes(part, own) for part, own in zip(parts, sized, strict=True)),
        tensor_bytes=sum(t.n_bytes for t in tensors),
        stored_as=MappingProxyType(first.stored_as),
    )


def split_names(name: str) -> list[str]:
    """All parts of the split model that `name` is one of, in order; `name` alone where it is not split."""
    match = _SPLIT.search(name)
    if not match or int(match[2]) < 2:
        return [name]
    stem, count = name[: match.start()], int(match[2])
    return [f"{stem}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]


def _existing(path: str) -> list[str]:
    names = split_names(path)
    if len(names) > 1:
        for i, name in enumerate(names, 1):
            if not os.path.exists(name):
                raise ModelFileError(clean(name), f"part {i} of {len(names)} is missing")
    return names


def _read_file(path: str) -> Part:
    shown = clean(path)
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to would otherwise hang.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise ModelFileError(shown, _reason(error)) from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise ModelFileError(shown, "is a directory, not a model file")
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(shown, "is not a regular file")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return read_part(shown, file, status.st_size)
    except OSError as error:
        raise ModelFileError(shown, _reason(error)) from error
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "permission denied"
    return clean(getattr(error, "strerror", None) or str(error), 200)


def _sized(part: Part, path: str) -> list[TensorInfo]:
    """The part's tensors with their sizes; those of an unknown type take what lies before the next tensor."""
    start = _data_start(part)
    size = part.size or 0
    has_data = size > start
    stops = sorted({t.offset for t in part.tensors} | {max(size - start, 0)})
    following = dict(itertools.pairwise(stops))
    out = []
    for t in part.tensors:
        n_bytes = following.get(t.offset, t.offset) - t.offset if t.n_bytes is None else t.n_bytes
        if has_data and start + t.offset + n_bytes > size:
            missing = start + t.offset + n_bytes - size
            raise ModelFileError(
                path, f"truncated: {missing:,} bytes of tensor data are missing", offset=size
            )
        out.append(TensorInfo(t.name, t.shape, t.type_name, n_bytes, t.offset))
    return out


def _data_start(part: Part) -> int:
    return (part.end + part.alignment - 1) // part.alignment * part.alignment


def _file_bytes(part: Part, tensors: Sequence[TensorInfo]) -> int:
    if part.size is not None:
        return part.size
    return _data_start(part) + max((t.offset + t.n_bytes for t in tensors), default=0)
