"""llama.cpp from January 2024 to early 2026, where it differs from today: names of functions and fields moved."""

from __future__ import annotations

import re

from kvtui.logs.draft import Draft
from kvtui.logs.facts import CacheFacts
from kvtui.logs.llamacpp import add_model_buffer, flash_outcome, header_value
from kvtui.logs.llamacpp_run import ready
from kvtui.logs.rules import number, rule, weak


def _per_sequence(d: Draft, m: re.Match[str]) -> None:
    header_value(d, "n_ctx_seq", int(m[1]))


def _geometry(d: Draft, m: re.Match[str]) -> None:
    """`kv_size = N .. n_layer = L` comes before the buffers; the total line that follows lacks both."""
    d.need_context()
    d.memory["geometry"] = (int(m["cells"]), int(m["layers"]), d.here())


def _self_size(d: Draft, m: re.Match[str]) -> None:
    cells, layers, _ = d.memory.pop("geometry", (None, None, 0))
    context = d.need_context()
    if context.is_full:
        return
    context.caches.append(
        CacheFacts(
            kind=d.memory.pop("kind", "full"),
            cells=cells,
            layers=layers,
            type_k=m["type_k"],
            k_mib=number(m["k"]) if m["k"] else None,
            type_v=m["type_v"],
            v_mib=number(m["v"]) if m["v"] else None,
            size_mib=number(m["size"]),
            line=d.here(),
        )
    )


def _slots_logged(d: Draft, m: re.Match[str]) -> None:
    d.set_slots(n_slots=int(m[1]))


def _slot_logged(d: Draft, m: re.Match[str]) -> None:
    d.set_slots(n_ctx_slot=int(m[1]))


_LOADED = r"llm_load_tensors:\s+(?P<device>[^\s=|]+)\s+buffer size\s*=\s*(?P<mib>\d+[.,]\d+)\s*MiB"

RULES = (
    rule("n_ctx_per_seq", r"(?:llama_\w+): n_ctx_per_seq\s*= (\d+)\b(?![.>…])", _per_sequence),
    rule("llm_load_tensors:", _LOADED, add_model_buffer),
    rule("kv_size", r"kv_size = (?P<cells>\d+), .*n_layer = (?P<layers>\d+)", _geometry),
    rule(
        "KV self size",
        r"KV self size\s*=\s*(?P<size>\d+[.,]\d+) MiB,\s*(?:K|c\^KV) \((?P<type_k>\w+)\):\s*(?:(?P<k>\d+[.,]\d+) MiB)?"
        r"(?:,\s*(?:V|kv\^T) \((?P<type_v>\w+)\):\s*(?:(?P<v>\d+[.,]\d+) MiB)?)?",
        _self_size,
    ),
    rule("was auto, set to", r"Flash Attention was auto, set to (?P<state>enabled|disabled)", flash_outcome),
    rule("initializing slots |", r"initializing slots \|.*\bn_slots=(\d+)", _slots_logged),
    rule("new slot |", r"new slot \|.*\bn_ctx_slot=(\d+)", _slot_logged),
    rule("model loaded", r"\[\s*main\] model loaded", ready),
    rule("starting the main loop", "", ready),
    rule("threadpool init", r"main: llama threadpool init", ready),
    rule("generate: n_ctx", r"generate: n_ctx = \d+, n_batch", ready),
    rule("perf", r"(?:common_perf_print|llama_perf_context_print|llama_print_timings):.*time\s*=", ready),
    rule("seconds per pass", "", ready),
    rule("perplexity: calculating", "", ready),
    rule("interactive mode", r"main: interactive mode on|== Running in interactive mode", ready),
    weak(" ± ", r"\|\s+(?:pp|tg)\d+[^|]*\|\s+[\d.]+ ± [\d.]+ \|", ready),
    rule("n_kv_max", r"main: n_kv_max = \d+, n_batch", ready),
)
