"""What a running engine was asked for, setting by setting, each with the place that asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it comes from: `-c 4096`, `LLAMA_ARG_CTX_SIZE=4096`, `/props`."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Asked:
    """`settings` decide what is kept, `reach` says how to get at the server and its log.

    Names are those of the contract `kvtui.log/1` (`ctx`, `cache_type_k`, ..; Ollama and vLLM: the engine's own).
    `model` is a path, tag or repository. `unread` names places that may have asked too and cannot be read.
    """

    settings: Mapping[str, Setting] = field(default_factory=dict)
    reach: Mapping[str, Setting] = field(default_factory=dict)
    model: str | None = None
    unread: tuple[str, ...] = ()

    def value(self, name: str) -> Any:
        """What was asked for `name`, None if nothing was."""
        setting = self.settings.get(name) or self.reach.get(name)
        return None if setting is None else setting.value

    @property
    def values(self) -> dict[str, Any]:
        """The settings without their sources."""
        return {name: setting.value for name, setting in self.settings.items()}
