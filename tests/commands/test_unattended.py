"""What is decided without a screen: every recommendation accepted, stages insisted on only when that was asked for."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from kvtui.cli import main
from kvtui.commands import tune
from kvtui.commands.headless import Unattended
from kvtui.session.records import Recommendation
from tests.procedure.test_rules import case

RUN = Recommendation("run", "Stage: 64K of context", "why", variable="context")
STAGE = Recommendation("skip", "Leave out 64K of context", "why", variable="context")
OFFLOAD = Recommendation("skip", "Leave out fewer layers on the GPU", "why", variable="layers on GPU")


@pytest.mark.parametrize(
    ("insist", "advice", "choice"),
    [
        (False, RUN, "accept"),
        (False, STAGE, "accept"),
        (True, RUN, "accept"),
        (True, STAGE, "insist"),
        (True, OFFLOAD, "accept"),
    ],
)
def test_only_stages_are_insisted_on(insist: bool, advice: Recommendation, choice: str) -> None:
    decided = Unattended(insist).decide(advice, case().sit.state)
    assert (decided.choice, decided.by) == (choice, "unattended")
    assert bool(decided.reason) == (choice == "insist")


def test_the_option_is_off_unless_given() -> None:
    parser = argparse.ArgumentParser()
    tune.add_parser(parser.add_subparsers())
    assert parser.parse_args(["tune", "-m", "m.gguf"]).insist is False
    assert parser.parse_args(["tune", "-m", "m.gguf", "--insist"]).insist is True


def test_a_session_that_is_not_there_is_an_input_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path))
    assert main(["tune", "--resume", "nope", "--headless"]) == 2
    assert "nope: no such session" in capsys.readouterr().err
