from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.model.fuzz_header import outcomes


def test_mutated_headers_are_read_or_refused(tmp_path: Path) -> None:
    counts = Counter(outcomes(3000, 20261129, tmp_path))
    assert sum(counts.values()) == 3000
    # Mutations must reach both sides, or the test shows nothing.
    assert counts["refused"] > 500
    assert counts["exact"] > 300
