from __future__ import annotations

from docs.make_findings import HERE, page


def test_the_table_in_the_docs_is_current() -> None:
    assert (HERE / "findings.md").read_text(encoding="utf-8") == page()
