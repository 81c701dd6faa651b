"""Sessions of every schema there ever was can be read, and newer ones are refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtui.core.errors import SessionError
from kvtui.report import FORMATS
from kvtui.session import codec, events, migrate
from kvtui.session.codec import decode
from kvtui.session.events import SCHEMA
from kvtui.session.state import fold
from kvtui.session.store import parse_events

DATA = Path(__file__).parent / "data"
RECORDED = sorted(DATA.glob("schema-*.jsonl"))
"""Written once by the version that recorded them and never changed: a session somebody kept looks like this."""


def test_there_is_a_recorded_file_and_a_step_for_every_schema() -> None:
    assert {int(p.stem.split("-")[1]) for p in RECORDED} == set(range(1, SCHEMA + 1))
    assert set(migrate.MIGRATIONS) == set(range(1, SCHEMA))


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_a_recorded_session_loads_and_reports(path: Path) -> None:
    recorded, torn, length = parse_events(path.read_bytes(), path.name)
    assert not torn
    assert length == path.stat().st_size
    state = fold(recorded)
    expected = json.loads(path.with_suffix(".json").read_text())
    assert state.verdict is not None
    found = {
        "session": state.started.session,
        "events": len(recorded),
        "verdict": state.verdict.title,
        "outcomes": [r.outcome for r in state.runs],
        "kv_mib": [r.facts.main.kv_mib if r.facts.main else None for r in state.runs],
        "decode_tps": [[s.decode_tps for s in r.speeds] for r in state.runs],
        "recall": [[x.found for x in r.recalls] for r in state.runs],
        "tasks": [sum(t.passed for t in r.tasks) for r in state.runs],
        "peaks": [
            r.memory.highest.engine_bytes if r.memory and r.memory.highest else None for r in state.runs
        ],
    }
    assert found == expected
    for write in FORMATS.values():
        assert state.started.model.file_name in write(state)


def test_the_recorded_files_hold_every_kind_of_event_of_the_first_schema() -> None:
    kinds = {json.loads(line)["type"] for path in RECORDED for line in path.read_bytes().splitlines()}
    assert len(kinds) >= 20
    assert {"session_resumed", "tasks_repeated", "full_pool_measured", "stability_measured"} <= kinds


def test_an_older_event_is_brought_to_today_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_2(document: migrate.Document) -> migrate.Document:
        return {**document, "number": document.pop("no")} if document["type"] == "step_started" else document

    def to_3(document: migrate.Document) -> migrate.Document:
        return (
            {**document, "step": document.pop("number")} if document["type"] == "step_started" else document
        )

    monkeypatch.setattr(codec, "SCHEMA", 3)
    monkeypatch.setattr(migrate, "MIGRATIONS", {1: to_2, 2: to_3})
    assert decode(b'{"v":1,"type":"step_started","at":"t","no":4}') == events.StepStarted("t", 4)
    assert decode(b'{"v":2,"type":"step_started","at":"t","number":4}') == events.StepStarted("t", 4)
    assert decode(b'{"v":3,"type":"step_started","at":"t","step":4}') == events.StepStarted("t", 4)
    with pytest.raises(SessionError, match="damaged event of schema 1"):
        decode(b'{"v":1,"type":"step_started","at":"t"}')
    assert decode(b'{"v":1,"type":"gone_since","at":"t"}') is None


def test_a_newer_schema_is_refused_in_words() -> None:
    with pytest.raises(SessionError, match="written by a newer kvtui") as error:
        decode(b'{"v":2,"type":"step_started","at":"t","step":4}')
    assert error.value.hint == "update kvtui to read it"
