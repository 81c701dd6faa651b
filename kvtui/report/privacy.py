"""What a report must not give away: secrets never, and on request nothing that names a host, a user or a path.

Both passes take a session's state and give one back, so that every format leaves out the same.
"""

from __future__ import annotations

import dataclasses
import os.path
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from kvtui.core.secrets import HIDDEN, REDACTED, is_secret_name, secrets_among, without_secret
from kvtui.core.secrets import without_secrets as hidden_words
from kvtui.core.shell import command_line
from kvtui.session.state import SessionState

T = TypeVar("T")

LEFT_OUT = "host names, user names and paths are left out of this report"

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)

_FILES = (
    "gguf|bin|safetensors|log|jsonl?|toml|ya?ml|txt|md|jinja|py|sh|so(?:\\.\\d+)*|cpp|cu|cuh|c|h|hpp|metal|html|"
    "csv|service|sock"
)
_FILE = re.compile(rf"[^/]+\.(?:{_FILES})\Z")
_PATH = re.compile(
    r"(?<![\w.:/~$%])(?:~[\w.-]*/|\.{1,2}/|/(?!/))[^\s'\"`,;()\[\]{}<>|=&]*|\b[A-Za-z]:\\[^\s'\"]+"
)
_RELATIVE_FILE = re.compile(rf"(?<![\w.:/~$%-])(?:[\w.-]+/)+[\w.-]+\.(?:{_FILES})\b")
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://)(?:[^\s/@]*@)?(\[[^\]\s]*\]|[^\s/:'\"]+)", re.IGNORECASE)
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)")
_IPV6 = re.compile(
    r"(?<![\w:])(?:(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}|fe80:[0-9a-f:]+)(?![\w:])", re.IGNORECASE
)
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8,16}(?:-[0-9a-f]{4}){0,3}(?:-[0-9a-f]{1,12})?\b", re.IGNORECASE)
"""NVIDIA's, whole or shortened as CUDA_VISIBLE_DEVICES takes them, and AMD's (`GPU-` and 16 digits)."""
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]+@[A-Za-z][\w.-]*")
_OWN = frozenset("127.0.0.1 localhost 0.0.0.0 [::1] ::1 :: [::]".split())  # noqa: SIM905
_PUBLIC = ("github.com", "huggingface.co", "ollama.com", "docs.vllm.ai")
_HOMES = re.compile(r"/(?:home|Users)/([^\s/'\"]+)")
_COMMON_NAMES = frozenset(("root", "user", "users", "localhost", "host", "home", "model", "models", "llama"))
_STRUCTURE_NAMES = (
    "header_sha256 arch quant at started_at finished_at subject purpose variable option id kind phase severity "
    "outcome choice by state exactness type_k type_v flash_attn build commit engine"
)
_STRUCTURE = frozenset(_STRUCTURE_NAMES.split())
"""Fields that hold words of our own or of the file format: a user called `llama` does not change them."""


def without_secrets(state: SessionState) -> SessionState:
    """`state` with `REDACTED` for the value of every option or variable that looks like a key, token or password,
    and for that value wherever else it stands."""
    values = sorted((v for v in secrets_in(state) if len(v) >= 4), key=len, reverse=True)
    return _mapped(state, _Pass(partial(_hide, values), _hide_words, _hide_env))


def anonymous(state: SessionState, names: Iterable[str] = ()) -> SessionState:
    """`state` without secrets, host names, user names and paths; files keep their own name.

    `names` are further words to leave out (this box's name, this user's).
    """
    state = without_secrets(state)
    folders, users = _folders(state), set[str]()
    for text in _texts(state):
        users |= {m[1] for m in _HOMES.finditer(text)}
    users |= {n for n in names if len(n) >= 3}
    users -= _COMMON_NAMES
    hide = partial(_anonymous_text, folders, _words(users))
    state = _mapped(state, _Pass(hide, partial(_anonymous_words, hide), lambda name, value: hide(value)))
    started = state.started
    name = started.model.file_name
    return replace(
        state,
        started=replace(
            started, model=replace(started.model, path=name), base=replace(started.base, model=name)
        ),
        notes=(*state.notes, LEFT_OUT),
    )


@dataclass(frozen=True, slots=True)
class _Pass:
    """What becomes of a text, of the words of a command line, and of the value of an environment variable."""

    text: Callable[[str], str]
    words: Callable[[Sequence[str]], tuple[str, ...]]
    env: Callable[[str, str], str]


_WHOLE_PATHS = frozenset(("path", "tasks"))
_NUMBERS = frozenset(("series", "peaks", "tokens"))
_ARGV = frozenset(("argv", "command_line", "extra", "program"))


def _mapped(value: T, how: _Pass, key: str = "") -> T:
    return _walk(value, how, key)  # type: ignore[no-any-return]


def _walk(value: Any, how: _Pass, key: str) -> Any:
    if isinstance(value, str):
        if key in _STRUCTURE:
            return value
        if key == "command":
            return _command(value, how)
        return how.words((value,))[0] if key in _WHOLE_PATHS else how.text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for field in dataclasses.fields(value):
            before = getattr(value, field.name)
            after = _walk(before, how, field.name)
            if after is not before:
                changes[field.name] = after
        return replace(value, **changes) if changes else value
    if key in _NUMBERS:
        return value
    if isinstance(value, (tuple, list)):
        if key in _ARGV:
            return how.words(value)
        if key == "env":
            return tuple((name, how.env(name, text)) for name, text in value)
        return type(value)(_walk(item, how, key) for item in value)
    if isinstance(value, dict):
        return {name: _walk(item, how, str(name)) for name, item in value.items()}
    return value


def _command(text: str, how: _Pass) -> str:
    """A command line taken apart, changed, and put together again; nothing where it cannot be taken apart."""
    try:
        words = shlex.split(text) if "$'" not in text else []
    except ValueError:
        words = []
    env: list[tuple[str, str]] = []
    while words and (assigned := _ASSIGNMENT.match(words[0])):
        env.append((assigned[1], how.env(assigned[1], assigned[2])))
        words = words[1:]
    changed = how.words(words)
    same = changed == tuple(words) and command_line(changed, env) == text
    return text if same else command_line(changed, env) if changed else ""


# Secrets


def secrets_in(state: SessionState) -> frozenset[str]:
    """The values of options and variables that look like a key, token or password."""
    return frozenset(v for v in _secrets(state) if v and v not in (HIDDEN, REDACTED))


def _secrets(state: SessionState) -> Iterator[str]:
    for words in _lines(state):
        yield from secrets_among(words)
    configs = (state.started.base, *(r.config for r in state.runs))
    for env in [*(r.env for r in state.runs), *(c.env for c in configs)]:
        yield from (value for name, value in env if is_secret_name(name))


def _lines(state: SessionState) -> Iterator[Sequence[str]]:
    """Every command line that the session holds, as words."""
    yield state.started.command_line
    yield state.started.base.extra
    for run in state.runs:
        yield run.argv
        yield run.config.extra


def _hide(values: Sequence[str], text: str) -> str:
    for value in values:
        text = text.replace(value, REDACTED)
    return without_secret(text, REDACTED)


def _hide_words(words: Sequence[str]) -> tuple[str, ...]:
    return hidden_words(words, REDACTED)


def _hide_env(name: str, value: str) -> str:
    return REDACTED if is_secret_name(name) else without_secret(value, REDACTED)


# Names and paths


def _folders(state: SessionState) -> tuple[str, ...]:
    """Folders that the session's own command lines name, longest first."""
    paths = [state.started.model.path, *state.started.engine.program]
    paths += [part for words in _lines(state) for word in words for part in (word, word.partition("=")[2])]
    found = {os.path.dirname(p) for p in paths if "/" in p and "://" not in p}
    return tuple(sorted((f for f in found if len(f) > 1), key=len, reverse=True))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.name not in _NUMBERS:
                yield from _texts(getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    alternatives = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])") if alternatives else None


def _anonymous_text(folders: Sequence[str], names: re.Pattern[str] | None, text: str) -> str:
    if "/" in text or "\\" in text:
        for folder in folders:
            text = text.replace(f"{folder}/", "")
        text = _URL.sub(_host, text)
        text = _PATH.sub(lambda m: _file_of(m[0]), text)
        text = _RELATIVE_FILE.sub(lambda m: _file_of(m[0]), text)
    text = _UUID.sub("GPU-UUID", text)
    text = _ADDRESS.sub("USER@HOST", text)
    text = _IPV4.sub(lambda m: m[0] if m[0] in _OWN or m[0].startswith("127.") else "ADDRESS", text)
    text = _IPV6.sub("ADDRESS", text)
    return names.sub("NAME", text) if names is not None else text


def _host(match: re.Match[str]) -> str:
    host = match[2].lower()
    public = any(host == p or host.endswith(f".{p}") for p in _PUBLIC)
    return match[1] + (match[2] if host in _OWN or public else "HOST")


def _file_of(path: str) -> str:
    """The file's own name, with the punctuation that ended the sentence; `PATH` for a folder."""
    bare = path.rstrip(".:")
    name = re.split(r"[/\\]", bare)[-1]
    return (name if _FILE.match(name) else "PATH") + path[len(bare) :]


def _anonymous_words(hide: Callable[[str], str], words: Sequence[str]) -> tuple[str, ...]:
    found = []
    for number, (before, word) in enumerate(zip(("", *words), words, strict=False)):
        option, equals, value = word.partition("=")
        if before in ("--host", "--url") or (equals and option in ("--host", "--url")):
            value = value if equals and option in ("--host", "--url") else word
            lead = word[: len(word) - len(value)]
            found.append(lead + (value if value in _OWN else "HOST"))
        elif number == 0 and "/" in word:
            found.append(hide(word.rsplit("/", 1)[-1]))
        elif _is_path(word):
            found.append(hide(_whole(word)))
        elif equals and _is_path(value):
            found.append(hide(f"{option}={_whole(value)}"))
        else:
            found.append(hide(word))
    return tuple(found)


def _is_path(word: str) -> bool:
    return word.startswith(("/", "~/", "./", "../"))


def _whole(path: str) -> str:
    """A word that is a path, blanks and all: its file's name, or `PATH`."""
    name = path.rsplit("/", 1)[-1]
    return name if _FILE.match(name) else "PATH"
