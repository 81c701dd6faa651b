"""Which pairs of KV types a build has fast attention kernels for, as far as its own output tells.

Rules (llama.cpp b11434, ggml-cuda/fattn.cu): a default CUDA or ROCm build compiles vector kernels for equal pairs of
f16, bf16, q8_0 and q4_0 only. Other pairs are converted to f16 at every decode step, and in builds up to b10819
computed on the CPU. iq4_nl has no CUDA kernel. Metal needs equal types. Vulkan and the CPU take any pair.
"""

from __future__ import annotations

import re
from typing import Literal

from kvtui.logs.facts import EngineFacts

Support = Literal["fast", "slow", "cpu", "unknown"]

LAST_BUILD_ON_CPU = 10819
_EQUAL = frozenset({"f16", "bf16", "q8_0", "q4_0"})
_CUDA = re.compile(r"(?:CUDA|ROCm|HIP)\d")


def pair_support(facts: EngineFacts, type_k: str, type_v: str) -> Support:
    """How attention over `type_k`/`type_v` runs on the device that holds the KV of `facts`.

    `unknown` where the device or the build is not proven; `slow`: on the GPU, by a conversion at every step.
    """
    devices = [b.device for b in facts.main.kv_buffers] if facts.main else []
    if facts.engine != "llama.cpp" or not devices:
        return "unknown"
    if any(_CUDA.match(d) for d in devices):
        return _cuda(facts, type_k, type_v)
    if any(d.startswith("Metal") for d in devices):
        return "fast" if type_k == type_v else "cpu"
    return "fast" if all(d.startswith(("CPU", "Vulkan")) for d in devices) else "unknown"


def _cuda(facts: EngineFacts, type_k: str, type_v: str) -> Support:
    if "iq4_nl" in (type_k, type_v):
        return "cpu"
    if type_k == type_v and type_k in _EQUAL:
        return "fast"
    info = facts.system_info or ""
    if "FA_ALL_QUANTS = 1" in info or "FA_QUANTS = all" in info or f"{type_k}-{type_v}" in info:
        return "fast"
    build = re.search(r"\d+", facts.build or "")
    if build is None:
        return "unknown"
    return "cpu" if int(build[0]) <= LAST_BUILD_ON_CPU else "slow"
