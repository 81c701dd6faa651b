"""How events of older schemas become today's: one step for each version, from it to the next.

A step takes the JSON document of one event (its `type` and fields, without `v`) and gives the same event in the next
schema. It may not look at anything else, so that any line can be read alone. Recorded files of every schema are kept
under tests/session/data and must load for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Document = dict[str, Any]

MIGRATIONS: Mapping[int, Callable[[Document], Document]] = {}
"""By the schema a step starts from."""


def migrated(document: Document, version: int, schema: int) -> Document:
    """`document` of schema `version` as one of `schema`, which must not be older."""
    for step in range(version, schema):
        document = MIGRATIONS[step](document)
    return document
