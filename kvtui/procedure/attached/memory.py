"""KV types of a running llama.cpp server inferred from its memory: what is measured, fixed and missing."""

from __future__ import annotations

from typing import Literal

from kvtui.core.config import RunConfig
from kvtui.core.errors import ModelFileError
from kvtui.core.units import MIB
from kvtui.engines.attach.logplace import in_its_own_root
from kvtui.engines.attach.look import Seen
from kvtui.logs.facts import EngineFacts
from kvtui.model.weights import place
from kvtui.procedure.attached.inference import Inference, Range, candidates, gpu_rest, host_rest, infer
from kvtui.procedure.oracle import Oracle, request_of

DEFAULT_PROMPT_CACHE_MIB = 8192
"""`--cache-ram` where nothing was asked: saved prompts may fill it once the server has worked."""


def infer_types(seen: Seen, config: RunConfig, facts: EngineFacts) -> Inference:
    """The KV types that the process's memory leaves possible; `why` says what is missing for a conclusion."""
    basis: Literal["gpu", "host"] = "host" if seen.gpu_bytes is None else "gpu"
    measured = seen.host.anonymous if basis == "host" else seen.gpu_bytes

    def none(why: str) -> Inference:
        return Inference(None, basis, measured, why)

    if seen.process is None or measured is None:
        return none("the memory of its process may not be read")
    if not config.n_ctx or (facts.slots is None and facts.main is None and "ctx" not in seen.asked.settings):
        return none("neither the log nor an answer proves the size of the context")
    if seen.asked.value("draft_model") or seen.asked.value("spec_type") or seen.asked.value("mmproj"):
        return none("a draft or projector is loaded too, which memory alone cannot tell apart")
    path = _model_path(seen)
    if path is None:
        return none("where its model file is is not known")
    try:
        oracle = Oracle.read(path)
    except ModelFileError as error:
        return none(f"its model file cannot be read: {error.reason}")
    if "ctx" not in seen.asked.settings and oracle.header.n_ctx_train is not None:
        pool = facts.slots.n_ctx_slot if facts.slots else None
        if pool == oracle.header.n_ctx_train and config.n_parallel > 1:
            return none("each slot is capped at the trained context: how much is allocated is not shown")
    fixed = _fixed_gpu(seen, config, facts, oracle) if basis == "gpu" else _fixed_host(seen, config, oracle)
    if fixed is None:
        return none("which layers are on the GPU is not proven")
    used = seen.http.proven.get("used_tokens")
    worked = used is None or used.value > 0
    possible = candidates(oracle.header, oracle.geometry, request_of(config), fixed, basis, has_worked=worked)
    return infer(measured, basis, possible)


def _fixed_gpu(seen: Seen, config: RunConfig, facts: EngineFacts, oracle: Oracle) -> Range | None:
    layers = facts.offloaded[0] if facts.offloaded else config.n_gpu_layers
    if (
        layers is None
        or not config.kv_offload
        or seen.asked.value("cpu_moe")
        or seen.asked.value("override_tensor")
    ):
        return None
    if layers < (oracle.header.n_layer or 0) + 1:
        return None  # KV is divided between card and host then
    weights = place(oracle.header, layers, config.n_cpu_moe).gpu_bytes
    return Range(weights, weights) + gpu_rest(1)


def _fixed_host(seen: Seen, config: RunConfig, oracle: Oracle) -> Range:
    mode = str(seen.asked.value("load_mode") or "")
    mapped = not seen.asked.value("no_mmap") and mode in ("", "auto", "mmap", "mmap+mlock")
    weights = 0 if mapped else oracle.header.tensor_bytes
    used = seen.http.proven.get("used_tokens")
    saved = seen.asked.value("cache_ram_mib")
    saved = DEFAULT_PROMPT_CACHE_MIB if saved is None or saved < 0 else saved
    idle = used is not None and used.value == 0
    rest = host_rest(
        oracle.header,
        repack=not seen.asked.value("no_repack"),
        prompt_cache_bytes=0 if idle else saved * MIB,
    )
    return Range(weights, weights) + rest


def _model_path(seen: Seen) -> str | None:
    told = seen.http.proven.get("model_path")
    path = seen.asked.value("model") or (None if told is None else told.value)
    if not path or seen.process is None:
        return None
    return in_its_own_root(seen.process, str(path))
