"""Two sessions, or two runs, against each other: what changed, what it did, and what is the same.

Pure values; kvtui.report.comparison_text and kvtui.report.comparison_document put them into words and JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from kvtui.core.config import RunConfig
from kvtui.core.units import MIB
from kvtui.logs.facts import ContextFacts, EngineFacts
from kvtui.probes.divergence import compare as diverge
from kvtui.probes.results import Divergence
from kvtui.report.readings import Measure, one, speed_readings
from kvtui.report.run_facts import RunFacts, run_facts
from kvtui.session.records import Verdict
from kvtui.session.state import RunRecord, SessionState


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same: `-` where a side does not have it."""

    what: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """Planted facts found at one depth, of how many; None where a side did not ask at this depth."""

    depth: int
    a: tuple[int, int] | None
    b: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs. `asked` are settings that were asked for differently, `proven` facts of the logs that differ."""

    a: RunFacts
    b: RunFacts
    asked: tuple[Difference, ...]
    proven: tuple[Difference, ...]
    n_proven: int
    measures: tuple[Measure, ...]
    recalls: tuple[Recalled, ...]
    outputs: tuple[Divergence, ...]

    @property
    def same_facts(self) -> bool:
        """True when both ended alike and their logs prove the same."""
        return self.a.record.outcome == self.b.record.outcome and not self.proven

    @property
    def varied(self) -> tuple[Difference, ...]:
        """What was asked differently and not proven to have come out the same (`auto` and `on` may both be on)."""
        moved = {d.what for d in self.proven}
        known = proven(self.a.record.facts).keys() & proven(self.b.record.facts).keys()
        return tuple(d for d in self.asked if d.what in moved or d.what not in known)

    @property
    def speeds(self) -> tuple[Measure, ...]:
        """Speeds that both sides measured at the same depth."""
        return tuple(m for m in self.measures if m.unit == "t/s" and m.a is not None and m.b is not None)

    @property
    def turned(self) -> tuple[Divergence, ...]:
        """Tasks that passed on one side only."""
        return tuple(d for d in self.outputs if d.passed != d.baseline_passed)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides. `box` are differences of model, engine, driver or machine, which void a comparison of figures.

    For sessions `pairs` holds the runs that tried the same thing, in a's order, and `only_a`, `only_b` the others.
    For two runs it is the one pair.
    """

    a: SessionState
    b: SessionState
    of_runs: bool
    box: tuple[Difference, ...]
    pairs: tuple[RunPair, ...]
    only_a: tuple[RunRecord, ...] = ()
    only_b: tuple[RunRecord, ...] = ()

    @property
    def same_verdict(self) -> bool | None:
        """Whether both verdicts name the same configuration with the same outcome; None where one is missing."""
        if self.a.verdict is None or self.b.verdict is None:
            return None
        return _verdict_key(self.a.verdict) == _verdict_key(self.b.verdict)

    @property
    def same_facts(self) -> bool:
        """True when every run has its counterpart and each pair's logs prove the same."""
        alone = self.only_a or self.only_b
        return bool(self.pairs) and not alone and all(pair.same_facts for pair in self.pairs)

    @property
    def speeds(self) -> tuple[Measure, ...]:
        """Speeds that both sides measured."""
        return tuple(m for pair in self.pairs for m in pair.speeds)


def compare_sessions(a: SessionState, b: SessionState) -> Comparison:
    """Both sessions, run by run: runs that tried the same thing are held against each other."""
    mine, theirs = _latest(a), _latest(b)
    both = [subject for subject in mine if subject in theirs]
    return Comparison(
        a,
        b,
        of_runs=False,
        box=_box(a, b),
        pairs=tuple(compare_records(a, mine[s], b, theirs[s]) for s in both),
        only_a=tuple(r for s, r in mine.items() if s not in theirs),
        only_b=tuple(r for s, r in theirs.items() if s not in mine),
    )


def compare_runs(a: SessionState, run_a: RunRecord, b: SessionState, run_b: RunRecord) -> Comparison:
    """One run against another, of the same session or of two."""
    return Comparison(a, b, of_runs=True, box=_box(a, b), pairs=(compare_records(a, run_a, b, run_b),))


def compare_records(a: SessionState, run_a: RunRecord, b: SessionState, run_b: RunRecord) -> RunPair:
    """One pair of runs."""
    facts_a, facts_b = proven(run_a.facts), proven(run_b.facts)
    left, right = run_facts(a, run_a), run_facts(b, run_b)
    # What one log does not show at all was not proven there, which is no difference.
    shown = [name for name in facts_a if name in facts_b]
    return RunPair(
        a=left,
        b=right,
        asked=tuple(_asked(run_a.config, run_b.config)),
        proven=tuple(Difference(n, facts_a[n], facts_b[n]) for n in shown if facts_a[n] != facts_b[n]),
        n_proven=len(shown),
        measures=tuple(_measures(left, right)),
        recalls=tuple(_recalls(run_a, run_b)),
        outputs=diverge(run_a.tasks, run_b.tasks),
    )


def _latest(state: SessionState) -> dict[str, RunRecord]:
    """The last ended run of every subject, in the order in which they were first tried."""
    ended = [r for r in state.runs if r.outcome in ("ok", "failed", "void")]
    return {r.subject or f"{r.purpose}:{r.number}": r for r in ended}


def _verdict_key(verdict: Verdict) -> tuple[object, ...]:
    config = verdict.config
    asked = None if config is None else dataclasses.replace(config, model="")
    return verdict.outcome, asked


def _box(a: SessionState, b: SessionState) -> tuple[Difference, ...]:
    rows = []
    for state in (a, b):
        s = state.started
        rows.append(
            {
                "model": f"{s.model.file_name}, header {s.model.header_sha256[:12]}",
                "weights": s.model.quant or "unknown",
                "engine": s.engine.label,
                "engine build": " ".join(p for p in (s.engine.build, s.engine.commit) if p) or "-",
                "device": f"{s.device.name}, {s.device.total_bytes // MIB:,} MiB",
                "driver": s.device.driver or "-",
                "CUDA": s.device.cuda or "-",
                "system": s.host.system,
                "processor": f"{s.host.cpu}, {s.host.cores} cores",
                "host memory": f"{s.host.memory_bytes // MIB:,} MiB",
            }
        )
    one_, two = rows
    if a.started.model.header_sha256 == b.started.model.header_sha256:
        two["model"] = one_["model"]  # the same file under another name
    return tuple(Difference(what, one_[what], two[what]) for what in one_ if one_[what] != two[what])


_WORDS = {
    "n_ctx": "context",
    "n_batch": "batch",
    "n_ubatch": "micro-batch",
    "n_parallel": "sequences",
    "kv_unified": "unified KV",
    "flash_attn": "flash attention",
    "n_gpu_layers": "layers on GPU",
    "n_cpu_moe": "layers with experts on the CPU",
}


def _asked(a: RunConfig, b: RunConfig) -> Iterator[Difference]:
    if a.kv_types != b.kv_types:
        yield Difference("KV types", a.kv_types, b.kv_types)
    for field in dataclasses.fields(RunConfig):
        if field.name in ("model", "type_k", "type_v"):
            continue
        before, after = getattr(a, field.name), getattr(b, field.name)
        if before != after:
            yield Difference(
                _WORDS.get(field.name, field.name.replace("_", " ")), _said(before), _said(after)
            )


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join("=".join(v) if isinstance(v, tuple) else str(v) for v in value) or "-"
    return "-" if value is None else "on" if value is True else "off" if value is False else str(value)


def proven(facts: EngineFacts) -> dict[str, str]:
    """Everything a log proves about the configuration, by a name each: sizes in MiB as they were printed."""
    found: dict[str, object] = {"build": facts.build, "outcome": facts.outcome}
    if facts.offloaded is not None:
        found["layers on GPU"] = f"{facts.offloaded[0]} of {facts.offloaded[1]}"
    if facts.slots is not None:
        found |= {"slots": facts.slots.n_slots, "context per slot": facts.slots.n_ctx_slot}
    found |= {f"weights on {b.device}, MiB": b.mib for b in facts.model_buffers}
    launch = facts.main.launch if facts.main is not None else None
    for context in facts.contexts:
        if context.launch == launch:
            role = "" if context.role == "main" else f"{context.role} "
            found |= {f"{role}{name}": value for name, value in _of_context(context)}
    return {name: _said(value) for name, value in found.items() if value is not None}


def _of_context(context: ContextFacts) -> Iterator[tuple[str, object]]:
    yield "context", context.n_ctx
    yield "context per sequence", context.n_ctx_seq
    yield "sequences", context.n_seq_max
    yield "batch", context.n_batch
    yield "micro-batch", context.n_ubatch
    yield "unified KV", context.kv_unified
    yield "flash attention", context.flash_attn
    for cache in context.caches:
        kind = f"{cache.kind} cache"
        yield f"{kind}, cells", cache.cells
        yield f"{kind}, layers", cache.layers
        if cache.type_k and cache.type_v:
            yield f"{kind}, types", f"{cache.type_k}/{cache.type_v}"
        yield f"{kind}, MiB", cache.size_mib
    for words, buffers in (("KV", context.kv_buffers), ("compute", context.compute_buffers)):
        for buffer in buffers:
            yield f"{words} on {buffer.device}, MiB", buffer.mib


def _measures(a: RunFacts, b: RunFacts) -> Iterator[Measure]:
    yield from _measure("KV", "B", a.kv.proven, b.kv.proven, exact=True)
    yield from _measure("compute buffers", "B", a.breakdown.compute, b.breakdown.compute, exact=True)
    yield from _measure("memory after load", "B", a.memory.after_load, b.memory.after_load)
    yield from _measure("peak in prefill", "B", a.memory.peak_prefill, b.memory.peak_prefill)
    yield from _measure("peak in decode", "B", a.memory.peak_decode, b.memory.peak_decode)
    yield from _measure("load time", "s", a.record.load_s, b.record.load_s)
    depths = sorted({s.depth for run in (a, b) for s in run.record.speeds})
    for depth in depths:
        mine, theirs = (
            next((speed_readings(s) for s in reversed(run.record.speeds) if s.depth == depth), {})
            for run in (a, b)
        )
        for name, unit in dict.fromkeys([*mine, *theirs]):
            left, right = mine.get((name, unit)), theirs.get((name, unit))
            if left is not None or right is not None:
                yield Measure(name, unit, depth, left, right)


def _measure(
    name: str, unit: str, a: float | None, b: float | None, *, exact: bool = False
) -> Iterator[Measure]:
    if a is not None or b is not None:
        yield Measure(name, unit, None, one(a), one(b), exact)


def _recalls(a: RunRecord, b: RunRecord) -> Iterator[Recalled]:
    mine, theirs = ({r.depth: (r.found, len(r.needles)) for r in run.recalls} for run in (a, b))
    for depth in sorted({*mine, *theirs}):
        yield Recalled(depth, mine.get(depth), theirs.get(depth))
