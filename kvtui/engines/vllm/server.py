"""vLLM's server: what its build can do, and the exact command line.

vLLM reserves a share of the card (`--gpu-memory-utilization`) as a whole: a longer context does not take more memory,
it has to find room in the pool that is left after weights and activations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from kvtui.core.config import RunConfig
from kvtui.core.errors import StartError
from kvtui.core.text import clean
from kvtui.engines.base import Abilities, Client, Command, DryRun, Missing, Traits
from kvtui.engines.process import EngineProcess
from kvtui.engines.program import ask_program
from kvtui.engines.vllm.client import VllmClient
from kvtui.engines.vllm.terms import in_llama_terms, layouts
from kvtui.logs.facts import EngineFacts
from kvtui.model.hf.vllm import KvDtype, Pages

_ASK_LIMIT_S = 180.0
"""`vllm --help` imports torch, which takes half a minute from a cold disk."""
_QUIET_S = 1200.0
"""Weights are loaded and graphs compiled without a word for many minutes."""
_KV_DTYPES = re.compile(r"--kv-cache-dtype\s+\{([\w,\s.]+)\}")
_OPTION = re.compile(r"(?<!\S)--[a-z][a-z0-9-]*")
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")


class Vllm:
    """Implements `Engine` for `command_name`, the path of a `vllm` command."""

    def __init__(self, command_name: str) -> None:
        self.command_name = command_name
        self._abilities: Abilities | None = None

    @property
    def label(self) -> str:
        """`vLLM 0.11.0`; without the version before `abilities` was asked."""
        version = self._abilities.version if self._abilities else ""
        return f"vLLM {version}".rstrip()

    @property
    def traits(self) -> Traits:
        """Keys and values have one type. `auto` is the model's own, which a checkpoint may make FP8."""
        return Traits(
            "vllm",
            (("auto", "auto"), ("fp8", "fp8")),
            ("context", "kv-types", "batch", "slots", "utilization", "graphs"),
            model_format="hf",
            reserves_share=True,
            ties=(("n_ubatch", "n_batch"), ("type_v", "type_k")),
        )

    def abilities(self) -> Abilities:
        """What `serve --help` and `--version` say; asked once. Raises StartError (missing)."""
        if self._abilities is None:
            text = self._ask("serve", "--help=all")
            options = _option_names(text)
            if "--max-model-len" not in options:
                text = self._ask("serve", "--help")
                options = _option_names(text)
            if "--max-model-len" not in options:
                raise StartError(
                    "missing",
                    f"{clean(self.command_name)} does not answer serve --help as vLLM does",
                    hint="--engine-bin takes the path of the vllm command",
                )
            version = _VERSION.search(self._ask("--version"))
            self._abilities = Abilities(
                options=options,
                cache_types=_cache_types(text),
                version=version[0][:40] if version else "",
            )
        return self._abilities

    def command(self, config: RunConfig, port: int) -> Command:
        """Everything explicit; options that the build does not know are left out and named."""
        known = self.abilities().options
        words: list[str] = [self.command_name, "serve", config.model]
        missing: list[Missing] = []

        def add(option: str, value: str | None = None, lost: str = "") -> None:
            if option in known:
                words.extend((option,) if value is None else (option, value))
            elif lost:
                missing.append(Missing(option, lost))

        add("--max-model-len", str(config.n_ctx))
        add("--kv-cache-dtype", config.type_k, "the type of keys and values")
        add("--max-num-seqs", str(config.n_parallel), "the number of sequences")
        add("--max-num-batched-tokens", str(config.n_batch), "the tokens of one batch")
        if config.gpu_memory_utilization is not None:
            share = f"{config.gpu_memory_utilization:.4f}".rstrip("0").rstrip(".")
            add("--gpu-memory-utilization", share, "the share of the card")
        if config.enforce_eager:
            add("--enforce-eager", None, "a start without CUDA graphs")
        reuse = "--enable-prefix-caching" if config.prefix_reuse else "--no-enable-prefix-caching"
        add(reuse, None, "" if config.prefix_reuse else "that no prompt is taken from an earlier one")
        words += ["--host", "127.0.0.1", "--port", str(port), *config.extra]
        return Command(tuple(words), config.env, tuple(missing))

    def dry_run(self, config: RunConfig) -> DryRun | None:
        """It has none."""
        return None

    def launch(self, config: RunConfig, log_path: Path, on_log: Callable[[list[str]], None]) -> VllmProcess:
        """Start it on a free port. It ends with kvtui, whatever ends that (see guard)."""
        self.abilities()
        return VllmProcess(
            self.label,
            lambda port: self.command(config, port),
            log_path,
            on_log,
            connect=lambda url: VllmClient(url, config.model),
            pages=layouts(config.model),
        )

    def _ask(self, *options: str) -> str:
        return ask_program((self.command_name, *options), limit_s=_ASK_LIMIT_S)


class VllmProcess(EngineProcess):
    """A started vLLM server. `pages` are the layouts of its model's cache, by which its log proves the type."""

    def __init__(
        self,
        label: str,
        make_command: Callable[[int], Command],
        log_path: Path,
        on_log: Callable[[list[str]], None],
        *,
        connect: Callable[[str], AbstractContextManager[Client]],
        pages: dict[KvDtype, Pages],
    ) -> None:
        super().__init__(label, make_command, log_path, on_log, connect=connect, quiet_limit_s=_QUIET_S)
        self._pages = pages

    def facts(self) -> EngineFacts:
        """What its log proves, in the terms that all engines share."""
        return in_llama_terms(super().facts(), self._pages)


def _option_names(help_text: str) -> frozenset[str]:
    """The names that open a line of argparse's help, up to the explanation."""
    heads = [line.strip().split("  ")[0] for line in help_text.splitlines() if line.lstrip().startswith("-")]
    return frozenset(name for head in heads for name in _OPTION.findall(head))


def _cache_types(help_text: str) -> tuple[str, ...]:
    match = _KV_DTYPES.search(help_text)
    return tuple(name for name in re.split(r"[,\s]+", match[1].strip()) if name) if match else ()
