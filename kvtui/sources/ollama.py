"""Ollama's store: `manifests/<host>/<namespace>/<model>/<tag>` names the blobs that a tag is made of.

Layers by media type: the model and a projector or adapter are GGUF files among the blobs, the parameters are a
JSON object (`num_ctx` and the like).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kvtui.core.errors import InputError, ModelFileError
from kvtui.core.text import clean
from kvtui.sources.files import listing, read_json
from kvtui.sources.source import Companion, GgufPlace

HOST, NAMESPACE, TAG = "registry.ollama.ai", "library", "latest"
SERVICE_STORE = "/usr/share/ollama/.ollama/models"
_MAX_MANIFEST = 4 << 20
_MAX_PARAMETERS = 1 << 20
_MOST_PARAMETERS = 8  # Ollama writes one layer of them
_LAYER = "application/vnd.ollama.image."
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-]{0,252}(?::\d{1,5})?")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_COMPANIONS: dict[str, Literal["projector", "adapter"]] = {"projector": "projector", "adapter": "adapter"}
_SHOWN_PARAMETERS = (
    "num_ctx",
    "num_gpu",
    "num_batch",
    "num_thread",
    "main_gpu",
    "use_mmap",
    "draft_num_predict",
)


class Tag(NamedTuple):
    """A model's full name: `registry.ollama.ai/library/llama3.2:latest`."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def short(self) -> str:
        """As Ollama lists it: what is the default is left out."""
        host = "" if self.host == HOST else f"{self.host}/"
        namespace = "" if not host and self.namespace == NAMESPACE else f"{self.namespace}/"
        return f"{host}{namespace}{self.model}:{self.tag}"


@dataclass(frozen=True, slots=True)
class Found:
    """A tag, and where its manifest is in which store."""

    tag: Tag
    store: str
    manifest: str


def parse_tag(name: str) -> Tag | None:
    """The full name that `name` stands for, None where it cannot be one."""
    rest, slash, last = name.rpartition("/")
    model, colon, tag = last.partition(":")
    parts = rest.split("/") if slash else []
    if len(parts) > 2:
        return None
    namespace = parts[-1] if parts else NAMESPACE
    host = parts[0] if len(parts) == 2 else HOST
    words = (namespace, model, tag if colon else TAG)
    if not _HOST.fullmatch(host) or not all(_WORD.fullmatch(word) and ".." not in word for word in words):
        return None
    return Tag(host, *words)


def stores() -> list[str]:
    """Where Ollama keeps models here: OLLAMA_MODELS, the operator's own folder, that of the service."""
    return [path for path in _candidates() if os.path.isdir(path)]


def _candidates() -> list[str]:
    named = os.environ.get("OLLAMA_MODELS")
    own = os.path.expanduser("~/.ollama/models")
    return list(dict.fromkeys([*([named] if named else []), own, SERVICE_STORE]))


def _closed(store: str) -> bool:
    """Whether a store is there, or may be, that this user must not read."""
    manifests = os.path.join(store, "manifests")
    try:
        os.stat(manifests)
    except OSError as error:
        return isinstance(error, PermissionError)
    return not os.access(manifests, os.R_OK | os.X_OK)


def is_store(folder: str) -> bool:
    """Whether a folder is such a store."""
    return all(os.path.isdir(os.path.join(folder, name)) for name in ("manifests", "blobs"))


def find(tag: Tag) -> Found | None:
    """The first store that has `tag`. Upper and lower case count only where both exist, as with Ollama."""
    for store in stores():
        path = os.path.join(store, "manifests")
        for word in tag:
            names = listing(path)
            same = word if word in names else next((n for n in names if n.lower() == word.lower()), None)
            if same is None:
                break
            path = os.path.join(path, same)
        else:
            return Found(Tag(*path.split(os.sep)[-4:]), store, path)
    return None


def tags(store: str) -> Iterator[Found]:
    """Every tag of a store, by name."""
    root = os.path.join(store, "manifests")
    for host in listing(root):
        for namespace in listing(os.path.join(root, host)):
            for model in listing(os.path.join(root, host, namespace)):
                folder = os.path.join(root, host, namespace, model)
                for tag in listing(folder):
                    yield Found(Tag(host, namespace, model, tag), store, os.path.join(folder, tag))


def locate(found: Found) -> GgufPlace:
    """The model file of a tag, what is loaded beside it, and what its parameters set.

    Raises ModelFileError: the manifest is damaged, or a blob is missing, unfinished or of another size.
    """
    shown = clean(found.tag.short)
    models: list[str] = []
    companions: list[Companion] = []
    parameters: list[str] = []
    notes: list[str] = [f"Ollama's {shown}"]
    for kind, layer in _layers(found):
        if kind == "model":
            models.append(_blob(found, layer, "the model"))
        elif kind in _COMPANIONS:
            role = _COMPANIONS[kind]
            path = _blob(found, layer, f"the {role}")
            companions.append(Companion(role, path, os.path.getsize(path)))
        elif kind == "params":
            parameters.append(_blob(found, layer, "the parameters"))
    if not models:
        raise ModelFileError(shown, "its manifest names no GGUF model")
    if len(models) > 1:
        raise ModelFileError(shown, f"its manifest names {len(models)} models")
    if len(parameters) > _MOST_PARAMETERS:
        raise ModelFileError(shown, f"its manifest is damaged: it names parameters {len(parameters):,} times")
    notes += [note for path in parameters for note in _parameters(path)]
    notes += [f"Ollama also loads its {c.role}: {clean(c.path)}" for c in companions]
    return GgufPlace(models[0], "ollama", tuple(notes), tuple(companions))


def _layers(found: Found) -> Iterator[tuple[str, dict[str, Any]]]:
    shown = clean(found.tag.short)
    layers = read_json(found.manifest, _MAX_MANIFEST).get("layers")
    if not isinstance(layers, list):
        raise ModelFileError(shown, "its manifest is damaged: it has no layers", hint="pull it again")
    for layer in layers:
        media = layer.get("mediaType") if isinstance(layer, dict) else None
        if not isinstance(media, str):
            raise ModelFileError(shown, "its manifest is damaged: a layer has no type", hint="pull it again")
        if media.startswith(_LAYER):
            yield media.removeprefix(_LAYER), layer


def _blob(found: Found, layer: dict[str, Any], what: str) -> str:
    shown = clean(found.tag.short)
    digest = layer.get("digest")
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        raise ModelFileError(shown, f"its manifest is damaged: {what} has no digest", hint="pull it again")
    blobs = os.path.join(found.store, "blobs")
    for name in (f"sha256-{match[1]}", f"sha256:{match[1]}"):
        path = os.path.join(blobs, name)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ModelFileError(shown, f"{what} cannot be read: {error.strerror}") from error
        promised = layer.get("size")
        if isinstance(promised, int) and promised != size:
            raise ModelFileError(
                shown, f"{what} has {size:,} bytes, its manifest says {promised:,}", hint="pull it again"
            )
        return path
    if os.path.exists(os.path.join(blobs, f"sha256-{match[1]}-partial")):
        raise ModelFileError(
            shown, f"{what} is not downloaded to its end", hint="let Ollama finish pulling it"
        )
    raise ModelFileError(shown, f"{what} is missing from the store", hint="pull it again")


def _parameters(path: str) -> list[str]:
    """What the parameters of a tag set that changes what it costs."""
    values = read_json(path, _MAX_PARAMETERS)
    known = [
        f"{name} {values[name]}"
        for name in _SHOWN_PARAMETERS
        if isinstance(values.get(name), int) and abs(values[name]) < 1 << 40
    ]
    return [f"the tag sets {', '.join(known)}"] if known else []


def missing(tag: Tag) -> InputError:
    """Why a tag was not found."""
    places = stores()
    where = ", ".join(clean(p) for p in places) or "no store of Ollama is on this machine"
    closed = [clean(path) for path in _candidates() if _closed(path)]
    hint = f"{closed[0]} may not be read by this user" if closed else f"ollama pull {tag.short}"
    return InputError(f"{tag.short}: no such file, and not among Ollama's models ({where})", hint=hint)
