"""The keys of a preset file: where each goes, what it may be, and what it is when it is not given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from kvtui.core.text import clean
from kvtui.probes.recall import POSITIONS

_MAX_TOKENS = 16 * 1024 * 1024
_KV_TYPES = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

Reader = tuple[Callable[[object], object], str]
"""A function that returns the value to keep or raises ValueError, and what it allows, in words."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a preset file: the `Preset` field, a reader that raises ValueError, and what is allowed."""

    field: str
    read: Callable[[object], object]
    allowed: str
    default: object = ...


def whole(low: int, high: int) -> Reader:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return value

    return read, f"a whole number from {low} to {high}"


def number(low: float, high: float) -> Reader:
    def read(value: object) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return float(value)

    return read, f"a number from {low:g} to {high:g}"


def ascending(item: Reader, most: int) -> Reader:
    read_item, allowed = item

    def read(value: object) -> tuple[object, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise ValueError
        items = tuple(read_item(each) for each in value)
        if any(a >= b for a, b in zip(cast("tuple[Any, ...]", items), items[1:], strict=False)):
            raise ValueError
        return items

    return read, f"a list of 1 to {most} ascending values, each {allowed}"


def one_of(*words: str) -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError
        return value

    return read, "one of " + ", ".join(f'"{word}"' for word in words)


def flag() -> Reader:
    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return read, "true or false"


def line() -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > 400:
            raise ValueError
        return clean(value)

    return read, "text of 1 to 400 characters"


def folder() -> Reader:
    """The name of a folder as it stands, blanks and all."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > 400 or "\0" in value:
            raise ValueError
        return value

    return read, "the name of a folder"


_CONTEXT = whole(256, _MAX_TOKENS)
KEYS: dict[str, dict[str, Key]] = {
    "": {
        "title": Key("title", *line()),
        "description": Key("description", *line()),
        "tasks": Key("tasks", *folder(), ""),
    },
    "floor": {"context": Key("floor_context", *_CONTEXT, 8192)},
    "baseline": {
        "context": Key("baseline_context", *_CONTEXT),
        "depths": Key("baseline_depths", *ascending(whole(256, _MAX_TOKENS), 8)),
    },
    "kv": {"type": Key("kv_type", *one_of(*_KV_TYPES), "q8_0")},
    "stages": {
        "contexts": Key("stages", *ascending(_CONTEXT, 16)),
        "target": Key("target_context", *_CONTEXT),
        "recall_positions": Key("recall_positions", *ascending(number(0, 1), 16), POSITIONS),
        "decode_tokens": Key("decode_tokens", *whole(16, 4096), 128),
        "repeats": Key("repeats", *whole(1, 20), 1),
    },
    "stability": {"requests": Key("stability_requests", *whole(0, 100), 3)},
    "limits": {
        "min_decode_tps": Key("min_decode_tps", *number(0.1, 10_000), None),
        "min_prompt_tps": Key("min_prompt_tps", *number(0.1, 1_000_000), None),
        "min_recall": Key("min_recall", *number(0.0, 1.0), 0.75),
        "max_per_request": Key("max_per_request", *_CONTEXT, None),
        "max_live_tokens": Key("max_live_tokens", *_CONTEXT, None),
    },
    "memory": {
        "margin_gib": Key("margin_gib", *number(0, 64), 1.0),
        "reserve_gib": Key("reserve_gib", *number(0, 64), None),
    },
    "server": {
        "n_parallel": Key("n_parallel", *whole(1, 64), 1),
        "kv_unified": Key("kv_unified", *flag(), False),
        "n_batch": Key("n_batch", *whole(32, 65536), 2048),
        "n_ubatch": Key("n_ubatch", *whole(32, 65536), 512),
        "swa_full": Key("swa_full", *flag(), False),
        "prefix_reuse": Key("prefix_reuse", *flag(), True),
        "cache_ram_mib": Key("cache_ram_mib", *whole(0, 1024 * 1024), 0),
    },
    "transients": {
        "run": Key("transients", *one_of("on-failure", "always"), "on-failure"),
        "offload": Key("offload", *one_of("named", "run"), "named"),
    },
}
