"""What slots and drafts multiply: sliding-window cells and recurrent state."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.findings.entry import Entry, Hit, View


def _recurrent(view: View) -> Iterator[Hit]:
    main = view.facts.main
    note = view.last("recurrent-rows")
    for cache in main.caches if main else ():
        if cache.kind != "recurrent" or cache.size_mib is None or cache.line is None:
            continue
        drafts = int(note.values[1]) if note is not None else 0
        rows = (main.n_seq_max or cache.cells or 1) * (1 + drafts) if main else 1
        if rows > 1:
            spec = f" and {drafts} speculated tokens" if drafts else ""
            yield Hit(
                f"The recurrent state is held {rows} times, for {main.n_seq_max if main else '?'} slots{spec}:"
                f" {cache.size_mib:,.1f} MiB, {cache.size_mib / rows:,.1f} MiB of it for one.",
                "-np 1" if main and (main.n_seq_max or 1) > 1 else "--spec-draft-n-max: fewer",
                (cache.line,),
            )


def _window(view: View) -> Iterator[Hit]:
    main = view.facts.main
    if main is None or (main.n_seq_max or 1) < 2:
        return
    for cache in main.caches:
        if cache.kind == "SWA" and cache.size_mib and cache.line is not None:
            yield Hit(
                f"{main.n_seq_max} slots each hold a window of cells: the sliding-window cache takes"
                f" {cache.size_mib:,.1f} MiB.",
                "-np 1",
                (cache.line,),
            )


ENTRIES = (
    Entry(
        "recurrent-by-slots",
        "warning",
        "Recurrent state is multiplied by slots and speculation",
        "`llama_memory_recurrent: size` with several seqs or rs_seq above 0",
        "State does not depend on the context; it is held once per slot and once more per speculated token.",
        "-np 1, then the number of speculated tokens",
        "llama.cpp src/llama-memory-recurrent.cpp (b11434); unsloth#5585, #6312",
        _recurrent,
    ),
    Entry(
        "swa-by-slots",
        "warning",
        "Slots inflate the sliding-window cache",
        "`creating SWA KV cache` with n_seq_max above 1",
        "Its cells are the window times the slots plus the micro-batch, in unified mode too.",
        "-np 1, then -ub",
        "llama.cpp src/llama-kv-cache-iswa.cpp (b11434); unsloth#5225",
        _window,
    ),
)
