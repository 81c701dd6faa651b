"""`kvtui log`: exit status, JSON, text, gzip and standard input."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from kvtui.cli import main
from kvtui.logs.findings import CATALOGUE
from tests.logs.conftest import DATA


def test_a_clean_log_exits_0_and_prints_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(DATA / "llamacpp-q8.log"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kvtui.log/1"
    assert document["contexts"][0]["caches"][0]["type_k"] == "q8_0"
    assert document["slots"]["n_ctx_slot"] == 4096


def test_findings_exit_1_and_name_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(DATA / "llamacpp-split.log")]) == 1
    text = capsys.readouterr().out
    assert "ctx-divided" in text
    assert "[58, 59]" in text


def test_what_was_expected_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "-c", "8192", "-ctk", "q4_0", str(DATA / "llamacpp-q8.log"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["requested"] == {"ctx": 8192, "cache_type_k": "q4_0"}
    assert {f["id"] for f in document["findings"]} >= {"kv-type-differs", "ctx-smaller"}


@pytest.mark.parametrize("content", [b"", b"just a diary\nof a day\n", b"\x1f\x8bbroken"])
def test_what_is_no_log_exits_2_with_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert main(["log", str(path), "--json"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1
    assert str(path) in streams.err


def test_a_missing_file_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "/nowhere/at/all.log"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_gzip_and_standard_input_read_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = (DATA / "llamacpp-q8.log").read_bytes()
    packed = tmp_path / "x.log.gz"
    packed.write_bytes(gzip.compress(raw[:4000]) + gzip.compress(raw[4000:]))
    assert main(["log", str(packed), "--json"]) == 0
    from_gzip = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert main(["log", "-", "--json"]) == 0
    assert capsys.readouterr().out == from_gzip


def test_gzip_data_that_is_cut_off_is_read_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress((DATA / "llamacpp-q8.log").read_bytes())
    path = tmp_path / "x.log.gz"
    for data in (whole[:-20], whole[:-3], gzip.compress(b"first\n") + whole[:-20]):
        path.write_bytes(data)
        assert main(["log", str(path), "--json"]) == 0
        streams = capsys.readouterr()
        assert json.loads(streams.out)["contexts"][0]["caches"][0]["type_k"] == "q8_0"
        assert streams.err == f"kvtui: {path}: the gzip data is cut off: the end of the log is missing\n"


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.id)
def test_every_kind_of_finding_explains_itself(entry: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = entry.id  # type: ignore[attr-defined]
    assert main(["log", "--explain", name]) == 0
    text = capsys.readouterr().out
    assert all(
        label in text for label in (name, "Evidence: ", "Why it matters: ", "Change next: ", "Source: ")
    )


def test_an_unknown_kind_of_finding_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "--explain", "nonsense"]) == 2
    assert "kv-unproven" in capsys.readouterr().err


def test_identifiers_of_findings_are_unique() -> None:
    names = [e.id for e in CATALOGUE]
    assert len(names) == len(set(names))
