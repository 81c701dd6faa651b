"""The protocol behind which engines differ. Steps, advisor, report and screens never ask which engine it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Literal, Protocol

from kvtui.core.config import RunConfig
from kvtui.logs.facts import DeviceFacts, EngineFacts
from kvtui.probes.asking import Asking, Completion


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a build can do, asked of it and not derived from its version.

    `options` are the option names its `--help` lists (`-lv`, `--flash-attn`), `cache_types` the KV types it
    says it allows (empty: it does not say). `flash_attn_takes_value` is False for builds whose `-fa` is a bare flag.
    `compiler` and `target` are what it was built with and for, `backends` what it says it loaded or can use (`CUDA`,
    `Vulkan`; empty: it does not say), `devices` what it lists, None where it cannot be asked.
    """

    options: frozenset[str]
    cache_types: tuple[str, ...] = ()
    flash_attn_takes_value: bool = True
    version: str = ""
    build: str | None = None
    commit: str | None = None
    compiler: str | None = None
    target: str | None = None
    backends: tuple[str, ...] = ()
    devices: tuple[DeviceFacts, ...] | None = None


@dataclass(frozen=True, slots=True)
class Traits:
    """What a kind of engine can be asked for: the steps and the advisor read this and never which engine it is.

    `kind` is the name by which `kvtui.engines.find` finds it again. `kv_ladder` holds the pairs of K and V types from
    full precision downwards, in the order in which they are worth trying; `variables` the names of the variables
    (kvtui.procedure.variables) that mean something to it, the empty tuple for all. `model_is_tag`: it takes the
    name of a model in its own store, no file. `reserves_share`: it takes a share of the card as a whole. `ties`: pairs
    of fields of a RunConfig that it has one setting for; the first always takes the value of the second.
    """

    kind: str
    kv_ladder: tuple[tuple[str, str], ...]
    variables: tuple[str, ...] = ()
    model_is_tag: bool = False
    model_format: Literal["gguf", "hf"] = "gguf"
    reserves_share: bool = False
    ties: tuple[tuple[str, str], ...] = ()

    def tied(self, config: RunConfig) -> RunConfig:
        """`config` as this kind of engine can be asked for it."""
        return replace(config, **{field: getattr(config, source) for field, source in self.ties})


@dataclass(frozen=True, slots=True)
class Missing:
    """An option that the build does not know and kvtui therefore left out, with the proof that is lost by it."""

    option: str
    lost: str


@dataclass(frozen=True, slots=True)
class Command:
    """An exact command line: `argv` with the program first, `env` the variables set on top of the environment.

    `unset` are variables of our own environment that would overrule it, and that are kept from it.
    `follow` are lines for a shell that come after it, where starting the program is not all: the model's own request.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    missing: tuple[Missing, ...] = ()
    follow: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a configuration is set in an engine run as a service: `lines` to paste, in `language` (of a code block).

    `where` says where they go, `notes` what they cannot say.
    """

    title: str
    where: str
    language: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """What one device would hold, in whole MiB (cut, so that each can be up to 1 MiB short)."""

    device: str
    model_mib: int
    context_mib: int
    compute_mib: int


@dataclass(frozen=True, slots=True)
class DryRun:
    """The engine's own forecast, nothing allocated. `devices` holds the host last; `seconds` is what it took."""

    program: str
    devices: tuple[DeviceNeed, ...]
    seconds: float

    def total(self, *, host_counts: bool) -> DeviceNeed:
        """All devices together; `host_counts` where host memory stands in for VRAM, or for the context as a whole."""
        counted = self.devices if host_counts else self.devices[:-1]
        return DeviceNeed(
            "host" if host_counts else "GPU",
            sum(d.model_mib for d in counted),
            sum(d.context_mib for d in counted),
            sum(d.compute_mib for d in counted),
        )


@dataclass(frozen=True, slots=True)
class StartProgress:
    """How far a start has come: `seconds` since launch, `stage` in words, `log_bytes` read so far."""

    seconds: float
    stage: str
    log_bytes: int


class Client(Asking, Protocol):
    """Requests to a running engine, with the first token told: memory phases begin and end by it."""

    def complete(
        self,
        prompt: list[int],
        n_predict: int,
        *,
        cache_prompt: bool,
        ignore_eos: bool = False,
        stop: tuple[str, ...] = (),
        n_probs: int = 0,
        on_progress: Callable[[int, int, float], None] | None = None,
        on_token: Callable[[int], None] | None = None,
        cancel: Event | None = None,
    ) -> Completion:
        """As `Asking.complete`; `on_token(n)` is called after every generated token."""
        ...


class Running(Protocol):
    """A started engine. Everything here may be called from the thread that started it."""

    @property
    def pid(self) -> int:
        """The engine's own process id (the process whose memory counts)."""
        ...

    @property
    def base_url(self) -> str:
        """Where it answers HTTP."""
        ...

    @property
    def log_path(self) -> Path:
        """The file that holds everything the engine printed."""
        ...

    def wait_ready(self, timeout_s: float, cancel: Event, progress: Callable[[StartProgress], None]) -> float:
        """Wait until it answers; returns the load time in seconds.

        Raises StartError (crashed, hung) or Cancelled.
        """
        ...

    def facts(self) -> EngineFacts:
        """What its log proves up to now."""
        ...

    def connect(self) -> AbstractContextManager[Client]:
        """Requests to it, once it is ready."""
        ...

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        ...

    def stop(self) -> int | None:
        """End it: TERM to its process group, then KILL. Returns its exit code. Safe to call twice."""
        ...


class Engine(Protocol):
    """A kind of engine that kvtui can launch."""

    @property
    def label(self) -> str:
        """`llama-server b11434` or `embedded llama.cpp`, for header lines and reports."""
        ...

    @property
    def traits(self) -> Traits:
        """What this kind of engine can be asked for. Needs no program to be run."""
        ...

    def abilities(self) -> Abilities:
        """Asked once and kept. Raises StartError (missing) when the program cannot be run."""
        ...

    def command(self, config: RunConfig, port: int) -> Command:
        """The exact command line for `config`; options that the build does not know are left out and named."""
        ...

    def dry_run(self, config: RunConfig) -> DryRun | None:
        """What the engine itself says `config` will take; None where it has no way to tell, or refuses to."""
        ...

    def launch(self, config: RunConfig, log_path: Path, on_log: Callable[[list[str]], None]) -> Running:
        """Start it on a free port of the loopback interface. `on_log` gets batches of cleaned lines.

        Raises StartError (port, missing).
        """
        ...
