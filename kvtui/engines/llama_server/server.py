"""llama-server, the operator's or the embedded stand-in: what its build can do, and the exact command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kvtui.core.config import RunConfig
from kvtui.core.errors import StartError
from kvtui.engines.base import Abilities, Command, DryRun, Missing, Traits
from kvtui.engines.environment import counting_variables, overruling
from kvtui.engines.failure import last_words
from kvtui.engines.invocation import ANY_ADDRESS, Invocation
from kvtui.engines.llama_server.abilities import read_abilities
from kvtui.engines.llama_server.dry_run import PROGRAM, DryRunner, beside
from kvtui.engines.process import EngineProcess, free_port
from kvtui.engines.program import ask_program
from kvtui.engines.reach import LOOPBACK, Reach, take_reach
from kvtui.logs.facts import EngineFacts

_ASK_LIMIT_S = 60.0
_PROVEN_BY_LOG = "the log's lines on KV cells, types and sizes"
_KV_LADDER = (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0"))


def dry_runner(program: str) -> DryRunner:
    """The `llama-fit-params` at that path."""
    return DryRunner(program, LlamaServer((program,), label=PROGRAM))


class LlamaServer:
    """Implements `Engine` for a program that takes llama-server's options; `argv_prefix` starts it (see invocation).

    `api_key` is asked of every client; the server gets it by its environment, and no record holds it.
    """

    def __init__(
        self,
        argv_prefix: tuple[str, ...],
        label: str = "llama-server",
        kind: str = "llama-server",
        api_key: str | None = None,
    ) -> None:
        self._prefix = argv_prefix
        self._invocation = Invocation(argv_prefix)
        self._api_key = api_key
        self._label = label
        self._kind = kind
        self._abilities: Abilities | None = None
        self._dry_runner: DryRunner | None = None

    @property
    def label(self) -> str:
        """`llama-server b11434`, or its version where the build is unknown; neither before `abilities` was asked."""
        if self._abilities is None:
            return self._label
        version = re.match(r"version: ([1-9.]\S*|0\.\S+)", self._abilities.version)
        which = self._abilities.build or (version[1] if version else "")
        return f"{self._label} {which}".rstrip()

    @property
    def traits(self) -> Traits:
        """Keys lose more than values, so that values go down first."""
        return Traits(self._kind, _KV_LADDER)

    def abilities(self) -> Abilities:
        """What `--help`, `--version` and `--list-devices` say; asked once. Raises StartError (missing)."""
        if self._abilities is None:
            help_text = self._ask("--help")
            listed = self._ask("--list-devices") if "--list-devices" in help_text else None
            found = read_abilities(help_text, self._ask("--version"), listed)
            if not found.options & {"--ctx-size", "-c"}:
                said = last_words(help_text, EngineFacts())
                raise StartError(
                    "missing",
                    f"{self._prefix[0]} does not answer --help as llama-server does"
                    + (f": {said}" if said else ""),
                    hint="--engine-bin takes the path of a llama-server program",
                )
            self._abilities = found
        return self._abilities

    def command(self, config: RunConfig, port: int) -> Command:
        """Everything explicit, so that nothing depends on a default that differs between builds."""
        line = _Line(self.abilities())
        extra, reach = self._reach(config)
        line.add(("-m", "--model"), self._invocation.inside(config.model))
        line.add(("-c", "--ctx-size"), str(config.n_ctx))
        line.add(("-ctk", "--cache-type-k"), config.type_k, "the type of the keys")
        line.add(("-ctv", "--cache-type-v"), config.type_v, "the type of the values")
        line.flash_attn(config.flash_attn)
        line.add(("-np", "--parallel"), str(config.n_parallel), "the number of slots")
        line.kv_unified(config.kv_unified)
        line.add(("-b", "--batch-size"), str(config.n_batch), "the batch size")
        line.add(("-ub", "--ubatch-size"), str(config.n_ubatch), "the micro-batch size")
        if config.n_gpu_layers is not None:
            line.add(("-ngl", "--n-gpu-layers"), str(config.n_gpu_layers), "the layers on the GPU")
        if config.n_cpu_moe is not None:
            line.add(("-ncmoe", "--n-cpu-moe"), str(config.n_cpu_moe), "experts kept on the CPU")
        if not config.kv_offload:
            line.add(("-nkvo", "--no-kv-offload"), None, "the KV cache kept in host memory")
        if config.swa_full:
            line.add(("--swa-full",), None, "a full-size sliding-window cache")
        if config.threads is not None:
            line.add(("-t", "--threads"), str(config.threads), "the number of threads")
        line.add(("-lv", "--verbosity", "--log-verbosity"), "4", _PROVEN_BY_LOG)
        line.add(("-fit", "--fit"), "off")
        line.add(("-cram", "--cache-ram"), str(config.cache_ram_mib))
        if not config.prefix_reuse:
            line.add(("--no-cache-prompt",), None, "that no prompt is taken from an earlier one")
        line.words += reach.options()
        line.add(("--port",), str(port))
        unset = overruling(config)
        env = {n: v for n, v in counting_variables() if n not in unset} | dict(config.env)
        argv = (*self._invocation.argv(port), *line.words, *extra)
        return Command(argv, tuple(env.items()), tuple(line.missing), unset=unset)

    def dry_run(self, config: RunConfig) -> DryRun | None:
        """Asks the `llama-fit-params` that lies beside the server: another build's figures would be another's."""
        if self._dry_runner is None:
            program = beside(self._prefix[0])
            if program is None:
                return None
            self._dry_runner = dry_runner(program)
        try:
            return self._dry_runner.ask(config)
        except StartError:
            return None

    def launch(self, config: RunConfig, log_path: Path, on_log: Callable[[list[str]], None]) -> EngineProcess:
        """Start it on a free port. It ends with kvtui, whatever ends that (see guard)."""
        self.abilities()
        _, listen = self._reach(config)
        reach = replace(listen, host=LOOPBACK) if self._invocation.publishes else listen
        return EngineProcess(
            self.label,
            lambda port: self.command(config, port),
            log_path,
            on_log,
            reach=reach,
            invocation=self._invocation,
        )

    def _reach(self, config: RunConfig) -> tuple[tuple[str, ...], Reach]:
        """The operator's options without those of the address, and the address to listen on."""
        extra, reach = take_reach(config.extra, self._api_key)
        if self._invocation.publishes and reach.host == LOOPBACK:
            reach = replace(reach, host=ANY_ADDRESS)
        return extra, reach

    def _ask(self, option: str) -> str:
        return ask_program((*self._invocation.argv(free_port()), option), _ASK_LIMIT_S)


class _Line:
    """The command line as it grows, with what the build does not know left out."""

    def __init__(self, abilities: Abilities) -> None:
        self._abilities = abilities
        self.words: list[str] = []
        self.missing: list[Missing] = []

    def add(self, names: tuple[str, ...], value: str | None, lost: str = "") -> None:
        """The first of `names` that the build knows. `lost`: what is unproven without it, empty if nothing."""
        name = next((n for n in names if n in self._abilities.options), None)
        if name is not None:
            self.words += [name] if value is None else [name, value]
        elif lost:
            self.missing.append(Missing(names[-1], lost))

    def flash_attn(self, wanted: str) -> None:
        """`-fa on|off|auto`, or the bare flag of builds before September 2025, whose default is off."""
        if self._abilities.flash_attn_takes_value:
            self.add(("-fa", "--flash-attn"), wanted, "flash attention")
        elif wanted == "on":
            self.add(("-fa", "--flash-attn"), None, "flash attention")
        elif wanted == "auto":
            self.missing.append(Missing("--flash-attn auto", "flash attention: this build leaves it off"))

    def kv_unified(self, wanted: bool) -> None:
        """Builds that know `-kvu` alone do not unify unless asked."""
        if wanted:
            self.add(("-kvu", "--kv-unified"), None, "one pool of cells for all slots")
        elif "--kv-unified" not in self._abilities.options or "--no-kv-unified" in self._abilities.options:
            self.add(("--no-kv-unified",), None, "that each slot has its own cells")
