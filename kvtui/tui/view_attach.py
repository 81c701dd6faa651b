"""Engines that somebody else runs: the list, and requested against actual of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvtui.core.findings import Severity
from kvtui.core.text import clip
from kvtui.core.units import duration, size
from kvtui.engines.attach.look import Found
from kvtui.engines.attach.memory import GpuMemory
from kvtui.procedure.attached.rows import Row
from kvtui.procedure.attached.view import Attached
from kvtui.tui.lines import EMPTY, Line, Span, columns, fit, labelled, line, tint, wrap
from kvtui.tui.view_marks import CHECK, UNPROVEN

_INFERRED: Line = line(UNPROVEN, Span(" inferred", "warn"))
_TONE: dict[Severity, str] = {"error": "bad", "warning": "warn", "info": "dim"}


def engine_row(found: Found, gpu: GpuMemory) -> Line:
    """One engine: pid, kind, address, what it holds, model."""
    address = found.address
    where = "" if address is None else address.unix_socket or address.url.partition("://")[2]
    held = gpu.by_pid.get(found.process.pid)
    return line(
        fit(line(str(found.process.pid)), 8),
        fit(line(Span(found.process.kind, "strong")), 17),
        fit(line(where), 22),
        Span(f"{size(held)} " if held is not None else "", "accent"),
        (found.asked.model or "").rpartition("/")[2],
    )


def attached(view: Attached, cells: int) -> list[Line]:
    """Everything of one engine, at most `cells` wide."""
    return [*_head(view, cells), EMPTY, *table(view.rows, cells), EMPTY, *_rest(view, cells)]


def table(rows: Sequence[Row], cells: int) -> list[Line]:
    """Setting, asked, actual, state; the evidence beside it from 72 cells on."""
    state_w, evidence_w = 11, 16 if cells >= 72 else 0
    value_w = max((cells - state_w - evidence_w - 17) // 2, 6)
    name_w = cells - state_w - evidence_w - 2 * value_w

    def row(name: str, asked: str, actual: str, state: Line, evidence: str) -> Line:
        out = [
            (line(clip(name, name_w - 1)), name_w),
            (line(clip(asked, value_w - 1)), value_w),
            (line(clip(actual, value_w - 1)), value_w),
            (state, state_w),
        ]
        return columns(
            [*out, (line(Span(clip(evidence, evidence_w), "dim")), evidence_w)] if evidence_w else out
        )

    out = [tint(row("setting", "asked", "actual", line("state"), "evidence"), "dim")]
    for r in rows:
        state = _INFERRED if r.state == "inferred" else CHECK[r.state]
        evidence = f"line {r.line}" if r.line is not None else r.evidence
        out.append(row(r.setting, r.asked, r.actual, state, evidence))
    return out


def _head(view: Attached, cells: int) -> Iterator[Line]:
    seen = view.seen
    if seen.log.problem or seen.place.kind == "none":
        yield from labelled("log", seen.log.problem or seen.place.why, cells, tone="warn")
    else:
        yield from labelled("log", f"{seen.place.kind} {seen.place.where}", cells)
    if seen.gpu_bytes is not None:
        yield from labelled("memory", f"{size(seen.gpu_bytes)} on the GPU", cells)
    elif seen.host.anonymous is not None:
        yield from labelled(
            "memory", f"{size(seen.host.anonymous)} of host memory, without the mapped file", cells
        )
    for note in (*seen.notes, *seen.http.problems):
        yield from labelled("note", note, cells, tone="warn")
    yield from labelled("read in", duration(seen.seconds), cells, tone="dim")


def _rest(view: Attached, cells: int) -> Iterator[Line]:
    if view.inference is not None:
        types = view.inference.types
        said = f"inferred {types}, not proven: " if types else "memory does not tell: "
        yield from labelled("KV type", said + view.inference.why, cells)
        yield EMPTY
    if not view.findings:
        yield line(Span("no findings", "good"))
    for finding in view.findings:
        for n, text in enumerate(wrap(finding.title, cells - 9)):
            mark = finding.severity if n == 0 else ""
            yield line(Span(f"{mark:<9}", _TONE[finding.severity]), Span(text, "strong"))
        for text in wrap(finding.why, cells - 9):
            yield line(" " * 9, text)
        if finding.next:
            yield from (
                line(" " * 9, Span(text, "accent")) for text in wrap(f"next: {finding.next}", cells - 9)
            )
