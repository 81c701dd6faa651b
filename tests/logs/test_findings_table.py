from __future__ import annotations

from docs.make_findings import HERE, page
from kvtui.logs.findings import CATALOGUE


def test_the_table_in_the_docs_is_current() -> None:
    assert (HERE / "findings.md").read_text(encoding="utf-8") == page()


def test_the_readme_lists_every_finding() -> None:
    readme = (HERE.parent / "README.md").read_text(encoding="utf-8")
    assert [e.id for e in CATALOGUE if f"`{e.id}`" not in readme] == []
