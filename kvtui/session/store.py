"""One folder per session: `events.jsonl`, a lock, the engines' raw logs, reports.

An event is written and synced before anybody is told of it. A torn last line (the process was killed while
writing: no line break, or no JSON) is cut off when the session is opened again; it is the only line that may be
damaged. A sound last line that this version cannot read is never cut off.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from types import TracebackType

from kvtui.core.errors import SessionError
from kvtui.core.text import clean
from kvtui.core.units import MIB, size
from kvtui.session.codec import Unparsable, decode_foreign, encode
from kvtui.session.events import Event, SessionStarted
from kvtui.session.state import SessionState, apply, fold

EVENTS = "events.jsonl"
MOST_EVENTS = 128 * MIB
LOCK = "lock"
IMPORTED = "imported"
"""Marks a session that came as a file: anybody may have written it, so it is shown and never gone on with."""


def now() -> str:
    """The present as events record it: UTC, ISO 8601, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def sessions_dir() -> Path:
    """Where sessions are kept: `$KVTUI_DATA_DIR/sessions`, else the platform's data directory."""
    override = os.environ.get("KVTUI_DATA_DIR")
    if override:
        return Path(override) / "sessions"
    from platformdirs import user_data_dir

    return Path(user_data_dir("kvtui", appauthor=False)) / "sessions"


def new_session_id() -> str:
    """`20261129-221530-4f1a`: sorts by time, short enough to type."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def read_events(path: Path) -> tuple[list[Event], bool, int]:
    """The events in `path`, whether its last line was torn, and the length in bytes of the sound part.

    Raises SessionError for a file that cannot be read or is damaged anywhere but in its last line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_EVENTS + 1)
    except OSError as error:
        raise SessionError(f"{path}: {error.strerror}") from error
    if len(data) > MOST_EVENTS:
        raise SessionError(f"{path}: is larger than {size(MOST_EVENTS)}, which no session is")
    return parse_events(data, str(path))


def parse_events(data: bytes, name: str) -> tuple[list[Event], bool, int]:
    """Like `read_events`, for bytes that are there already; `name` is what an error calls them."""
    events: list[Event] = []
    good = 0
    lines = data.split(b"\n")
    tail = lines.pop()
    if tail:
        lines.append(tail)
    for number, line in enumerate(lines, 1):
        last = number == len(lines)
        try:
            if last and tail:
                raise Unparsable("cut off")
            event = decode_foreign(line)
        except SessionError as error:
            if last and number > 1 and isinstance(error, Unparsable):
                return events, True, good
            raise SessionError(f"{name}: line {number}: {error.what}", hint=error.hint) from error
        good += len(line) + 1
        if event is not None:
            events.append(event)
    return events, False, good


def load(folder: Path) -> SessionState:
    """The state of the session in `folder`, read only. Raises SessionError."""
    events, torn, _ = read_events(folder / EVENTS)
    return fold(events, torn=torn)


def find(name: str, root: Path | None = None) -> Path:
    """The folder of the session called `name`: an id, the start of one, `last`, or a path to the folder.

    Raises SessionError when there is none or more than one.
    """
    root = root or sessions_dir()
    if name and _is_session(Path(name)):
        return Path(name)
    folders = list_folders(root)
    if name == "last" and folders:
        return folders[-1]
    matches = [f for f in folders if f.name == name] or [
        f for f in folders if name and f.name.startswith(name)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise SessionError(
            f"{clean(name, 80)}: {len(matches)} sessions begin like this", hint="give more of its name"
        )
    raise SessionError(f"{clean(name, 80)}: no such session", hint="`kvtui sessions` lists them")


def list_folders(root: Path | None = None) -> list[Path]:
    """All session folders, oldest first."""
    try:
        return sorted(p for p in (root or sessions_dir()).iterdir() if _is_session(p))
    except OSError:
        return []


def _is_session(folder: Path) -> bool:
    try:
        return (folder / EVENTS).is_file()
    except OSError:
        return False


class SessionStore:
    """The one writer of a session. Use as a context manager; `state` is always what is on disk."""

    def __init__(self, folder: Path, descriptor: int, lock: int, state: SessionState) -> None:
        self.folder = folder
        self.state = state
        self._descriptor = descriptor
        self._lock = lock
        self._end = os.fstat(descriptor).st_size

    @classmethod
    def create(cls, started: SessionStarted, root: Path | None = None) -> SessionStore:
        """A new session folder with its first event. Raises SessionError (no space, no permission) and leaves
        nothing behind then."""
        root = root or sessions_dir()
        folder = root / started.session
        line = encode(started)
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise _no_session(folder, error) from error
        opened: list[int] = []
        try:
            (folder / "logs").mkdir(mode=0o700)
            opened.append(_take_lock(folder))
            opened.append(os.open(folder / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600))
            _write(opened[1], line)
            _sync_folder(folder)
            _sync_folder(root)
        except (OSError, SessionError) as error:
            for descriptor in opened:
                os.close(descriptor)
            rmtree(folder, ignore_errors=True)
            raise _no_session(folder, error) from error
        return cls(folder, opened[1], opened[0], SessionState(started))

    @classmethod
    def open(cls, folder: Path) -> SessionStore:
        """An existing session, to go on with it. Cuts off a torn last line. Raises SessionError."""
        if is_imported(folder):
            raise SessionError(
                f"{folder.name}: this session was imported and is read-only",
                hint="run the same again here: kvtui report SESSION --format json -o report.json, "
                "then kvtui tune --replay report.json",
            )
        opened = [_take_lock(folder)]
        try:
            events, torn, good = read_events(folder / EVENTS)
            state = fold(events, torn=torn)
            opened.append(os.open(folder / EVENTS, os.O_WRONLY | os.O_APPEND))
            if torn:
                os.ftruncate(opened[1], good)
        except (OSError, SessionError) as error:
            for descriptor in opened:
                os.close(descriptor)
            if isinstance(error, SessionError):
                raise
            raise SessionError(f"{folder}: cannot write the session: {error.strerror}") from error
        return cls(folder, opened[1], opened[0], state)

    def append(self, event: Event) -> SessionState:
        """Record one event; it is on disk when this returns the new state.

        Raises SessionError when it cannot be written; then neither the file nor the state has it.
        """
        line = encode(event)
        try:
            if os.fstat(self._descriptor).st_size != self._end:
                # An earlier append was interrupted half-way: what it left was never told to anybody.
                os.ftruncate(self._descriptor, self._end)
            _write(self._descriptor, line)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise SessionError(
                f"{self.folder}: cannot write the session: {error.strerror}",
                hint="what is recorded so far is safe; make space and run `kvtui` to resume",
            ) from error
        self._end += len(line)
        self.state = apply(event, self.state)
        return self.state

    def log_path(self, run: int) -> Path:
        """Where the raw engine log of run `run` goes; never an existing file, so a repeat keeps the first."""
        path = self.folder / "logs" / f"run-{run:02d}.log"
        attempt = 2
        while path.exists():
            path = self.folder / "logs" / f"run-{run:02d}-{attempt}.log"
            attempt += 1
        return path

    def close(self) -> None:
        """Let go of the session; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            os.close(self._lock)
            self._descriptor = -1

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_imported(folder: Path) -> bool:
    """True for a session that came as a file (see kvtui.session.archive)."""
    return (folder / IMPORTED).exists()


def is_locked(folder: Path) -> bool:
    """True while another process writes this session. Never writes, so it also works in a read-only folder."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def unfinished(root: Path | None = None) -> Iterator[tuple[Path, SessionState]]:
    """Sessions that have no verdict and that nobody is writing, newest first; unreadable ones left out."""
    for folder in reversed(list_folders(root)):
        try:
            state = load(folder)
        except SessionError:
            continue
        if state.verdict is None and not is_imported(folder) and not is_locked(folder):
            yield folder, state


def _no_session(folder: Path, error: OSError | SessionError) -> SessionError:
    reason = error.strerror if isinstance(error, OSError) else error.what
    return SessionError(
        f"{folder}: cannot write the session: {reason}", hint="set KVTUI_DATA_DIR to a folder with space"
    )


def _take_lock(folder: Path) -> int:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SessionError(f"{folder}: cannot lock the session: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise SessionError(
            f"{folder.name}: another kvtui is writing this session", hint="end it, or start a new session"
        ) from error
    return lock


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
