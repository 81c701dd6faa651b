"""The line at the top: where am I, on what, with which engine and model."""

from __future__ import annotations

from kvtui.core.text import clip
from kvtui.core.units import gib
from kvtui.procedure.steps import STEPS
from kvtui.session.state import SessionState
from kvtui.tui.lines import Line, Span, line, spread, width_of


def header(state: SessionState | None, cells: int, *, note: str = "") -> Line:
    """Program, device with its size, engine with its build, model with its weight quant, and the step at the right.

    What does not fit is left out from the least telling: part of the engine's name, then the engine, the device.
    """
    if state is None:
        return spread(line(Span("kvtui", "title")), line(Span(note, "dim")), cells)
    started = state.started
    right = line(Span(_step(state), "strong"))
    device = f"{started.device.name} {gib(started.device.total_bytes)}"
    build = started.engine.build or ""
    label = started.engine.label
    engine = f"{label} {build}" if build not in label else label
    short = " ".join(engine.split()[-2:])
    model = " ".join(p for p in (started.model.name or started.model.file_name, started.model.quant) if p)
    room = cells - width_of(right) - 2
    parts: list[str] = []
    for parts in ([device, engine, model], [device, short, model], [device, model], [model]):
        if len("kvtui") + sum(2 + len(p) for p in parts) <= room:
            break
    else:
        parts = [clip(model, max(room - 7, 0))]
    return spread(line(Span("kvtui", "title"), *(f"  {p}" for p in parts)), right, cells)


def _step(state: SessionState) -> str:
    if state.verdict is not None:
        return state.verdict.outcome
    step = state.current_step
    return f"step {step.number} of {len(STEPS)}" if step else "closing"
