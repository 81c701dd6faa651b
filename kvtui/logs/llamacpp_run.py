"""llama.cpp as it prints today: what the server serves with, and what it warns of."""

from __future__ import annotations

import re

from kvtui.logs.draft import Draft
from kvtui.logs.rules import Action, rule, weak


def _slots(d: Draft, m: re.Match[str]) -> None:
    found = {k: v for k, v in m.groupdict().items() if v is not None}
    values: dict[str, int | bool] = {k: int(v) for k, v in found.items() if k != "unified"}
    if "unified" in found:
        values["kv_unified"] = found["unified"] == "true"
    d.set_slots(**values)


def _new_slot(d: Draft, m: re.Match[str]) -> None:
    if d.slots.n_ctx_slot is None:
        d.set_slots(n_ctx_slot=int(m[1]))


def ready(d: Draft, m: re.Match[str]) -> None:
    d.stage = "ready"
    d.end("ready")


def _note(kind: str) -> Action:
    def action(d: Draft, m: re.Match[str]) -> None:
        if d.stage != "fit":
            d.note(kind, *(g or "" for g in m.groups()))

    return action


ALWAYS = (b"failed", b"rror")
EARLY = (b"truncated = 1", b"vector kernel", b"full prompt re-processing", b"does not match exp")
"""What a server that runs may still say: failures and refused requests, then cut ones and slow paths."""

RULES = (
    rule(
        "n_slots",
        r"n_slots = (?P<n_slots>\d+)(?:, n_ctx_slot = (?P<n_ctx_slot>\d+))?"
        r"(?:, kv_unified = '(?P<unified>true|false)')?",
        _slots,
    ),
    rule("new slot", r"new slot,? n_ctx(?:_slot)? = (\d+)", _new_slot),
    rule("model loaded", r"(?:llama_server|main|init): model loaded\b", ready),
    weak("listening ", r"listening (?:on|at) (?:http|unix)", ready),
    rule("all slots are idle", "", ready),
    rule("| task", r"slot\s+(?:print_timing|launch_slot_|update_slots|release): id", ready),
    rule(
        "rounding down", r"n_ctx is not divisible by n_seq_max - rounding down to (\d+)", _note("ctx-rounded")
    ),
    rule(
        "- capping",
        r"slot context \((\d+)\) exceeds the training context of the model \((\d+)\)",
        _note("slot-capped"),
    ),
    rule("full-size SWA", "", _note("swa-full")),
    rule("required for quantized V", "", _note("fa-forced")),
    rule(
        "assigned to device",
        r"layer \d+ is assigned to device (\S+) but Flash Attention is assigned to device (\S+)",
        _note("fa-elsewhere"),
    ),
    rule("verbosity =", r"verbosity = (\d+) \(adjust with", _note("verbosity")),
    rule(
        "set to auto",
        r"n_parallel is set to auto, using n_parallel = (\d+) and kv_unified = (\w+)",
        _note("slots-auto"),
    ),
    rule("context size reduced", r"context size reduced from (\d+) to (\d+)", _note("fit-reduced")),
    rule("set by user", r"n_gpu_layers already set by user to (\S+), abort", _note("fit-aborted-ngl")),
    rule(
        "vector kernel",
        r"no FlashAttention vector kernel compiled for K/V types (\S+)-(\S+),",
        _note("no-vector-kernel"),
    ),
    rule("truncated = 1", r"stop processing: n_tokens = (\d+), truncated = 1", _note("generation-truncated")),
    rule(
        "exceeds the available context",
        r"request \((\d+) tokens\) exceeds the available context size \((\d+) tokens\)",
        _note("request-too-long"),
    ),
    rule("Context size has been exceeded", "", _note("pool-exhausted")),
    rule("find free space in the KV", "", _note("pool-pressure")),
    rule("forcing full prompt", r"forcing full prompt re-?processing", _note("full-reprocessing")),
    rule(
        "does not match expectation",
        r"(\S+)\s+compute buffer size of ([\d.]+) MiB, does not match expectation of\s+([\d.]+) MiB",
        _note("compute-grew"),
    ),
    rule("prompt cache is enabled", r"prompt cache is enabled, size limit: (\d+) MiB", _note("prompt-cache")),
    rule(
        "checkpoints enabled",
        r"context checkpoints enabled, max = (\d+), min spacing = (\d+)",
        _note("checkpoints"),
    ),
)
