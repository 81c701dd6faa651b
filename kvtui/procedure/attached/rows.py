"""One row of requested against actual for an engine that was attached to, and those of Ollama and vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kvtui.engines.attach.asked import Setting
from kvtui.engines.attach.look import Seen
from kvtui.logs.facts import EngineFacts

State = Literal["proven", "differs", "unproven", "inferred"]

NOT_ASKED = "-"

_OWN_NAMES: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "ollama": (
        ("KV cache type", "kv_type", "kv_type"),
        ("flash attention", "flash_attention", "flash_attn"),
        ("context per request", "num_ctx", "n_ctx_request"),
        ("context", "", "n_ctx"),
        ("parallel requests", "num_parallel", "num_parallel"),
        ("layers on GPU", "", "layers_gpu"),
    ),
    "vllm": (
        ("KV cache type", "kv_cache_dtype", "kv_type"),
        ("longest request", "max_model_len", "n_ctx"),
        ("KV tokens in all", "", "kv_tokens"),
        ("parallel requests", "max_num_seqs", "max_num_seqs"),
        ("block size", "block_size", "block_size"),
        ("memory share", "gpu_memory_utilization", "gpu_memory_utilization"),
        ("attention backend", "attention_backend", "attn_backend"),
    ),
}


_AUTOMATIC: Mapping[str, tuple[Any, ...]] = {
    "num_ctx": (0,),
    "num_parallel": (0,),
    "kv_cache_dtype": ("auto",),
    "max_model_len": (-1, "auto"),
}
"""Values that leave the choice to the engine."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. `asked` is `-` where nothing was asked for (`asked_from` is empty then); `line` counts in the log
    file where `evidence` is the log, None where an endpoint or nothing proves it."""

    setting: str
    asked: str
    asked_from: str
    actual: str
    state: State
    evidence: str
    line: int | None
    note: str = ""


def own_rows(seen: Seen, facts: EngineFacts) -> list[Row]:
    """Engines whose log speaks of settings under its own names."""
    table = _OWN_NAMES["ollama" if seen.kind == "ollama" else "vllm"]
    rows = []
    for label, asked_as, proven_as in table:
        given = seen.asked.settings.get(asked_as)
        if given is None and facts.requested.get(
            asked_as
        ):  # its dump of the environment prints unset as 0 or false
            given = Setting(facts.requested[asked_as], "its log")
        if given is not None and given.value in _AUTOMATIC.get(asked_as, ()):
            given = None
        actual, evidence, line = _own_actual(seen, facts, proven_as)
        if given is None and actual is None:
            continue
        state: State = "unproven"
        if actual is not None:
            state = "proven" if given is None or _same(given.value, actual) else "differs"
        rows.append(
            Row(
                setting=label,
                asked=NOT_ASKED if given is None else _word(given.value),
                asked_from="" if given is None else given.source,
                actual="-" if actual is None else _word(actual),
                state=state,
                evidence=evidence,
                line=line,
            )
        )
    return rows


def _own_actual(seen: Seen, facts: EngineFacts, name: str) -> tuple[Any, str, int | None]:
    value = (facts.actual or {}).get(name)
    if value is not None:
        return value, "log", facts.lines.get(f"actual.{name}") or _line_of(facts, name)
    told = {"n_ctx": "max_model_len", "kv_type": "kv_cache_dtype"} if seen.kind != "ollama" else {}
    found = seen.http.proven.get(told.get(name, name))
    if found is not None and found.value != "auto":  # the model decides, and this does not say what
        return found.value, found.source, None
    models = seen.http.proven.get("models")
    if name == "n_ctx_request" and models is not None and models.value:
        return models.value[0]["context_length"], "/api/ps", None
    return None, "", None


def _line_of(facts: EngineFacts, name: str) -> int | None:
    """The line of the llama.cpp runner below that proves a setting which its daemon names."""
    main, slots = facts.main, facts.slots
    if name == "num_parallel":
        return None if slots is None else slots.line
    if name == "kv_type":
        return next((c.line for c in main.caches if c.type_k), None) if main is not None else None
    return None if main is None else main.lines.get(name)


def _same(asked: Any, actual: Any) -> bool:
    if isinstance(asked, bool) or isinstance(actual, bool):
        return bool(asked) == bool(actual)
    return str(asked) == str(actual) or str(actual).startswith(f"{asked}_")  # fp8 is fp8_e4m3


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value}"
