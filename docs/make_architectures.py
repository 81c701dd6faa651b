"""Writes architectures.md, the table of what is known of each architecture: `python docs/make_architectures.py`."""

from __future__ import annotations

from pathlib import Path

from kvtui.model.families import ARCHITECTURES

HERE = Path(__file__).parent
INTRO = """# Architectures

What `kvtui budget` knows of each architecture of llama.cpp b11434: the value of `general.architecture` in a model
file, and what a context of it keeps. Figures for these are *exact*: the engine's own rule is applied to the
file's own metadata. For 147 of them, contexts of small models were created by that engine, with and without
patterns in the file, deep and shallow, and every cache agreed to the last digit printed (`tests/model/data`).

An architecture that is not in this table comes out as *approximate* (taken for full attention in every layer), or
as *unknown* where its file does not even say enough for that. Cache types that llama.cpp itself does not offer
make any figure *approximate*, because forks change more than the type.

| architecture | what a context keeps |
|---|---|
"""


def page() -> str:
    """The whole file."""
    rows = "".join(f"| `{name}` | {ARCHITECTURES[name].summary} |\n" for name in sorted(ARCHITECTURES))
    return f"{INTRO}{rows}\n{len(ARCHITECTURES)} architectures.\n"


if __name__ == "__main__":
    (HERE / "architectures.md").write_text(page(), encoding="utf-8")
