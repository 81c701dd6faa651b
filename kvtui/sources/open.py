"""From what an operator types to a model: a path, a folder, a name in Ollama or in the Hugging Face cache, an address.

What exists as a path is one; a name is looked up in Ollama's stores first and in the Hugging Face cache next.
"""

from __future__ import annotations

import os
import re

from kvtui.core.errors import InputError, ModelFileError
from kvtui.core.secrets import shown_address
from kvtui.core.text import clean
from kvtui.sources import huggingface, ollama
from kvtui.sources.address import is_address, open_address
from kvtui.sources.huggingface import CONFIG
from kvtui.sources.source import GgufModel, GgufPlace, HfModel, ModelFolder, Source
from kvtui.sources.weights import INDEX, weights_in

_PATH = re.compile(r"[./~]|.*\.(?:gguf|json|bin|safetensors)\Z", re.IGNORECASE | re.DOTALL)


def open_model(reference: str) -> Source:
    """The model, or the folder of models, that `reference` means; a GGUF file's header is read.

    Raises InputError (mostly ModelFileError) with what was looked for, where, and what to do.
    """
    if is_address(reference):
        return open_address(reference)
    found = _find(reference)
    if not isinstance(found, GgufPlace):
        return found
    from kvtui.model.header import read_header

    header = read_header(found.path)
    return GgufModel(header, found.kind, found.path, found.notes, found.companions)


def local_gguf(reference: str) -> GgufPlace:
    """The GGUF file on this machine that `reference` means, for an engine to load; its header is not read.

    Raises InputError for everything else: folders, addresses, models in other formats.
    """
    if is_address(reference):
        raise InputError(
            f"{shown_address(reference)}: an engine loads files, not addresses",
            hint="download it and give the path of the file",
        )
    found = _find(reference)
    if isinstance(found, HfModel):
        raise ModelFileError(found.path, "not a GGUF file", hint="give a GGUF file of the model")
    if isinstance(found, ModelFolder):
        raise ModelFileError(
            found.path, "is a directory, not a model file", hint="give one of the models in it"
        )
    return found


def _find(reference: str) -> GgufPlace | HfModel | ModelFolder:
    path = reference
    try:
        path = os.path.expanduser(reference)
        is_folder, exists = os.path.isdir(path), os.path.lexists(path)
    except ValueError:
        is_folder = exists = False
    if is_folder:
        return _folder(path)
    if exists or _PATH.match(reference):
        return _file(path)
    return _name(reference)


def _file(path: str) -> GgufPlace | HfModel:
    folder, name = os.path.split(path)
    if name == INDEX or name.endswith(".safetensors"):
        return _hf(folder or ".", ())
    if name.endswith(".json"):
        # A configuration under another name, or without its folder, says nothing of weights.
        whole = name == CONFIG
        return _config(path, folder or "." if whole else None, path, ())
    return GgufPlace(path, "file")


def _folder(path: str) -> GgufPlace | HfModel | ModelFolder:
    for store in (path, os.path.join(path, "models")):
        if ollama.is_store(store):
            return ModelFolder(store, ollama=True)
    if huggingface.is_cached_model(path):
        path = huggingface.snapshot(path)
    if os.path.isfile(os.path.join(path, CONFIG)) and not huggingface.gguf_files(path):
        return _hf(path, ())
    return ModelFolder(path)


def _name(reference: str) -> GgufPlace | HfModel:
    tag, hub = ollama.parse_tag(reference), huggingface.parse_id(reference)
    cached = huggingface.cached(hub) if hub else None
    found = ollama.find(tag) if tag else None
    if found is not None:
        place = ollama.locate(found)
        if cached is None:
            return place
        note = f"the Hugging Face cache has a model of this name too: {clean(cached)}"
        return GgufPlace(place.path, place.kind, (*place.notes, note), place.companions)
    if hub is not None and cached is not None:
        return _cached(hub, cached)
    if hub is not None:
        where = clean(huggingface.hub_cache())
        raise InputError(
            f"{hub.repo}: no file, not among Ollama's models, not in the Hugging Face cache ({where})",
            hint=f"hf download {hub.repo}, or give a path or an address",
        )
    if tag is not None:
        raise ollama.missing(tag)
    raise ModelFileError(clean(reference), "no such file")


def _cached(hub: huggingface.HubId, cached: str) -> GgufPlace | HfModel:
    folder = huggingface.snapshot(cached)
    notes = (f"{hub.repo} of the Hugging Face cache, state {clean(os.path.basename(folder), 12)}",)
    names = huggingface.gguf_files(folder)
    if names:
        return GgufPlace(huggingface.pick(folder, names, hub), "huggingface", notes)
    return _hf(folder, notes)


def _hf(folder: str, notes: tuple[str, ...]) -> HfModel:
    path = os.path.join(folder, CONFIG)
    if not os.path.exists(path):
        unfinished = os.path.islink(path)
        reason = "its config.json is not downloaded to its end" if unfinished else "no config.json in it"
        raise ModelFileError(clean(folder), reason, hint="download the model again" if unfinished else "")
    return _config(path, folder, folder, notes)


def _config(path: str, folder: str | None, shown: str, notes: tuple[str, ...]) -> HfModel:
    from kvtui.model.hf.config import read_config
    from kvtui.sources.files import read_json

    config = read_config(read_json(path), clean(path))
    weights = weights_in(folder) if folder is not None else None
    return HfModel(config, clean(shown), weights, notes)
