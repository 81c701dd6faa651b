"""What Ollama does to a request: types dropped, contexts chosen, prompts cut, models reloaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kvtui.logs.draft import Note
from kvtui.logs.findings.entry import Entry, Hit, View
from kvtui.logs.findings.running import of


def _kv_ignored(view: View) -> Iterator[Hit]:
    note = view.last("ollama-kv-ignored")
    asked = view.facts.requested.get("kv_type")
    actual = (view.facts.actual or {}).get("kv_type")
    if note is not None:
        yield Hit(
            f"{note.values[0] or asked or 'The type'} was asked for and f16 is used.",
            "OLLAMA_FLASH_ATTENTION=1 in the service's environment",
            (note.line,),
        )
    elif view.facts.engine == "ollama" and asked and actual and asked != actual:
        yield Hit(f"{asked} was asked for, the cache is {actual}.", "OLLAMA_FLASH_ATTENTION=1", ())


def _default_context(view: View) -> Iterator[Hit]:
    note = view.last("ollama-default-context")
    if note is not None and view.facts.requested.get("num_ctx") in (None, 0):
        yield Hit(
            f"Nobody set a context: {int(note.values[1]):,} tokens follow from {note.values[0]} of memory.",
            "num_ctx (or OLLAMA_CONTEXT_LENGTH): state it",
            (note.line,),
        )


def _clamped(view: View) -> Iterator[Hit]:
    note = view.last("ollama-ctx-clamped")
    if note is not None and note.values[0].isdigit() and note.values[1].isdigit():
        yield Hit(
            f"{int(note.values[0]):,} tokens are more than the model's {int(note.values[1]):,}; it gets the latter.",
            "num_ctx: at most what the model was trained for",
            (note.line,),
        )


def _parallel(view: View) -> Iterator[Hit]:
    actual = view.facts.actual or {}
    parallel, n_ctx = actual.get("num_parallel"), actual.get("n_ctx")
    if (
        view.facts.engine == "ollama"
        and isinstance(parallel, int)
        and parallel > 1
        and isinstance(n_ctx, int)
    ):
        yield Hit(
            f"{parallel} parallel requests multiply the context: {n_ctx:,} tokens are allocated,"
            f" {n_ctx // parallel:,} for each.",
            "OLLAMA_NUM_PARALLEL=1",
            (),
        )


def _loads(view: View) -> dict[str, list[Note]]:
    by_model: dict[str, list[Note]] = defaultdict(list)
    for note in view.all("ollama-load"):
        by_model[note.values[0]].append(note)
    return by_model


def _reloaded(view: View) -> Iterator[Hit]:
    for notes in _loads(view).values():
        contexts = [n.values[1] for n in notes]
        if len(set(contexts)) > 1:
            yield Hit(
                f"One model was loaded with contexts of {', '.join(dict.fromkeys(contexts))} tokens:"
                " each change unloads and loads it again.",
                "num_ctx: the same in every client",
                tuple(n.line for n in notes[-4:]),
            )


def _batch(view: View) -> Iterator[Hit]:
    for notes in _loads(view).values():
        pairs = {(n.values[1], n.values[2]) for n in notes if n.values[2]}
        if len({b for _, b in pairs}) > 1 and len({c for c, _ in pairs}) > 1:
            yield Hit(
                "The batch changed along with the context: "
                + ", ".join(f"{c} tokens with batch {b}" for c, b in sorted(pairs)),
                "num_batch: state it while the context is tuned",
                tuple(n.line for n in notes[-4:]),
            )


ENTRIES = (
    Entry(
        "ollama-kv-type-ignored",
        "error",
        "Ollama does not use the KV type that was asked for",
        "`quantized kv cache requested but flash attention disabled`, `kv cache type not supported by model`,"
        " `OLLAMA_FLASH_ATTENTION must be enabled ..`, or another type in the cache's own line",
        "It falls back to f16 without an error: twice the memory that was planned.",
        "OLLAMA_FLASH_ATTENTION=1",
        "ollama/ollama#8921, #11685, #11929",
        _kv_ignored,
    ),
    Entry(
        "ollama-fa-refused",
        "warning",
        "Ollama dropped flash attention",
        "`flash attention enabled but not supported by gpu|model`",
        "A quantized KV type is dropped with it.",
        "",
        "ollama llm/server.go (0.5.0 to 0.24)",
        of("ollama-fa-refused", "{0}.", ""),
    ),
    Entry(
        "ollama-default-context",
        "warning",
        "Ollama chose the context from the size of the memory",
        "`vram-based default context` without num_ctx or OLLAMA_CONTEXT_LENGTH",
        "A card of 16 GB gets 4,096 tokens; a larger one may get 262,144 and fill itself with KV.",
        "num_ctx",
        "ollama/ollama#17889, #14332",
        _default_context,
    ),
    Entry(
        "ollama-ctx-clamped",
        "warning",
        "Ollama cut the context to the model's training length",
        "`requested context size too large for model`",
        "It also fires for the automatic default, which nobody asked for.",
        "num_ctx",
        "ollama llm/server.go (0.9.3 and later)",
        _clamped,
    ),
    Entry(
        "ollama-parallel",
        "warning",
        "Parallel requests multiply the context",
        "`--parallel N`, `-np N` or `Parallel:N` above 1",
        "KV memory grows with it; one request gets no more.",
        "OLLAMA_NUM_PARALLEL=1",
        "ollama/ollama#11330",
        _parallel,
    ),
    Entry(
        "ollama-no-parallel",
        "info",
        "This architecture does not run requests in parallel",
        "`model architecture does not currently support parallel requests`",
        "OLLAMA_NUM_PARALLEL is ignored for it.",
        "",
        "ollama llm/server.go (0.12.7 and later)",
        of("ollama-no-parallel", "{0} gets one request at a time.", ""),
    ),
    Entry(
        "ollama-prompt-truncated",
        "error",
        "Ollama cut a prompt",
        "`truncating input prompt` limit= prompt= new=",
        "The answer ignores what was cut, with HTTP 200.",
        "num_ctx: longer than the prompt and the answer",
        "ollama/ollama#17889; microsoft/vscode#255164",
        of("ollama-truncated", "{1} tokens were sent, {0} is the limit, {2} were kept ({times}).", "num_ctx"),
    ),
    Entry(
        "ollama-reload",
        "warning",
        "The model is reloaded when clients ask for different contexts",
        "`starting llama-server` (or runner) of one model with different -c",
        "Each load costs seconds, and an evicted prompt cache.",
        "num_ctx",
        "Aider #4687, #3594; ollama/ollama#9977",
        _reloaded,
    ),
    Entry(
        "ollama-batch-follows-ctx",
        "warning",
        "The batch changed along with the context",
        "`starting llama-server` with different -c and -b",
        "Two variables moved at once: memory and speed cannot be told apart.",
        "num_batch",
        "ollama llm/llama_server.go (0.30 and later)",
        _batch,
    ),
    Entry(
        "ollama-evicted",
        "info",
        "Another model was evicted to make room",
        "`.. evicting a model to make space`",
        "Two models that do not fit together take turns.",
        "OLLAMA_MAX_LOADED_MODELS or keep_alive",
        "ollama/ollama#17482",
        of("ollama-evicted", "It happened {times}.", "keep_alive"),
    ),
    Entry(
        "ollama-ctx-retried",
        "warning",
        "The load failed and was repeated with a smaller context",
        "`llama-server load failed; reducing automatic context and retrying once`",
        "The context is what was left, not what the model can do.",
        "num_ctx: state it",
        "ollama llm/llama_server.go (0.30 and later)",
        of("ollama-ctx-retried", "From {0} to {1} tokens.", "num_ctx"),
    ),
    Entry(
        "ollama-gpu-dropped",
        "warning",
        "A GPU was found and is not used",
        "`dropping integrated GPU`, `NVIDIA driver too old`",
        "The model runs on what is left, most often the CPU.",
        "the driver, or OLLAMA_IGPU_ENABLE",
        "ollama discover (0.30 and later)",
        of("ollama-gpu-dropped", "{0}.", "the driver, or OLLAMA_IGPU_ENABLE"),
    ),
)
