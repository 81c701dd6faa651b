"""The models of a folder, or of a store of Ollama, each with the largest context that fits per pair of KV types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvtui.core.errors import InputError, ModelFileError
from kvtui.core.text import clean
from kvtui.model.budget import LargestContext, largest_context
from kvtui.model.context import plan
from kvtui.model.geometry import Geometry, geometry
from kvtui.model.header import Header, read_header
from kvtui.model.request import ContextRequest
from kvtui.model.weights import place
from kvtui.procedure.budget.card import Card
from kvtui.procedure.budget.measured import Measurements, newest_sessions, pick
from kvtui.procedure.budget.money import Money, RuntimeSource, Terms, money_for
from kvtui.procedure.budget.question import STAGES, TYPE_PAIRS
from kvtui.sources import ollama
from kvtui.sources.files import listing
from kvtui.sources.huggingface import hub_cache
from kvtui.sources.source import ModelFolder

_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that was found and not read yet. `reference` is what `open_model` takes, `name` what is shown."""

    name: str
    reference: str
    tag: ollama.Found | None = None


@dataclass(frozen=True, slots=True)
class Largest:
    """One pair of KV types: its KV at 32K, and the largest context that fits (None: no memory is known)."""

    type_k: str
    type_v: str
    kv_bytes: int | None
    refused: str | None
    largest: LargestContext | None


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of a list. `error` says why the model cannot be read, `header` and `exactness` are None then.

    `runtime` says where that term of its budget comes from, None without a card.
    """

    name: str
    reference: str
    header: Header | None
    exactness: str | None
    pairs: tuple[Largest, ...] = ()
    error: str = ""
    runtime: RuntimeSource | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """What is the same for all models of a list. `request` gives all options but the context and the KV types.

    `layers` are `-ngl` and `--n-cpu-moe` (None: all, and none).
    """

    request: ContextRequest
    card: Card | None
    terms: Terms
    measurements: Measurements
    layers: tuple[int | None, int | None] = (None, None)


def models_in(folder: ModelFolder, most_folders: int | None = None) -> Iterator[Listed]:
    """The models of a folder, one after the other as they are asked for, sorted within each folder.

    With `most_folders` raises InputError where more have to be looked into, after the models of those.
    """
    return _tags(folder.path) if folder.ollama else _files(folder.path, most_folders)


def models_at_hand(most_folders: int) -> Iterator[Listed]:
    """Those that sessions were about lately, those of Ollama and of the Hugging Face cache, and those in this folder.

    Raises InputError like `models_in`.
    """
    seen: set[str] = set()
    for one in _at_hand(most_folders):
        key = os.path.realpath(one.reference) if one.tag is None else one.reference
        if key not in seen:
            seen.add(key)
            yield one


def _at_hand(most_folders: int) -> Iterator[Listed]:
    for _, started in newest_sessions():
        if started.model.path.endswith(".gguf") and os.path.isfile(started.model.path):
            yield Listed(started.model.path, started.model.path)
    for name in listing("."):
        if _is_model(name) and os.path.isfile(name):
            yield Listed(name, os.path.abspath(name))
    for store in ollama.stores():
        yield from _tags(store)
    yield from models_in(ModelFolder(hub_cache()), most_folders)


def row(listed: Listed, frame: Frame) -> ModelRow:
    """What the model's header says of it."""
    shown = clean(listed.name)
    try:
        header = read_header(ollama.locate(listed.tag).path if listed.tag else listed.reference)
    except ModelFileError as error:
        return ModelRow(shown, listed.reference, None, None, error=error.reason)
    shape, money = geometry(header), None
    if frame.card is not None:
        found = frame.measurements.of(header.header_sha256)
        measured = pick(found, frame.request.n_ubatch, frame.layers)
        money = money_for(frame.card, place(header, *frame.layers).gpu_bytes, frame.terms, measured)
    pairs = tuple(_pair(shape, replace(frame.request, type_k=k, type_v=v), money) for k, v in TYPE_PAIRS)
    source = money.runtime_source if money else None
    return ModelRow(shown, listed.reference, header, shape.exactness, pairs, runtime=source)


def _pair(shape: Geometry, asked: ContextRequest, money: Money | None) -> Largest:
    first = plan(shape, replace(asked, ctx=STAGES[0]))
    found = None if money is None else largest_context(shape, asked, money.budget.kv_budget_bytes)
    return Largest(asked.type_k, asked.type_v, first.kv_bytes, first.refused, found)


def _is_model(name: str) -> bool:
    return name.endswith(".gguf") and not _LATER_PART.search(name)


def _files(folder: str, most_folders: int | None = None) -> Iterator[Listed]:
    for n, (root, folders, names) in enumerate(os.walk(folder)):
        if most_folders is not None and n >= most_folders:
            raise InputError(
                f"{clean(folder)}: more than {most_folders:,} folders in it, the others were not looked into",
                hint="give one of them",
            )
        folders.sort()
        for name in sorted(names):
            if _is_model(name):
                path = os.path.join(root, name)
                yield Listed(os.path.relpath(path, folder), path)


def _tags(store: str) -> Iterator[Listed]:
    for found in ollama.tags(store):
        yield Listed(found.tag.short, found.tag.short, found)
