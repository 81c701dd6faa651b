"""Sessions to report on that the sample session does not cover."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import replace
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.gpu.samples import DeviceInfo
from kvtui.session import events as ev
from kvtui.session.state import RunRecord, SessionState, fold
from tests.session import sample

KEPT = {"at", "started_at", "finished_at"}


def bare() -> SessionState:
    """A run was announced, and that is all there is."""
    recorded = sample.events()
    first = next(e for e in recorded if isinstance(e, ev.RunStarted))
    nothing = replace(first, forecast=None, change=None, missing=(), env=())
    return fold([recorded[0], nothing])


def on_host() -> SessionState:
    """The sample session, measured on a box without a GPU."""
    state = sample.state()
    device = DeviceInfo("host", 0, "host memory", state.started.host.memory_bytes)
    runs = tuple(
        replace(r, memory=replace(r.memory, device=device) if r.memory else None) for r in state.runs
    )
    return replace(state, started=replace(state.started, device=device), runs=runs)


def with_run(state: SessionState, number: int, **changes: Any) -> SessionState:
    """`state` with one run changed."""
    runs = tuple(replace(r, **changes) if r.number == number else r for r in state.runs)
    return replace(state, runs=runs)


def run(state: SessionState, number: int) -> RunRecord:
    """The run with that number, which must exist."""
    found = state.run(number)
    assert found is not None
    return found


def spoken(value: Any, words: str) -> Any:
    """`value` with `words` in the place of every free text in it, at every depth. Literals, times and what was
    asked of the engine stay, so that two such states differ in their texts alone."""
    if isinstance(value, RunConfig) or not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    hints = _hints(type(value))
    changes = {
        f.name: _spoken(getattr(value, f.name), hints[f.name], words)
        for f in dataclasses.fields(value)
        if f.name not in KEPT
    }
    return replace(value, **changes)


_hints = functools.cache(typing.get_type_hints)


def _spoken(value: Any, hint: Any, words: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if value is None or origin is typing.Literal:
        return value
    if origin is types.UnionType:
        (one,) = (a for a in args if a is not type(None))
        return _spoken(value, one, words)
    if hint is str:
        return words
    if origin is tuple and args[-1] is Ellipsis:
        return tuple(_spoken(v, args[0], words) for v in value)
    if origin is tuple:
        return tuple(_spoken(v, a, words) for v, a in zip(value, args, strict=True))
    if hint == dict[int, str]:
        return dict.fromkeys(value, words)
    return spoken(value, words)
