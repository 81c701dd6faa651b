"""Architectures with sliding windows: which layers slide, over how many tokens."""

from __future__ import annotations

from kvtui.model.families.arch import Arch, Rule
from kvtui.model.layout import Layout, Rejected

_WINDOW = "attention.sliding_window"


def from_file(every: int | None, *, dense_first: bool = False, default: int | None = None) -> Rule:
    """The window is in the file (or has a `default`); the pattern as `Layout.slide` describes it."""

    def rule(layout: Layout) -> None:
        window = layout.optional(_WINDOW) if default is not None else layout.required(_WINDOW)
        layout.slide(default or 0 if window is None else window, every, dense_first=dense_first)

    return rule


def if_given(every: int, *, dense_first: bool = False, fixed: int | None = None) -> Rule:
    """Layers slide only where the file gives a window; `fixed` is the size that the engine uses then."""

    def rule(layout: Layout) -> None:
        window = layout.optional(_WINDOW) or 0
        layout.window = window
        if window:
            layout.slide(fixed or window, every, dense_first=dense_first)

    return rule


def _exaone4(layout: Layout) -> None:
    # Only the 64-layer model slides; smaller ones keep everything although they may carry a window.
    if layout.n_layer == 64:
        window = layout.optional(_WINDOW)
        layout.slide(4096 if window is None else window, 4)


def _llama4(layout: Layout) -> None:
    # Chunks of 8,192 tokens unless the file says explicitly that there is no window.
    if layout.optional(_WINDOW) != 0:
        layout.slide(8192, 4)


def _share(layout: Layout, owners: int) -> None:
    """Only the first `owners` layers own a cache. Later sliding layers reuse that of the last owner but one,
    later full layers that of the last; the engine stops where those are of the other kind."""
    if owners < 2:
        raise Rejected("fewer than two layers own a cache, the engine stops")
    layout.kv_layers = owners
    later = layout.swa[owners : layout.n_layer]
    if (True in later and not layout.swa[owners - 2]) or (False in later and layout.swa[owners - 1]):
        raise Rejected("shared layers would reuse a cache of the other kind, the engine stops")


def _gemma3n(layout: Layout) -> None:
    layout.slide(layout.required(_WINDOW), 5)
    _share(layout, 20)
    layout.notes.append("the first 20 layers own a cache, later ones reuse theirs")


def _gemma4(layout: Layout) -> None:
    layout.required("embedding_length_per_layer_input")
    layout.required("attention.key_length_swa")
    layout.required("attention.value_length_swa")
    layout.slide(layout.required(_WINDOW))
    shared = layout.optional("attention.shared_kv_layers") or 0
    _share(layout, layout.n_layer_all - shared)
    if shared:
        layout.notes.append(f"the last {shared} layers reuse the caches of earlier ones")


WINDOWED = (
    Arch("afmoe", "sliding window where given, every 4th layer full", if_given(4)),
    Arch("cohere2", "sliding window, every 4th layer full", from_file(4)),
    Arch("cohere2moe", "sliding window, the first of every 4 layers full", from_file(4, dense_first=True)),
    Arch("exaone-moe", "sliding window, every 4th layer full", from_file(4)),
    Arch("exaone4", "sliding window in the 64-layer model, every 4th layer full", _exaone4),
    Arch("gemma2", "sliding window of 4,096 unless given, every 2nd layer full", from_file(2, default=4096)),
    Arch("gemma3", "sliding window where given, every 6th layer full", if_given(6)),
    Arch("gemma3n", "sliding window, every 5th layer full; the first 20 layers own the caches", _gemma3n),
    Arch("gemma4", "sliding window and pattern from the file; shared KV layers", _gemma4),
    Arch("gpt-oss", "sliding window, every 2nd layer full", from_file(2)),
    Arch("granite_swa", "sliding window and pattern from the file", from_file(None)),
    Arch(
        "laguna",
        "sliding window where given, the first of every 4 layers full",
        if_given(4, dense_first=True),
    ),
    Arch("llama4", "chunks of 8,192 tokens unless switched off, every 4th layer full", _llama4),
    Arch("maple", "sliding window and pattern from the file", from_file(None)),
    Arch("mellum", "sliding window where given, every 4th layer full", if_given(4)),
    Arch("mimo2", "sliding window and pattern from the file", from_file(None)),
    Arch("muse-glimmer", "sliding window, every 4th layer full", from_file(4)),
    Arch("olmo2", "sliding window where given, every 4th layer full", if_given(4)),
    Arch("plamo3", "sliding window where given, every 8th layer full", if_given(8)),
    Arch(
        "smallthinker",
        "sliding window of 4,096 where one is given, the first of every 4 layers full",
        if_given(4, dense_first=True, fixed=4096),
    ),
    Arch("spark2_5", "sliding window and pattern from the file", from_file(None)),
    Arch("step35", "sliding window and pattern from the file", from_file(None)),
)
