"""What llama-server's `--help` and `--version` say, in the shapes of all its eras."""

from __future__ import annotations

import re

from kvtui.core.text import clean
from kvtui.engines.base import Abilities

_NAME = re.compile(r"-{1,2}[A-Za-z][\w.-]*")
_HELP_COLUMN = 16  # explanations begin far to the right of it in every era
_ALLOWED = re.compile(r"allowed values:\s*([\w, ]+)")
_VERSION = re.compile(r"^version:\s*(?P<version>\S+)\s*\((?P<rest>[^)]*)\)", re.MULTILINE)
_BUILD_COMMIT = re.compile(r"build (?P<build>\d+), commit (?P<commit>\w+)")


def read_abilities(help_text: str, version_text: str) -> Abilities:
    """Option names, cache types, the shape of `-fa`, version. What is not told stays empty or None."""
    options: dict[str, str] = {}
    for line in help_text.splitlines():
        names, rest = _leading_names(line)
        options |= dict.fromkeys(names, rest)
    version, build, commit = _version(version_text)
    # A value's hint follows the names after one blank, the explanation after several.
    fa = options.get("--flash-attn", options.get("-fa", " VALUE"))
    return Abilities(
        options=frozenset(options),
        cache_types=_cache_types(help_text),
        flash_attn_takes_value=bool(re.match(r" \S", fa)),
        version=version,
        build=build,
        commit=commit,
    )


def _leading_names(line: str) -> tuple[list[str], str]:
    names: list[str] = []
    at = len(line) - len(line.lstrip())
    while at < _HELP_COLUMN or names:
        match = _NAME.match(line, at)
        if match is None:
            break
        names.append(match[0])
        at = match.end()
        comma = re.compile(r",\s*").match(line, at)
        if comma is None:
            break
        at = comma.end()
    return names, line[at:]


def _cache_types(help_text: str) -> tuple[str, ...]:
    at = help_text.find("--cache-type-k")
    allowed = _ALLOWED.search(help_text, at) if at >= 0 else None
    if allowed is None or allowed.start() - at > 600:
        return ()
    return tuple(name for name in re.split(r"[,\s]+", allowed[1].strip()) if name)


def _version(text: str) -> tuple[str, str | None, str | None]:
    match = _VERSION.search(text)
    if match is None:
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        return clean(first, 120), None, None
    version, rest = match["version"], match["rest"]
    both = _BUILD_COMMIT.search(rest)
    number, commit = (both["build"], both["commit"]) if both else (version, rest)
    build = f"b{number}" if number.isdecimal() and number != "0" else None
    return (
        clean(match[0], 120),
        build,
        clean(commit, 40) if re.fullmatch(r"\w+", commit) and commit != "unknown" else None,
    )
