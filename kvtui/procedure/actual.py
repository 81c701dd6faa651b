"""The configuration that a run really had, setting by setting, as its log proves it."""

from __future__ import annotations

from typing import Any

from kvtui.logs.facts import ContextFacts, EngineFacts
from kvtui.session.state import RunRecord

BUILD, DRIVER = "engine build", "driver"
VOIDING = (BUILD, DRIVER)
"""Settings of the ground that both runs stand on: where one moved, nothing can be compared."""

_ENGINES_OWN = {
    "n_ctx": "context",
    "num_parallel": "slots",
    "num_batch": "batch",
    "block_size": "block size",
    "attn_backend": "attention backend",
    "max_num_batched_tokens": "batch",
    "max_num_seqs": "slots",
}


def actual_settings(run: RunRecord) -> dict[str, str]:
    """Every proven setting by its name: one of kvtui.procedure.variables where there is one, else the engine's own.

    Sizes in bytes are consequences and not among them; cells of a sliding window are, since they multiply with slots
    and micro-batch.
    """
    found = _of_facts(run.facts)
    if run.config.threads is not None:
        found["threads"] = str(run.config.threads)
    driver = run.memory.device.driver if run.memory else None
    if driver is not None:
        found[DRIVER] = driver
    return found


def _of_facts(facts: EngineFacts) -> dict[str, str]:
    found = _of_actual(facts.actual or {})
    if facts.main is not None:
        found |= _of_context(facts.main)
    if facts.slots is not None and facts.slots.n_slots is not None:
        found["slots"] = str(facts.slots.n_slots)
    if facts.offloaded is not None:
        found["gpu-layers"] = f"{facts.offloaded[0]}/{facts.offloaded[1]}"
    if facts.build is not None:
        found[BUILD] = facts.build if facts.commit is None else f"{facts.build} ({facts.commit})"
    return found


def _of_context(main: ContextFacts) -> dict[str, str]:
    numbers = (
        ("context", main.n_ctx),
        ("slots", main.n_seq_max),
        ("context per sequence", main.n_ctx_seq),
        ("batch", main.n_batch),
        ("micro-batch", main.n_ubatch),
        ("n_rs_seq", main.n_rs_seq),
    )
    found = {name: str(value) for name, value in numbers if value is not None}
    if main.kv_unified is not None:
        found["unified"] = "on" if main.kv_unified else "off"
    if main.flash_attn is not None:
        found["flash-attention"] = "on" if main.flash_attn == "enabled" else "off"
    pairs = sorted({f"{c.type_k}/{c.type_v}" for c in main.caches if c.type_k and c.type_v})
    if pairs:
        found["kv-types"] = ", ".join(pairs)
    window = next((c.cells for c in main.caches if c.kind == "SWA" and c.cells is not None), None)
    if window is not None and (main.n_ctx_seq is None or window < main.n_ctx_seq):
        found["SWA cells"] = str(window)
    return found


def _of_actual(told: dict[str, Any]) -> dict[str, str]:
    """What engines with words of their own (Ollama, vLLM) prove."""
    found = {name: str(told[key]) for key, name in _ENGINES_OWN.items() if told.get(key) is not None}
    pair = proven_pair(told)
    if pair is not None:
        found["kv-types"] = "/".join(pair)
    if isinstance(told.get("flash_attn"), bool):
        found["flash-attention"] = "on" if told["flash_attn"] else "off"
    if told.get("layers_gpu") is not None:
        found["gpu-layers"] = f"{told['layers_gpu']}/{told.get('layers_total', '?')}"
    return found


def proven_pair(told: dict[str, Any]) -> tuple[str, str] | None:
    """The KV types of an engine that names them in words of its own, None where it does not."""
    kind = told.get("kv_type")
    key, value = told.get("kv_type_k", kind), told.get("kv_type_v", kind)
    return (str(key), str(value)) if key is not None and value is not None else None


def follows(variable: str, name: str) -> bool:
    """True when `name` moves by itself with `variable` and tells nothing of its own."""
    return name == "context per sequence" and variable in ("context", "slots", "unified")
