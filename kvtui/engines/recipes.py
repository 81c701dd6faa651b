"""Which engines are set up otherwise than by a command line, because somebody else runs them as a service."""

from __future__ import annotations

from kvtui.core.config import RunConfig
from kvtui.engines.base import Recipe
from kvtui.engines.ollama.service import recipes


def recipes_of(kind: str, config: RunConfig) -> tuple[Recipe, ...]:
    """For a kind of engine (`Traits.kind`) whose settings belong to a service; empty for those that take options."""
    if kind == "ollama":
        return recipes(config)
    return ()
