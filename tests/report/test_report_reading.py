"""A report in JSON, read back: the same session for comparing and replaying, and any other file refused in a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.core.errors import InputError
from kvtui.report import as_json
from kvtui.report.comparison import compare_sessions
from kvtui.report.privacy import anonymous
from kvtui.report.reading import read_report
from tests.session import sample


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(as_json(sample.state()), encoding="utf-8")
    return path


def test_it_is_the_session_it_was_written_of(report: Path) -> None:
    state, again = sample.state(), read_report(report)
    assert again.started.model == state.started.model
    assert again.verdict is not None
    assert state.verdict is not None
    assert again.verdict.config == state.verdict.config
    assert [s.outcome for s in again.steps] == [s.outcome for s in state.steps]
    for before, after in zip(state.runs, again.runs, strict=True):
        for name in (
            "config",
            "argv",
            "env",
            "facts",
            "speeds",
            "recalls",
            "tasks",
            "change",
            "subject",
            "outcome",
        ):
            assert getattr(after, name) == getattr(before, name), name
    found = compare_sessions(state, again)
    assert (found.same_verdict, found.same_facts, found.box) == (True, True, ())
    assert {m.state for m in found.speeds} == {"same"}
    assert sum(d.identical for p in found.pairs for d in p.outputs) == 24


def test_an_anonymous_one_still_compares(tmp_path: Path) -> None:
    path = tmp_path / "anonymous.json"
    path.write_text(as_json(anonymous(sample.state())), encoding="utf-8")
    found = compare_sessions(sample.state(), read_report(path))
    assert (found.same_verdict, found.same_facts, found.box) == (True, True, ())


def _changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


BROKEN: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.update(schema="kvtui.budget/1"), "is no report in JSON"),
    (lambda d: d.update(schema="kvtui.report/2"), "is of schema kvtui.report/2"),
    (lambda d: d.update(runs=[]), "it has no runs"),
    (lambda d: d.update(runs=[{}] * 501), "at most 500"),
    (lambda d: d.pop("session"), "is no complete report"),
    (lambda d: d["runs"][0].update(config={"n_ctx": "many"}), "is no complete report"),
    (lambda d: d["runs"][0].update(config=7), "is no complete report"),
    (lambda d: d["runs"][0].update(sampling=None), "is no complete report"),
    (lambda d: d["runs"][0].update(memory=[]), "is no complete report"),
    (lambda d: d["verdict"].update(outcome="great"), "is no complete report"),
]


@pytest.mark.parametrize(("change", "said"), BROKEN, ids=range(len(BROKEN)))
def test_a_report_that_is_none_is_refused(
    report: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    with pytest.raises(InputError, match=said) as error:
        read_report(_changed(report, change))
    assert "\n" not in error.value.line()


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"[" * 100_000, b"\xff\xfe", b'{"schema": 5}', b"nan"])
def test_so_is_any_other_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is no report in JSON"):
        read_report(path)
    os.mkfifo(tmp_path / "pipe.json")
    for other in (tmp_path, tmp_path / "nothing.json", tmp_path / "pipe.json"):
        with pytest.raises(InputError):
            read_report(other)


def test_control_sequences_do_not_come_in(report: Path) -> None:
    path = _changed(report, lambda d: d["runs"][0].update(reason="\x1b[2Jgone", subject="a\x07b"))
    run = read_report(path).runs[0]
    assert (run.reason, run.subject) == ("gone", "ab")


def test_options_of_a_report_are_shown_and_not_run_unasked(
    report: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path))
    path = _changed(
        report,
        lambda d: [
            r["config"].update(env=[["LD_PRELOAD", "/x.so"]], extra=["--tools", "a b"]) for r in d["runs"]
        ],
    )
    assert main(["tune", "--replay", str(path), "--headless"]) == 2
    said = capsys.readouterr().err
    assert "LD_PRELOAD=/x.so --tools 'a b'" in said
    assert "--yes runs it" in said
    # Approved, it goes on to the model, which is not on this box.
    assert main(["tune", "--replay", str(path), "--headless", "--yes", "--engine-bin", "/bin/true"]) == 2
    assert "--yes" not in capsys.readouterr().err.splitlines()[-1]
    assert main(["tune", "--replay", str(tmp_path / "none.json"), "--headless"]) == 2
    for option in (
        ["--target-context", "4096"],
        ["--resume", "last"],
        ["--engine-args=--mlock"],
        ["-ub", "64"],
        ["--env", "A=1"],
    ):
        capsys.readouterr()
        assert main(["tune", "--replay", str(path), *option, "--headless"]) == 2
        assert "a replay takes its settings from what was recorded" in capsys.readouterr().err
