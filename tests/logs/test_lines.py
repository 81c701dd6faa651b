"""What the reader leaves out of a giant log, and that chunk boundaries never decide it."""

from __future__ import annotations

import random

import pytest

from kvtui.logs import lines
from kvtui.logs.lines import LineReader, Marks
from kvtui.logs.parser import LogParser

MARKS = Marks((b"begin again",), (b"failed",), (b"early bird",))


class Consumer:
    """Reads lines and settles at `ready`, as a parser does."""

    def __init__(self) -> None:
        self.settled = False
        self.seen: list[tuple[int, str]] = []
        self.reader = LineReader(lambda: self.settled, lambda: MARKS)

    def take(self, number: int, text: str) -> None:
        self.seen.append((number, text))
        if "begin again" in text:
            self.settled = False
        if text == "ready":
            self.settled = True

    def read(self, *chunks: bytes) -> list[tuple[int, str]]:
        for chunk in chunks:
            for number, text in self.reader.feed(chunk):
                self.take(number, text)
        for number, text in self.reader.close():
            self.take(number, text)
        return self.seen


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SETTLES", 64)
    monkeypatch.setattr(lines, "LONGEST_START", 4096)
    monkeypatch.setattr(lines, "READ_WHOLE", 600)
    monkeypatch.setattr(lines, "HELD", 400)
    monkeypatch.setattr(lines, "EARLY", 500)
    monkeypatch.setattr(lines, "LIMIT", 128)


def start(name: str) -> bytes:
    return f"begin again {name}\n".encode() + b"one\n" * 20 + f"last of {name}\nready\n".encode()


QUIET = b"nothing to see here\n" * 40


def test_after_a_start_only_marked_lines_are_read() -> None:
    seen = Consumer().read(start("a") + QUIET + b"it failed\n" + QUIET + b"the end")
    texts = [t for _, t in seen]
    assert texts[-2:] == ["it failed", "the end"]
    assert "nothing to see here" not in texts[24:]
    assert (24 + 40, "it failed") in seen or (23 + 40 + 1, "it failed") in seen
    assert seen[-1][0] == 23 + 40 + 1 + 40 + 1


def test_early_marks_are_read_early_only() -> None:
    texts = [
        t for _, t in Consumer().read(start("a") + b"early bird 1\n" + QUIET + b"early bird 2\nit failed\n")
    ]
    assert "early bird 1" in texts
    assert "early bird 2" not in texts
    assert "it failed" in texts


def test_of_many_starts_the_first_and_the_newest_are_read() -> None:
    seen = Consumer().read(b"".join(start(f"number {i}") + QUIET for i in range(30)))
    begun = [t for _, t in seen if t.startswith("begin again")]
    assert begun[0] == "begin again number 0"
    assert begun[-1] == "begin again number 29"
    assert len(begun) < 15
    number = next(n for n, t in seen if t == "last of number 29")
    assert number == 29 * 63 + 22


def test_a_held_start_is_read_when_its_facts_are_asked_for() -> None:
    consumer = Consumer()
    log = b"".join(start(f"number {i}") + QUIET for i in range(30)) + start("new")[:60]
    for number, text in consumer.reader.feed(log):
        consumer.take(number, text)
    assert consumer.seen[-1][1] != "begin again new"
    for number, text in consumer.reader.release():
        consumer.take(number, text)
    assert "begin again new" in [t for _, t in consumer.seen]
    assert consumer.reader.count == log.count(b"\n")


def test_chunk_boundaries_decide_nothing() -> None:
    rng = random.Random(1)
    pieces = [
        start("x"),
        QUIET,
        b"it failed\n",
        b"early bird\n",
        b"y" * 300 + b" failed\n",
        b"\n",
        b"begin again",
    ]
    for _ in range(120):
        log = b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 25)))
        whole = Consumer().read(log)
        cuts = sorted(rng.randrange(len(log) + 1) for _ in range(rng.randrange(1, 12)))
        chunks = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
        assert Consumer().read(*chunks) == whole
        assert Consumer().read(*(log[i : i + 1] for i in range(len(log)))) == whole


def test_digits_that_are_no_figure_prove_nothing_and_break_nothing() -> None:
    parser = LogParser()
    figures = ("9" * 6000, "9" * 400, "9" * 21)
    parser.feed(b"llama_server: build_info: b6190-ab12\n")
    for figure in figures:
        parser.feed(f"llama_context: n_ctx = {figure}\n".encode())
    parser.close()
    assert parser.facts().engine == "llama.cpp"
    assert parser.facts().n_lines == 1 + len(figures)
    assert parser.facts().contexts == ()
