from __future__ import annotations

import json
from pathlib import Path

from docs.make_architectures import HERE, page

DATA = Path(__file__).parent / "data"


def test_the_table_in_the_docs_is_current() -> None:
    assert (HERE / "architectures.md").read_text(encoding="utf-8") == page()


def test_the_count_of_confirmed_architectures_is_that_of_the_data() -> None:
    covered = {case["arch"] for case in json.loads((DATA / "engine_rows.json").read_text())}
    assert f"For {len(covered)} of them" in page()
