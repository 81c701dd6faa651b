"""How a configuration is set in an engine that somebody else runs as a service, where the command line is not it."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.config import RunConfig


@dataclass(frozen=True, slots=True)
class Recipe:
    """`lines` to paste, in `language` (for a code block); `where` says where they go, `notes` what they cannot say."""

    title: str
    where: str
    language: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


def recipes_of(kind: str, config: RunConfig) -> tuple[Recipe, ...]:
    """For a kind of engine (`Traits.kind`) whose settings belong to a service; empty for those that take options."""
    if kind == "ollama":
        from kvtui.engines.ollama.service import recipes

        return recipes(config)
    return ()
