"""A session as one file: the way there and back, and everything that such a file may try."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.core.errors import InputError, SessionError
from kvtui.session import archive
from kvtui.session.archive import MANIFEST, bring_in, export
from kvtui.session.store import EVENTS, IMPORTED, SessionStore, list_folders, load, unfinished
from tests.session import sample

UNKNOWN = b'{"v":1,"type":"from_the_future","at":"2026-11-29T10:00:00.000+00:00","x":1}\n'
Files = dict[str, bytes]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = sample.write(tmp_path / "here")
    (folder / "logs" / "run-01.log").write_bytes(b"build: 11434\n" * 100)
    (folder / "logs" / "run-06-2.log").write_bytes(b"\xff\x00 raw\n")
    (folder / "logs" / "notes.txt").write_bytes(b"mine")
    (folder / "report.md").write_bytes(b"old")
    with (folder / EVENTS).open("ab") as file:
        file.write(UNKNOWN)
    return folder


@pytest.fixture
def exported(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "session.zip"
    export(folder, path)
    return path


def test_there_and_back_everything_is_as_it_was(folder: Path, exported: Path, tmp_path: Path) -> None:
    there, state = bring_in(exported, tmp_path / "there")
    assert state == load(folder) == load(there)
    # An event that this version does not know goes on to one that does.
    assert (there / EVENTS).read_bytes() == (folder / EVENTS).read_bytes()
    assert UNKNOWN in (there / EVENTS).read_bytes()
    names = {p.relative_to(there).as_posix() for p in there.rglob("*") if p.is_file()}
    assert names == {EVENTS, IMPORTED, "logs/run-01.log", "logs/run-06-2.log"}
    assert (there / "logs" / "run-06-2.log").read_bytes() == b"\xff\x00 raw\n"
    again = tmp_path / "again.zip"
    export(there, again)
    assert again.read_bytes() == exported.read_bytes()


def test_nothing_is_overwritten(folder: Path, exported: Path, tmp_path: Path) -> None:
    before = exported.read_bytes()
    with pytest.raises(InputError, match="is there already"):
        export(folder, exported)
    assert exported.read_bytes() == before
    kept = (folder / EVENTS).read_bytes()
    with pytest.raises(InputError, match="this session is here already"):
        bring_in(exported, tmp_path / "here")
    assert (folder / EVENTS).read_bytes() == kept
    assert not (folder / IMPORTED).exists()


def test_half_an_export_is_not_left_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(InputError, match="No space left on device"):
        export(folder, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_an_imported_session_is_shown_and_never_gone_on_with(tmp_path: Path) -> None:
    cut = sample.write(tmp_path / "here", sample.unfinished_events())
    export(cut, tmp_path / "x.zip")
    there, state = bring_in(tmp_path / "x.zip", tmp_path / "there")
    assert state.verdict is None
    with pytest.raises(SessionError, match="imported and is read-only"):
        SessionStore.open(there)
    assert list(unfinished(tmp_path / "there")) == []
    assert [f for f, _ in unfinished(tmp_path / "here")] == [cut]


def _files(exported: Path) -> Files:
    with zipfile.ZipFile(exported) as archived:
        return {name: archived.read(name) for name in archived.namelist()}


def _repacked(exported: Path, change: Callable[[Files], None], *, sums: bool = True) -> Path:
    files = _files(exported)
    change(files)
    if sums and files.get(MANIFEST, b"").startswith(b"{"):
        manifest = json.loads(files[MANIFEST])
        manifest["files"] = {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
            if name != MANIFEST
        }
        files[MANIFEST] = json.dumps(manifest).encode()
    path = exported.with_name("hostile.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archived:
        for name, data in files.items():
            archived.writestr(name, data)
    return path


def _manifest(**changes: Any) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        files[MANIFEST] = json.dumps({**json.loads(files[MANIFEST]), **changes}).encode()

    return change


def _adding(name: str) -> Callable[[Files], None]:
    return lambda files: files.update({name: b"x"})


HOSTILE: list[tuple[Callable[[Files], None], str]] = [
    (_adding("../evil"), "nothing that a session export holds"),
    (_adding("/etc/cron.d/evil"), "nothing that a session export holds"),
    (_adding("logs/../../evil.log"), "nothing that a session export holds"),
    (_adding("logs/run-01.log\n"), "nothing that a session export holds"),
    (_adding("logs\\run-01.log"), "nothing that a session export holds"),
    (_adding("lock"), "nothing that a session export holds"),
    (_adding("imported"), "nothing that a session export holds"),
    (lambda f: f.pop(MANIFEST), "is no session export"),
    (lambda f: f.pop(EVENTS), "is no session export"),
    (lambda f: f.update({MANIFEST: b"[]"}), "is no session export"),
    (lambda f: f.update({MANIFEST: b"[" * 100_000}), "is no session export"),
    (lambda f: f.update({MANIFEST: b" " * (2 << 20)}), "is larger than it may be"),
    (_manifest(schema="kvtui.session/9"), "this kvtui reads kvtui.session/1"),
    (_manifest(session="../../evil"), "no name that can be used"),
    (_manifest(session="other"), "of another session than it says"),
    (_manifest(session=""), "no name that can be used"),
    (lambda f: f.update({EVENTS: b"{}\n"}), "line 1: not an event"),
    (lambda f: f.update({EVENTS: b""}), "the session has no beginning"),
    (lambda f: f.update({EVENTS: f[EVENTS].replace(b'"v":1', b'"v":99', 1)}), "written by a newer kvtui"),
]


@pytest.mark.parametrize(("change", "said"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_file_with_anything_else_in_it_is_refused(
    exported: Path, tmp_path: Path, change: Callable[[Files], None], said: str
) -> None:
    path = _repacked(exported, change)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    with pytest.raises(InputError, match=said.replace("(", "\\(")) as error:
        bring_in(path, tmp_path / "there")
    assert error.value.line().count("\n") == 0
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_a_damaged_or_incomplete_file_is_refused(exported: Path, tmp_path: Path) -> None:
    changed = _repacked(exported, lambda f: f.update({"logs/run-01.log": b"other"}), sums=False)
    with pytest.raises(InputError, match=r"run-01\.log is damaged"):
        bring_in(changed, tmp_path / "there")
    missing = _repacked(exported, lambda f: f.pop("logs/run-01.log"), sums=False)
    with pytest.raises(InputError, match="what it holds is not what it lists"):
        bring_in(missing, tmp_path / "there")
    data = exported.read_bytes()
    for cut in (0, 10, len(data) // 2, len(data) - 1):
        short = tmp_path / "short.zip"
        short.write_bytes(data[:cut])
        with pytest.raises(InputError):
            bring_in(short, tmp_path / "there")
    for at in range(0, len(data), max(1, len(data) // 60)):
        flipped = tmp_path / "flipped.zip"
        flipped.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            there, _ = bring_in(flipped, tmp_path / f"there-{at}")
        except InputError:
            continue
        assert (there / EVENTS).read_bytes() == _files(exported)[EVENTS]  # a flip that nothing depends on


@pytest.mark.parametrize("kind", ["link", "twice", "encrypted"])
def test_links_duplicates_and_encrypted_files(exported: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "hostile.zip"
    files = _files(exported)
    with pytest.MonkeyPatch.context() as patch, zipfile.ZipFile(path, "w") as archived:
        patch.setattr("warnings.warn", lambda *a, **k: None)
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            if kind == "link" and name.endswith("run-01.log"):
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archived.writestr(info, data)
            if kind == "twice" and name == EVENTS:
                archived.writestr(zipfile.ZipInfo(name), data)
    if kind == "encrypted":
        data = bytearray(path.read_bytes())
        at = data.rindex(b"PK\x01\x02")
        data[at + 8] |= 1
        path.write_bytes(bytes(data))
    said = "is in it twice" if kind == "twice" else "is no plain file"
    with pytest.raises(InputError, match=said):
        bring_in(path, tmp_path / "there")


def test_a_bomb_is_stopped_by_what_comes_out_of_it(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_MOST_BYTES", 3 << 20)
    bomb = _repacked(exported, lambda f: f.update({"logs/run-07.log": bytes(8 << 20)}))
    assert bomb.stat().st_size < 1 << 20
    with pytest.raises(InputError, match="larger than it may be"):
        bring_in(bomb, tmp_path / "there")
    many = _repacked(exported, lambda f: f.update({f"logs/run-{n:03d}.log": b"" for n in range(1100)}))
    with pytest.raises(InputError, match="more than 1000 files"):
        bring_in(many, tmp_path / "there")


@pytest.mark.parametrize("form", ["long", "zip64", "comment"])
def test_a_long_list_of_files_is_never_read(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A list of two million files takes a hundred megabytes on disk and a gigabyte in memory."""
    data, path = exported.read_bytes(), tmp_path / "hostile.zip"
    locator = b"PK\6\7" + bytes(16)
    if form == "long":
        path.write_bytes(data[:-10] + (100 << 20).to_bytes(4, "little") + data[-6:])
    elif form == "zip64":
        path.write_bytes(data[:-22] + locator + data[-22:])
    else:
        path.write_bytes(data[:-2] + (22).to_bytes(2, "little") + bytes(22))
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(InputError, match="1000 files" if form == "long" else "no session export"):
        bring_in(path, tmp_path / "there")


def test_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "nothing"):
        with pytest.raises(InputError):
            bring_in(path, tmp_path / "there")


def test_links_in_the_session_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (folder / "logs" / "run-09.log").symlink_to(tmp_path / "secret")
    export(folder, tmp_path / "x.zip")
    assert "logs/run-09.log" not in _files(tmp_path / "x.zip")


def test_the_commands(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path / "data"))
    assert main(["sessions", "export", str(folder)]) == 0
    assert "wrote 20261129-093000-4f1a.kvtui.zip" in capsys.readouterr().err
    assert main(["sessions", "import", "20261129-093000-4f1a.kvtui.zip"]) == 0
    assert "imported 20261129-093000-4f1a, read-only" in capsys.readouterr().err
    assert [f.name for f in list_folders()] == ["20261129-093000-4f1a"]
    assert main(["sessions"]) == 0
    assert "    imported, findings: 48K holds" in capsys.readouterr().out
    assert main(["sessions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"][0]["imported"] is True
    assert main(["report", "last"]) == 0
    assert main(["sessions", "import", "20261129-093000-4f1a.kvtui.zip"]) == 2
    assert main(["sessions", "export", "nope"]) == 2
    assert main(["tune", "--resume", "last", "--headless"]) == 3
    assert "kvtui tune --replay" in capsys.readouterr().err
