"""Events as lines and back: every type, any value, and what must be refused."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kvtui.core.errors import SessionError
from kvtui.gpu.samples import Sample
from kvtui.logs.facts import EngineFacts
from kvtui.probes.results import (
    ConcurrencyResult,
    FullPoolResult,
    SpeedResult,
    StabilityRequest,
    StabilityResult,
)
from kvtui.session import events as ev
from kvtui.session.codec import decode, encode, from_builtins, to_builtins
from tests.session import sample

HOSTILE = '\x1b[2J\x00\u202e|`<b>"\\\n\r\u2028\udc80🦙\U0010ffff'

# JSON knows no tuples and no keys but strings: what `Any` holds is what JSON can hold.
_scalars = (
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
)
_json = st.dictionaries(st.text(), _scalars | st.lists(_scalars, max_size=3), max_size=3)
_text = st.text(st.characters(), max_size=12) | st.just(HOSTILE)
_numbers = st.floats(allow_nan=False) | st.sampled_from(
    [math.inf, -math.inf]
)  # NaN equals nothing: its own test

_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: _text,
    float: _numbers,
    int: st.integers(),
    bool: st.booleans(),
    type(None): st.none(),
    dict[str, Any]: _json,
}


@functools.cache
def _of(hint: Any) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _LEAVES:
        return _LEAVES[hint]
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(_of(a) for a in args))
    if origin is tuple and args[-1] is Ellipsis:
        # One nested record shows as much as two, and keeps the whole event small.
        return st.lists(_of(args[0]), max_size=1 if dataclasses.is_dataclass(args[0]) else 2).map(tuple)
    if origin is tuple:
        return st.tuples(*(_of(a) for a in args))
    if origin is dict:
        return st.dictionaries(_of(args[0]), _of(args[1]), max_size=1)
    assert dataclasses.is_dataclass(hint), f"no strategy for {hint}"
    return _built(hint)


def _built(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{f.name: _of(hints[f.name]) for f in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", ev.EVENT_TYPES, ids=lambda k: k.__name__)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_event_type_comes_back_as_it_was(kind: type[ev.Event], data: st.DataObject) -> None:
    event = data.draw(_built(kind))
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert line.isascii()
    assert decode(line) == event


def test_the_builder_reaches_nested_values_and_none() -> None:
    """The property above would prove little if the events it builds were empty."""
    seen = {"samples": False, "texts": False, "contexts": False, "no memory": False, "infinite": False}

    @settings(
        max_examples=100,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(_built(ev.RunFinished))
    def look(event: ev.RunFinished) -> None:
        seen["samples"] |= bool(event.memory and event.memory.series)
        seen["texts"] |= bool(event.facts.texts)
        seen["contexts"] |= any(c.caches for c in event.facts.contexts)
        seen["no memory"] |= event.memory is None
        seen["infinite"] |= math.isinf(event.wall_s)
        if all(seen.values()):
            raise StopIteration("every one of them was built")

    with pytest.raises(StopIteration):
        look()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308])
def test_numbers_that_json_has_no_word_for_come_back_and_the_line_is_strict_json(value: float) -> None:
    event = ev.SpeedMeasured("t", 1, SpeedResult(512, value, None, value, ()))
    line = encode(event)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    json.loads(line, parse_constant=refuse)
    back = decode(line)
    assert isinstance(back, ev.SpeedMeasured)
    assert back.result.prompt_tps is not None
    assert math.copysign(1, back.result.prompt_tps) == math.copysign(1, value)
    assert back.result.prompt_tps == value or math.isnan(value)
    assert back.result.decode_tps is None


def test_missing_stays_none_and_a_text_that_reads_null_stays_text() -> None:
    reading = Sample(1.0, "load", None, 0, None, None)
    assert from_builtins(to_builtins(reading), Sample) == reading
    event = ev.Decided("t", 1, "skip", "operator", value="null", reason="null", subject="None")
    assert decode(encode(event)) == event
    facts = EngineFacts(build="null", commit="12", texts={1: "true"})
    ready = ev.EngineReady("t", 1, 0.5, facts)
    assert decode(encode(ready)) == ready


def test_an_event_that_could_not_be_read_back_is_never_written() -> None:
    wrong: Any = "a lot"
    with pytest.raises(SessionError, match="speed_measured"):
        encode(ev.SpeedMeasured("t", wrong, SpeedResult(1, 1.0, 1.0, 1.0, ())))
    nothing: Any = None
    with pytest.raises(SessionError, match="load_s"):
        encode(ev.EngineReady("t", 1, nothing, EngineFacts()))


def test_unknown_types_are_passed_over_and_unknown_fields_too() -> None:
    assert decode(b'{"v":1,"type":"moon_phase_measured","at":"t","phase":0.5}') is None
    assert decode(b'{"v":1,"type":"step_started","at":"t","step":3,"mood":"good"}') == ev.StepStarted("t", 3)


@pytest.mark.parametrize("kind", ev.EVENT_TYPES, ids=lambda k: k.__name__)
def test_an_old_session_without_the_newer_fields_is_read(kind: type[ev.Event]) -> None:
    """Every field with a default may be absent, at every depth: that is how an older kvtui wrote it."""
    rare = [
        ev.SessionResumed("t", "0.1.0", 4),
        ev.ConcurrencyMeasured("t", 4, ConcurrencyResult(2, 512, 0, (), (9.5,), 4.0)),
        ev.PromptsChosen("t", 2, "raw", "the template was refused"),
        ev.TasksRepeated("t", 2, sample.tasks()),
        ev.FullPoolMeasured("t", 4, FullPoolResult(2, 700, 64, 1024, 2, ("broken off",), True, 4.0)),
        ev.StabilityMeasured(
            "t", 6, StabilityResult(900, 64, 3, 1 << 30, (StabilityRequest(None, None, "late"),), 9.0)
        ),
    ]
    event = next(e for e in [*sample.events(), *rare] if type(e) is kind)
    document = json.loads(encode(event))
    optional = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
    ]
    for name in optional:
        del document[name]
    back = decode(json.dumps(document).encode())
    assert type(back) is kind
    for f in dataclasses.fields(kind):
        if f.name in optional:
            default = f.default if f.default is not dataclasses.MISSING else f.default_factory()  # type: ignore[misc]
            assert getattr(back, f.name) == default
        else:
            assert getattr(back, f.name) == getattr(event, f.name)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not an event"),
        (b"\x00\x00\x00\x00", "not an event"),
        (b"\xff\xfe{", "not an event"),
        (b"[" * 100_000, "not an event"),
        (b"1" * 5000, "not an event"),
        (b"null", "no type"),
        (b"[]", "no type"),
        (b'{"v":1}', "no type"),
        (b'{"v":1,"type":7}', "no type"),
        (b'{"type":"step_started","at":"t","step":1}', "no schema version"),
        (b'{"v":true,"type":"step_started","at":"t","step":1}', "no schema version"),
        (b'{"v":0,"type":"step_started","at":"t","step":1}', "no schema version"),
        (b'{"v":2,"type":"step_started","at":"t","step":1}', "newer kvtui"),
        (b'{"v":2,"type":"unheard_of"}', "newer kvtui"),
        (b'{"v":1,"type":"step_started","at":"t"}', "step_started"),
        (b'{"v":1,"type":"step_started","at":"t","step":"one"}', "step_started"),
        (b'{"v":1,"type":"decided","at":"t","step":1,"choice":"maybe","by":"operator"}', "decided"),
        (
            b'{"v":1,"type":"engine_ready","at":"t","run":1,"load_s":1,"facts":{"texts":{"\\udc80":"x"}}}',
            "engine_ready",
        ),
    ],
)
def test_what_is_no_event_is_refused_in_one_line(line: bytes, said: str) -> None:
    with pytest.raises(SessionError, match=said) as caught:
        decode(line)
    assert caught.value.line().isprintable()
    assert len(caught.value.line()) < 300
