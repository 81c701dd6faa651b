"""The catalogue of what a log alone can prove to be wrong or silently changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvtui.core.findings import Finding
from kvtui.logs.draft import Note
from kvtui.logs.facts import EngineFacts
from kvtui.logs.findings import (
    context,
    failures,
    flash_attention,
    kv_types,
    ollama,
    placement,
    requested,
    running,
    state,
    vllm,
)
from kvtui.logs.findings.entry import Entry, View

CATALOGUE: tuple[Entry, ...] = (
    *failures.ENTRIES,
    *flash_attention.ENTRIES,
    *kv_types.ENTRIES,
    *placement.ENTRIES,
    *context.ENTRIES,
    *state.ENTRIES,
    *requested.ENTRIES,
    *running.ENTRIES,
    *ollama.ENTRIES,
    *vllm.ENTRIES,
)

_ORDER = {"error": 0, "warning": 1, "info": 2}


def find(facts: EngineFacts, notes: Mapping[str, Sequence[Note]]) -> tuple[Finding, ...]:
    """All findings, errors first."""
    view = View(facts, notes)
    found = [f for entry in CATALOGUE for f in entry.findings(view)]
    return tuple(sorted(found, key=lambda f: _ORDER[f.severity]))
