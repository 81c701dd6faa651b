"""A bounded share of the fuzzing; `python -m tests.logs.fuzz 100000` is the whole of it."""

from __future__ import annotations

import random

import pytest

from tests.logs.fuzz import check, make


@pytest.mark.parametrize("seed", range(5))
def test_no_input_raises_hangs_or_depends_on_its_chunks(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        check(rng, make(rng))
