"""Reports on disk: whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvtui.core.errors import SessionError
from kvtui.report import files, write
from kvtui.report.files import save
from kvtui.report.markdown import render
from tests.session import sample

ROOT = Path(__file__).resolve().parents[2]


def test_both_reports_stand_in_the_session(tmp_path: Path) -> None:
    folder = sample.write(tmp_path)
    paths = write(folder)
    assert [p.name for p in paths] == ["report.md", "report.json"]
    assert paths[0].read_text(encoding="utf-8") == render(sample.state())
    assert json.loads(paths[1].read_text(encoding="utf-8"))["verdict"]["run"] == 6
    assert write(folder) == paths
    assert sorted(p.name for p in folder.iterdir()) == [
        "events.jsonl",
        "lock",
        "logs",
        "report.json",
        "report.md",
    ]


def test_a_reader_never_sees_half_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sample.write(tmp_path)
    (folder / "report.md").write_text("the old one")
    synced: list[bytes] = []
    replace_ = os.replace

    def spy(source: str, target: Path) -> None:
        assert (folder / "report.md").read_text() == "the old one" or target.name != "report.md"
        assert synced
        replace_(source, target)

    monkeypatch.setattr(os, "fsync", lambda _: synced.append(b""))
    monkeypatch.setattr(os, "replace", spy)
    write(folder)
    assert (folder / "report.md").read_text(encoding="utf-8") == render(sample.state())


def test_a_report_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sample.write(tmp_path)
    (folder / "report.md").write_text("the old one")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(
        SessionError, match=r"report\.md: cannot write the report: No space left on device"
    ) as caught:
        write(folder)
    assert "\n" not in caught.value.line()
    assert (folder / "report.md").read_text() == "the old one"
    assert sorted(p.name for p in folder.iterdir()) == ["events.jsonl", "lock", "logs", "report.md"]


LIMITED = """
import resource, sys
from pathlib import Path
from kvtui.core.errors import SessionError
from kvtui.report import write
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    write(Path(sys.argv[1]))
except SessionError as error:
    print(error.line())
    sys.exit(3)
"""


def test_no_space_in_a_real_process(tmp_path: Path) -> None:
    folder = sample.write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 3, done.stderr
    assert "cannot write the report: File too large" in done.stdout
    assert done.stdout.count("\n") == 1
    assert sorted(p.name for p in folder.iterdir()) == ["events.jsonl", "lock", "logs"]


def test_a_session_that_cannot_be_read_gets_no_report(tmp_path: Path) -> None:
    with pytest.raises(SessionError):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_save_follows_links_and_writes_into_devices(tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_bytes(b"old")
    link.symlink_to(real)
    save(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    save(Path(os.devnull), b"gone")
    assert Path(os.devnull).is_char_device()
    with pytest.raises(OSError, match="directory"):
        save(tmp_path, b"")
