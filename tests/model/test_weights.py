"""Where the weights go."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtui.model.header import Header, read_header
from kvtui.model.weights import place
from tests.model.gguf_bytes import gguf, model, tensor, write

F16 = 1
EMBD, OUT, NORM, ATTN, EXPERT = 64 * 100 * 2, 64 * 100 * 2, 64 * 4, 64 * 64 * 2, 64 * 64 * 8 * 2


def header(tmp_path: Path, *, tied: bool = False, nextn: int = 0) -> Header:
    rows: list[tuple[str, tuple[int, ...], int]] = [
        ("token_embd.weight", (64, 100), F16),
        ("output_norm.weight", (64,), 0),
    ]
    if not tied:
        rows.append(("output.weight", (64, 100), F16))
    for layer in range(4):
        rows.append((f"blk.{layer}.attn_q.weight", (64, 64), F16))
        rows.append((f"blk.{layer}.ffn_up_exps.weight", (64, 64, 8), F16))
    table, offset = [], 0
    for name, shape, kind in rows:
        table.append(tensor(name, shape, kind, offset))
        n = 1
        for dim in shape:
            n *= dim
        offset += n * (2 if kind == F16 else 4)
    metadata = model("llama", block_count=4, nextn_predict_layers=nextn)
    return read_header(write(tmp_path / "m.gguf", gguf(metadata, table)))


def test_everything_on_the_gpu_but_the_embedding(tmp_path: Path) -> None:
    placed = place(header(tmp_path), None)
    assert placed.gpu_bytes == 4 * (ATTN + EXPERT) + OUT + NORM
    assert placed.host_bytes == placed.input_bytes == EMBD
    assert placed.offloaded == (5, 5)
    assert place(header(tmp_path), 99).gpu_bytes == placed.gpu_bytes


@pytest.mark.parametrize(
    ("ngl", "layers", "output"), [(0, 0, False), (1, 0, True), (3, 2, True), (5, 4, True)]
)
def test_the_output_is_the_first_to_go(tmp_path: Path, ngl: int, layers: int, output: bool) -> None:
    placed = place(header(tmp_path), ngl)
    assert sum(layer.on_gpu for layer in placed.layers) == layers
    assert [layer.layer for layer in placed.layers if layer.on_gpu] == list(range(4 - layers, 4))
    assert placed.output_on_gpu is output
    assert placed.gpu_bytes == layers * (ATTN + EXPERT) + (OUT + NORM if output else 0)
    assert placed.gpu_bytes + placed.host_bytes == 4 * (ATTN + EXPERT) + EMBD + OUT + NORM


def test_tied_embedding_is_copied_beside_the_output(tmp_path: Path) -> None:
    placed = place(header(tmp_path, tied=True), None)
    assert placed.output_bytes == EMBD + NORM
    assert placed.gpu_bytes == 4 * (ATTN + EXPERT) + EMBD + NORM
    assert placed.host_bytes == EMBD


def test_experts_of_the_first_layers_stay_on_the_host(tmp_path: Path) -> None:
    placed = place(header(tmp_path), None, 3)
    assert placed.expert_bytes == 4 * EXPERT
    assert placed.host_bytes == EMBD + 3 * EXPERT
    assert placed.gpu_bytes == 4 * ATTN + EXPERT + OUT + NORM
    # Layer 0 is on the host anyway: its experts are not counted twice.
    partial = place(header(tmp_path), 4, 2)
    assert partial.host_bytes == EMBD + (ATTN + EXPERT) + EXPERT


def test_nextn_layers_are_not_loaded(tmp_path: Path) -> None:
    placed = place(header(tmp_path, nextn=1), None)
    assert placed.nextn_bytes == ATTN + EXPERT
    assert len(placed.layers) == 3
    assert placed.gpu_bytes == 3 * (ATTN + EXPERT) + OUT + NORM


def test_absurd_counts_stay_cheap(tmp_path: Path) -> None:
    metadata = model("llama", block_count=(1 << 32) - 1, nextn_predict_layers=(1 << 32) - 1)
    placed = place(read_header(write(tmp_path / "m.gguf", gguf(metadata))), None)
    assert placed.gpu_bytes == 0
