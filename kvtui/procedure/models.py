"""The model of a session: found by what the operator called it, in the form that the engine loads, and found again."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kvtui.core.errors import InputError, ModelFileError
from kvtui.core.text import clean
from kvtui.engines.base import Traits
from kvtui.procedure.oracle import ModelOracle, Oracle
from kvtui.session.records import ModelInfo


@dataclass(frozen=True, slots=True)
class FoundModel:
    """`given` is what the engine is told to load, `info` what a session records, `notes` what its place tells."""

    given: str
    info: ModelInfo
    oracle: ModelOracle
    notes: tuple[str, ...] = ()


def find_model(reference: str, traits: Traits) -> FoundModel:
    """The model that `reference` means to this kind of engine. Raises InputError (mostly ModelFileError)."""
    if traits.model_format == "hf":
        from kvtui.procedure.oracle_vllm import VllmOracle

        hf = VllmOracle.read(reference)
        return FoundModel(reference, hf.info(hf.path, reference), hf, hf.notes)
    from kvtui.sources.open import local_gguf

    place = local_gguf(reference)
    path = place.path
    if clean(path, len(path) + 1) != path:
        raise ModelFileError(
            clean(path), "characters in its path cannot be shown", hint="rename it, or give a link to it"
        )
    oracle = Oracle.read(path)
    if not oracle.n_layer:
        raise ModelFileError(path, "not a language model: its header names no layers")
    shown = reference if traits.model_is_tag else os.path.basename(path)
    return FoundModel(
        reference if traits.model_is_tag else path, oracle.info(path, shown), oracle, place.notes
    )


def same_model(recorded: ModelInfo, traits: Traits) -> ModelOracle:
    """The model of a recorded session. Raises InputError when it is gone, or another one is in its place."""
    reference = recorded.file_name if traits.model_format == "hf" else recorded.path
    oracle: ModelOracle
    if traits.model_format == "hf":
        oracle = find_model(reference, traits).oracle
    else:
        oracle = Oracle.read(reference)
    if oracle.info(recorded.path, recorded.file_name).header_sha256 != recorded.header_sha256:
        raise InputError(
            f"{clean(recorded.path)}: not the model this session began with",
            hint="start a new session for the new one",
        )
    return oracle
