"""Context length: asked, allocated, and usable by one request."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.findings.entry import Entry, Hit, View


def _rounded(view: View) -> Iterator[Hit]:
    note = view.last("ctx-rounded")
    if note is not None:
        yield Hit(
            f"The context is no multiple of the slots and became {int(note.values[0]):,} tokens"
            " (it can be more than asked).",
            "-c: a multiple of 256 times -np",
            (note.line,),
        )


def _divided(view: View) -> Iterator[Hit]:
    main, slots = view.facts.main, view.facts.slots
    if (
        main is not None
        and main.n_ctx
        and main.n_ctx_seq
        and main.kv_unified is False
        and main.n_ctx_seq < main.n_ctx
    ):
        yield Hit(
            f"{main.n_ctx:,} tokens are divided by {main.n_ctx // main.n_ctx_seq} slots:"
            f" one request can use {main.n_ctx_seq:,}.",
            "-np 1 (or -kvu)",
            tuple(main.lines[k] for k in ("n_ctx", "n_ctx_seq") if k in main.lines),
        )
        return
    asked = view.facts.requested.get("ctx")
    if (
        main is None
        and slots
        and slots.kv_unified is False
        and slots.n_slots
        and slots.n_slots > 1
        and slots.n_ctx_slot
    ):
        total = slots.n_slots * slots.n_ctx_slot
        if asked is None or asked > slots.n_ctx_slot:
            yield Hit(
                f"{slots.n_slots} slots have {slots.n_ctx_slot:,} tokens each, of {total:,} together.",
                "-np 1 (or -kvu)",
                (slots.line,) if slots.line else (),
            )


def _shared(view: View) -> Iterator[Hit]:
    slots, main, auto = view.facts.slots, view.facts.main, view.last("slots-auto")
    unified = (
        slots.kv_unified if slots and slots.kv_unified is not None else main.kv_unified if main else None
    )
    count = slots.n_slots if slots and slots.n_slots is not None else main.n_seq_max if main else None
    if unified and count is not None and count > 1:
        unasked = ", which nobody asked for" if auto else ""
        known = (
            slots.line if slots else None,
            main.lines.get("kv_unified") if main else None,
            auto.line if auto else None,
        )
        lines = tuple(n for n in known if n is not None)
        yield Hit(
            f"{count} slots{unasked} share one pool of cells: each shows the whole context, together they can"
            " run out of it, and sliding-window cells and recurrent state are held for all of them.",
            "-np 1",
            lines,
        )


def _above_trained(view: View) -> Iterator[Hit]:
    capped, above = view.last("slot-capped"), view.last("above-trained-length")
    note = capped or above
    if note is not None:
        asked, trained = int(note.values[0]), int(note.values[1])
        cells = f" Cells for {asked - trained:,} tokens are allocated and never used." if capped else ""
        yield Hit(
            f"The model was trained for {trained:,} tokens, each slot has {asked:,}.{cells}",
            f"-c: at most {trained:,} per slot (or rope scaling on purpose)",
            tuple(n.line for n in (above, capped) if n is not None),
        )


def _swa_full(view: View) -> Iterator[Hit]:
    note = view.last("swa-full")
    if note is not None:
        yield Hit(
            "The sliding-window layers keep cells for the whole context instead of their window.",
            "without --swa-full",
            (note.line,),
        )


def _fit_failed(view: View) -> Iterator[Hit]:
    note = view.last("fit-failed")
    if note is None:
        return
    reduced = view.last("fit-reduced")
    slots = view.facts.slots
    now = f" One slot now has {slots.n_ctx_slot:,} tokens." if slots and slots.n_ctx_slot else ""
    yield Hit(
        f"Fit gave up ({note.values[0]}), but may have lowered the context before it did.{now}",
        "-c: state it, so that fit leaves it alone",
        tuple(n for n in (note.line, reduced.line if reduced else None, slots.line if slots else None) if n),
    )


def _fit_reduced(view: View) -> Iterator[Hit]:
    note = view.last("fit-reduced")
    if note is not None and view.last("fit-failed") is None:
        yield Hit(
            f"Fit lowered the context from {int(note.values[0]):,} to {int(note.values[1]):,} tokens.",
            "-c: state the context",
            (note.line,),
        )


def _smaller(view: View) -> Iterator[Hit]:
    asked, main, slots = view.facts.requested.get("ctx"), view.facts.main, view.facts.slots
    usable, line = (slots.n_ctx_slot, slots.line) if slots and slots.n_ctx_slot else (None, None)
    if usable is None and main is not None:
        usable, line = main.n_ctx_seq, main.lines.get("n_ctx_seq")
    known = any(view.notes.get(k) for k in ("ctx-rounded", "slot-capped", "fit-failed", "fit-reduced"))
    divided = main is not None and main.n_ctx_seq != main.n_ctx
    if (
        isinstance(asked, int)
        and asked > 0
        and usable is not None
        and usable < asked
        and not known
        and not divided
    ):
        yield Hit(
            f"-c {asked:,} was asked, one request can use {usable:,} tokens.", "-c", (line,) if line else ()
        )


ENTRIES = (
    Entry(
        "ctx-rounded",
        "warning",
        "The context was rounded",
        "`n_ctx is not divisible by n_seq_max - rounding down to N`",
        "Each slot's share is padded to 256 cells: the total can be smaller or larger than asked.",
        "-c",
        "llama.cpp src/llama-context.cpp (b11434)",
        _rounded,
    ),
    Entry(
        "ctx-divided",
        "warning",
        "The context is divided by the slots",
        "`n_ctx_seq` below `n_ctx` with `kv_unified = false`",
        "A request longer than its slot is refused though -c is larger.",
        "-np 1",
        "llama.cpp #11681, #9016, PR #17767",
        _divided,
    ),
    Entry(
        "slots-share-pool",
        "warning",
        "Several slots share one pool of cells",
        "`n_slots` above 1 with `kv_unified = 'true'`",
        "Without -np the server opens 4 unified slots; when the pool is full, all active requests fail.",
        "-np 1",
        "llama.cpp tools/server (b11434), #23652; lemonade-sdk#3276",
        _shared,
    ),
    Entry(
        "ctx-above-trained",
        "warning",
        "The context is longer than the model was trained for",
        "`n_ctx_seq (A) > n_ctx_train (B)`, `exceeds the training context of the model`",
        "All cells are allocated, the slot is capped to the trained length: the rest of the memory is wasted.",
        "-c",
        "llama.cpp tools/server (b11434)",
        _above_trained,
    ),
    Entry(
        "swa-full",
        "warning",
        "The sliding-window cache has full size",
        "`using full-size SWA cache`",
        "The saving of sliding-window attention is lost.",
        "without --swa-full",
        "llama.cpp #14123, #13194",
        _swa_full,
    ),
    Entry(
        "fit-failed",
        "warning",
        "Fit gave up, yet values may have changed",
        "`failed to fit params to free device memory`",
        "The context is written before layers are tried: giving up does not restore it.",
        "-c",
        "llama.cpp common/fit.cpp (b11434), #18066",
        _fit_failed,
    ),
    Entry(
        "fit-reduced-ctx",
        "warning",
        "Fit lowered the context",
        "`context size reduced from A to B`",
        "Without -c the context is whatever memory was free at that moment.",
        "-c",
        "llama.cpp common/fit.cpp (b11434)",
        _fit_reduced,
    ),
    Entry(
        "ctx-smaller",
        "warning",
        "The usable context is smaller than asked",
        "`n_ctx_slot` or `n_ctx_seq` below -c",
        "A request longer than this is refused.",
        "-c",
        "llama.cpp tools/server (b11434)",
        _smaller,
    ),
)
