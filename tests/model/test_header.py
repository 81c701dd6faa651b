"""The header reader: what it returns, and that nothing hostile gets past it."""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from pathlib import Path
from typing import Any

import gguf as oracle
import numpy as np
import pytest

from kvtui.core.errors import ModelFileError
from kvtui.model.geometry import geometry
from kvtui.model.header import ArrayInfo, assemble, read_header, read_part
from tests.model.gguf_bytes import ARRAY, F32, STRING, U8, U32, U64, gguf, model, string, tensor, value, write

SMALL = {"block_count": 2, "attention__head_count": (4)}


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_values_in_both_byte_orders(tmp_path: Path, order: str, version: int) -> None:
    metadata: dict[str, Any] = model("llama", block_count=2) | {
        "general.name": "A \x1b[31mred\x1b[0m name\n",
        "general.file_type": 15,
        "tokenizer.chat_template": "{{ x }}" * 5000,
        "tokenizer.ggml.tokens": ["a", "bc", ""] * 700,
        "llama.rope.freq_base": 10000.5,
        "llama.flags": [True, False],
        "llama.ratios": [1, 2, 4096],
        "llama.long": [7] * 1025,
    }
    rows = [tensor("token_embd.weight", (64, 10), 0, 0, order), tensor("blk.0.x", (256,), 12, 2560, order)]
    data = gguf(metadata, rows, version=version, order=order)
    header = read_header(write(tmp_path / "m.gguf", data))
    assert (header.version, header.arch, header.name) == (version, "llama", "A red name")
    assert (header.n_layer, header.n_ctx_train, header.quant) == (2, 131072, "Q4_K_M")
    assert header.has_chat_template
    assert header.metadata["tokenizer.ggml.tokens"] == ArrayInfo("str", 2100)
    assert header.metadata["llama.rope.freq_base"] == 10000.5
    assert header.metadata["llama.flags"] == (True, False)
    assert header.metadata["llama.ratios"] == (1, 2, 4096)
    assert header.metadata["llama.long"] == ArrayInfo("u32", 1025)
    template = header.metadata["tokenizer.chat_template"]
    assert isinstance(template, str)
    assert len(template) <= 16_384
    assert [(t.name, t.shape, t.type_name, t.n_bytes, t.offset) for t in header.tensors] == [
        ("token_embd.weight", (64, 10), "F32", 2560, 0),
        ("blk.0.x", (256,), "Q4_K", 144, 2560),
    ]
    assert header.tensor_bytes == 2704
    assert header.header_bytes == len(data)
    assert header.header_sha256 == hashlib.sha256(data).hexdigest()
    assert header.file_bytes == len(data)


def test_agrees_with_the_reference_reader(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = oracle.GGUFWriter(path, "qwen3")
    writer.add_block_count(3)
    writer.add_context_length(4096)
    writer.add_head_count_kv([2, 4, 8])
    writer.add_token_list([f"t{i}" for i in range(5000)])
    writer.add_tensor("a", np.zeros((4, 32), dtype=np.float32))
    writer.add_tensor("b", np.zeros((3, 8), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    theirs = oracle.GGUFReader(path)
    ours = read_header(path)
    assert set(ours.metadata) == {k for k in theirs.fields if not k.startswith("GGUF.")}
    assert ours.metadata["qwen3.attention.head_count_kv"] == (2, 4, 8)
    assert ours.metadata["tokenizer.ggml.tokens"] == ArrayInfo("str", 5000)
    assert [(t.name, t.shape, t.n_bytes) for t in ours.tensors] == [
        (t.name, tuple(int(n) for n in t.shape), int(t.n_bytes)) for t in theirs.tensors
    ]


def test_strings_across_chunk_borders(tmp_path: Path) -> None:
    words = ["x" * (i * 37 % 9000) for i in range(600)]
    data = gguf(model("llama") | {"tokenizer.ggml.tokens": words, "after": 42})
    assert len(data) > 2_000_000
    header = read_header(write(tmp_path / "m.gguf", data))
    assert header.metadata["after"] == 42
    assert header.header_sha256 == hashlib.sha256(data).hexdigest()


def test_split_files_are_summed(tmp_path: Path) -> None:
    for part in (1, 2, 3):
        metadata = model("llama") | {"split.count": 3} if part == 1 else {"split.no": part, "split.count": 3}
        rows = [tensor(f"blk.{part}.w", (32, part), 0, 0)]
        write(tmp_path / f"m-{part:05d}-of-00003.gguf", gguf(metadata, rows))
    for part in (1, 3):
        header = read_header(tmp_path / f"m-{part:05d}-of-00003.gguf")
        assert (header.n_parts, len(header.tensors), header.tensor_bytes) == (3, 3, 32 * 4 * 6)
        assert header.path.endswith("m-00001-of-00003.gguf")
        assert header.file_bytes == sum(f.stat().st_size for f in tmp_path.iterdir())
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(ModelFileError, match="part 2 of 3 is missing"):
        read_header(tmp_path / "m-00001-of-00003.gguf")


def test_renamed_split_part_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", gguf(model("llama") | {"split.count": 2}))
    with pytest.raises(ModelFileError, match="one of 2 parts"):
        read_header(path)


def test_unknown_tensor_type_takes_its_size_from_the_offsets(tmp_path: Path) -> None:
    rows = [tensor("a", (256,), 139, 0), tensor("b", (32,), 0, 160)]
    head = gguf(model("llama"), rows)
    padded = head + b"\0" * (-len(head) % 32) + b"\0" * (160 + 128)
    header = read_header(write(tmp_path / "m.gguf", padded))
    assert [(t.type_name, t.n_bytes) for t in header.tensors] == [("type-139", 160), ("F32", 128)]


NUMBERS = u32(ARRAY) + u32(U8) + u64(1024) + b"\1" * 1024
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "short": (b"GG", "not a GGUF"),
    "text": (b"# hello\nthis is a read-me\n", "not a GGUF"),
    "version 1": (b"GGUF" + u32(1) + u64(0) * 2, "version 1"),
    "version 4": (b"GGUF" + u32(4) + u64(0) * 2, "version 4"),
    "version 0": (b"GGUF" + u32(0) + u64(0) * 2, "version 0"),
    "cut after version": (b"GGUF" + u32(3), "truncated"),
    "absurd keys": (b"GGUF" + u32(3) + u64(0) + u64(1 << 62), "absurd number of keys"),
    "absurd tensors": (b"GGUF" + u32(3) + u64(1 << 62) + u64(0), "absurd number of tensors"),
    "too many keys for the file": (b"GGUF" + u32(3) + u64(0) + u64(10), "absurd number of keys"),
    "no architecture": (gguf({"a": 1}), "general.architecture is missing"),
    "architecture is a number": (gguf({"general.architecture": 3}), "general.architecture is missing"),
    "key past the end": (b"GGUF" + u32(3) + u64(0) + u64(1) + u64(60_000) + b"x" * 20, "truncated: key"),
    "huge key": (b"GGUF" + u32(3) + u64(0) + u64(1) + u64(1 << 40) + b"x" * 20, "key of"),
    "empty key": (b"GGUF" + u32(3) + u64(0) + u64(1) + u64(0) + b"x" * 20, "key of 0 bytes"),
    "string past the end": (gguf([("k", u32(STRING) + u64(1 << 50) + b"abc" * 9)]), "truncated: string"),
    "unknown value type": (gguf([("k", u32(13) + b"\0" * 20)]), "unknown value type 13"),
    "unknown array type": (gguf([("k", u32(ARRAY) + u32(77) + u64(1) + b"\0" * 9)]), "unknown array type 77"),
    "nested array": (gguf([("k", u32(ARRAY) + u32(ARRAY) + u64(1) + b"\0" * 30)]), "nested array"),
    "array past the end": (gguf([("k", u32(ARRAY) + u32(U32) + u64(1 << 61))]), "truncated: array"),
    "array overflow": (gguf([("k", u32(ARRAY) + u32(F32) + u64((1 << 64) - 1))]), "truncated: array"),
    "small array past the end": (
        gguf([("k", u32(ARRAY) + u32(U8) + u64(900) + b"\0" * 9)]),
        "truncated: array",
    ),
    "string array past the end": (gguf([("k", u32(ARRAY) + u32(STRING) + u64(1 << 60))]), "truncated: array"),
    "string in array past the end": (
        gguf([("k", u32(ARRAY) + u32(STRING) + u64(2) + u64((1 << 64) - 1) + b"x" * 40)]),
        "truncated: string in an array",
    ),
    "more numbers than any model has": (
        gguf([("general.architecture", value("a")), *((f"k{i}", NUMBERS) for i in range(65))]),
        "more than 65,536 numbers",
    ),
    "duplicate key": (gguf([("k", value(1)), ("k", value(2))]), "duplicate key k"),
    "bad alignment": (gguf(model("a") | {"general.alignment": 3}), "power of two"),
    "zero alignment": (gguf(model("a") | {"general.alignment": 0}), "power of two"),
    "duplicate tensor": (gguf(model("a"), [tensor("t", (32,), 0, 0)] * 2), "duplicate tensor t"),
    "five dimensions": (gguf(model("a"), [tensor("t", (1, 1, 1, 1, 1), 0, 0)]), "5 dimensions"),
    "many dimensions": (gguf(model("a"), [string("t") + u32(1 << 31) + b"\0" * 30]), "dimensions"),
    "absurd shape": (gguf(model("a"), [tensor("t", (1 << 40, 1 << 40), 0, 0)]), "absurdly large"),
    "unknown tensor type": (gguf(model("a"), [tensor("t", (32,), 9999, 0)]), "unknown type 9999"),
    "broken blocks": (gguf(model("a"), [tensor("t", (33,), 8, 0)]), "not whole blocks"),
    "unaligned tensor": (gguf(model("a"), [tensor("t", (32,), 0, 5)]), "not aligned"),
    "tensor table cut": (gguf(model("a"), [tensor("t", (32,), 0, 0)[:-3]]), "truncated|absurd"),
    "data cut": (gguf(model("a"), [tensor("t", (4096,), 0, 0)]) + b"\0" * 500, "tensor data are missing"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, name: str) -> None:
    data, reason = HOSTILE[name]
    path = write(tmp_path / "bad.gguf", data)
    with pytest.raises(ModelFileError, match=reason) as caught:
        read_header(path)
    assert caught.value.path == str(path)
    assert "\n" not in caught.value.line()


def test_the_offset_says_where_reading_stopped(tmp_path: Path) -> None:
    data = gguf([("general.architecture", value("a")), ("k", u32(99))])
    with pytest.raises(ModelFileError) as caught:
        read_header(write(tmp_path / "bad.gguf", data))
    assert caught.value.offset == len(data)


def test_every_prefix_of_a_file_is_refused(tmp_path: Path) -> None:
    data = gguf(model("a", block_count=2) | {"s": ["x", "yy"], "n": [1, 2]}, [tensor("t", (32,), 0, 0)])
    path = tmp_path / "cut.gguf"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError):
            read_header(path)
    path.write_bytes(data)
    assert read_header(path).arch == "a"


def test_missing_directory_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="is a directory"):
        read_header(tmp_path)
    with pytest.raises(ModelFileError):
        read_header("bad\0name.gguf")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ModelFileError, match="permission denied"):
        read_header(tmp_path / "locked.gguf")


def test_a_pipe_never_blocks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    seen: list[str] = []

    def read() -> None:
        try:
            read_header(tmp_path / "pipe.gguf")
        except ModelFileError as error:
            seen.append(error.reason)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(5)
    assert seen == ["is not a regular file"]


def test_a_device_is_refused() -> None:
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_header("/dev/zero")


def test_a_sparse_file_that_claims_gigabytes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "sparse.gguf", gguf([("k", u32(STRING) + u64(1 << 33))]))
    os.truncate(path, 1 << 34)
    with pytest.raises(ModelFileError, match="longer than 512 MiB"):
        read_header(path)


class Trickle:
    """Gives a few bytes at a time, as a connection does."""

    def __init__(self, data: bytes, step: int) -> None:
        self.data, self.step, self.asked = data, step, 0

    def read(self, n: int, /) -> bytes:
        taken, self.data = self.data[: min(n, self.step)], self.data[min(n, self.step) :]
        self.asked += len(taken)
        return taken


@pytest.mark.parametrize("size", [None, 10_000_000])
def test_a_reader_that_gives_less_than_asked(size: int | None) -> None:
    data = gguf(model("llama") | {"t": ["abc"] * 300}, [tensor("a", (32, 2), 0, 0)])
    part = read_part("m", Trickle(data, 7), size)
    header = assemble(["m"], [part])
    assert header.header_sha256 == hashlib.sha256(data).hexdigest()
    padded = len(data) + -len(data) % 32
    assert header.file_bytes == (padded + 256 if size is None else size)
    with pytest.raises(ModelFileError, match="ends early"):
        read_part("m", Trickle(data[:-1], 7), size)


def test_integers_that_the_engine_will_not_take_are_named(tmp_path: Path) -> None:
    count = ("llama.block_count", u32(U64) + u64(2))
    heads = ("llama.attention.head_count", u32(ARRAY) + u32(U8) + u64(2) + b"\x08\x08")
    known = {k: v for k, v in model("llama").items() if k != "llama.block_count"}
    pairs = [(k, value(v)) for k, v in known.items()]
    header = read_header(write(tmp_path / "m.gguf", gguf([*pairs, count, heads])))
    assert header.n_layer == 2
    assert header.stored_as == {"llama.block_count": "u64", "llama.attention.head_count": "u8 array"}
    assert "block_count is stored as u64" in (geometry(header).refused or "")
    whole = [*pairs, ("llama.block_count", value(2)), heads]
    assert "u8 array" in (geometry(read_header(write(tmp_path / "n.gguf", gguf(whole)))).refused or "")
