"""`kvtui report` and `kvtui sessions` as a script meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.cli import main
from kvtui.core.text import width
from kvtui.report.markdown import render
from kvtui.session.store import EVENTS, SessionStore
from tests.session import sample

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sessions"


Out = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", [sample.SESSION, "2026", "last"])
def test_the_report_goes_to_standard_output(root: Path, capsys: Out, name: str) -> None:
    sample.write(root)
    assert main(["report", name]) == 0
    said = capsys.readouterr()
    assert said.out == render(sample.state())
    assert said.err == ""


def test_json_is_one_document_and_nothing_else(root: Path, capsys: Out) -> None:
    sample.write(root)
    assert main(["report", "last", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "kvtui.report/1"


def test_a_report_into_a_file(root: Path, capsys: Out, tmp_path: Path) -> None:
    sample.write(root)
    assert main(["report", "last", "-o", "mine.md"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "kvtui: wrote mine.md\n"
    assert (tmp_path / "mine.md").read_text(encoding="utf-8") == render(sample.state())
    assert main(["report", "last", "-o", "-"]) == 0
    assert capsys.readouterr().out == render(sample.state())


@pytest.mark.parametrize(
    ("name", "begin"), [("r.html", "<!"), ("r.JSON", "{"), ("r.txt", "# kvtui"), ("r.csv", "session,")]
)
def test_the_name_of_the_file_says_its_format(root: Path, tmp_path: Path, name: str, begin: str) -> None:
    sample.write(root)
    assert main(["report", "last", "-o", name]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)
    assert main(["report", "last", "-o", name, "--format", "md"]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith("# kvtui")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nope"], "kvtui: nope: no such session: `kvtui sessions` lists them"),
        (
            ["report", "last", "--format", "pdf"],
            "kvtui: --format pdf: there is no such report: use md, html, json, csv",
        ),
        (
            ["report", "last", "-o", "no/such/folder.md"],
            "kvtui: no/such/folder.md: cannot write the report: ",
        ),
        (["report", "last", "-o", "."], "kvtui: .: cannot write the report: "),
        (["report", "damaged"], "line 3: not an event: "),
    ],
)
def test_mistakes_are_one_line_and_status_2(root: Path, capsys: Out, arguments: list[str], said: str) -> None:
    damaged = sample.write(root, [replace(sample.started(), session="damaged"), *sample.events()[1:9]])
    lines = (damaged / EVENTS).read_bytes().split(b"\n")
    (damaged / EVENTS).write_bytes(b"\n".join([*lines[:2], b"{", *lines[3:]]))
    sample.write(root, [replace(sample.started(), session="whole")])
    assert main(arguments) == 2
    heard = capsys.readouterr()
    assert heard.out == ""
    assert said in heard.err
    assert heard.err.count("\n") == 1


def test_help_names_the_formats_that_there_are(capsys: Out) -> None:
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    said = capsys.readouterr().out
    assert "md|html|json|csv" in said
    assert "--anonymous" in said


def test_sessions_newest_first_with_the_way_to_go_on(root: Path, capsys: Out) -> None:
    sample.write(root)
    cut = replace(
        sample.started(), session="20261130-080000-0001", model=replace(sample.started().model, quant="Q4_0")
    )
    sample.write(root, [cut, *sample.unfinished_events()[1:]])
    (sample.write(root, [replace(cut, session="20261201-000000-bad0")]) / EVENTS).write_bytes(b"x\ny\n")
    busy = replace(cut, session="20261202-000000-b051")
    with SessionStore.create(busy, root):
        assert main(["sessions"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert main(["sessions", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
    assert [line.split()[0][-4:] for line in lines[1::2]] == ["b051", "bad0", "0001", "4f1a"]
    assert max(width(line) for line in lines) <= 80
    assert lines[2].endswith("running now")
    assert "unreadable" in lines[3]
    assert "line 1: not an event" in lines[4]
    assert lines[5].startswith("20261130-080000-0001    3/5    Example-14B-Instruct.Q6_K")
    assert lines[5].endswith("llama-server b11434")
    assert lines[6] == "    unfinished: go on with kvtui tune --resume 20261130-080000-0001"
    assert lines[8] == "    findings: 48K holds at q8_0/q8_0 with a micro-batch of 256"
    assert document["schema"] == "kvtui.sessions/1"
    entries = document["sessions"]
    assert [e["status"] for e in entries] == ["running", "unreadable", "unfinished", "finished"]
    assert entries[3]["outcome"] == "findings"
    assert (entries[2]["steps_done"], entries[2]["verdict"]) == (3, None)


def test_no_sessions_says_how_to_get_one(root: Path, capsys: Out) -> None:
    assert main(["sessions"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "kvtui demo" in said.err
    assert main(["sessions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"] == []


def test_wide_and_long_names_keep_their_columns(root: Path, capsys: Out) -> None:
    model = replace(sample.started().model, file_name="模型" * 40 + ".gguf")
    sample.write(root, [replace(sample.started(), model=model)])
    assert main(["sessions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(width(line) for line in lines) <= 80
    assert lines[1].endswith("…  llama-server b11434")


@pytest.mark.parametrize("arguments", [["sessions"], ["report", "last"]])
def test_nothing_heavy_is_loaded_and_a_closed_pipe_is_quiet(root: Path, arguments: list[str]) -> None:
    sample.write(root)
    script = (
        "import io, sys; from contextlib import redirect_stdout; from kvtui.cli import main\n"
        "for form in ('html', 'json', 'csv') if sys.argv[1] == 'report' else ():\n"
        "    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), 'utf-8')):\n"
        "        assert main([*sys.argv[1:], '--format', form]) == 0, form\n"
        "status = main(sys.argv[1:])\n"
        "heavy = {'textual', 'rich', 'httpx', 'numpy', 'gguf', 'pynvml', 'psutil'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else status)"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C"},
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_report_is_utf_8_whatever_the_locale(root: Path) -> None:
    sample.write(root)
    done = subprocess.run(
        [sys.executable, "-m", "kvtui", "report", "last"],
        capture_output=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
        },
    )
    assert done.stdout.decode() == render(sample.state())
