"""What is kept: against figures that the engine printed, and the rules of single families."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvtui.model.context import ContextPlan, plan
from kvtui.model.families import ARCHITECTURES
from kvtui.model.geometry import Geometry, geometry
from kvtui.model.header import Header, read_header
from kvtui.model.request import ContextRequest
from tests.model.gguf_bytes import gguf, write

MIB = 1 << 20
ENGINE: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "engine_rows.json").read_text())
GeometryOf = Callable[..., Geometry]


def request_of(row: dict[str, Any]) -> ContextRequest:
    return ContextRequest(
        row["ctx"],
        n_seq_max=row["n_seq_max"],
        n_ubatch=row["ubatch"],
        kv_unified=row["kv_unified"],
        swa_full=row["swa_full"],
        type_k=row["type_k"],
        type_v=row["type_v"],
        flash_attn=row["flash_attn"],
    )


def printed(n_bytes: int) -> float:
    """As the engine prints MiB; its floats round halves either way, so tests allow half a digit."""
    return n_bytes / MIB


def assert_row(row: dict[str, Any], made: ContextPlan) -> None:
    if not row["ok"]:
        assert made.refused
        return
    assert made.refused is None
    assert (made.n_ctx, made.n_ctx_seq) == (row["n_ctx"], row["n_ctx_seq"])
    ours = sorted(
        (c.cells, c.layers, printed(c.k_bytes), printed(c.v_bytes)) for c in made.caches if c.layers
    )
    theirs = sorted(tuple(c) for c in row["caches"])
    assert [c[:2] for c in ours] == [c[:2] for c in theirs]
    for have, want in zip(ours, theirs, strict=True):
        assert have[2:] == pytest.approx(want[2:], abs=0.0051)
    state = made.recurrent
    if row["recurrent"] is None:
        assert state is None
    else:
        assert state is not None
        sizes = [printed(n) for n in (state.r_bytes, state.s_bytes, state.p_bytes)]
        assert sizes == pytest.approx(row["recurrent"], abs=0.0051)
    assert printed(made.state_bytes) == pytest.approx(row["states"], abs=0.016)


@pytest.mark.parametrize("arch", sorted({case["arch"] for case in ENGINE}))
def test_engine_figures(tmp_path: Path, arch: str) -> None:
    for case in (c for c in ENGINE if c["arch"] == arch):
        metadata = {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in case["keys"].items()}
        shape = geometry(read_header(write(tmp_path / "m.gguf", gguf(metadata))))
        assert shape.exactness == "exact"
        for row in case["rows"]:
            assert_row(row, plan(shape, request_of(row)))


def test_the_engine_figures_cover_most_architectures() -> None:
    covered = {case["arch"] for case in ENGINE}
    assert covered <= set(ARCHITECTURES)
    assert len(covered) == 147
    assert sum(len(case["rows"]) for case in ENGINE) > 1100


def test_every_architecture_is_known_once() -> None:
    assert len(ARCHITECTURES) == 154
    assert all(name == arch.name and arch.summary for name, arch in ARCHITECTURES.items())


def test_no_architecture_raises_on_bare_metadata(header_of: Callable[..., Header]) -> None:
    for name in ARCHITECTURES:
        shape = geometry(header_of(name, attention__head_count=8))
        assert shape.exactness in ("exact", "unknown")
        plan(shape, ContextRequest(4096))


def test_unknown_architecture_is_not_exact(geometry_of: GeometryOf) -> None:
    shape = geometry_of("brand-new", attention__head_count=32, attention__head_count_kv=8)
    made = plan(shape, ContextRequest(32768))
    assert (shape.exactness, made.exactness) == ("approximate", "approximate")
    assert "brand-new" in shape.notes[0]
    assert made.kv_bytes == 4 << 30


def test_unknown_architecture_that_keeps_less_is_said(geometry_of: GeometryOf) -> None:
    shape = geometry_of(
        "brand-new", attention__head_count=32, attention__sliding_window=512, ssm__state_size=16
    )
    assert "recurrent layers, sliding windows" in shape.notes[1]


def test_unknown_architecture_without_heads_is_unknown(geometry_of: GeometryOf) -> None:
    shape = geometry_of("brand-new", block_count=0)
    made = plan(shape, ContextRequest(32768))
    assert shape.exactness == "unknown"
    assert shape.refused is None
    assert made.kv_bytes is None


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"block_count": 0}, "0 layers"),
        ({"block_count": 513}, "513 layers"),
        ({"block_count": "many"}, "not a plain number"),
        ({"embedding_length": 4.5}, "not a plain number"),
        ({"attention__head_count": [8] * 31}, "31 values"),
        ({"attention__head_count_kv": [8] * 2000}, "2,000 values"),
        ({"attention__head_count": 8, "nextn_predict_layers": 33}, "more next-token-prediction layers"),
    ],
)
def test_metadata_that_the_engine_rejects(geometry_of: GeometryOf, keys: dict[str, Any], reason: str) -> None:
    shape = geometry_of("llama", **keys)
    assert shape.refused is not None
    assert reason in shape.refused
    assert plan(shape, ContextRequest(4096)).kv_bytes is None


def test_gemma_3_270m(geometry_of: GeometryOf) -> None:
    shape = geometry_of(
        "gemma3", block_count=18, embedding_length=640, context_length=32768, attention__head_count=4,
        attention__head_count_kv=1, attention__key_length=256, attention__value_length=256,
        attention__sliding_window=512,
    )  # fmt: skip
    made = plan(shape, ContextRequest(32768, type_k="q8_0", type_v="q8_0"))
    assert [(c.kind, c.layers, c.cells) for c in made.caches] == [("non-SWA", 3, 32768), ("SWA", 15, 1024)]
    assert made.kv_bytes is not None
    assert round(made.kv_bytes / MIB, 2) == 58.97
    assert round(made.conventional_kv_bytes / MIB, 1) == 306.0


def test_qwen35_27b_state(geometry_of: GeometryOf) -> None:
    # Measured by two public reports: 149.6 MiB of state per sequence, 64 KiB of KV per token.
    shape = geometry_of(
        "qwen35", block_count=64, embedding_length=5120, context_length=262144, attention__head_count=24,
        attention__head_count_kv=4, attention__key_length=256, attention__value_length=256,
        ssm__conv_kernel=4, ssm__inner_size=6144, ssm__state_size=128, ssm__group_count=16,
    )  # fmt: skip
    made = plan(shape, ContextRequest(196_608))
    assert made.recurrent is not None
    assert made.recurrent.bytes / MIB == 149.625
    assert sum(c.bytes for c in made.caches) == 12288 * MIB


def test_nextn_layers_are_left_out(geometry_of: GeometryOf) -> None:
    keys = {"block_count": 33, "attention__head_count": 32, "attention__head_count_kv": 8}
    shape = geometry_of("glm4moe", nextn_predict_layers=1, **keys)
    assert len(shape.caches[0].layers) == 32


def test_latent_attention_keeps_keys_only(geometry_of: GeometryOf) -> None:
    mla = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    shape = geometry_of(
        "deepseek2", block_count=47, attention__head_count=20, attention__head_count_kv=1,
        attention__key_length=576, attention__value_length=512, attention__kv_lora_rank=512, **mla,
    )  # fmt: skip
    made = plan(shape, ContextRequest(32768))
    assert made.kv_bytes == 1692 * MIB
    assert made.caches[0].v_bytes == 0
    refused = plan(shape, ContextRequest(32768, type_k="q8_0")).refused
    assert refused is not None
    assert "must be equal" in refused
