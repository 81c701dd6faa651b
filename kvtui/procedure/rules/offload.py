"""Leaving the GPU, and leaving upstream: named last, run only where capacity matters more than latency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.procedure.rules.rule import MEMORY_CAUSES, Case, Rule, meaningful

SHARES = (7 / 8, 3 / 4, 5 / 8, 1 / 2, 3 / 8, 1 / 4)
"""Shares of the layers that stay on the GPU, in the order in which they are tried."""


def _memory(case: Case) -> bool:
    return case.sit.on_gpu and (case.cause in MEMORY_CAUSES or case.cause == "weights")


def _has_experts(case: Case) -> bool:
    return case.sit.oracle.has_experts


def _experts(case: Case) -> bool:
    return _memory(case) and meaningful(case, "cpu-moe") and _has_experts(case)


def _experts_on_host(case: Case) -> Iterator[RunConfig]:
    layers, now = case.sit.oracle.n_layer or 0, case.config.n_cpu_moe or 0
    for share in (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1):
        wanted = round(layers * share)
        if wanted > now:
            yield replace(case.config, n_cpu_moe=wanted)


def _layers(case: Case) -> bool:
    return _memory(case) and meaningful(case, "gpu-layers") and any(_fewer_layers(case))


def _fewer_layers(case: Case) -> Iterator[RunConfig]:
    layers = case.sit.oracle.n_layer or 0
    now = layers + 1 if case.config.n_gpu_layers is None else min(case.config.n_gpu_layers, layers + 1)
    for share in SHARES:
        wanted = round((layers + 1) * share)
        if 0 < wanted < now:
            yield replace(case.config, n_gpu_layers=wanted)


OFFLOAD: tuple[Rule, ...] = (
    Rule(
        id="experts-on-cpu",
        kind="change",
        when="nothing else makes the room, the model has experts, and capacity matters more than latency",
        holds=_experts,
        why="experts are read by few tokens each, so they cost the least where they leave the GPU",
        source="llama.cpp --n-cpu-moe; ollama/ollama#11772 (pinned memory)",
        variable="cpu-moe",
        direction="more",
        values=_experts_on_host,
        memory="the experts of those layers leave the GPU",
        speed="slower decode, measured by this run against the one before",
        risk="decode speed: the price is measured, and it is another answer than all on the GPU",
    ),
    Rule(
        id="layers-on-cpu",
        kind="change",
        when="nothing else makes the room and capacity matters more than latency",
        holds=_layers,
        why="layers on the CPU take their weights and their KV off the card",
        source="llama.cpp #22442; unsloth#10058 (40 to 10 t/s)",
        variable="gpu-layers",
        direction="fewer",
        values=_fewer_layers,
        memory="weights and KV of those layers leave the GPU",
        speed="much slower decode, measured by this run against the one before",
        risk="decode speed: the price is measured, and it is another answer than all on the GPU",
    ),
    Rule(
        id="fork",
        kind="named",
        when="memory is what is missing and every upstream type was tried or cannot make the room",
        holds=_memory,
        why="forks have adaptive or lower KV types; they are another engine, to be measured by a session of its own",
        source="ikawrakow/ik_llama.cpp; TheTom/llama-cpp-turboquant#325",
    ),
)
