"""Running engines as a page that is read at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvtui.commands.attach_json import model_of
from kvtui.commands.log_text import findings_text
from kvtui.core.text import clip, width
from kvtui.core.units import duration, size
from kvtui.engines.attach.look import Found
from kvtui.engines.attach.memory import GpuMemory
from kvtui.procedure.attached.rows import Row
from kvtui.procedure.attached.view import Attached

_HEADS = ("setting", "asked", "actual", "", "evidence")


def listing(found: Sequence[Found], gpu: GpuMemory) -> str:
    """Every engine in two or three lines: what and where it is, what was asked, where its log is."""
    lines = [line for one in found for line in _one(one, gpu)]
    if gpu.why:
        lines.append(f"GPU memory per process: {gpu.why}")
    lines.append("kvtui attach --pid N shows what was asked of one against what it does")
    return "\n".join(lines)


def overview(view: Attached) -> str:
    """What one engine is, setting by setting, what is inferred, and what is to be done."""
    return "\n".join(
        (*_head(view), "", *_table(view.rows), "", *_inferred(view), *findings_text(view.findings))
    )


def _one(one: Found, gpu: GpuMemory) -> Iterator[str]:
    process = one.process
    where = "" if one.address is None else one.address.unix_socket or one.address.url
    held = gpu.by_pid.get(process.pid)
    memory = "" if held is None else f"  {size(held)} on the GPU"
    below = f"  below {process.parent}" if process.parent is not None else ""
    yield f"{process.pid:>7}  {process.kind}  {process.user}  {where}{memory}{below}"
    if one.asked.model:
        yield f"         model  {one.asked.model}"
    if one.asked.settings:
        yield "         asked  " + ", ".join(f"{name} {s.value}" for name, s in one.asked.settings.items())
    for note in one.asked.unread:
        yield f"         note   {note}"
    if process.listening is None:
        yield "         note   permission denied: the ports it listens on may not be looked at"
    yield f"         log    {one.log.why or one.log.where}"


def _head(view: Attached) -> Iterator[str]:
    seen, facts = view.seen, view.facts
    build = seen.http.proven.get("build") or seen.http.proven.get("version")
    version = facts.build or (None if build is None else str(build.value))
    who = f"process {seen.process.pid}" if seen.process is not None else "process not seen"
    where = "" if seen.address is None else f", {seen.address.unix_socket or seen.address.url}"
    yield f"{seen.kind}{f' {version}' if version else ''}: {who}{where}  ({duration(seen.seconds)})"
    if model := model_of(seen.asked, seen.http.proven):
        yield f"model   {model}"
    if seen.place.kind == "none" or seen.log.problem:
        yield f"log     {seen.log.problem or seen.place.why}"
    else:
        part = "" if seen.log.first_line in (1, None) else f", from line {seen.log.first_line:,}"
        cut = ", its middle left out" if seen.log.skipped else ""
        yield f"log     {seen.place.kind} {seen.place.where}{part}{cut}"
    if seen.gpu_bytes is not None:
        yield f"memory  {size(seen.gpu_bytes)} on the GPU"
    elif seen.host.anonymous is not None:
        yield f"memory  {size(seen.host.anonymous)} of host memory, the mapped model file not counted"
    for note in (*seen.notes, *seen.http.problems):
        yield f"note    {note}"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """Columns as wide as their longest cell, the note behind them."""
    cells = [_HEADS, *((r.setting, r.asked, r.actual, r.state, _evidence(r)) for r in rows)]
    widths = [max(width(row[n]) for row in cells) for n in range(len(_HEADS))]
    for row, note in zip(cells, ("", *(r.note for r in rows)), strict=True):
        line = "  ".join(cell + " " * (w - width(cell)) for cell, w in zip(row, widths, strict=True))
        yield f"{line}  {clip(note, 200)}".rstrip()


def _evidence(row: Row) -> str:
    return f"line {row.line}" if row.line is not None else row.evidence


def _inferred(view: Attached) -> Iterator[str]:
    inference = view.inference
    if inference is None:
        return
    if inference.types is None:
        yield f"KV types: not proven, and memory does not tell: {inference.why}"
    else:
        yield f"KV types: inferred {inference.types} (not proven): {inference.why}"
    yield ""
