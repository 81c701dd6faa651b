"""What a server that runs gives away: refused and cut requests, a full pool, repeated prefill, host memory."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.draft import Note
from kvtui.logs.findings.entry import Detector, Entry, Hit, View


def _times(notes: tuple[Note, ...]) -> str:
    return (
        "once"
        if len(notes) == 1
        else f"{len(notes)} times or more"
        if len(notes) >= 64
        else f"{len(notes)} times"
    )


def of(kind: str, why: str, change: str) -> Detector:
    """A hit for all notes of a kind; `why` may use the newest one's values and `times`."""

    def detect(view: View) -> Iterator[Hit]:
        notes = tuple(view.all(kind))
        if notes:
            text = why.format(*notes[-1].values, times=_times(notes))
            yield Hit(text, change, tuple(n.line for n in notes[-4:]))

    return detect


def _pool(view: View) -> Iterator[Hit]:
    notes = (*view.all("pool-exhausted"), *view.all("pool-pressure"))
    if notes:
        yield Hit(
            "The slots' shared pool of cells ran full: every active request is at risk, not only the longest.",
            "-np 1 (or --kv-unified-per-slot)",
            tuple(n.line for n in notes[-4:]),
        )


def _prompt_cache(view: View) -> Iterator[Hit]:
    note = view.last("prompt-cache")
    if note is not None and int(note.values[0]) > 0:
        yield Hit(
            f"Up to {int(note.values[0]):,} MiB of host memory hold old prompts' states.",
            "--cache-ram: what the host can spare",
            (note.line,),
        )


def _checkpoints(view: View) -> Iterator[Hit]:
    note = view.last("checkpoints")
    main = view.facts.main
    state = sum(c.size_mib or 0 for c in main.caches if c.kind in ("recurrent", "SWA")) if main else 0
    if note is None or state <= 0 or main is None:
        return
    slots = main.n_seq_max or 1
    total = int(note.values[0]) * state
    yield Hit(
        f"Up to {int(note.values[0])} checkpoints per slot are kept in host memory: {state / slots:,.1f} MiB each,"
        f" {total:,.0f} MiB for {slots} slot{'s' if slots != 1 else ''}.",
        "--ctx-checkpoints: fewer",
        (note.line,),
    )


ENTRIES = (
    Entry(
        "request-too-long",
        "warning",
        "A request was longer than its slot",
        "`request (N tokens) exceeds the available context size (M tokens)`",
        "The request was refused; -c may be larger than what one slot can use.",
        "-np 1, then -c",
        "llama.cpp #11681, #9016",
        of("request-too-long", "{0} tokens were sent to a slot of {1}, {times}.", "-np 1, then -c"),
    ),
    Entry(
        "generation-truncated",
        "warning",
        "An answer was cut at the end of the context",
        "`stop processing: n_tokens = N, truncated = 1`",
        "The client sees HTTP 200 and finish_reason `length`: no error tells it.",
        "-c: longer (or a smaller answer limit)",
        "llama.cpp PR #13577",
        of("generation-truncated", "Generation ended at {0} tokens, {times}.", "-c"),
    ),
    Entry(
        "pool-exhausted",
        "error",
        "The unified pool of cells ran full",
        "`Context size has been exceeded`, `failed to find free space in the KV cache`",
        "All active requests fail together, at random moments.",
        "-np 1",
        "llama.cpp #23652; lemonade-sdk#3276",
        _pool,
    ),
    Entry(
        "full-reprocessing",
        "warning",
        "Prompts are processed again from the beginning",
        "`forcing full prompt re-processing due to lack of cache data`",
        "Sliding-window and recurrent state cannot be rolled back: without a checkpoint the prefix is lost.",
        "--ctx-checkpoints (or --swa-full where memory allows)",
        "llama.cpp #13194, #21831, #24055",
        of("full-reprocessing", "The whole prompt was processed again, {times}.", "--ctx-checkpoints"),
    ),
    Entry(
        "compute-grew",
        "warning",
        "The compute buffer grew while running",
        "`compute buffer size of A MiB, does not match expectation of B MiB`",
        "Start-up reserved less than was needed: the free memory at start was no proof.",
        "-ub: smaller",
        "llama.cpp #23446, #23635",
        of("compute-grew", "On {0} it reached {1} MiB where {2} MiB were expected.", "-ub"),
    ),
    Entry(
        "pipeline-dropped",
        "info",
        "Pipeline parallelism was given up for lack of memory",
        "`compute buffer allocation failed, retrying without pipeline parallelism`",
        "The start succeeded on the second try, with lower prefill speed on several GPUs.",
        "",
        "llama.cpp #26297; ollama/ollama#6860",
        of("retried-without-pipeline", "The first reservation was refused, the second was smaller.", ""),
    ),
    Entry(
        "host-prompt-cache",
        "info",
        "The server keeps old prompts in host memory",
        "`prompt cache is enabled, size limit: N MiB`",
        "It fills over hours: a container's limit may kill the server a day later.",
        "--cache-ram",
        "llama.cpp #22629; ollama/ollama#18264",
        _prompt_cache,
    ),
    Entry(
        "host-checkpoints",
        "info",
        "Checkpoints of the state are kept in host memory",
        "`context checkpoints enabled, max = N` with sliding-window or recurrent caches",
        "Their number is limited, their bytes are not.",
        "--ctx-checkpoints",
        "unsloth#11073; llama.cpp #21690",
        _checkpoints,
    ),
)
