"""The store: nothing recorded is lost, nothing damaged is believed, one writer at a time."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.core.errors import SessionError
from kvtui.report import as_json
from kvtui.session import events as ev
from kvtui.session import store as st
from kvtui.session.codec import encode
from kvtui.session.state import fold
from kvtui.session.store import EVENTS, SessionStore, find, is_locked, list_folders, load, unfinished
from tests.session import sample


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    with SessionStore.create(sample.started(), tmp_path) as opened:
        yield opened


def test_what_was_written_is_what_is_loaded(tmp_path: Path) -> None:
    first, *rest = sample.events()
    assert isinstance(first, ev.SessionStarted)
    with SessionStore.create(first, tmp_path) as store:
        states = [store.append(event) for event in rest]
        assert states[-1] == store.state == sample.state()
    folder = store.folder
    assert folder.name == sample.SESSION
    assert (folder / EVENTS).read_bytes() == b"".join(encode(event) for event in sample.events())
    assert load(folder) == sample.state()
    with SessionStore.open(folder) as again:
        assert again.state == sample.state()


def test_nobody_else_on_the_box_can_read_a_session(tmp_path: Path) -> None:
    folder = sample.write(tmp_path / "data" / "sessions")
    for path in (folder, folder / "logs", folder / EVENTS, folder / st.LOCK):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_torn_last_line_is_harmless_wherever_it_is_torn(tmp_path: Path) -> None:
    """At EVERY byte of the last event: the events before it load, and a writer goes on behind them."""
    recorded = sample.events()[:6]
    last = encode(recorded[-1])
    folder = sample.write(tmp_path, recorded)
    path = folder / EVENTS
    whole = path.read_bytes()
    assert whole.endswith(last)
    before = fold(recorded[:-1])
    for kept in range(len(last)):
        path.write_bytes(whole[: len(whole) - len(last) + kept])
        loaded = load(folder)
        assert loaded.torn is (kept > 0)
        assert replace(loaded, torn=False) == before
        with SessionStore.open(folder) as again:
            again.append(recorded[-1])
        assert path.read_bytes() == whole


@pytest.mark.parametrize("rubbish", [b"\0" * 4096, b"\0" * 100 + b"\n", b'{"v":1,"type":\n', b"\n"])
def test_a_last_line_that_a_power_cut_filled_with_rubbish_is_cut_off(tmp_path: Path, rubbish: bytes) -> None:
    folder = sample.write(tmp_path)
    path = folder / EVENTS
    whole = path.read_bytes()
    path.write_bytes(whole + rubbish)
    assert load(folder).torn
    SessionStore.open(folder).close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("number", [1, 2, 7, 63])
@pytest.mark.parametrize(
    "damage", [b'{"v":1,"type":"step_st', b"", b"\0\0\0", b'{"v":1,"type":"step_started","at":"t"}']
)
def test_damage_in_the_middle_is_refused_with_its_line(tmp_path: Path, number: int, damage: bytes) -> None:
    folder = sample.write(tmp_path)
    path = folder / EVENTS
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = damage
    path.write_bytes(b"\n".join(lines))
    damaged = path.read_bytes()
    with pytest.raises(SessionError, match=f"line {number}:"):
        load(folder)
    with pytest.raises(SessionError, match=f"line {number}:"):
        SessionStore.open(folder)
    assert path.read_bytes() == damaged
    assert not is_locked(folder)


@pytest.mark.parametrize("number", [1, 10, 64])
def test_a_newer_schema_is_refused_and_never_cut_off(tmp_path: Path, number: int) -> None:
    """In the last line too: it is sound, only not for this version."""
    folder = sample.write(tmp_path)
    path = folder / EVENTS
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), "v": ev.SCHEMA + 1}).encode()
    path.write_bytes(b"\n".join(lines))
    newer = path.read_bytes()
    for attempt in (load, SessionStore.open):
        with pytest.raises(SessionError, match=f"line {number}: written by a newer kvtui") as caught:
            attempt(folder)
        assert "update kvtui" in caught.value.line()
    assert path.read_bytes() == newer


def test_unknown_event_types_are_passed_over_and_kept(tmp_path: Path) -> None:
    folder = sample.write(tmp_path)
    path = folder / EVENTS
    lines = path.read_bytes().splitlines(keepends=True)
    strange = b'{"v":1,"type":"moon_phase_measured","at":"t"}\n'
    path.write_bytes(b"".join([lines[0], strange, *lines[1:], strange]))
    assert load(folder) == sample.state()
    with SessionStore.open(folder) as again:
        again.append(ev.StepStarted("t", 5))
    assert path.read_bytes().count(strange) == 2


def test_a_second_writer_is_refused_and_readers_are_not(store: SessionStore, tmp_path: Path) -> None:
    assert is_locked(store.folder)
    with pytest.raises(SessionError, match="another kvtui is writing"):
        SessionStore.open(store.folder)
    assert load(store.folder) == store.state
    assert list(unfinished(tmp_path)) == []
    store.close()
    store.close()
    assert not is_locked(store.folder)
    assert [folder for folder, _ in unfinished(tmp_path)] == [store.folder]
    with SessionStore.open(store.folder) as again:
        assert is_locked(again.folder)


def test_asking_for_the_lock_writes_nothing(tmp_path: Path) -> None:
    folder = sample.write(tmp_path)
    (folder / st.LOCK).unlink()
    assert not is_locked(folder)
    assert not (folder / st.LOCK).exists()


def test_an_event_is_synced_before_anybody_is_told(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    write, fsync, apply = os.write, os.fsync, st.apply

    def spy_write(fd: int, data: memoryview) -> int:
        told.append("write")
        return write(fd, data[: max(1, len(data) // 2)])  # short writes happen; none may be lost

    def spy_fsync(fd: int) -> None:
        assert (store.folder / EVENTS).read_bytes().endswith(encode(event))
        told.append("fsync")
        fsync(fd)

    def spy_apply(*args: object) -> object:
        told.append("state")
        return apply(*args)  # type: ignore[arg-type]

    event = ev.StepStarted("2026-11-29T10:00:00.000+00:00", 1)
    monkeypatch.setattr(os, "write", spy_write)
    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(st, "apply", spy_apply)
    returned = store.append(event)
    assert told[-2:] == ["fsync", "state"]
    assert told.count("write") > 1
    assert set(told[:-2]) == {"write"}
    assert returned.steps[0].started


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_an_event_that_did_not_reach_the_disk_is_in_neither_file_nor_state(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = store.folder / EVENTS
    whole, state = path.read_bytes(), store.state

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        with pytest.raises(SessionError, match="Input/output error"):
            store.append(ev.StepStarted("t", 1))
    assert path.read_bytes() == whole
    assert store.state == state
    store.append(ev.StepStarted("t", 1))
    assert load(store.folder) == store.state


def test_an_append_that_was_interrupted_half_way_is_undone_by_the_next(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+C between write and sync: the event was told to nobody, so it must not stay in the file."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.append(ev.StepStarted("t", 1))
    store.append(ev.StepStarted("t", 2))
    assert load(store.folder) == store.state
    assert [s.started for s in store.state.steps] == [False, True, False, False, False]


def test_a_new_session_never_writes_into_an_old_one(store: SessionStore, tmp_path: Path) -> None:
    whole = (store.folder / EVENTS).read_bytes()
    with pytest.raises(SessionError, match="File exists"):
        SessionStore.create(sample.started(), tmp_path)
    assert (store.folder / EVENTS).read_bytes() == whole


def test_a_session_that_could_not_begin_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SessionError, match="No space left on device") as caught:
        SessionStore.create(sample.started(), tmp_path)
    assert "KVTUI_DATA_DIR" in caught.value.line()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("")
    with pytest.raises(SessionError, match="cannot write the session") as caught:
        SessionStore.create(sample.started(), tmp_path / "sessions")
    assert "\n" not in caught.value.line()


def test_log_files_are_never_overwritten(store: SessionStore) -> None:
    first = store.log_path(7)
    assert first == store.folder / "logs" / "run-07.log"
    first.write_text("kept")
    second = store.log_path(7)
    assert second.name == "run-07-2.log"
    second.write_text("kept too")
    assert store.log_path(7).name == "run-07-3.log"


class TestFind:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        for name in ("20261129-093000-4f1a", "20261129-101500-77c0", "20261130-080000-0001"):
            sample.write(tmp_path, [replace(sample.started(), session=name)])
        (tmp_path / "20261201-000000-ffff").mkdir()
        (tmp_path / "notes.txt").write_text("not a session")
        return tmp_path

    def test_by_id_by_its_start_by_path_and_last(self, root: Path) -> None:
        assert [f.name[-4:] for f in list_folders(root)] == ["4f1a", "77c0", "0001"]
        assert find("20261129-101500-77c0", root).name.endswith("77c0")
        assert find("20261130", root).name.endswith("0001")
        assert find("last", root).name.endswith("0001")
        path = root / "20261129-093000-4f1a"
        assert find(str(path), root.parent) == path

    def test_ambiguous_names_are_refused(self, root: Path) -> None:
        with pytest.raises(SessionError, match="2 sessions begin like this"):
            find("20261129", root)

    @pytest.mark.parametrize(
        "name", ["", "nope", "20261201", "x" * 5000, "a\0b", "..", "\x1b[2J", "\udc80", "*"]
    )
    def test_no_such_session(self, root: Path, name: str) -> None:
        with pytest.raises(SessionError, match="no such session") as caught:
            find(name, root)
        assert caught.value.line().isprintable()
        assert len(caught.value.line()) < 200

    def test_last_of_none(self, tmp_path: Path) -> None:
        assert list_folders(tmp_path / "nowhere") == []
        with pytest.raises(SessionError, match="no such session"):
            find("last", tmp_path / "nowhere")

    def test_the_folder_is_an_environment_variable_away(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KVTUI_DATA_DIR", str(root))
        assert st.sessions_dir() == root / "sessions"
        assert list_folders() == []


def test_unfinished_are_offered_newest_first_and_unreadable_ones_left_out(tmp_path: Path) -> None:
    recorded = sample.events()
    for name, count in (("a", 10), ("b", len(recorded)), ("c", 20), ("d", 5)):
        sample.write(tmp_path, [replace(sample.started(), session=name), *recorded[1:count]])
    (tmp_path / "d" / EVENTS).write_bytes(b"rubbish\n" * 3)
    assert [folder.name for folder, _ in unfinished(tmp_path)] == ["c", "a"]


def test_an_empty_or_missing_event_log_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="No such file"):
        load(tmp_path)
    (tmp_path / EVENTS).write_bytes(b"")
    with pytest.raises(SessionError, match="no beginning"):
        load(tmp_path)
    (tmp_path / EVENTS).write_bytes(encode(sample.started())[:40])
    with pytest.raises(SessionError, match="line 1: cut off"):
        load(tmp_path)


def test_an_edited_session_brings_no_control_sequences_and_no_endless_numbers(tmp_path: Path) -> None:
    folder = sample.write(tmp_path)
    lines = [json.loads(line) for line in (folder / EVENTS).read_bytes().splitlines()]
    evil = "\x1b]52;c;aGk=\x07red\nline\x9b2J"
    lines[0]["model"]["file_name"] = lines[-1]["verdict"]["title"] = evil
    lines[0]["device"]["total_bytes"] = 10**400
    started = next(line for line in lines if line["type"] == "run_started")
    started["argv"][1] = evil
    lines[0]["plan"][evil] = 1
    (folder / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    state = load(folder)
    assert state.started.model.file_name == "red\nline"
    assert state.verdict is not None
    assert state.verdict.title == "red\nline"
    assert state.started.device.total_bytes < 1 << 64
    assert state.runs[0].argv[1] == evil  # quoted by whoever shows it
    assert state.started.plan["red line"] == 1
    for _ in range(100):
        lines[0]["plan"] = {"a": lines[0]["plan"]}
    (folder / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SessionError, match="nested too deeply"):
        load(folder)


def test_a_file_beyond_all_sessions_is_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    with (folder / EVENTS).open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no space, and would take all memory
    with pytest.raises(SessionError, match="which no session is"):
        load(folder)


@pytest.mark.parametrize("size", ["Infinity", "NaN", float("inf"), 1e308])
def test_sizes_that_are_none_stop_no_report(tmp_path: Path, size: object) -> None:
    folder = sample.write(tmp_path)
    lines = [json.loads(line) for line in (folder / EVENTS).read_bytes().splitlines()]
    for line in lines:
        for context in (line.get("facts") or {}).get("contexts", ()):
            context["caches"][0]["size_mib"] = size
            if size == 1e308:
                context["kv_buffers"][0]["mib"] = size
    (folder / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "kvtui.report" in as_json(load(folder))
