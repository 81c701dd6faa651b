"""A GGUF model at an http(s) address: its header, all parts of a split model included."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from kvtui.core.errors import InputError
from kvtui.core.secrets import shown_address
from kvtui.core.units import size
from kvtui.sources.source import GgufModel

MAX_PARTS = 256
_HUB = ("huggingface.co", "hf.co", "www.huggingface.co")


def is_address(reference: str) -> bool:
    """Whether the operator gave an address instead of a name or a path."""
    return "://" in reference


def open_address(url: str) -> GgufModel:
    """The model at `url`, from the bytes of its header alone. Raises InputError (ModelFileError with the reason)."""
    from kvtui.model.header import assemble, read_part, split_names
    from kvtui.sources.remote import Connection, RemoteFile

    parts = urlsplit(_direct(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{shown_address(url)}: not an http or https address")
    paths = split_names(parts.path)
    if len(paths) > MAX_PARTS:
        raise InputError(f"{shown_address(url)}: a model of {len(paths):,} parts")
    names, read = [], []
    notes: list[str] = []
    with Connection() as connection:
        for path in paths:
            file = RemoteFile(connection, urlunsplit(parts._replace(path=path, fragment="")))
            try:
                file.opened()
                names.append(file.address)
                read.append(read_part(file.address, file, file.size))
            finally:
                file.close()
            if not file.ranged and len(notes) < 1:
                notes.append("the server does not serve ranges: the file was read from its start and left")
        fetched = connection.fetched
    header = assemble(names, read)
    told = all(part.size is not None for part in read)
    total = f" of {size(header.file_bytes)}" if told else ": the server does not tell the file's size"
    notes.insert(0, f"fetched {size(fetched)}{total}")
    return GgufModel(header, "url", None, tuple(notes), fetched_bytes=fetched)


def _direct(url: str) -> str:
    """A page of the Hugging Face hub that shows a file stands for the file itself."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InputError(f"{shown_address(url)}: not an address") from error
    steps = parts.path.split("/")
    if parts.hostname in _HUB and len(steps) > 5 and steps[3] == "blob":
        return urlunsplit(parts._replace(path="/".join([*steps[:3], "resolve", *steps[4:]])))
    return url
