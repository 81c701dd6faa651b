"""The report for a spreadsheet: every recorded field, one row a run, and no formula in it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kvtui.report.document import document
from kvtui.report.spreadsheet import COLUMNS, guarded, render
from tests.report import states
from tests.session import sample


def _rows(state: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(state), newline="")))


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}".lstrip("."))
    else:
        yield path


@pytest.mark.parametrize("state", [sample.state(), sample.unfinished(), states.bare()])
def test_every_field_of_a_run_has_a_column(state: Any) -> None:
    columns = set(COLUMNS)
    assert len(columns) == len(COLUMNS)
    for run in document(state)["runs"]:
        run.pop("facts")
        for leaf in _leaves(run):
            parts = leaf.split(".")
            covered = any(".".join(parts[:n]) in columns for n in range(1, len(parts) + 1))
            empty_group = any(c.startswith(f"{leaf}.") for c in columns)
            assert covered or empty_group, leaf


def test_one_row_a_run_with_its_figures() -> None:
    rows = _rows(sample.state())
    assert [row["run"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    last = rows[5]
    assert last["quantization"] == "Q6_K weights, q8_0/q8_0 KV"
    assert (last["decode_tps"], last["at_depth"], last["context.asked"]) == ("19.7", "47104", "49152")
    assert (last["change.variable"], last["change.before"]) == ("micro-batch", "512")
    assert (last["counts"], last["kv.difference_bytes"]) == ("true", "0")
    assert json.loads(last["recall"])[0]["found"] == 4
    assert rows[0]["change.variable"] == rows[0]["quality.baseline_run"] == ""
    assert rows[4]["exit_code"] == "-6"
    assert {row["session"] for row in rows} == {sample.SESSION}


@pytest.mark.parametrize(
    "words", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "'quoted", "a,b", 'say "x"']
)
def test_no_cell_of_text_is_a_formula(words: str) -> None:
    rows = _rows(states.spoken(sample.state(), words))
    assert len(rows) == 6
    for row in rows:
        assert set(row) == set(COLUMNS)
        for column, cell in row.items():
            number = cell.lstrip("-").replace(".", "", 1).replace("e", "", 1).isdigit()
            assert number or not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r")), column
    assert guarded(words).removeprefix("'") == words.removeprefix("'") or words.startswith("'")
