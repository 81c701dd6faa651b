"""A kind of finding as it is listed: every module of findings has a `CATALOGUE` of those that it can tell."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """`severity` names all that it can have; `evidence` says what shows it."""

    id: str
    severity: str
    evidence: str
