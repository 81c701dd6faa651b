"""What llama-server's `--help`, `--version` and `--list-devices` say, in the shapes of all its eras."""

from __future__ import annotations

import re

from kvtui.core.text import clean
from kvtui.engines.base import Abilities
from kvtui.logs.facts import DeviceFacts

_NAME = re.compile(r"-{1,2}[A-Za-z][\w.-]*")
_HELP_COLUMN = 16  # explanations begin far to the right of it in every era
_ALLOWED = re.compile(r"allowed values:\s*([\w, ]+)")
_VERSION = re.compile(r"^version:\s*(?P<version>\S+)\s*\((?P<rest>[^)]*)\)", re.MULTILINE)
_BUILT = re.compile(r"^built with (?P<compiler>.+?) for (?P<target>.+?)$", re.MULTILINE)
_LOADED = re.compile(r"load_backend: loaded (?P<name>\w+) backend")
_FOUND = re.compile(r"ggml_(?P<name>cuda|vulkan|sycl|opencl)\w*: found \d+", re.IGNORECASE)
_BACKENDS = {"cuda": "CUDA", "vulkan": "Vulkan", "sycl": "SYCL", "opencl": "OpenCL"}
_DEVICE = re.compile(
    r"^\s+(?P<name>[A-Za-z]\w*?\d+): (?P<text>.*?)(?: \((?P<total>\d+) MiB, (?P<free>\d+) MiB free\))?\s*$"
)
_MOST_DEVICES = 64
_BUILD_COMMIT = re.compile(r"build (?P<build>\d+), commit (?P<commit>\w+)")


def read_abilities(help_text: str, version_text: str, devices_text: str | None = None) -> Abilities:
    """Option names, cache types, the shape of `-fa`, version, backends and devices. What is not told stays empty or
    None. `devices_text` is the answer to `--list-devices`, None where it was not asked."""
    options: dict[str, str] = {}
    for line in help_text.splitlines():
        names, rest = _leading_names(line)
        options |= dict.fromkeys(names, rest)
    version, build, commit = _version(version_text)
    built = _BUILT.search(version_text)
    devices = None if devices_text is None else read_devices(devices_text)
    # A value's hint follows the names after one blank, the explanation after several.
    fa = options.get("--flash-attn", options.get("-fa", " VALUE"))
    return Abilities(
        options=frozenset(options),
        cache_types=_cache_types(help_text),
        flash_attn_takes_value=bool(re.match(r" \S", fa)),
        version=version,
        build=build,
        commit=commit,
        compiler=clean(built["compiler"], 120) if built else None,
        target=clean(built["target"], 80) if built else None,
        backends=_backends(f"{help_text}\n{version_text}\n{devices_text or ''}", devices or ()),
        devices=devices,
    )


def read_devices(text: str) -> tuple[DeviceFacts, ...]:
    """The devices that `--list-devices` names, in MiB."""
    found = (m for line in text.splitlines() if (m := _DEVICE.match(line)))
    return tuple(
        DeviceFacts(
            name=clean(m["name"], 40),
            description=clean(m["text"], 120),
            total_mib=int(m["total"][:9]) if m["total"] else None,
            free_mib=int(m["free"][:9]) if m["free"] else None,
        )
        for m in found
    )[:_MOST_DEVICES]


def _backends(text: str, devices: tuple[DeviceFacts, ...]) -> tuple[str, ...]:
    """In the order in which they are named; the CPU's is always there and says nothing."""
    names = [m["name"] for m in _LOADED.finditer(text)]
    names += [_BACKENDS[m["name"].lower()] for m in _FOUND.finditer(text)]
    names += [device.name.rstrip("0123456789") for device in devices]
    return tuple(dict.fromkeys(clean(n, 40) for n in names if n != "CPU"))


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
