"""Finding a model by typing: what a path, or a name in Ollama's store, leads to. Slow on a slow disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kvtui.core.errors import InputError, ModelFileError
from kvtui.core.text import clean
from kvtui.core.units import size, tokens

LIMIT = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """A folder or a model file that the typed text could mean. `path` is what is typed to choose it."""

    path: str
    name: str
    note: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """What the typed text leads to: `model` says what the file is, `problem` why it is of no use, `note` what else."""

    typed: str
    entries: tuple[Entry, ...] = ()
    model: str = ""
    problem: str = ""
    note: str = ""


def check(typed: str) -> Checked:
    """Look at the disk: a model file is read (its header), a folder or the start of a name is listed."""
    text = typed.strip()
    try:
        if not text:
            return _listed(typed, "./")
        path = Path(os.path.expanduser(text))  # pathlib raises for a user that does not exist
        if path.is_file():
            return Checked(typed, model=_describe(path))
        if path.is_dir():
            return _listed(typed, text if text.endswith("/") else f"{text}/")
        folder, _, start = text.rpartition("/")
        entries = _entries(f"{folder}/" if "/" in text else "./", start)
    except ModelFileError as error:
        return Checked(typed, problem=error.line())
    except FileNotFoundError:
        return _named(typed, text)
    except (OSError, ValueError) as error:
        return Checked(typed, problem=clean(f"{text}: {getattr(error, 'strerror', None) or error}", 200))
    return Checked(typed, entries=entries) if entries else _named(typed, text)


def _listed(typed: str, folder: str) -> Checked:
    entries = _entries(folder, "")
    return Checked(
        typed, entries, note="" if entries else f"{clean(folder, 200)}: no .gguf file and no folder in it"
    )


def _named(typed: str, text: str) -> Checked:
    """A model that is no path: a tag of Ollama, a model of the Hugging Face cache."""
    from kvtui.sources.open import local_gguf

    try:
        place = local_gguf(text)
        return Checked(typed, model=", ".join([_describe(Path(place.path)), *place.notes]))
    except InputError as error:
        return Checked(typed, problem=error.line())


def _describe(path: Path) -> str:
    from kvtui.model.header import read_header

    header = read_header(path)
    parts = [clean(header.name or path.name, 60), header.arch, header.quant or "", size(header.file_bytes)]
    if header.n_ctx_train:
        parts.append(f"trained for {tokens(header.n_ctx_train)}")
    return ", ".join(p for p in parts if p)


def _entries(folder: str, start: str) -> tuple[Entry, ...]:
    found: list[Entry] = []
    with os.scandir(os.path.expanduser(folder)) as scan:
        for item in scan:
            if not item.name.lower().startswith(start.lower()) or item.name.startswith(
                "."
            ) > start.startswith("."):
                continue
            try:
                if item.is_dir():
                    found.append(Entry(f"{folder}{item.name}/", clean(item.name) + "/", "", True))
                elif item.name.endswith(".gguf"):
                    note = size(item.stat().st_size)
                    found.append(Entry(folder + item.name, clean(item.name), note, False))
            except OSError:
                continue
    return tuple(sorted(found, key=lambda e: (e.is_folder, e.name))[:LIMIT])
