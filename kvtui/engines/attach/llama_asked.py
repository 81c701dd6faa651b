"""What llama-server was asked for: configuration files, then the environment, then the command line (b11434)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvtui.core.text import clean
from kvtui.engines.attach.asked import Asked, Setting
from kvtui.logs.llama_options import BY_WORD, TABLE, Option

SYSTEM_CONFIG = "/etc/llama.cpp/config.ini"
ALL_LAYERS = 999
_INI_KEY = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*=[ \t]*(.*?)[ \t]*(?:[;#].*)?$")
_SECTIONS = ("*", "default")
"""Sections that hold for every program, in the order in which they are applied; others are models of a router."""

_PYTHON_TYPES = {"0": "f32", "1": "f16", "2": "q4_0", "3": "q4_1", "6": "q5_0", "7": "q5_1", "8": "q8_0"} | {
    "20": "iq4_nl",
    "30": "bf16",
}
_PYTHON_NAMES = {
    "n_ctx": "ctx",
    "type_k": "cache_type_k",
    "type_v": "cache_type_v",
    "flash_attn": "flash_attn",
    "n_gpu_layers": "n_gpu_layers",
    "n_batch": "n_batch",
    "n_ubatch": "n_ubatch",
    "offload_kqv": "no_kv_offload",
    "model": "model",
    "host": "host",
    "port": "port",
}

Given = Iterator[tuple[Option, Any, str]]


def config_paths(env: Mapping[str, str] | None) -> tuple[str, ...]:
    """The configuration files that the engine reads, where they exist; a later one overrides."""
    env = env or {}
    base = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else None)
    return (SYSTEM_CONFIG,) if base is None else (SYSTEM_CONFIG, f"{base}/llama.cpp/config.ini")


def llama_asked(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    configs: Sequence[tuple[str, str]] = (),
) -> Asked:
    """Everything asked of llama-server; `configs` are (path, text) of the files that exist, in reading order."""
    settings: dict[str, Setting] = {}
    reach: dict[str, Setting] = {}
    given = [item for path, text in configs for item in _from_ini(path, text)]
    given += [*_from_environment(env or {}), *_from_words(argv[1:])]
    for option, found, source in given:
        (settings if option.counts else reach)[option.name] = Setting(found, clean(source, 300))
    unread = () if env is not None else ("its environment (LLAMA_ARG_*) may not be read",)
    model = reach.get("model") or reach.get("hf_repo")
    return Asked(settings, reach, None if model is None else str(model.value), unread)


def python_server_asked(argv: Sequence[str], env: Mapping[str, str] | None) -> Asked:
    """The same of `python -m llama_cpp.server`, whose options carry the library's own names."""
    settings: dict[str, Setting] = {}
    reach: dict[str, Setting] = {}
    by_name = {option.name: option for option in TABLE}
    variables = {name.upper(): name for name in _PYTHON_NAMES}
    given = [(variables[n], v, f"{n}={v}") for n, v in (env or {}).items() if n in variables]
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        if name.startswith("--") and key in _PYTHON_NAMES and (equals or at + 1 < len(argv)):
            value = value if equals else argv[at + 1]
            given.append((key, value, f"{name} {value}"))
    for key, text, source in given:
        option = by_name[_PYTHON_NAMES[key]]
        if key in ("type_k", "type_v"):
            text = _PYTHON_TYPES.get(text, text)
        every_layer = option.name == "n_gpu_layers" and text == "-1"
        if (parsed := ALL_LAYERS if every_layer else option.from_word(text)) is not None:
            kept = settings if option.counts else reach
            kept[option.name] = Setting(parsed, clean(source, 300))
    unread = () if env is not None else ("its environment may not be read",)
    model = reach.get("model")
    return Asked(settings, reach, None if model is None else str(model.value), unread)


def _from_words(words: Sequence[str]) -> Given:
    rest = iter(range(len(words)))
    for at in rest:
        word = words[at].replace("_", "-") if words[at].startswith("--") else words[at]
        option, positive = BY_WORD.get(word, (None, True))
        if option is None:
            continue
        if option.kind == "flag":
            yield option, positive, word
            continue
        following = words[at + 1] if at + 1 < len(words) else None
        if option.kind == "flash" and (following is None or following.startswith("-")):
            yield option, "on", word  # a bare flag in builds before September 2025
            continue
        next(rest, None)
        if following is not None and (value := _value(option, following)) is not None:
            yield option, value, f"{word} {following}"


def _from_environment(env: Mapping[str, str]) -> Given:
    for option in TABLE:
        if option.no_env is not None and option.no_env in env:
            yield option, option.flips, f"{option.no_env}={env[option.no_env]}"
        elif option.env is not None and option.env in env:
            value = _from_word(option, env[option.env])
            if value is not None:
                yield option, value, f"{option.env}={env[option.env]}"


def _from_ini(path: str, text: str) -> Given:
    keys = {word.lstrip("-"): found for word, found in BY_WORD.items()}
    keys |= {option.env: (option, not option.flips) for option in TABLE if option.env is not None}
    sections: dict[str, list[tuple[str, str]]] = {}
    section = "default"
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("[") and "]" in line:
            section = line[1 : line.index("]")].strip()
        elif match := _INI_KEY.match(line):
            sections.setdefault(section, []).append((match[1], match[2]))
    for name in _SECTIONS:
        for key, written in sections.get(name, ()):
            option, positive = keys.get(key, (None, True))
            if option is None:
                continue
            value = _ini_value(option, positive, written)
            if value is not None:
                yield option, value, f"{path}: {key} = {written}"


def _ini_value(option: Option, positive: bool, written: str) -> Any:
    if option.kind != "flag":
        return _value(option, written)
    truth = Option(option.name, "flag", ()).from_word(written)
    return None if truth is None else truth == positive


def _from_word(option: Option, text: str) -> Any:
    return option.from_word(text) if option.kind == "flag" else _value(option, text)


def _value(option: Option, text: str) -> Any:
    if option.name == "n_gpu_layers":
        return _layers(text)
    if option.name == "n_parallel" and text.startswith("-"):
        return None  # auto
    return option.value(text)


def _layers(text: str) -> int | None:
    """`all` (-2) and the automatic -1 as the engine spells them; the automatic choice asks for nothing."""
    if text in ("all", "-2"):
        return ALL_LAYERS
    if text == "auto" or text.startswith("-"):
        return None
    return int(text) if text.isdecimal() and len(text) < 10 else None
