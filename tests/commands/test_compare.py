"""`kvtui compare`: what two sessions or two runs differ in, and what may be said of their figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.core.text import width
from kvtui.report import as_json
from kvtui.report.comparison import compare_runs, compare_sessions
from kvtui.report.comparison_document import __doc__ as documented
from kvtui.report.comparison_document import document
from kvtui.report.comparison_text import render
from kvtui.report.comparison_words import sentence
from kvtui.report.readings import Measure, Reading
from kvtui.session import events as ev
from kvtui.session.state import SessionState
from tests.report import states
from tests.session import sample

Out = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sessions"


def _other(**started: Any) -> SessionState:
    state = sample.state()
    return replace(state, started=replace(state.started, session="20261130-000000-0b0b", **started))


def _faster(state: SessionState, number: int, factor: float) -> SessionState:
    (speed,) = states.run(state, number).speeds
    assert speed.decode_tps is not None
    quick = sample.speed(speed.depth, speed.prompt_tps or 0, speed.decode_tps * factor)
    return states.with_run(state, number, speeds=(quick,))


def test_a_session_and_itself_again_are_the_same_in_everything() -> None:
    found = compare_sessions(sample.state(), _other())
    assert found.same_verdict is True
    assert found.same_facts is True
    assert not found.box
    assert sentence(found) == "Same verdict, same facts in 6 of 6 runs, 10 of 10 speeds within their spread."


def test_a_speed_differs_only_beyond_what_the_repeats_show() -> None:
    # The sample's two repeats lie 1 % to either side: at 95 % confidence the true figure is within 12.7 % of each.
    near = compare_sessions(sample.state(), _faster(_other(), 6, 1.03))
    assert {m.state for m in near.speeds} == {"same", "within"}
    far = compare_sessions(sample.state(), _faster(_other(), 6, 1.30))
    (apart,) = [m for m in far.speeds if m.state == "differs"]
    assert (apart.name, apart.depth) == ("decode", 47104)
    assert (
        "9 of 10 speeds within their spread, 1 differ (most: decode at 47,104 tokens by +30.0 %)"
        in sentence(far)
    )


@pytest.mark.parametrize(
    ("a", "b", "state"),
    [
        (Reading(10, 10, 10, 1), Reading(10, 10, 10, 1), "same"),
        (Reading(10, 10, 10, 1), Reading(10.1, 10.1, 10.1, 1), "single"),
        (Reading(10, 9.9, 10.1, 3), Reading(10.2, 10.2, 10.2, 1), "within"),
        (Reading(10, 9.9, 10.1, 3), Reading(10.3, 10.3, 10.3, 1), "differs"),
        (Reading(10, 9.9, 10.1, 3), Reading(10.3, 10.2, 10.4, 2), "within"),
        (Reading(10, 9.9, 10.1, 5), Reading(10.3, 10.2, 10.4, 5), "differs"),
        (Reading(10, 9.9, 10.1, 40), Reading(10.1, 10.0, 10.2, 40), "differs"),
        (None, Reading(10, 9.9, 10.1, 3), "only-b"),
        (Reading(10, 9.9, 10.1, 3), None, "only-a"),
    ],
)
def test_what_a_spread_allows_to_say(a: Reading | None, b: Reading | None, state: str) -> None:
    assert Measure("decode", "t/s", 1, a, b).state == state


def test_a_log_that_proves_another_size_is_another_fact() -> None:
    state = _other()
    main_ = states.run(state, 6).facts.main
    assert main_ is not None
    facts = replace(states.run(state, 6).facts, contexts=(replace(main_, n_ctx=40960),))
    found = compare_sessions(sample.state(), states.with_run(state, 6, facts=facts))
    assert found.same_facts is False
    assert "same facts in 5 of 6 runs" in sentence(found)
    assert [(d.what, d.a, d.b) for d in found.pairs[5].proven] == [("context", "49152", "40960")]


def test_another_box_is_named_and_marks_the_comparison() -> None:
    device = replace(sample.started().device, driver="581.10")
    found = compare_sessions(sample.state(), _other(device=device))
    assert [(d.what, d.a, d.b) for d in found.box] == [("driver", "580.95.05", "581.10")]
    assert sentence(found).endswith(
        "Not the same: driver; speeds and memory cannot be held against each other."
    )
    assert document(found)["comparable"] is False
    moved = replace(sample.started().model, path="/elsewhere/x.gguf", file_name="x.gguf")
    assert not compare_sessions(sample.state(), _other(model=moved)).box


def test_a_verdict_and_runs_that_one_side_lacks() -> None:
    found = compare_sessions(sample.state(), sample.unfinished())
    assert found.same_verdict is None
    assert [r.number for r in found.only_a] == [5, 6]
    assert sentence(found).startswith(
        "No two verdicts, same facts in 4 of 4 runs that both made (2 made by one alone)"
    )
    verdict = sample.state().verdict
    assert verdict is not None
    assert verdict.config is not None
    other = replace(verdict, config=replace(verdict.config, n_ctx=32768))
    assert compare_sessions(sample.state(), replace(_other(), verdict=other)).same_verdict is False


def test_two_runs_of_one_session_say_the_variable_and_its_effect() -> None:
    state = sample.state()
    found = compare_runs(state, states.run(state, 2), state, states.run(state, 3))
    said = sentence(found)
    assert said.startswith("KV types f16/f16 → q8_0/q8_0. KV -960.0 MiB, ")
    assert "decode at 12,288 tokens -3.0 % (within the spread)" in said
    assert "recall 5 of 5 → 5 of 5, 7 of 8 outputs identical, no task lost." in said
    # `-fa auto` and `-fa on` came out the same, so only one variable moved.
    assert [d.what for d in found.pairs[0].asked] == ["KV types", "flash attention"]
    assert [d.what for d in found.pairs[0].varied] == ["KV types"]
    far = compare_runs(state, states.run(state, 2), state, states.run(state, 6))
    assert "3 variables changed (KV types, context, micro-batch), so none alone explains it" in sentence(far)


def test_a_task_that_turned_is_named_and_a_failed_run_is_said_first() -> None:
    state = sample.state()
    tasks = tuple(
        replace(t, passed=False) if t.task == "code-edit-1" and t.depth == 2048 else t
        for t in states.run(state, 3).tasks
    )
    changed = states.with_run(state, 3, tasks=tasks)
    found = compare_runs(state, states.run(state, 2), changed, states.run(changed, 3))
    assert "lost code-edit-1" in sentence(found)
    assert "  code-edit-1 at 2,048: passed in A, fails in B" in render(found)
    failed = compare_runs(state, states.run(state, 4), state, states.run(state, 5))
    assert "Run 4 ended ok, run 5 failed" in sentence(failed)


@pytest.mark.parametrize("of_runs", [True, False])
def test_text_fits_80_columns_and_json_is_documented(of_runs: bool) -> None:
    a, b = sample.state(), _other(device=replace(sample.started().device, name="GPU " * 30))
    found = compare_runs(a, states.run(a, 2), b, states.run(b, 6)) if of_runs else compare_sessions(a, b)
    assert max(width(line) for line in render(found).splitlines()) <= 80
    assert documented is not None
    words = set(documented.replace(",", " ").replace("{", " ").replace("}", " ").replace("[", " ").split())

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {*value, *(k for v in value.values() for k in keys(v))}
        return {k for v in value for k in keys(v)} if isinstance(value, list) else set()

    plain = json.loads(json.dumps(document(found), allow_nan=False))
    assert {k.strip("];:") for k in keys(plain)} <= {w.strip("];:") for w in words}


@pytest.mark.parametrize(
    "arguments", [["last", "last"], ["last:2", ":3"], ["last:2", "last"], ["last", "2026:3"]]
)
def test_the_command(root: Path, capsys: Out, arguments: list[str]) -> None:
    sample.write(root)
    assert main(["compare", *arguments]) == 0
    assert capsys.readouterr().out
    assert main(["compare", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "kvtui.compare/1"
    assert found["kind"] == ("sessions" if arguments == ["last", "last"] else "runs")
    if arguments == ["last:2", "last"]:
        assert [found["runs"][0][side]["run"] for side in ("a", "b")] == [2, 6]


def test_a_report_in_json_stands_for_its_session(root: Path, capsys: Out, tmp_path: Path) -> None:
    sample.write(root)
    (tmp_path / "theirs.json").write_text(as_json(sample.state()), encoding="utf-8")
    assert main(["compare", "last", "theirs.json"]) == 0
    assert "Same verdict, same facts in 6 of 6 runs" in capsys.readouterr().out
    assert main(["compare", "last:6", "theirs.json:6"]) == 0
    assert main(["compare", "last", "none.json"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope", "last"], "nope: no such session"),
        (["last:9", ":3"], "20261129-093000-4f1a: there is no run 9: its runs: 1 to 6"),
        ([":3", ":4"], ":3: no session is named"),
        (["cut", "last:1"], "cut: no run of it is named: give one: cut:1"),
    ],
)
def test_what_there_is_not_is_status_2(root: Path, capsys: Out, arguments: list[str], said: str) -> None:
    sample.write(root)
    first, *rest = sample.unfinished_events()
    assert isinstance(first, ev.SessionStarted)
    sample.write(root, [replace(first, session="cut"), *rest])
    arguments = [a.replace("last", "2026") for a in arguments]
    assert main(["compare", *arguments]) == 2
    heard = capsys.readouterr()
    assert heard.out == ""
    assert said in heard.err
    assert heard.err.count("\n") == 1
