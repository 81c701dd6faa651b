"""A finding: something the operator should know, with the evidence that shows it and one thing to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A log line (`line` counts from 1) or, with `line` None, a measurement or formula in words."""

    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """`id` is stable, kebab-case; `next` names the ONE variable to change, empty where nothing is to do."""

    id: str
    severity: Severity
    title: str
    why: str
    next: str = ""
    evidence: tuple[Evidence, ...] = ()
