"""What an operator's reference to a model turned out to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvtui.model.header import Header
    from kvtui.model.hf.config import HfConfig
    from kvtui.sources.weights import WeightFiles

Kind = Literal["file", "ollama", "huggingface", "url"]


@dataclass(frozen=True, slots=True)
class Companion:
    """A file that is loaded beside the model: `role` says as what. `n_bytes` None: its size is not known."""

    role: Literal["projector", "adapter"]
    path: str
    n_bytes: int | None


@dataclass(frozen=True, slots=True)
class GgufPlace:
    """A GGUF file on this machine, not read yet. `notes` say what the place tells beside it, in sentences."""

    path: str
    kind: Kind
    notes: tuple[str, ...] = ()
    companions: tuple[Companion, ...] = ()


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A GGUF model and its header. `path` is what an engine can be given, None where the file is elsewhere.

    `fetched_bytes` were read over the network, None for what is on this machine.
    """

    header: Header
    kind: Kind
    path: str | None
    notes: tuple[str, ...] = ()
    companions: tuple[Companion, ...] = ()
    fetched_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HfModel:
    """A model as Hugging Face lays it out. `path` is its folder, or the `config.json` alone.

    `weights` is None where no weight file lies beside the configuration.
    """

    config: HfConfig
    path: str
    weights: WeightFiles | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder that holds models. `ollama`: it is a store of Ollama, whose models have names instead of files."""

    path: str
    ollama: bool = False


Source = GgufModel | HfModel | ModelFolder
