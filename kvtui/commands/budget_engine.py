"""`kvtui budget --ask-engine`: the engine's own dry run beside kvtui's figures, with the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError
from kvtui.core.units import MIB, signed_size, size
from kvtui.engines.base import DryRun
from kvtui.engines.llama_server.dry_run import find_program
from kvtui.engines.llama_server.server import dry_runner
from kvtui.model.context import ContextPlan
from kvtui.model.request import ContextRequest
from kvtui.model.weights import WeightPlacement


@dataclass(frozen=True, slots=True)
class Told:
    """One dry run beside the plan for the same request. All sizes are bytes; the engine's are cut to whole MiB."""

    made: ContextPlan
    told: DryRun
    weights_bytes: int

    @property
    def context_bytes(self) -> int:
        """KV and state as the engine tells them, all devices together."""
        return self.told.total(host_counts=True).context_mib * MIB

    @property
    def weights_told_bytes(self) -> int | None:
        """Weights on GPUs as the engine tells them; None where it has no GPU to put them on."""
        return self.told.total(host_counts=False).model_mib * MIB if len(self.told.devices) > 1 else None

    @property
    def difference_bytes(self) -> int | None:
        """The engine's context minus kvtui's KV; None where kvtui has none."""
        return None if self.made.kv_bytes is None else self.context_bytes - self.made.kv_bytes

    @property
    def agrees(self) -> bool | None:
        """Whether the difference is no more than what cutting each device to whole MiB explains; None: no figure."""
        gap = self.difference_bytes
        return None if gap is None else -len(self.told.devices) * MIB < gap <= 0


def ask_engine(
    program: str,
    path: str | None,
    requests: list[ContextRequest],
    plans: list[ContextPlan],
    placement: WeightPlacement,
    layers: tuple[int | None, int | None],
) -> list[Told]:
    """A dry run for each request that the engine would not refuse; `layers` are `-ngl` and `--n-cpu-moe`.

    Raises InputError (no such program, no file to give it) or StartError (it does not answer).
    """
    if path is None:
        raise InputError("--ask-engine needs a file on this machine", hint="download the model first")
    runner = dry_runner(find_program(program))
    return [
        Told(made, runner.ask(_config(path, request, made, layers)), placement.gpu_bytes)
        for request, made in zip(requests, plans, strict=True)
        if made.refused is None
    ]


def _config(
    path: str, request: ContextRequest, made: ContextPlan, layers: tuple[int | None, int | None]
) -> RunConfig:
    n_gpu_layers, n_cpu_moe = layers
    return RunConfig(
        path,
        request.ctx or made.n_ctx,
        type_k=request.type_k,
        type_v=request.type_v,
        flash_attn=request.flash_attn,
        n_parallel=request.n_seq_max,
        kv_unified=request.kv_unified,
        n_batch=request.n_batch,
        n_ubatch=request.n_ubatch,
        n_gpu_layers=999 if n_gpu_layers is None else n_gpu_layers,
        n_cpu_moe=n_cpu_moe,
        swa_full=request.swa_full,
    )


def engine_document(answers: list[Told]) -> list[dict[str, Any]]:
    """The key `engine` of the document, one entry a context."""
    return [
        {
            "n_ctx": a.made.n_ctx,
            "program": a.told.program,
            "seconds": round(a.told.seconds, 2),
            "devices": [
                {
                    "device": d.device,
                    "model_mib": d.model_mib,
                    "context_mib": d.context_mib,
                    "compute_mib": d.compute_mib,
                }
                for d in a.told.devices
            ],
            "kv_bytes": a.made.kv_bytes,
            "difference_bytes": a.difference_bytes,
            "agrees": a.agrees,
        }
        for a in answers
    ]


def engine_text(answers: list[Told]) -> list[str]:
    """The same for a person, at most 80 columns."""
    lines = []
    for a in answers:
        lines += ["", f"engine   its own dry run for {a.made.n_ctx:,} tokens, {a.told.seconds:.1f} s"]
        lines.append(f"         {'device':<16}{'model':>12}{'context':>12}{'compute':>12}   MiB, cut")
        lines += [
            f"         {d.device[:16]:<16}{d.model_mib:>12,}{d.context_mib:>12,}{d.compute_mib:>12,}"
            for d in a.told.devices
        ]
        lines.append(f"         {_verdict(a)}")
        if a.weights_told_bytes is not None:
            gap = a.weights_told_bytes - a.weights_bytes
            lines.append(f"         weights on GPU: kvtui {size(a.weights_bytes)}, engine {signed_size(gap)}")
    return lines


def _verdict(told: Told) -> str:
    ours, gap = told.made.kv_bytes, told.difference_bytes
    if ours is None or gap is None:
        return f"KV: kvtui cannot tell, the engine says {size(told.context_bytes)}"
    if told.agrees:
        return f"KV: kvtui {size(ours)}, the engine the same to its MiB"
    return f"KV: kvtui {size(ours)}, engine {size(told.context_bytes)}: differs by {signed_size(gap)}"
