"""Following a log that grows, and what is said of an engine that ended."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from kvtui.engines.failure import describe_exit, is_port_clash, last_words
from kvtui.engines.logsize import LogSize
from kvtui.engines.logtail import LogTail
from kvtui.engines.watch import Quiet
from kvtui.logs.facts import EngineFacts


def wait_for(tail: LogTail, size: int) -> None:
    deadline = time.monotonic() + 30
    while tail.size < size and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tail.size == size


def test_lines_come_cleaned_in_few_batches_and_facts_while_the_log_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    batches: list[list[str]] = []
    with path.open("wb", buffering=0) as log:
        tail = LogTail(path, batches.append)
        began = time.monotonic()
        for number in range(60):
            log.write(f"line {number} \x1b[31mred\x1b[0m\r\n".encode())
            time.sleep(0.005)
        log.write(b"0.00.1 I srv  llama_server: build_info: b6190-ab")
        size = log.tell()
        wait_for(tail, size)
        assert tail.facts().build is None
        log.write(b"12\nsl\xff\xfeot\nunfinished")
        wait_for(tail, size + 20)
        assert tail.facts().build == "b6190"
        tail.close()
        seconds = time.monotonic() - began
    lines = [line for batch in batches for line in batch]
    assert lines[:2] == ["line 0 red", "line 1 red"]
    assert lines[-2:] == ["sl\ufffd\ufffdot", "unfinished"]
    assert len(lines) == 63
    assert len(batches) <= 3 + seconds * 10


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1_000_000)
    lines: list[str] = []
    tail = LogTail(path, lines.extend)
    wait_for(tail, 1_000_000)
    tail.close()
    assert lines
    assert all(len(line) <= 4096 for line in lines)
    tail.close()


def test_what_the_log_holds_already_is_read_before_it_closes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\n")
    lines: list[str] = []
    LogTail(path, lines.extend).close()
    assert lines == ["a", "b"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with status 0"),
        (137, "ended with status 137"),
        (-9, "was killed by SIGKILL"),
        (-99, "was killed by signal 99"),
    ],
)
def test_an_exit_status_in_words(code: int, words: str) -> None:
    assert describe_exit(code) == words


@pytest.mark.parametrize(
    ("line", "clash"),
    [
        ("0.0 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", True),
        ("main: couldn't bind to server socket: hostname=127.0.0.1 port=8080", True),
        ("OSError: [Errno 98] Address already in use", True),
        ("CUDA error: out of memory", False),
        ("", False),
    ],
)
def test_a_port_clash(line: str, clash: bool) -> None:
    assert is_port_clash(f"first\n{line}\n") is clash


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        ("hello\n\n  \n", "hello"),
        ("0.00.000.001 I all well\n0.00.000.002 E first\n0.00.000.003 E second\n", "first"),
        ("loading\nterminate called after throwing\nbye\n", "terminate called after throwing"),
        ("E \x1b[31mred\n", "red"),
    ],
)
def test_the_line_that_says_most(log: str, words: str) -> None:
    assert last_words(log, EngineFacts()) == words


def test_quiet_is_no_change_for_longer_than_the_limit() -> None:
    quiet = Quiet(10)
    assert not quiet.too_long(100, (1, 2.0))
    assert not quiet.too_long(110, (1, 2.0))
    assert quiet.too_long(110.1, (1, 2.0))
    assert not quiet.too_long(111, (1, 2.1))
    assert not quiet.too_long(121, (1, 2.1))
    assert quiet.too_long(121.1, (1, 2.1))


def test_lines_that_come_faster_than_they_are_read_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvtui.engines.logtail._CHUNK", 1 << 14)
    monkeypatch.setattr("kvtui.engines.logtail._ROUND", 1 << 16)
    path = tmp_path / "log"
    path.write_bytes(b"a line\n" * 40_000)
    batches: list[int] = []
    tail = LogTail(path, lambda lines: batches.append(len(lines)))
    tail.close()
    assert sum(batches) == 40_000
    assert max(batches) < 20_000


def test_closing_does_not_wait_for_somebody_who_never_stops_printing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.touch()
    with path.open("ab", buffering=0) as log:

        def read_while_it_grows(descriptor: int, size: int) -> bytes:
            if not given_up.is_set():
                log.write(b"still here" * 1000 + b"\n")
            return read(descriptor, size)

        read, given_up = os.read, Event()
        monkeypatch.setattr("kvtui.engines.logtail.os.read", read_while_it_grows)
        closing = Thread(target=LogTail(path, lambda lines: None).close)
        closing.start()
        closing.join(10)
        ended = not closing.is_alive()
        given_up.set()
        closing.join()
    assert ended


def test_a_flood_is_read_to_the_end_and_only_its_beginning_and_end_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    seen: list[str] = []
    on_disk = []
    with path.open("wb", buffering=0) as log:
        tail = LogTail(path, seen.extend, bound=LogSize(path, head=1 << 16, tail=1 << 16))
        number = 0
        for _ in range(12):
            lines = range(number, number + 1000)
            log.write(b"".join(b"line %09d of a flood" % n + b"." * 2000 + b"\n" for n in lines))
            number = lines.stop
            wait_for(tail, log.tell())
            on_disk.append(path.stat().st_blocks * 512)
        size = log.tell()
        tail.close()
    assert size > 22 << 20
    assert max(on_disk) < 8 << 20
    assert tail.facts().n_lines == len(seen) == 12_000
    kept = [line.rstrip(".") for line in path.read_text().splitlines()]
    assert path.stat().st_size < 1 << 18
    at = next(i for i, line in enumerate(kept) if line.startswith("[kvtui: "))
    assert kept[:at] == [f"line {n:09d} of a flood" for n in range(at)]
    assert kept[-1] == "line 000011999 of a flood"
    left = int(kept[at].split()[1])
    assert kept[at + 1] == f"line {at + left:09d} of a flood"


def test_a_log_of_the_usual_size_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a line\n" * 20_000)
    LogTail(path, lambda lines: None, bound=LogSize(path)).close()
    assert path.read_bytes() == b"a line\n" * 20_000


def test_a_log_that_was_removed_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes((b"a line" + b"." * 5000 + b"\n") * 1_000)
    tail = LogTail(path, lambda lines: None, bound=LogSize(path, head=1 << 16, tail=1 << 16))
    path.unlink()
    tail.close()
    assert not path.exists()
