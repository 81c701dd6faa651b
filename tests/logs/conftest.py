"""Logs for the parser's tests: recorded from the real engine and trimmed, or written line by line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.logs.facts import EngineFacts
from kvtui.logs.parser import LogParser

DATA = Path(__file__).parent / "data"


def read_facts(text: str | bytes, **requested: object) -> EngineFacts:
    parser = LogParser(requested)
    parser.feed(text.encode() if isinstance(text, str) else text)
    parser.close()
    return parser.facts()


@pytest.fixture
def recorded() -> Callable[[str], bytes]:
    """A recorded log by its name."""
    return lambda name: (DATA / f"{name}.log").read_bytes()
