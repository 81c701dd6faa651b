"""The operator's own tasks, as files in one folder.

`NAME.txt` or `NAME.md` is a prompt, `NAME.expect` beside it what the answer must hold: one text a line, or a regular
expression between slashes. `NAME.toml` has both in one file: `prompt`, `expect`, `family`, `depth`, `answer_tokens`.
A file that is none of these is an error: a task that is silently left out would be missed in the results.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import cast, get_args

from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.core.toml_text import read_toml
from kvtui.probes.results import TASK_FAMILIES, TaskFamily

ANSWER_TOKENS = 256
_MOST_TASKS = 64
_MOST_BYTES = 256 * 1024
_MOST_IN_ALL = 1024 * 1024
_MOST_EXPECTED = 32
_MOST_LINE = 500
_MOST_DEPTH = 16 * 1024 * 1024
_MOST_ANSWER = 4096
_KEYS = ("prompt", "expect", "family", "depth", "answer_tokens")
_FAMILIES: tuple[str, ...] = get_args(TaskFamily)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class OwnTask:
    """One task of the operator's. `prompt` is exact, it goes to the engine and must be cleaned to be shown.

    `expect` are texts, or regular expressions between slashes, that the answer must hold; without any the task
    counts for divergence only. `depth` in tokens: filler stands before the prompt up to it, None for each depth of
    the built-in tasks, 0 for the prompt as it stands.
    """

    name: str
    prompt: str
    expect: tuple[str, ...] = ()
    family: TaskFamily = "own"
    depth: int | None = None
    answer_tokens: int = ANSWER_TOKENS


def load_tasks(folder: str) -> tuple[OwnTask, ...]:
    """The tasks in `folder` by name. Hidden files are passed over.

    Raises InputError: no folder, nothing in it, a file that is no task or cannot be used.
    """
    root = Path(os.path.expanduser(folder))
    shown = clean(str(root), 400)
    files = _files(root, shown)
    tasks: dict[str, OwnTask] = {}
    used = 0
    for path in files:
        if path.suffix == ".expect":
            continue
        where = f"{shown}/{clean(path.name, 120)}"
        text = _text(path, where)
        used += len(text)
        if used > _MOST_IN_ALL:
            raise InputError(
                f"{shown}: more than {_MOST_IN_ALL // 1024} KiB of tasks", hint="use fewer or shorter ones"
            )
        name = clean(path.stem, 60)
        if not name.strip():
            raise InputError(f"{where}: nothing of its name can be shown", hint="rename it")
        if name in TASK_FAMILIES:
            raise InputError(f"{where}: {name} is the name of a built-in task", hint="rename it")
        if name in tasks:
            raise InputError(f"{where}: there is another task called {name}", hint="rename one of them")
        tasks[name] = (
            _from_toml(name, text, where) if path.suffix == ".toml" else _plain(name, text, where, path)
        )
    _no_orphans(files, tasks, shown)
    if not tasks:
        raise InputError(f"{shown}: holds no tasks", hint="put prompts there as .txt, .md or .toml files")
    return tuple(tasks[name] for name in sorted(tasks))


def _files(root: Path, shown: str) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(root) if not entry.name.startswith("."))
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be read").lower()
        raise InputError(f"{shown}: {clean(reason)}", hint="--tasks takes a folder of prompts") from None
    if len(names) > 2 * _MOST_TASKS:
        raise InputError(f"{shown}: {len(names):,} files; at most {_MOST_TASKS} tasks", hint="use fewer")
    for name in names:
        if Path(name).suffix not in (".txt", ".md", ".toml", ".expect"):
            raise InputError(
                f"{shown}/{clean(name, 120)}: not a task",
                hint="a task is a .txt, .md or .toml file, .expect beside it says what is expected",
            )
    files = [root / name for name in names]
    if sum(path.suffix != ".expect" for path in files) > _MOST_TASKS:
        raise InputError(f"{shown}: more than {_MOST_TASKS} tasks", hint="use fewer")
    return files


def _text(path: Path, where: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{where}: is no regular file")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{where}: {clean((error.strerror or 'cannot be read').lower())}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{where}: is larger than {_MOST_BYTES // 1024} KiB", hint="shorten it")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: is not UTF-8 text at byte {error.start}", hint="save it as UTF-8"
        ) from None
    found = _CONTROLS.search(text)
    if found is not None:
        raise InputError(f"{where}: holds the control character U+{ord(found.group()):04X}: no plain text")
    if not text.strip():
        raise InputError(f"{where}: is empty")
    return text


def _plain(name: str, text: str, where: str, path: Path) -> OwnTask:
    beside = path.with_suffix(".expect")
    expect: tuple[str, ...] = ()
    if beside.exists():
        where = f"{where.rpartition('.')[0]}.expect"
        lines = _text(beside, where).splitlines()
        expect = _expected([line.strip() for line in lines if line.strip()], where)
    return OwnTask(name, text.strip("\n"), expect)


def _no_orphans(files: list[Path], tasks: Mapping[str, OwnTask], shown: str) -> None:
    prompts = {path.stem for path in files if path.suffix in (".txt", ".md")}
    for path in files:
        if path.suffix == ".expect" and path.stem not in prompts:
            what = (
                "belongs to a .toml task, which names its own"
                if path.stem in tasks
                else "has no prompt beside it"
            )
            raise InputError(f"{shown}/{clean(path.name, 120)}: {what}")


def _expected(lines: list[str], where: str) -> tuple[str, ...]:
    if len(lines) > _MOST_EXPECTED:
        raise InputError(f"{where}: {len(lines)} expectations; at most {_MOST_EXPECTED}")
    for line in lines:
        if len(line) > _MOST_LINE:
            raise InputError(f"{where}: an expectation is longer than {_MOST_LINE} characters")
        if is_pattern(line):
            try:
                re.compile(line[1:-1])
            except (re.error, RecursionError, OverflowError) as error:
                raise InputError(
                    f"{where}: {clean(line, 80)} is no regular expression: {clean(str(error), 120)}"
                ) from None
    return tuple(lines)


def is_pattern(line: str) -> bool:
    """Whether an expectation is a regular expression (between slashes) and no plain text."""
    return len(line) > 2 and line.startswith("/") and line.endswith("/")


def _from_toml(name: str, text: str, where: str) -> OwnTask:
    try:
        document = read_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: is not TOML: {clean(str(error), 200)}") from None
    except ValueError as error:
        raise InputError(f"{where}: is not TOML that can be read: {clean(str(error), 200)}") from None
    for key in document:
        if key not in _KEYS:
            near = get_close_matches(key[:80], _KEYS, n=1)
            meant = f'did you mean "{near[0]}"? ' if near else ""
            raise InputError(
                f"{where}: {clean(key, 80)}: no such key", hint=f"{meant}allowed: {', '.join(_KEYS)}"
            )
    prompt = document.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip() or _CONTROLS.search(prompt):
        raise InputError(f"{where}: prompt: must be text")
    expect = document.get("expect", [])
    expect = [expect] if isinstance(expect, str) else expect
    if not isinstance(expect, list) or not all(isinstance(line, str) and line.strip() for line in expect):
        raise InputError(f"{where}: expect: must be a list of texts, none of them empty")
    family = document.get("family", "own")
    if family not in _FAMILIES:
        raise InputError(f"{where}: family: must be one of {', '.join(_FAMILIES)}")
    depth = _whole(document, "depth", 0, _MOST_DEPTH, where) if "depth" in document else None
    answer = (
        _whole(document, "answer_tokens", 1, _MOST_ANSWER, where)
        if "answer_tokens" in document
        else ANSWER_TOKENS
    )
    return OwnTask(
        name, prompt.strip("\n"), _expected(expect, where), cast("TaskFamily", family), depth, answer
    )


def _whole(document: Mapping[str, object], key: str, low: int, high: int, where: str) -> int:
    value = document[key]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{where}: {key}: must be a whole number from {low} to {high}")
    return value
