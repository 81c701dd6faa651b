"""The stream: chunk boundaries, endless lines, terminal codes, broken bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.logs.document import as_json
from kvtui.logs.lines import LIMIT, LineReader, Marks
from kvtui.logs.parser import LogParser
from tests.logs.conftest import DATA, read_facts

LOG = (DATA / "llamacpp-q8.log").read_bytes()
WHOLE = read_facts(LOG)


@given(st.lists(st.integers(0, len(LOG)), max_size=40))
@settings(max_examples=25)
def test_any_chunking_gives_the_same_facts(cuts: list[int]) -> None:
    parser, at = LogParser(), 0
    for cut in [*sorted(cuts), len(LOG)]:
        parser.feed(LOG[at:cut])
        at = cut
    parser.close()
    assert parser.facts() == WHOLE


def test_facts_may_be_asked_between_any_two_chunks() -> None:
    parser = LogParser()
    for at in range(0, len(LOG), 97):
        parser.feed(LOG[at : at + 97])
        json.dumps(as_json(parser.facts()))
    parser.close()
    assert parser.facts() == WHOLE
    assert parser.facts() is parser.facts()


def test_terminal_codes_nuls_and_carriage_returns_change_nothing() -> None:
    dirty = LOG.replace(b"\n", b"\x1b[0m\r\n").replace(b"llama_context", b"llama\x00_context")
    facts = read_facts(dirty)
    assert facts.contexts == WHOLE.contexts
    assert replace(facts, texts={}) == replace(WHOLE, texts={})


def test_broken_utf8_costs_only_its_own_characters() -> None:
    assert read_facts(b"\xff\xfe\xc3\n" + LOG).outcome == "ready"


def test_a_progress_line_does_not_hide_what_follows_it() -> None:
    facts = read_facts(b"10%\r50%\r100%\rllama_context: n_ctx                 = 512\n")
    assert facts.main is not None
    assert facts.main.n_ctx == 512


def test_an_endless_line_is_cut_and_the_next_one_read() -> None:
    cutter = LineReader(lambda: False, lambda: Marks((), ()))
    lines = [line for _ in range(100) for line in cutter.feed(b"x" * 10_000)]
    lines += cutter.feed(b"\nnext\nlast")
    lines += cutter.close()
    assert [(n, len(t)) for n, t in lines] == [(1, LIMIT), (2, 4), (3, 4)]


def test_a_log_that_never_ends_keeps_its_memory_bounded() -> None:
    parser = LogParser()
    line = (
        b"E srv send_error: error: request (8050 tokens) exceeds the available context size (4096 tokens)\n"
    )
    parser.feed(LOG + line * 5_000)
    assert len(parser.facts().texts) < 4_500
    assert parser.facts().n_lines == WHOLE.n_lines + 5_000


def test_buffers_and_devices_without_end_stay_bounded() -> None:
    lines = "".join(
        f"llama_kv_cache: D{i} KV buffer size = 1.00 MiB\nllama_context: D{i} compute buffer size = 1.00 MiB\n"
        f"load_tensors: D{i} model buffer size = 1.00 MiB\nusing device D{i} (X) - {i} MiB free\n"
        for i in range(1000)
    )
    facts = read_facts(lines)
    assert facts.main is not None
    kept = (facts.main.kv_buffers, facts.main.compute_buffers, facts.model_buffers, facts.devices)
    assert all(len(k) <= 256 for k in kept)


def test_json_lines_hold_the_same_facts(recorded: Callable[[str], bytes]) -> None:
    plain = recorded("llamacpp-q8").decode().splitlines()
    wrapped = "".join(
        json.dumps({"type": "log", "time": 1, "level": "info", "msg": line.partition(" ")[2][2:] + "\n"})
        + "\n"
        for line in plain
    )
    assert read_facts(wrapped).contexts == WHOLE.contexts
