"""Presets: what the procedure is to aim at, as TOML files that an operator can copy and change.

A file with a mistake is refused as a whole, with the file, the key and what is allowed.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

from kvtui.core.errors import InputError, PresetError
from kvtui.core.text import clean
from kvtui.probes.own_tasks import OwnTask, load_tasks
from kvtui.procedure.preset_keys import KEYS, Key

Transients = Literal["on-failure", "always"]
Offload = Literal["named", "run"]

_MAX_BYTES = 32 * 1024
OPTIONS = {
    "target_context": "--target-context",
    "kv_type": "--kv-type",
    "n_parallel": "--parallel",
    "n_batch": "--batch-size",
    "n_ubatch": "--ubatch-size",
    "margin_gib": "--margin",
    "reserve_gib": "--reserve",
    "min_decode_tps": "--min-decode",
}
"""The options of the command line that stand for a key of a preset, by the field they set."""
_MAX_LINE = 500
"""Characters in a line of a preset: a key of thousands of dotted parts takes the TOML reader minutes."""
_ANSWER_ROOM = 128


@dataclass(frozen=True, slots=True)
class Preset:
    """One aim of the procedure. Contexts and depths are tokens, rates tokens per second.

    Contexts are whole contexts (`-c`), which the engine divides by `n_parallel` unless `kv_unified`.
    `stages` ascend and end at or above `target_context`. `max_per_request` and `max_live_tokens` (multi-user)
    are prompt and answer together, of one request and of all in work. `min_recall` is the share of the facts
    recalled at the baseline that must still be recalled. None: no limit, or measured (`reserve_gib`).
    `offload` `run` puts capacity above latency: layers or experts go to the CPU when nothing else makes the room.
    `stability_requests` is how often the chosen configuration is filled (0: not at all). `tasks` is the folder the
    operator's `own_tasks` were read from; their texts are kept, so that a session goes on with the same.
    """

    name: str
    title: str
    description: str
    floor_context: int
    baseline_context: int
    baseline_depths: tuple[int, ...]
    kv_type: str
    stages: tuple[int, ...]
    target_context: int
    recall_positions: tuple[float, ...]
    decode_tokens: int
    repeats: int
    min_decode_tps: float | None
    min_prompt_tps: float | None
    max_per_request: int | None
    max_live_tokens: int | None
    margin_gib: float
    reserve_gib: float | None
    n_parallel: int
    kv_unified: bool
    n_batch: int
    n_ubatch: int
    swa_full: bool
    prefix_reuse: bool
    cache_ram_mib: int
    transients: Transients
    min_recall: float = 0.75
    stability_requests: int = 3
    offload: Offload = "named"
    tasks: str = ""
    own_tasks: tuple[OwnTask, ...] = ()


def load_preset(name_or_path: str) -> Preset:
    """The packaged preset of that name, or the one in that file (anything with a `/` or ending in `.toml`).

    Raises PresetError: unknown name, unreadable file, broken TOML, a wrong key or value.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return _load(Path(os.path.expanduser(name_or_path)))
    known = {path.stem: path for path in _packaged()}
    if name_or_path not in known:
        raise PresetError(clean(name_or_path, 80), "", f"no such preset; {_suggest(name_or_path, known)}")
    return _load(known[name_or_path])


def check_field(field: str, value: object) -> None:
    """Raise InputError when `value`, given as an option, is nothing that a preset may hold in `field`."""
    for keys in KEYS.values():
        for spec in keys.values():
            if spec.field == field:
                try:
                    spec.read(value)
                except ValueError:
                    name = OPTIONS.get(field, field)
                    raise InputError(f"{name}: {in_words(value)} is not {spec.allowed}") from None


def list_presets() -> tuple[Preset, ...]:
    """The packaged presets by name. Raises PresetError."""
    return tuple(_load(path) for path in _packaged())


def _packaged() -> list[Path]:
    """The files of the wheel, or of the checkout that the package stands in."""
    package = Path(str(resources.files("kvtui")))
    for folder in (package / "presets", package.parent / "presets"):
        if folder.is_dir():
            return sorted(folder.glob("*.toml"))
    return []


def _load(path: Path) -> Preset:
    shown = clean(str(path), 400)
    document = _parse(shown, _read(path, shown))
    fields: dict[str, object] = {"name": clean(path.stem, 80)}
    _refuse_unknown(shown, "", document, [*KEYS[""], *(table for table in KEYS if table)])
    for table, keys in KEYS.items():
        given = document.get(table, {}) if table else document
        if not isinstance(given, dict):
            raise PresetError(shown, table, f"must be a table: [{table}]")
        if table:
            _refuse_unknown(shown, table, given, list(keys))
        for key, spec in keys.items():
            fields[spec.field] = _value(shown, f"{table}.{key}" if table else key, spec, given.get(key, ...))
    preset = Preset(**cast("dict[str, Any]", fields))
    _check_together(shown, preset)
    if preset.tasks:
        return with_tasks(preset, os.path.join(path.parent, os.path.expanduser(preset.tasks)))
    return preset


def with_tasks(preset: Preset, folder: str) -> Preset:
    """`preset` with the operator's own tasks in `folder`. Raises InputError for one that cannot be used."""
    return replace(preset, tasks=clean(folder, 400), own_tasks=load_tasks(folder))


def _read(path: Path, shown: str) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise PresetError(shown, "", "is no regular file")
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise PresetError(shown, "", f"is larger than {_MAX_BYTES // 1024} KiB")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PresetError(shown, "", f"is not UTF-8 at byte {error.start}") from None
    except ValueError:
        raise PresetError(shown, "", "is no file name") from None
    except OSError as error:
        raise PresetError(shown, "", clean((error.strerror or "cannot be read").lower())) from None


def _parse(shown: str, text: str) -> Mapping[str, object]:
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > _MAX_LINE:
            raise PresetError(shown, "", f"line {number} is longer than {_MAX_LINE} characters")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PresetError(shown, "", f"is not TOML: {clean(str(error), 200)}") from None
    except (ValueError, RecursionError):
        raise PresetError(shown, "", "is not TOML that can be read") from None


def _refuse_unknown(shown: str, table: str, given: Mapping[str, object], known: list[str]) -> None:
    for key in given:
        if key not in known:
            where = f"{table}.{key}" if table else key
            raise PresetError(shown, clean(where, 80), f"no such key; {_suggest(key, known)}")


def _suggest(word: str, known: Mapping[str, object] | list[str]) -> str:
    near = get_close_matches(word[:80], list(known), n=1, cutoff=0.6)
    meant = f'did you mean "{near[0]}"? ' if near else ""
    return f"{meant}allowed: {', '.join(known)}"


def _value(shown: str, where: str, spec: Key, given: object) -> object:
    if given is ...:
        if spec.default is ...:
            raise PresetError(shown, where, f"is missing; it must be {spec.allowed}")
        return spec.default
    try:
        return spec.read(given)
    except ValueError:
        raise PresetError(shown, where, f"is {in_words(given)}; it must be {spec.allowed}") from None


def in_words(value: object) -> str:
    """A value as it may stand in an error: short, one line, in TOML's words where they differ."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"[{', '.join('..' if isinstance(each, list) else in_words(each) for each in value[:8])}]"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number beyond 64 bits"
    return clean(f'"{value}"' if isinstance(value, str) else str(value), 60)


def _check_together(shown: str, preset: Preset) -> None:
    """What no single key shows."""
    deepest = preset.baseline_depths[-1]
    if deepest + _ANSWER_ROOM > preset.baseline_context:
        room = preset.baseline_context - _ANSWER_ROOM
        raise PresetError(
            shown,
            "baseline.depths",
            f"{deepest} leaves no room for an answer; at most {room} in baseline.context",
        )
    if preset.target_context > preset.stages[-1]:
        raise PresetError(
            shown,
            "stages.target",
            f"is {preset.target_context}; at most the last of stages.contexts, {preset.stages[-1]}",
        )
    if preset.n_ubatch > preset.n_batch:
        raise PresetError(
            shown, "server.n_ubatch", f"is {preset.n_ubatch}; at most server.n_batch, {preset.n_batch}"
        )
    live = preset.max_live_tokens
    if live is not None and preset.max_per_request is not None and preset.max_per_request > live:
        raise PresetError(
            shown, "limits.max_per_request", f"is {preset.max_per_request}; at most max_live_tokens, {live}"
        )
    if live is not None and live > preset.stages[-1]:
        raise PresetError(
            shown,
            "limits.max_live_tokens",
            f"is {live}; at most the last of stages.contexts, {preset.stages[-1]}",
        )
