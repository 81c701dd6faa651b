"""KV types: proven, different from what was asked, or hidden."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.findings.entry import Entry, Hit, View


def _differs(view: View) -> Iterator[Hit]:
    main = view.facts.main
    for cache in main.caches if main else ():
        for asked_as, actual in (("cache_type_k", cache.type_k), ("cache_type_v", cache.type_v)):
            asked = view.facts.requested.get(asked_as)
            if asked is not None and actual is not None and asked != actual and cache.line is not None:
                side = asked_as[-1].upper()
                yield Hit(
                    f"{side} of the {cache.kind} cache was asked as {asked} and is {actual}.",
                    f"-ct{side.lower()}",
                    (cache.line,),
                )


def _unproven(view: View) -> Iterator[Hit]:
    facts = view.facts
    if facts.engine not in ("llama.cpp", "ik_llama.cpp") or facts.outcome != "ready":
        return
    if any(c.caches for c in facts.contexts):
        return
    verbosity = view.last("verbosity")
    lines = (
        (verbosity.line,) if verbosity else ((facts.slots.line,) if facts.slots and facts.slots.line else ())
    )
    level = f" It runs at verbosity {verbosity.values[0]}." if verbosity else ""
    yield Hit(
        f"The engine started, but no line shows the KV cache: its type, cells and MiB stay unproven.{level}",
        "-lv 4 (or LLAMA_ARG_LOG_VERBOSITY=4 in its environment)",
        lines,
    )


def _draft_f16(view: View) -> Iterator[Hit]:
    facts, main = view.facts, view.facts.main
    quantized = main is not None and any(c.type_k not in (None, "f16", "bf16", "f32") for c in main.caches)
    for context in view.contexts if facts.contexts else ():
        if context.role == "main" or not quantized:
            continue
        for cache in context.caches:
            if cache.type_k in ("f16", "f32") and cache.line is not None and cache.size_mib:
                yield Hit(
                    f"The {context.role} context keeps {cache.size_mib:,.2f} MiB of KV at {cache.type_k}:"
                    " -ctk/-ctv do not reach it.",
                    "-ctkd/-ctvd: the types of the main cache",
                    (cache.line,),
                )


ENTRIES = (
    Entry(
        "kv-type-differs",
        "error",
        "The KV type is not the one that was asked for",
        "`K (type)` or `V (type)` of a cache's size line against -ctk/-ctv",
        "A run whose types are not proven does not count for the type that was asked.",
        "-ctk/-ctv",
        "llama.cpp src/llama-kv-cache.cpp (b11434); ollama/ollama#8921",
        _differs,
    ),
    Entry(
        "kv-unproven",
        "warning",
        "The log does not show the KV cache",
        "the engine is ready, and no `llama_kv_cache: size =` line was printed",
        "Builds since May 2026 hide every KV line at the default verbosity.",
        "-lv 4",
        "llama.cpp common/log.h (b11434), PR #23021, #23162",
        _unproven,
    ),
    Entry(
        "draft-kv-f16",
        "warning",
        "The draft or MTP cache is not quantized",
        "a second context whose size line says f16 beside a quantized main cache",
        "The draft context takes -ctkd/-ctvd, f16 by default, at the full context length.",
        "-ctkd/-ctvd",
        "llama.cpp PR #23646 (b11434)",
        _draft_f16,
    ),
)
