"""One run: everything a report shows of it, derived from its record. No words, no units, no formatting.

Bytes, tokens and seconds throughout. What was not measured or not proven is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvtui.core.shell import command_line
from kvtui.core.units import MIB
from kvtui.gpu.samples import MemoryRecord, Phase
from kvtui.logs.facts import ContextFacts, EngineFacts
from kvtui.probes.results import SpeedResult, Timing
from kvtui.procedure.checks import on_host, setting_checks
from kvtui.procedure.compare import Moved, Quality, hidden_moves, moved, quality
from kvtui.procedure.memory import Breakdown, breakdown
from kvtui.session.records import SettingCheck
from kvtui.session.state import RunRecord, SessionState


@dataclass(frozen=True, slots=True)
class ContextSize:
    """Tokens of context: asked, allocated by the engine, usable in one slot, and really filled by a probe."""

    asked: int
    allocated: int | None
    per_slot: int | None
    used: int | None


@dataclass(frozen=True, slots=True)
class KvBytes:
    """KV forecast from the model file's geometry, and what the engine's `size =` lines add up to.

    `difference` is proven minus forecast. `rounding` is how much of it the two decimals of the log can explain.
    """

    forecast: int | None
    proven: int | None
    difference: int | None
    rounding: int | None
    conventional: int | None
    exactness: str | None


@dataclass(frozen=True, slots=True)
class MemoryPoints:
    """Device memory of the engine: `before` is what others held. `after_load` and `after_warm_up` are the last
    readings of those phases that the thinned series kept, `peak_*` the exact maxima. `host_peak` is resident
    host memory of the engine."""

    basis: str | None
    before: int | None
    after_load: int | None
    after_warm_up: int | None
    peak_prefill: int | None
    peak_decode: int | None
    peak: int | None
    peak_phase: Phase | None
    host_peak: int | None


@dataclass(frozen=True, slots=True)
class Spill:
    """What was meant for the GPU and is not there; None where the log does not tell or there is no GPU."""

    kv_host_bytes: int | None
    layers_on_cpu: int | None


@dataclass(frozen=True, slots=True)
class SideContext:
    """A draft or MTP context beside the main one."""

    role: str
    n_ctx: int | None
    kv_types: str | None
    kv_bytes: int | None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run. `kv_types` are the proven ones; `side_contexts` is None when the log shows no context at all.

    `prompt_tokens` and `generated_tokens` add up the timed requests (speed and tasks; recall is not timed by the
    engine). `deepest` is the speed at the greatest depth. `moved` is every actual setting that differs from the
    run it was changed against, `hidden` those that were not meant to.
    """

    record: RunRecord
    command: str
    build: str | None
    commit: str | None
    kv_types: str | None
    context: ContextSize
    kv: KvBytes
    flash_attn: str | None
    offloaded: tuple[int, int] | None
    side_contexts: tuple[SideContext, ...] | None
    prompt_tokens: int | None
    generated_tokens: int | None
    deepest: SpeedResult | None
    memory: MemoryPoints
    spill: Spill
    recall: tuple[int, int] | None
    tasks: tuple[int, int] | None
    checks: tuple[SettingCheck, ...]
    moved: tuple[Moved, ...]
    hidden: tuple[Moved, ...]
    quality: Quality | None
    breakdown: Breakdown


def run_facts(state: SessionState, run: RunRecord) -> RunFacts:
    """The facts of one run of `state`."""
    facts = run.facts
    main = facts.main
    timings = list(_timings(run))
    reference = state.run(run.change.against_run) if run.change else None
    return RunFacts(
        record=run,
        command=command_line(run.argv, run.env),
        build=facts.build,
        commit=facts.commit,
        kv_types=_kv_types(main),
        context=_context(run, timings),
        kv=_kv(run),
        flash_attn=_flash_attn(facts),
        offloaded=facts.offloaded,
        side_contexts=_side_contexts(facts),
        prompt_tokens=sum(t.prompt_tokens for t in timings) if timings else None,
        generated_tokens=sum(t.generated_tokens for t in timings) if timings else None,
        deepest=max(run.speeds, key=lambda s: s.depth, default=None),
        memory=_memory(run.memory),
        spill=_spill(state, facts),
        recall=_sums([(r.found, len(r.needles)) for r in run.recalls]),
        tasks=_sums([(int(t.passed), 1) for t in run.graded]),
        checks=setting_checks(run),
        moved=moved(reference, run) if reference else (),
        hidden=hidden_moves(state, run),
        quality=quality(state, run),
        breakdown=breakdown(state, run),
    )


def _timings(run: RunRecord) -> Iterator[Timing]:
    for speed in run.speeds:
        yield from speed.repeats
    for task in run.tasks:
        if task.timing is not None:
            yield task.timing


def _sums(pairs: list[tuple[int, int]]) -> tuple[int, int] | None:
    return (sum(p[0] for p in pairs), sum(p[1] for p in pairs)) if pairs else None


def _kv_types(context: ContextFacts | None) -> str | None:
    caches = context.caches if context is not None else ()
    pairs = dict.fromkeys(f"{c.type_k}/{c.type_v}" for c in caches if c.type_k and c.type_v)
    return ", ".join(pairs) or None


def _context(run: RunRecord, timings: list[Timing]) -> ContextSize:
    main, slots = run.facts.main, run.facts.slots
    filled = [t.prompt_tokens + t.generated_tokens for t in timings] + [r.depth for r in run.recalls]
    return ContextSize(
        asked=run.config.n_ctx,
        allocated=main.n_ctx if main is not None else None,
        per_slot=slots.n_ctx_slot if slots is not None else None,
        used=max(filled, default=None),
    )


def _kv(run: RunRecord) -> KvBytes:
    main, forecast = run.facts.main, run.forecast
    expected = forecast.kv_bytes if forecast is not None else None
    proven = rounding = None
    if main is not None and main.kv_mib is not None:
        proven = round(main.kv_mib * MIB)
        rounding = round(main.kv_rounding_mib * MIB)
    return KvBytes(
        forecast=expected,
        proven=proven,
        difference=proven - expected if proven is not None and expected is not None else None,
        rounding=rounding,
        conventional=forecast.conventional_kv_bytes if forecast is not None else None,
        exactness=forecast.exactness if forecast is not None else None,
    )


def _flash_attn(facts: EngineFacts) -> str | None:
    if facts.main is not None and facts.main.flash_attn is not None:
        return facts.main.flash_attn
    stated = (facts.actual or {}).get("flash_attn")
    return ("enabled" if stated else "disabled") if isinstance(stated, bool) else None


def _side_contexts(facts: EngineFacts) -> tuple[SideContext, ...] | None:
    if facts.main is None:
        return None
    launch = facts.main.launch
    return tuple(
        SideContext(c.role, c.n_ctx, _kv_types(c), None if c.kv_mib is None else round(c.kv_mib * MIB))
        for c in facts.contexts
        if c.role != "main" and c.launch == launch
    )


def _memory(record: MemoryRecord | None) -> MemoryPoints:
    if record is None:
        return MemoryPoints(None, None, None, None, None, None, None, None, None)

    def last(phase: Phase) -> int | None:
        readings = [s.engine_bytes for s in record.series if s.phase == phase and s.engine_bytes is not None]
        return readings[-1] if readings else None

    def highest(phase: Phase) -> int | None:
        peak = record.peak(phase)
        return peak.engine_bytes if peak is not None else None

    top = record.highest
    host = [p.host_bytes for p in record.peaks if p.host_bytes is not None and p.phase != "before"]
    return MemoryPoints(
        basis=next((s.basis for s in record.series if s.basis is not None), None),
        before=record.baseline_used_bytes,
        after_load=last("load"),
        after_warm_up=last("warm-up"),
        peak_prefill=highest("prefill"),
        peak_decode=highest("decode"),
        peak=top.engine_bytes if top is not None else None,
        peak_phase=top.phase if top is not None else None,
        host_peak=max(host, default=None),
    )


def _spill(state: SessionState, facts: EngineFacts) -> Spill:
    if state.started.device.kind == "host":
        return Spill(None, None)
    buffers = facts.main.kv_buffers if facts.main is not None else ()
    on_cpu = sum(b.mib for b in buffers if on_host(b.device))
    layers = facts.offloaded
    return Spill(
        kv_host_bytes=round(on_cpu * MIB) if buffers else None,
        layers_on_cpu=layers[1] - layers[0] if layers is not None else None,
    )
