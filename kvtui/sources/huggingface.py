"""The Hugging Face cache: `models--<owner>--<name>/snapshots/<commit>/` holds the files of one state of a model,
`refs/main` names the commit that was fetched last."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from kvtui.core.errors import InputError, ModelFileError
from kvtui.core.text import clean
from kvtui.sources.files import listing, read_bytes

_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,95}"
_ID = re.compile(rf"({_WORD}/{_WORD})(?::({_WORD}))?")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_NAMED = 6
CONFIG = "config.json"


class HubId(NamedTuple):
    """`owner/name`, and the quant that picks one of several GGUF files (`owner/name:Q4_K_M`)."""

    repo: str
    quant: str | None


def parse_id(name: str) -> HubId | None:
    """The id that `name` is, None where it cannot be one."""
    match = _ID.fullmatch(name)
    return HubId(match[1], match[2]) if match and ".." not in name and "--" not in name else None


def hub_cache() -> str:
    """Where the cache is: HF_HUB_CACHE, else HF_HOME/hub, else in the operator's cache folder."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return os.path.expanduser(named)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(base, "huggingface")
    return os.path.join(os.path.expanduser(home), "hub")


def cached(name: HubId) -> str | None:
    """The folder of the model in the cache, None where there is none."""
    path = os.path.join(hub_cache(), "models--" + name.repo.replace("/", "--"))
    return path if os.path.isdir(path) else None


def is_cached_model(folder: str) -> bool:
    """Whether a folder is a model's folder of the cache, which keeps its files by commit."""
    return os.path.isdir(os.path.join(folder, "snapshots"))


def snapshot(folder: str) -> str:
    """The folder with the files of the commit that was fetched last. Raises ModelFileError where none is whole."""
    shown = clean(folder)
    root = os.path.join(folder, "snapshots")
    commits = [name for name in listing(root) if os.path.isdir(os.path.join(root, name))]
    ref = os.path.join(folder, "refs", "main")
    if os.path.exists(ref):
        commit = read_bytes(ref, 4096).decode("ascii", "replace").strip()
        if _COMMIT.fullmatch(commit) and commit in commits:
            return os.path.join(root, commit)
    if len(commits) == 1:
        return os.path.join(root, commits[0])
    if not commits:
        raise ModelFileError(shown, "nothing of it is in the cache", hint="download it again")
    raise ModelFileError(
        shown,
        f"{len(commits)} states of it are in the cache",
        hint="give the folder of one, below snapshots/",
    )


def gguf_files(folder: str) -> list[str]:
    """The models among a folder's GGUF files: first parts only, projectors left out."""
    names = [n for n in listing(folder) if n.endswith(".gguf") and not _LATER_PART.search(n)]
    return [n for n in names if not n.lower().startswith("mmproj")]


def pick(folder: str, names: list[str], name: HubId) -> str:
    """The one GGUF file that `name` means. Raises InputError where none or several match."""
    matching = [n for n in names if name.quant is None or _has_quant(n, name.quant)]
    if len(matching) == 1:
        return os.path.join(folder, matching[0])
    shown = ", ".join(clean(n) for n in (matching or names)[:_NAMED])
    what = f"{len(matching)} GGUF files of it are" if matching else f"no GGUF file with {name.quant} is"
    raise InputError(
        f"{name.repo}: {what} in the cache", hint=f"there are {shown}: add a quant, as {name.repo}:Q4_K_M"
    )


def _has_quant(file: str, quant: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])", file, re.IGNORECASE) is not None
