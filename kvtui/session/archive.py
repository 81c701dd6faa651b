"""A session as one file (a zip), to hand to another box, and back.

    kvtui-session.json   {"schema": "kvtui.session/1", "session", "kvtui", "files": {name: {"bytes", "sha256"}}}
    events.jsonl         as recorded, events of types that this version does not know included
    logs/run-NN.log      the engines' raw logs

Nothing else may be in it. A file that is read is somebody else's: names, sizes, sums and events are checked before the
first byte is written, nothing is ever overwritten, and an imported session is read-only, since going on with it would
start the program that it names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, BinaryIO

from kvtui import __version__
from kvtui.core.errors import InputError, SessionError
from kvtui.core.text import clean
from kvtui.core.units import MIB, size
from kvtui.session.state import SessionState, fold
from kvtui.session.store import EVENTS, IMPORTED, MOST_EVENTS, parse_events, read_events, sessions_dir

SCHEMA = "kvtui.session/1"
MANIFEST = "kvtui-session.json"

_LOG = re.compile(r"logs/run-[0-9]{2,6}(?:-[0-9]{1,4})?\.log\Z")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}\Z")
_MOST_FILES = 1000
_MOST_BYTES = 512 * MIB
_MOST_MANIFEST = 1 * MIB
_MOST_LIST = 1 * MIB
_END = struct.Struct("<4s4H2LH")
_LOCATOR_BYTES = 20
_CHUNK = 1 << 16
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


def export(folder: Path, path: Path) -> None:
    """Write the session in `folder` to the new file `path`.

    Raises SessionError when it cannot be read, InputError when `path` is there already or cannot be written.
    """
    _, _, good = read_events(folder / EVENTS)
    logs = [log for log in sorted((folder / "logs").glob("run-*.log")) if _is_log(log)]
    total = good + sum(log.stat().st_size for log in logs)
    if total > _MOST_BYTES or len(logs) >= _MOST_FILES:
        raise SessionError(
            f"{folder.name}: {size(total)} in {len(logs) + 1} files are more than an export may hold",
            hint="its raw logs are the most of it: move some out of its folder",
        )
    contents = {EVENTS: (folder / EVENTS).read_bytes()[:good]}
    contents |= {f"logs/{log.name}": log.read_bytes() for log in logs}
    session = fold(parse_events(contents[EVENTS], folder.name)[0]).started.session
    try:
        file = path.open("xb")
    except FileExistsError:
        raise InputError(f"{clean(str(path))}: is there already", hint="give another name") from None
    except OSError as error:
        raise _not_written(path, error) from error
    try:
        with file:
            _write(file, session, contents)
    except BaseException as error:
        with suppress(OSError):
            path.unlink()  # half an export is none, and stands in the way of the next
        if isinstance(error, OSError):
            raise _not_written(path, error) from error
        raise


def _not_written(path: Path, error: OSError) -> InputError:
    return InputError(f"{clean(str(path))}: cannot write the export: {error.strerror}")


def _is_log(path: Path) -> bool:
    return _LOG.match(f"logs/{path.name}") is not None and path.is_file() and not path.is_symlink()


def _write(file: Any, session: str, contents: dict[str, bytes]) -> None:
    manifest = {
        "schema": SCHEMA,
        "session": session,
        "kvtui": __version__,
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in contents.items()
        },
    }
    head = json.dumps(manifest, indent=2).encode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {MANIFEST: head, **contents}.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same session gives the same file
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)


def bring_in(path: Path, root: Path | None = None) -> tuple[Path, SessionState]:
    """Keep the session in the file `path` under `root`, read-only; returns its folder and state.

    Raises InputError: no such file, not an export, damaged, too large, or a session that is here already.
    """
    contents, session = _read(path)
    state = _checked(path, contents, session)
    root = root or sessions_dir()
    folder = root / session
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise InputError(f"{session}: this session is here already", hint=f"it is in {folder}") from None
    except OSError as error:
        raise InputError(f"{folder}: cannot keep the session: {error.strerror}") from error
    try:
        (folder / "logs").mkdir(mode=0o700)
        (folder / IMPORTED).write_text(f"{__version__}\n", encoding="utf-8")
        # A folder is a session once its events are there: they come last, and whole.
        for name in sorted(contents, key=lambda n: n == EVENTS):
            target = folder / name
            draft = target.with_name(f"{target.name}.new")
            draft.write_bytes(contents[name])
            os.replace(draft, target)
    except OSError as error:
        with suppress(OSError):
            rmtree(folder)
        raise InputError(f"{folder}: cannot keep the session: {error.strerror}") from error
    return folder, state


def _read(path: Path) -> tuple[dict[str, bytes], str]:
    shown = clean(str(path), 200)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{shown}: is no regular file")
        if status.st_size > _MOST_BYTES:
            raise InputError(f"{shown}: is larger than {size(_MOST_BYTES)}")
        with path.open("rb") as file, zipfile.ZipFile(_short(shown, file)) as archive:
            entries = _entries(shown, archive)
            manifest = _manifest(shown, _contents(archive, entries[MANIFEST], _MOST_MANIFEST))
            left = _MOST_BYTES
            contents: dict[str, bytes] = {}
            for name in (n for n in entries if n != MANIFEST):
                data = _contents(archive, entries[name], MOST_EVENTS if name == EVENTS else left)
                left -= len(data)
                contents[name] = data
                if left < 0:
                    raise InputError(f"{shown}: holds more than {size(_MOST_BYTES)}")
    except InputError as error:
        raise InputError(error.what if error.what.startswith(shown) else f"{shown}: {error.what}") from None
    except _BROKEN as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "is no session export"
        raise InputError(f"{shown}: {reason}", hint="kvtui sessions export writes one") from None
    _check_sums(shown, manifest, contents)
    return contents, str(manifest["session"])


def _short(shown: str, file: BinaryIO) -> BinaryIO:
    """`file`, once its end record says that its list of files is a short one: zipfile reads the whole list at once.

    An export has no comment behind that record and no zip64 record before it (PKWARE's APPNOTE, 4.3.16 and 4.3.15).
    """
    n_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, n_bytes - _LOCATOR_BYTES - _END.size))
    tail = file.read()
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\5\6") or tail.startswith(b"PK\6\7"):
        raise zipfile.BadZipFile
    _, _, _, _, n_files, list_bytes, _, comment = _END.unpack(end)
    if comment:
        raise zipfile.BadZipFile
    if n_files > _MOST_FILES + 2 or list_bytes > _MOST_LIST:
        raise InputError(f"{shown}: holds more than {_MOST_FILES} files")
    return file


def _entries(shown: str, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    entries: dict[str, zipfile.ZipInfo] = {}
    listed = archive.infolist()
    if len(listed) > _MOST_FILES + 2:
        raise InputError(f"{shown}: holds more than {_MOST_FILES} files")
    for info in listed:
        name = info.orig_filename
        if name not in (MANIFEST, EVENTS) and not _LOG.match(name):
            raise InputError(f"{shown}: {clean(name, 80)} is nothing that a session export holds")
        if name in entries:
            raise InputError(f"{shown}: {clean(name, 80)} is in it twice")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or info.flag_bits & 0x1 or info.compress_type not in _METHODS:
            raise InputError(f"{shown}: {clean(name, 80)} is no plain file")
        entries[name] = info
    if MANIFEST not in entries or EVENTS not in entries:
        raise InputError(f"{shown}: is no session export", hint="kvtui sessions export writes one")
    return entries


def _contents(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> bytes:
    """The bytes of one file, counted as they come: what an archive says of its sizes is only said."""
    return b"".join(_chunks(archive, info, most))


def _chunks(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> Iterator[bytes]:
    with archive.open(info) as file:
        while chunk := file.read(_CHUNK):
            most -= len(chunk)
            if most < 0:
                raise InputError(f"{clean(info.orig_filename, 80)} is larger than it may be")
            yield chunk


def _manifest(shown: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise InputError(f"{shown}: is no session export", hint="kvtui sessions export writes one")
    if found.get("schema") != SCHEMA:
        schema = clean(str(found.get("schema")), 40)
        raise InputError(f"{shown}: is of schema {schema}, this kvtui reads {SCHEMA}", hint="update kvtui")
    if not isinstance(found.get("session"), str) or not _ID.match(found["session"]):
        raise InputError(f"{shown}: its session has no name that can be used")
    return found


def _check_sums(shown: str, manifest: dict[str, Any], contents: dict[str, bytes]) -> None:
    files = manifest["files"]
    if set(files) != set(contents):
        raise InputError(f"{shown}: what it holds is not what it lists")
    for name, data in contents.items():
        listed = files[name]
        right = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if listed != right:
            raise InputError(f"{shown}: {name} is damaged", hint="export it again")


def _checked(path: Path, contents: dict[str, bytes], session: str) -> SessionState:
    shown = clean(str(path), 200)
    try:
        events, torn, _ = parse_events(contents[EVENTS], f"{shown}: {EVENTS}")
        state = fold(events, torn=torn)
    except SessionError as error:
        raise InputError(error.what, hint=error.hint) from error
    if state.started.session != session:
        raise InputError(f"{shown}: its events are of another session than it says")
    return state
