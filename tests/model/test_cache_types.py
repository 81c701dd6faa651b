from __future__ import annotations

import gguf
import pytest

from kvtui.model.cache_types import CACHE_TYPES, UPSTREAM, cache_type, row_bytes


@pytest.mark.parametrize("name", UPSTREAM)
def test_sizes_are_those_of_the_reference_table(name: str) -> None:
    block, n_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    kind = CACHE_TYPES[name]
    assert (kind.block, kind.n_bytes) == (block, n_bytes)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("f16", 16),
        ("q8_0", 8.5),
        ("q5_1", 6),
        ("q4_0", 4.5),
        ("q6_0", 6.5),
        ("turbo3", 3.125),
        ("turbo4", 4.25),
    ],
)
def test_bits_per_value(name: str, bits: float) -> None:
    assert CACHE_TYPES[name].bits == bits


def test_rows() -> None:
    assert row_bytes("q8_0", 1024) == 1088
    assert row_bytes("f16", 576) == 1152
    assert row_bytes("q8_0", 80) == 85
    with pytest.raises(KeyError):
        row_bytes("tq3_0", 128)


def test_names_are_the_engines_own() -> None:
    assert cache_type("q8_0") is not None
    assert cache_type("Q8_0") is None
    assert cache_type("kvarn4") is None
