"""Settings that were asked for and differ, or that this log cannot prove."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.findings.entry import Entry, Hit, View

_COMPARED = (
    ("n_batch", "n_batch", "-b"),
    ("n_ubatch", "n_ubatch", "-ub"),
    ("n_parallel", "n_seq_max", "-np"),
    ("kv_unified", "kv_unified", "-kvu"),
)


def _differs(view: View) -> Iterator[Hit]:
    main = view.facts.main
    if main is None or view.facts.engine not in ("llama.cpp", "ik_llama.cpp"):
        return
    for asked_as, name, option in _COMPARED:
        asked, actual = view.facts.requested.get(asked_as), getattr(main, name)
        if asked is not None and actual is not None and asked != actual:
            yield Hit(f"{option} {asked} was asked, the context has {actual}.", option, (main.lines[name],))


def _unproven(view: View) -> Iterator[Hit]:
    facts, main = view.facts, view.facts.main
    if facts.outcome != "ready" or facts.engine not in ("llama.cpp", "ik_llama.cpp"):
        return
    missing = []
    if "flash_attn" in facts.requested and (main is None or main.flash_attn is None):
        missing.append("-fa")
    if {"cache_type_k", "cache_type_v"} & set(facts.requested) and not (main and main.caches):
        missing.append("-ctk/-ctv")
    if "n_gpu_layers" in facts.requested and facts.offloaded is None:
        missing.append("-ngl")
    if missing:
        yield Hit(f"Asked for and not shown: {', '.join(missing)}.", "-lv 4", ())


ENTRIES = (
    Entry(
        "setting-differs",
        "warning",
        "A setting is not the one that was asked for",
        "`llama_context: n_batch`, `n_ubatch`, `n_seq_max`, `kv_unified` against the command line",
        "Engines clamp and derive settings: a comparison of two runs compares what they had.",
        "the option named",
        "llama.cpp src/llama-context.cpp (b11434)",
        _differs,
    ),
    Entry(
        "setting-unproven",
        "warning",
        "A setting that was asked for is not proven",
        "an option without a line that shows its outcome",
        "A value without evidence is no result.",
        "-lv 4",
        "llama.cpp common/log.h (b11434), PR #23021",
        _unproven,
    ),
)
