from __future__ import annotations

from docs.make_architectures import HERE, page


def test_the_table_in_the_docs_is_current() -> None:
    assert (HERE / "architectures.md").read_text(encoding="utf-8") == page()
