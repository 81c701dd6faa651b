"""What is written down about one architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvtui.model.layout import Layout
from kvtui.model.memory import attention
from kvtui.model.shapes import Memory

Rule = Callable[[Layout], None]


def plain(_: Layout) -> None:
    """Nothing beyond what every architecture shares."""


@dataclass(frozen=True, slots=True)
class Arch:
    """`rule` reads the architecture's own keys, `memory` then says what a context keeps.

    `name` is the value of general.architecture; `summary` goes into the documentation's table.
    `flash_attn` is False where the engine forces flash attention off.
    """

    name: str
    summary: str
    rule: Rule = plain
    memory: Callable[[Layout], Memory] = attention
    flash_attn: bool = True
