"""An engine that somebody else started: what was asked of it against what its log and its own answers prove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kvtui.core.config import RunConfig
from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import size
from kvtui.engines.attach.asked import Asked
from kvtui.engines.attach.logread import LogRead
from kvtui.engines.attach.look import Seen
from kvtui.engines.attach.own_settings import MORE_IN_THE_LOG, OWN_SETTINGS
from kvtui.logs.facts import EngineFacts, SlotFacts
from kvtui.procedure.attached.inference import Inference
from kvtui.procedure.attached.memory import infer_types
from kvtui.procedure.attached.rows import NOT_ASKED, Row, State, own_rows
from kvtui.procedure.checks import compare
from kvtui.session.records import SettingCheck

_ASKED_AS: Mapping[str, tuple[str, ...]] = {
    "K cache type": ("cache_type_k",),
    "V cache type": ("cache_type_v",),
    "context": ("ctx",),
    "usable per slot": ("ctx",),
    "parallel slots": ("n_parallel",),
    "unified KV": ("kv_unified",),
    "flash attention": ("flash_attn",),
    "layers on GPU": ("n_gpu_layers",),
    "KV placed on": ("no_kv_offload", "n_gpu_layers"),
    "batch": ("n_batch",),
    "micro-batch": ("n_ubatch",),
    "SWA cache": ("swa_full",),
}


@dataclass(frozen=True, slots=True)
class Attached:
    """What is to be shown of one engine. `facts` are the log's with what only HTTP tells put in."""

    seen: Seen
    facts: EngineFacts
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    inference: Inference | None
    nothing_read: bool


def attach(seen: Seen) -> Attached:
    """The view of `seen`. Reads the model file's header where the log proves no KV types."""
    facts, sources = _merged(seen)
    own = OWN_SETTINGS.get(seen.kind)
    if own is not None:
        rows, inference = own_rows(seen, facts, own), None
    else:
        config = config_of(seen.asked, facts)
        inference = None if _proves_types(facts) else infer_types(seen, config, facts)
        rows = [_llama_row(check, seen.asked, sources, inference) for check in compare(config, facts)]
    rows = [r if r.line is None else replace(r, line=seen.log.line(r.line)) for r in rows]
    kept = [f for f in facts.findings if f.id != "setting-unproven"]  # the rows know more than the log alone
    findings = [*_in_the_log(kept, seen.log), *_own_findings(seen, rows, facts)]
    return Attached(
        seen=seen,
        facts=facts,
        rows=tuple(rows),
        findings=tuple(findings),
        inference=inference,
        nothing_read=facts.engine == "unknown" and not seen.http.answered,
    )


def config_of(asked: Asked, facts: EngineFacts) -> RunConfig:
    """What was asked as a configuration. Where nothing was asked the actual value stands in, so that nothing differs
    from a request that nobody made."""
    main, slots = facts.main, facts.slots
    values = asked.values
    n_parallel = values.get("n_parallel") or (slots and slots.n_slots) or (main and main.n_seq_max) or 1
    n_ctx = values.get("ctx") or (main and main.n_ctx) or _pool(slots, n_parallel) or 0
    unified = values.get("kv_unified")
    if unified is None:
        unified = bool((main and main.kv_unified) or (slots and slots.kv_unified))
    caches = [c for c in main.caches if c.kind != "recurrent"] if main else []
    return RunConfig(
        model=asked.model or "",
        n_ctx=n_ctx,
        type_k=values.get("cache_type_k") or next((c.type_k for c in caches if c.type_k), "f16"),
        type_v=values.get("cache_type_v") or next((c.type_v for c in caches if c.type_v), "f16"),
        flash_attn=values.get("flash_attn", "auto"),
        n_parallel=n_parallel,
        kv_unified=unified,
        n_batch=values.get("n_batch") or (main and main.n_batch) or 2048,
        n_ubatch=values.get("n_ubatch") or (main and main.n_ubatch) or 512,
        n_gpu_layers=values.get("n_gpu_layers"),
        n_cpu_moe=values.get("n_cpu_moe"),
        kv_offload=not values.get("no_kv_offload", False),
        swa_full=values.get("swa_full", False),
    )


def _merged(seen: Seen) -> tuple[EngineFacts, dict[str, str]]:
    """The log's facts; what it does not show and an endpoint does is put in, with the endpoint as its source."""
    facts, proven = seen.log.facts, seen.http.proven
    sources: dict[str, str] = {}
    n_slots, n_ctx_slot = proven.get("n_slots"), proven.get("n_ctx_slot")
    if facts.slots is None and (n_slots is not None or n_ctx_slot is not None):
        facts = replace(
            facts,
            slots=SlotFacts(
                n_slots=None if n_slots is None else n_slots.value,
                n_ctx_slot=None if n_ctx_slot is None else n_ctx_slot.value,
            ),
        )
        for label, found in (("parallel slots", n_slots), ("usable per slot", n_ctx_slot)):
            if found is not None:
                sources[label] = found.source
    return facts, sources


def _llama_row(
    check: SettingCheck, asked: Asked, sources: Mapping[str, str], inference: Inference | None
) -> Row:
    names = _ASKED_AS.get(check.setting, ())
    given = next((asked.settings[name] for name in names if name in asked.settings), None)
    state: State = check.state
    actual, note = check.actual, check.note
    if given is None and state == "differs":
        state = "proven"
    if state == "unproven" and check.setting in ("K cache type", "V cache type") and inference is not None:
        if inference.types is not None:
            state = "inferred"
            actual = " or ".join(t.split("/")[check.setting[0] == "V"] for t in inference.types.split(" or "))
            note = f"inferred from {_BASIS[inference.basis]}, see below"
        else:
            note = f"{_BASIS[inference.basis]} does not tell either, see below"
    evidence = (
        "" if state == "unproven" else "memory" if state == "inferred" else sources.get(check.setting, "log")
    )
    return Row(
        setting=check.setting,
        asked=NOT_ASKED if given is None else check.asked,
        asked_from="" if given is None else given.source,
        actual=actual,
        state=state,
        evidence=evidence,
        line=check.line,
        note=note,
    )


_BASIS = {"gpu": "GPU memory", "host": "host memory"}


def _own_findings(seen: Seen, rows: list[Row], facts: EngineFacts) -> Iterator[Finding]:
    known = {f.id for f in facts.findings}
    unproven = [r.setting for r in rows if r.state == "unproven" and r.asked != NOT_ASKED]
    if unproven and "kv-unproven" not in known:
        yield Finding(
            "setting-unproven",
            "warning",
            "A setting that was asked for is not proven",
            f"Asked for and not shown: {', '.join(unproven)}. {_no_log(seen)}".rstrip(),
            MORE_IN_THE_LOG.get(seen.kind, ""),
        )
    told = {seen.log.line(e.line) for f in facts.findings for e in f.evidence if e.line is not None}
    for row in rows:
        if row.state == "differs" and (row.line is None or row.line not in told):
            where = row.evidence if row.line is None else f"line {row.line} of its log"
            yield Finding(
                "setting-differs",
                "warning",
                "A setting is not the one that was asked for",
                f"{row.setting}: {row.asked} was asked ({row.asked_from}), {where} says {row.actual}.",
                row.asked_from.partition(" ")[0],
                (Evidence(row.line, f"{row.setting}: {row.actual}"),),
            )
    yield from _spill(seen)


def _spill(seen: Seen) -> Iterator[Finding]:
    """What Ollama itself says of a model that is partly in host memory."""
    models = seen.http.proven.get("models")
    for model in models.value if models is not None else ():
        whole, on_gpu = model["size"], model["size_vram"]
        if whole and on_gpu is not None and 0 < on_gpu < whole:
            yield Finding(
                "spill-to-host",
                "warning",
                "A part of the model is in host memory",
                f"{model['name']}: {size(whole - on_gpu)} of {size(whole)} are not on the GPU.",
                "num_ctx: less context, or a smaller quant",
                (Evidence(None, f"/api/ps: size {whole}, size_vram {on_gpu}"),),
            )


def _no_log(seen: Seen) -> str:
    return f"No log was read: {seen.log.problem}." if seen.log.problem else ""


def _in_the_log(findings: list[Finding], log: LogRead) -> Iterator[Finding]:
    """The same with the lines of the whole log, of which only parts were read."""
    for finding in findings:
        evidence = tuple(
            Evidence(None if e.line is None else log.line(e.line), e.text) for e in finding.evidence
        )
        yield replace(finding, evidence=evidence)


def _proves_types(facts: EngineFacts) -> bool:
    return facts.main is not None and any(c.type_k or c.type_r for c in facts.main.caches)


def _pool(slots: SlotFacts | None, n_parallel: int) -> int | None:
    """All cells of a context whose slots each have their own; unknown where they share one pool."""
    if slots is None or slots.n_ctx_slot is None:
        return None
    if n_parallel > 1 and slots.kv_unified is not False:
        return slots.n_ctx_slot if slots.kv_unified else None
    return slots.n_ctx_slot * n_parallel
