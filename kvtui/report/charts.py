"""The report's charts as inline SVG, drawn by pygal: no script, nothing loaded, colours from the page's own CSS.

Each has a title, a description in words for those who do not see it, and its figures as a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from kvtui.core.units import GIB, MIB, duration, rate, size, tokens
from kvtui.gpu.samples import PHASES, MemoryRecord, Sample
from kvtui.report import words
from kvtui.report.facts import SessionFacts
from kvtui.report.run_facts import RunFacts

_WIDTH = 860
_MOST_POINTS = 200
_MOST_SERIES = 8
_MOST_COLUMNS = 24
_SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True, slots=True)
class Chart:
    """`svg` holds nothing but shapes and text; `head` and `rows` are the same figures as a table of plain text."""

    key: str
    title: str
    description: str
    svg: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def budget_chart(session: SessionFacts) -> Chart | None:
    """What the memory of every run went to at its peak, one bar a run."""
    runs = [r for r in session.runs if r.breakdown.weights is not None and r.record.memory is not None]
    runs = runs[-_MOST_COLUMNS:]
    if not runs:
        return None
    on_gpu = session.state.started.device.kind != "host"
    parts: tuple[tuple[str, Callable[[RunFacts], int | None]], ...] = (
        ("weights", lambda r: r.breakdown.weights),
        ("KV", lambda r: r.breakdown.kv),
        ("compute buffers", lambda r: r.breakdown.compute),
        ("rest of the engine", lambda r: r.breakdown.other),
        *((("others", lambda r: r.breakdown.others), ("free", lambda r: r.breakdown.free)) if on_gpu else ()),
    )
    small = not on_gpu and max(run.breakdown.weights or 0 for run in runs) < GIB
    unit, of = ("MiB", MIB) if small else ("GiB", GIB)
    pygal = _pygal()
    chart = pygal.HorizontalStackedBar(
        **_options(130 + 26 * len(runs), "", unit), value_formatter=lambda v: f"{v or 0:,.4g}"
    )
    # pygal draws the first label at the bottom.
    shown = runs[::-1]
    chart.x_labels = [_run_label(run) for run in shown]
    for name, part in parts:
        values = [part(run) for run in shown]
        if any(values):
            chart.add(name, [0 if v is None else v / of for v in values])
    rows = tuple((_run_label(run), *(words.bytes_(part(run)) for _, part in parts)) for run in runs)
    return Chart(
        "budget",
        "Where the memory went at the peak",
        f"One bar for each of {len(runs)} runs: {', '.join(name for name, _ in parts)}, in {unit}; "
        f"{session.state.started.model.quant or 'unknown'} weights with the KV types named.",
        _svg(chart, "budget"),
        ("run", *(name for name, _ in parts)),
        rows,
    )


def speed_chart(session: SessionFacts) -> Chart | None:
    """Decode speed over depth, one line for each pair of KV types."""
    lines: dict[str, dict[int, tuple[float, int]]] = {}
    for run in session.runs:
        for speed in run.record.speeds if run.record.counts else ():
            if speed.decode_tps is not None and run.kv_types is not None:
                name = words.quantization(session.state.started.model.quant, run)
                lines.setdefault(name, {})[speed.depth] = (speed.decode_tps, run.record.number)
    lines = dict(list(lines.items())[:_MOST_SERIES])
    if not lines:
        return None
    pygal = _pygal()
    chart = pygal.XY(
        **_options(340, "t/s", "tokens of depth"),
        x_value_formatter=lambda v: tokens(round(v)),
        value_formatter=lambda v: f"{v:.4g}",
        range=(0, 1.1 * max(v for line in lines.values() for v, _ in line.values()) or 1),
    )
    for name, line in lines.items():
        chart.add(name, [(depth, line[depth][0]) for depth in sorted(line)])
    rows = tuple(
        (name, f"{depth:,}", rate(line[depth][0]), str(line[depth][1]))
        for name, line in lines.items()
        for depth in sorted(line)
    )
    return Chart(
        "speed",
        "Decode speed over depth",
        "Decode speed in tokens per second over the depth in tokens, one line for each pair of KV types; the latest "
        "run at each depth.",
        _svg(chart, "speed"),
        ("quantization", "depth", "decode", "run"),
        rows,
    )


def recall_chart(session: SessionFacts) -> Chart | None:
    """The heat map of recall: position in the depth against depth."""
    results = [(run, r) for run in session.runs for r in run.record.recalls if r.needles][-_MOST_COLUMNS:]
    if not results:
        return None
    positions = sorted({n.position for _, r in results for n in r.needles})
    grid: list[list[tuple[int, int] | None]] = []
    for position in positions:
        at = [[n.found for n in r.needles if n.position == position] for _, r in results]
        grid.append([(sum(found), len(found)) if found else None for found in at])
    pygal = _pygal()
    chart = pygal.StackedBar(
        **{**_options(110 + 30 * len(positions), "", "depth of the run"), "show_legend": False},
        spacing=2,
        y_labels=[{"value": i + 0.5, "label": f"{p * 100:.0f} %"} for i, p in enumerate(positions)],
        range=(0, len(positions)),
    )
    labels = [f"{tokens(r.depth)}, run {run.record.number}" for run, r in results]
    chart.x_labels = labels
    for row in grid:
        chart.add("", [1] * len(row))
    rows = tuple(
        (f"{p * 100:.0f} %", *(words.share(cell) for cell in row))
        for p, row in zip(positions, grid, strict=True)
    )
    return Chart(
        "recall",
        "Recall by position and depth",
        "One column for each recall measurement, one row for each position of the planted facts, the start of the "
        "prompt at the bottom: found, some found, or missed.",
        _svg(chart, "recall", [cell for row in grid for cell in row]),
        ("position", *labels),
        rows,
    )


def memory_charts(session: SessionFacts) -> Iterator[Chart]:
    """Memory over time with its phases: of the run the verdict stands on, and of the latest that failed."""
    failed = [r for r in session.runs if r.record.outcome == "failed" and r.record.memory is not None]
    chosen = [*([session.final] if session.final else list(session.runs[-1:])), *failed[-1:]]
    for run in dict.fromkeys(r.record.number for r in chosen):
        facts = next(r for r in reversed(session.runs) if r.record.number == run)
        chart = _memory_chart(session, facts)
        if chart is not None:
            yield chart


def _memory_chart(session: SessionFacts, run: RunFacts) -> Chart | None:
    record = run.record.memory
    points = [s for s in record.series if s.engine_bytes is not None] if record is not None else []
    if record is None or len(points) < 2:
        return None
    points = points[:: -(-len(points) // _MOST_POINTS)]
    pygal = _pygal()
    chart = pygal.XY(
        **{**_options(340, "MiB", "time"), "show_dots": False},
        x_value_formatter=duration,
        value_formatter=lambda v: f"{v:,.0f}",
        range=(0, 1.05 * max(s.engine_bytes or 0 for s in points) / MIB or 1),
    )
    for phase in PHASES:
        line = list(_phase_line(points, phase))
        if line:
            chart.add(phase, line, allow_interruptions=True)
    number = run.record.number
    what = "resident host memory" if run.memory.basis == "rss" else "device memory"
    return Chart(
        f"memory-{number}",
        f"Memory over time, run {number}: {words.quantization(session.state.started.model.quant, run)}",
        f"The engine's {what} in MiB from before the launch to the end of run {number}, by phase: "
        f"{words.bytes_(run.memory.peak)} at the peak.",
        _svg(chart, f"memory-{number}"),
        ("phase", "peak", "seconds", "readings"),
        tuple(_phase_rows(record)),
    )


def _phase_line(points: list[Sample], phase: str) -> Iterator[tuple[float, float] | None]:
    """The points of a phase, each stretch joined to the next point so that no gap is drawn; None between stretches."""
    inside = False
    for point in points:
        here = (point.t, (point.engine_bytes or 0) / MIB)
        if point.phase == phase:
            yield here
        elif inside:
            yield here
            yield None
        inside = point.phase == phase


def _phase_rows(record: MemoryRecord) -> Iterator[tuple[str, ...]]:
    for peak in record.peaks:
        known = "not measured" if peak.engine_bytes is None else size(peak.engine_bytes)
        yield peak.phase, known, f"{peak.seconds:.1f}", str(peak.n_samples)


def _run_label(run: RunFacts) -> str:
    return f"{run.record.number}: {run.record.config.kv_types}, {tokens(run.record.config.n_ctx)}"


def _heat(cell: tuple[int, int] | None) -> str:
    if cell is None:
        return "heat heat-none"
    found, asked = cell
    return "heat heat-all" if found == asked else "heat heat-some" if found else "heat heat-missed"


def _pygal() -> Any:
    import pygal

    # It leaves an import hook without `find_spec` behind, which every later import that fails would trip over.
    sys.meta_path[:] = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    return pygal


def _options(height: int, y_title: str, x_title: str = "") -> dict[str, Any]:
    return {
        "width": _WIDTH,
        "height": height,
        "js": (),
        "css": (),
        "legend_at_bottom": True,
        "legend_at_bottom_columns": 3,
        "truncate_legend": -1,
        "truncate_label": -1,
        "y_title": y_title or None,
        "x_title": x_title or None,
        "no_prefix": True,
        "dots_size": 4,
        "max_scale": 8,
        "margin_bottom": 44,
        "print_values": False,
    }


def _svg(chart: Any, key: str, cells: Iterable[tuple[int, int] | None] = ()) -> str:
    """The chart as SVG to stand in a page: what pygal adds for scripts and tooltips is left out. `cells` are what
    the bars of a heat map stand for, in their order."""
    root = ElementTree.fromstring(chart.render(is_unicode=True))  # noqa: S314 - drawn a line above
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.removeprefix(_SVG) in ("script", "style", "defs", "desc", "title"):
                parent.remove(child)
    for element in root.iter():
        for name in ("id", "style", "onload"):
            element.attrib.pop(name, None)
        element.tag = element.tag.removeprefix(_SVG)
    bars = [bar for bar in root.iter("rect") if "rect" in bar.get("class", "").split()]
    for bar, cell in zip(bars, cells, strict=False):
        bar.set("class", _heat(cell))
        if cell is not None:
            _write_in(root, bar, f"{cell[0]}/{cell[1]}")
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.attrib |= {
        "class": "chart",
        "role": "img",
        "aria-labelledby": f"chart-{key}-title",
        "aria-describedby": f"chart-{key}-text",
    }
    return ElementTree.tostring(root, encoding="unicode")


def _write_in(root: ElementTree.Element, bar: ElementTree.Element, label: str) -> None:
    """A cell's own figures on it, so that it can be read without its colour."""
    parents = {child: parent for parent in root.iter() for child in parent}
    x, y, width, height = (float(bar.get(name, "0")) for name in ("x", "y", "width", "height"))
    text = ElementTree.SubElement(
        parents[bar], "text", {"class": "cell", "x": f"{x + width / 2:.1f}", "y": f"{y + height / 2 + 4:.1f}"}
    )
    text.text = label
