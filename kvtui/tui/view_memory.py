"""Memory on the screen: the chart with fixed bounds, the stacked bar, the budget in figures."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from kvtui.core.units import GIB, MIB, gib, signed_size, size
from kvtui.gpu.samples import PHASES, Sample
from kvtui.procedure.forecast import ForecastError
from kvtui.procedure.memory import Breakdown
from kvtui.session.state import RunRecord, SessionState
from kvtui.tui.lines import EMPTY, Line, Span, fit, line, width_of, wrap
from kvtui.tui.live import Bucket, Trace
from kvtui.tui.view_readings import facts, readings, remark

LEVELS = " ▁▂▃▄▅▆▇█"
GUTTER = 10
STEPS_OF_SCALE = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)


@dataclass(frozen=True, slots=True)
class Part:
    """One segment of the stacked bar; the glyph tells it apart without colour."""

    name: str
    glyph: str
    value: int | None


def parts_of(b: Breakdown, host: bool) -> tuple[Part, ...]:
    """The segments in the order in which they are stacked; other processes count where they share a card."""
    others = () if host else (Part("others", "▚", b.others),)
    return (
        *others,
        Part("weights", "█", b.weights),
        Part("kv", "▓", b.kv),
        Part("compute", "▒", b.compute),
        Part("other", "░", b.other),
    )


def scale_top(state: SessionState, trace: Trace) -> int:
    """The fixed upper bound of the axis in bytes: the card on a GPU.

    Where host memory stands in the whole of it would flatten everything, so the bound is the next round figure
    above all that this session has seen or expects; it is written on the axis.
    """
    device = state.started.device
    if device.kind != "host":
        return device.total_bytes
    seen = [trace.peak or 0]
    for run in state.runs:
        if run.memory is not None and run.memory.highest is not None:
            seen.append(run.memory.highest.engine_bytes or 0)
        if run.forecast is not None:
            parts = (run.forecast.weights_bytes or 0) + (run.forecast.kv_bytes or 0)
            seen.append(max(run.forecast.total_bytes or 0, parts))
    return min(round_up(max(*seen, 64 * MIB)), device.total_bytes)


def round_up(value: int) -> int:
    """The next round figure (1, 1.25, 1.5, 2, .. times a power of two of ten-ish MiB) above 1.1 times `value`."""
    wanted = value * 1.1 / MIB
    unit = 1.0
    while unit * 10 <= wanted:
        unit *= 10
    for step in (*STEPS_OF_SCALE, 10.0):
        if unit * step >= wanted:
            return round(unit * step * MIB)
    return round(unit * 10 * MIB)


def axis(value: int) -> str:
    """A figure on the axis, with its unit: `16.0 GiB`, `750 MiB`."""
    return gib(value) if value >= GIB else f"{value / MIB:,.0f} MiB"


def chart(trace: Trace, top: int, cells: int, rows: int, limit: int | None = None) -> list[Line]:
    """`rows` lines of chart and one of phases: height is value / `top`, never the data's own range.

    `limit` (bytes) is drawn as a dotted line where it lies within the bounds. Spans without a reading stay empty.
    """
    width = cells - GUTTER
    buckets = trace.columns(width)
    limit_row = None if limit is None or limit > top else _row_of(limit, top, rows)
    out: list[Line] = []
    for row in range(rows):
        label = axis(top) if row == 0 else "0" if row == rows - 1 else ""
        base = (rows - 1 - row) * 8
        blocks = [_level(b, top, rows, base) for b in buckets]
        ground = "┄" if row == limit_row else " "
        body = _runs(blocks, ground, width)
        if row == limit_row and width - len(buckets) > 8:
            tail = fit(
                line(Span("┄" * (width - len(buckets) - 7), "warn"), Span(" limit ", "warn")),
                width - len(buckets),
            )
            body = line(_runs(blocks, ground, len(blocks)), tail)
        out.append(fit(line(Span(f"{label:>{GUTTER - 1}} ", "dim"), body), cells))
    out.append(fit(line(" " * GUTTER, Span(phase_row(buckets), "dim")), cells))
    return out


def _row_of(value: int, top: int, rows: int) -> int:
    return min(rows - 1, max(0, rows - 1 - int(value / top * rows - 1e-9)))


def _level(bucket: Bucket, top: int, rows: int, base: int) -> int:
    if bucket.value is None:
        return 0
    level = round(min(bucket.value / top, 1.0) * rows * 8)
    if bucket.value > 0:
        level = max(level, 1)
    return min(max(level - base, 0), 8)


def _runs(levels: list[int], ground: str, width: int) -> Line:
    text = "".join(LEVELS[v] if v else ground for v in levels)
    spans: list[Span] = []
    for char in text:
        tone = "warn" if char == "┄" else "accent"
        if spans and spans[-1].tone == tone:
            spans[-1] = Span(spans[-1].text + char, tone)
        else:
            spans.append(Span(char, tone))
    spans.append(Span(ground * (width - len(text)), "warn"))
    return line(*spans)


def phase_row(buckets: list[Bucket]) -> str:
    """Each phase by name where it begins, if it lasts as long as its name; the last one always."""
    starts = [n for n, b in enumerate(buckets) if n == 0 or b.phase != buckets[n - 1].phase]
    row, last = "", ""
    for at, end in pairwise([*starts, len(buckets)]):
        phase = buckets[at].phase
        if phase != last and at >= len(row) and (len(phase) < end - at or end == len(buckets)):
            row, last = row.ljust(at) + phase, phase
    return row


def stacked(b: Breakdown, top: int, cells: int, host: bool) -> Line:
    """The bar: every part that is known in proportion to `top`, at least one cell each; the rest is free."""
    known = [p for p in parts_of(b, host) if p.value]
    room = cells - 2
    widths = [max(1, round((p.value or 0) / top * room)) for p in known]
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    spans = [Span(p.glyph * w, p.name) for p, w in zip(known, widths, strict=True)]
    return fit(line(" ", *spans, Span("·" * (room - sum(widths)), "free")), cells)


def legend(b: Breakdown, cells: int, host: bool) -> Line:
    """The parts in figures, in one unit that is named first; unknown ones as n/a."""
    known = [p.value for p in parts_of(b, host) if p.value is not None]
    unit, name = (GIB, "GiB") if max(known, default=0) >= 2 * GIB else (MIB, "MiB")

    def figure(value: int | None) -> str:
        if value is None:
            return "n/a"
        if unit == GIB:
            return f"{value / GIB:,.1f}" if value >= GIB // 10 or not value else f"{value / MIB:,.0f} MiB"
        return f"{value / MIB:,.1f}" if value < 100 * MIB else f"{value / MIB:,.0f}"

    out: list[Line] = [line(Span(f" {name}", "dim"))]
    for part in parts_of(b, host):
        label = "KV" if part.name == "kv" else part.name
        out.append(line(Span(part.glyph, part.name), Span(f" {label} ", "dim"), figure(part.value)))
    out.append(line(Span("·", "free"), Span(" free ", "dim"), figure(b.free)))
    if not b.proven and b.weights is not None:
        out.append(line(Span("forecast", "warn")))
    gap = "  " if sum(width_of(part) + 2 for part in out) <= cells else " "
    return fit(line(*(piece for part in out for piece in (part, gap))), cells)


def title(state: SessionState, trace: Trace, sample: Sample | None = None) -> Line:
    """What the chart shows, its present value, how it is known, and what is wrong with the device right now."""
    what = "Host memory of the engine (no GPU)" if trace.host else f"VRAM of {state.started.device.name}"
    if state.current_run is None:
        last = state.runs[-1] if state.runs else None
        if last is None:
            return line(Span(what, "title"))
        end = "interrupted" if last.interrupted else "ended"
        return line(Span(what, "title"), Span(f"  run {last.number}, {end}", "dim"))
    now = line() if trace.last is None else line("  now ", size(trace.last))
    return line(Span(what, "title"), now, remark(sample, host=trace.host))


def peak_note(trace: Trace) -> Line:
    """`peak 13.4 GiB in prefill`."""
    if trace.peak is None:
        return EMPTY
    return line("peak ", Span(size(trace.peak), "strong"), f" in {trace.peak_phase}")


def panel(state: SessionState | None, b: Breakdown | None, trace: Trace, cells: int, rows: int) -> list[Line]:
    """Chart, bar and legend in `rows` lines; below six lines the chart goes first."""
    if state is None or b is None:
        return [fit(EMPTY, cells)] * rows
    top = scale_top(state, trace)
    out: list[Line] = []
    if rows >= 5:
        out += chart(trace, top, cells, rows - 3, state.started.device.total_bytes)
    if rows >= 2:
        out.append(stacked(b, top, cells, trace.host))
    if rows >= 1:
        out.append(legend(b, cells, trace.host))
    return out


def budget(state: SessionState, run: RunRecord | None, b: Breakdown, cells: int) -> list[Line]:
    """The budget in figures: what the log proves beside what the file's header gave, and the peaks by phase."""
    device = state.started.device
    card = f"{len(device.members)} GPUs together" if device.members else "the card"
    out = [
        line(Span("Where the memory is", "title")),
        _figure(
            "total",
            b.total,
            card if device.kind != "host" else "host memory: no GPU here, it stands in",
        ),
        _figure("others", b.others, "desktop, driver, other processes"),
        _figure("weights", b.weights, "from the log" if b.proven else "forecast from the file"),
        _figure("KV", b.kv, "from the log" if b.proven else "forecast from the file"),
        _figure("compute", b.compute, "graph and output buffers, from the log"),
        _figure("other", b.other, "what the engine holds beyond these: runtime, libraries"),
        _figure("free", b.free, "total minus everything in use"),
        EMPTY,
    ]
    if device.note:
        out[1:1] = [line(Span(f"  {row}", "warn")) for row in wrap(device.note, cells - 2)]
    if device_facts := facts(device):
        out.insert(1, device_facts)
    if run is not None and run.forecast is not None:
        out += _forecast(run, b)
    if run is not None and run.memory is not None:
        out += readings(device, run.memory, state.started.host.cores)
        out += peaks(run)
    return out


def _figure(label: str, value: int | None, source: str) -> Line:
    text = "n/a" if value is None else size(value)
    return line(Span(f"  {label:<12}", "dim"), f"{text:>12}", Span(f"  {source}", "dim"))


def _forecast(run: RunRecord, b: Breakdown) -> list[Line]:
    f = run.forecast
    assert f is not None
    out = [line(Span(f"Forecast of run {run.number} against the log", "title"))]
    out.append(_figure("KV", f.kv_bytes, f"by this model's geometry ({f.exactness})"))
    if b.proven and b.kv is not None and f.kv_bytes is not None:
        out.append(_figure("KV in log", b.kv, _off(ForecastError("KV", f.kv_bytes, b.kv))))
    out.append(
        _figure("conventional", f.conventional_kv_bytes, "the formula that counts every layer in full")
    )
    for need in f.dry_run:
        told = f"model {need.model_mib}, context {need.context_mib}, compute {need.compute_mib} MiB"
        out.append(
            line(Span("  dry run     ", "dim"), told, Span(f"  {need.device}, by the engine itself", "dim"))
        )
    out.append(_figure("engine", f.total_bytes, "weights, KV and what earlier runs measured beside them"))
    if b.engine is not None and f.total_bytes is not None:
        out.append(_figure("measured", b.engine, _off(ForecastError("engine", f.total_bytes, b.engine))))
    return [*out, EMPTY]


def _off(e: ForecastError) -> str:
    return f"difference {signed_size(e.error)} ({e.share:+.1%})"


def peaks(run: RunRecord) -> list[Line]:
    """The recorded peaks of a run, phase by phase, with how they were sampled."""
    m = run.memory
    if m is None:
        return []
    out = [
        line(
            Span(f"Peaks of run {run.number}", "title"),
            f"  every {m.interval_s:.1f} s, {m.lost} readings lost",
        ),
        line(Span("  phase          engine       device         host   samples", "dim")),
    ]
    for phase in PHASES:
        p = m.peak(phase)
        if p is None:
            continue
        cells = "".join(
            f"{'n/a' if v is None else size(v):>13}" for v in (p.engine_bytes, p.used_bytes, p.host_bytes)
        )
        top = m.highest is not None and m.highest.phase == phase
        out.append(
            line(Span(f"  {phase:<8}", "dim"), Span(cells, "strong" if top else ""), f"{p.n_samples:>10}")
        )
    return out
