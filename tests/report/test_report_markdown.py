"""The report for a person: what stands in it, in which order, and that no text in it can break it."""

from __future__ import annotations

import functools
import math
import re
import shlex
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kvtui.core.findings import Finding
from kvtui.core.text import clean
from kvtui.logs.facts import EngineFacts
from kvtui.probes.results import (
    ConcurrencyResult,
    FullPoolResult,
    SpeedResult,
    StabilityRequest,
    StabilityResult,
)
from kvtui.report.escape import code, fence, table, text
from kvtui.report.markdown import render
from kvtui.report.markdown_runs import finding_lines
from tests.report import states
from tests.session import sample

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _section(report: str, title: str) -> str:
    """The text under one heading of the second level."""
    parts = re.split(r"^## ", report, flags=re.MULTILINE)
    (found,) = (p for p in parts if p.startswith(f"{title}\n"))
    return found


def _rows(section: str) -> list[list[str]]:
    """The cells of every table row in `section`, heads and rules left out."""
    lines = section.splitlines()
    heads = [at - 1 for at, line in enumerate(lines) if line.startswith("| ---")]
    body = [
        line
        for at, line in enumerate(lines)
        if line.startswith("| ") and at not in heads and at - 1 not in heads
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


def test_the_verdict_comes_first_and_then_the_command_line() -> None:
    report = render(sample.state())
    order = [
        "**48K holds at q8_0/q8_0",
        "```sh\n",
        "## Machine",
        "## Steps",
        "## Runs",
        "## Recall",
        "## Quality",
    ]
    order += [
        "## Findings",
        "## Stages not run",
        "## Advice and decisions",
        "## Not measured",
        "## Time",
        "## Each run",
    ]
    places = [report.index(part) for part in order]
    assert places == sorted(places)


def test_the_command_line_can_be_pasted_as_it_stands() -> None:
    block = re.search(r"```sh\n(.*?)\n```", render(sample.state()), re.DOTALL)
    assert block is not None
    final = states.run(sample.state(), 6)
    assert tuple(shlex.split(block[1])) == final.argv


def test_every_run_is_in_the_table_with_what_it_changed_first() -> None:
    rows = _rows(_section(render(sample.state()), "Runs"))
    assert [row[1] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert [row[0] for row in rows] == [
        "nothing: weights floor",
        "context 8192 → 16384 (against run 1)",
        "KV types f16/f16 → q8_0/q8_0 (against run 2)",
        "context 16384 → 32768 (against run 3)",
        "context 32768 → 49152 (against run 4)",
        "micro-batch 512 → 256 (against run 5)",
    ]
    assert rows[5][2:] == [
        *("`q8_0/q8_0`", "48K", "690 t/s", "19.7 t/s", "1:08", "47,104", "3,264.00 MiB", "14.64 GiB"),
        *("4 of 5", "7 of 8", "ok"),
    ]
    assert rows[4][-1] == "failed: out of memory in prefill at 40,960 tokens"


def test_weights_and_kv_are_always_named_together() -> None:
    report = render(sample.state())
    named = re.findall(r"(.{16})\b(?:f16/f16|q8_0/q8_0) KV\b", report)
    assert len(named) > 12
    assert all(before.endswith("Q6_K weights, ") for before in named)
    bare = render(states.bare())
    assert "Q6_K weights, f16/f16 KV (asked, not proven)" in bare


def test_requested_against_actual_with_the_line_that_proves_it() -> None:
    report = render(sample.state())
    assert (
        "| K cache type | `q8_0` | `q8_0` | proven | 83 | `llama_kv_cache: size = 3264.00 MiB ( 49152 cells,"
        in report
    )
    assert (
        "| flash attention | `auto` | `on` | proven | 88 | `resolve_fused_ops: Flash Attention enabled` |"
        in report
    )
    unproven = render(states.with_run(sample.state(), 6, facts=EngineFacts()))
    assert "| K cache type | `q8_0` | `-` | unproven |  | the log shows no KV cache line |" in unproven


def test_forecast_against_proven_with_the_difference() -> None:
    exact = "| KV bytes | forecast 3,264.00 MiB (exact), proven 3,264.00 MiB, difference none"
    assert f"{exact} beyond the log's rounding |" in render(sample.state())
    state = sample.state()
    forecast = states.run(state, 6).forecast
    assert forecast is not None
    assert forecast.kv_bytes is not None
    small = replace(forecast, kv_bytes=forecast.kv_bytes - 9000)
    assert "difference +9,000 B |" in render(states.with_run(state, 6, forecast=small))
    large = replace(forecast, kv_bytes=forecast.kv_bytes + (12 << 20))
    assert "difference -12.0 MiB |" in render(states.with_run(state, 6, forecast=large))


def test_recall_quality_findings_skips_and_decisions() -> None:
    report = render(sample.state())
    assert "| 6 | Q6_K weights, q8_0/q8_0 KV | 47,104 | 4 of 5 | 25 % |" in _section(report, "Recall")
    quality = _section(report, "Quality against the f16 baseline")
    assert (
        "run 2 | 7 of 8 | `code-edit-1` at 12,288 from token 41 | none | `tool-selection-1@12288` |"
        in quality
    )
    findings = _section(report, "Findings")
    assert "**error**, run 5: out of memory in prefill (`prefill-oom`)" in findings
    assert "  - log line 131: `CUDA error: out of memory`" in findings
    assert "  - measured: `peak 15,600 MiB of 16,380 MiB in prefill`" in findings
    assert "| 64K | needs 16,274 MiB, 15,769 MiB are free" in _section(report, "Stages not run")
    decisions = _rows(_section(report, "Advice and decisions"))
    assert decisions[-1][1] == "q8_0 keys, q4_0 values"
    assert decisions[-1][4:] == ["skip", "operator", "code edits must stay exact; 48K is enough"]
    assert decisions[2][3] == "-960.0 MiB"
    assert "| share inside the engine, of the session | 90 % |" in _section(report, "Time")


def test_what_moved_unasked_is_said_where_the_run_is_listed() -> None:
    state = sample.state()
    facts = states.run(state, 6).facts
    assert facts.main is not None
    moved = replace(facts, contexts=(replace(facts.main, n_batch=1024),))
    report = render(states.with_run(state, 6, facts=moved))
    assert "micro-batch 512 → 256; also batch 2048 → 1024 (against run 5)" in _section(report, "Runs")
    assert "| batch | `2048` | `1024` | **no** |" in report
    assert "| micro-batch | `512` | `256` | yes |" in report


def test_what_was_not_measured_says_so_and_is_never_a_zero() -> None:
    report = render(states.bare())
    (row,) = _rows(_section(report, "Runs"))
    assert row[2:] == [
        *("not proven", "not proven"),
        *["not measured"] * 4,
        "not proven",
        *["not measured"] * 3,
        "in progress",
    ]
    assert "No verdict: the session is unfinished." in report
    assert "0 of 5 steps" in report
    for title in ("Recall", "Quality against the f16 baseline"):
        assert _section(report, title).split("\n\n")[1] == "Not measured."
    for title in ("Findings", "Stages not run", "Advice and decisions"):
        assert _section(report, title).split("\n\n")[1] == "None."
    assert not re.search(r"\b(None(?!\.\n)|nan|inf|n/a)\b", report)
    assert not re.search(r"\b0(\.0+)? (t/s|s|MiB|B|%)", report)


def test_a_rate_that_is_not_a_number_was_not_measured() -> None:
    broken = SpeedResult(47104, math.nan, math.inf, None, ())
    report = render(states.with_run(sample.state(), 6, speeds=(broken,)))
    row = _rows(_section(report, "Runs"))[5]
    assert row[4:7] == ["not measured"] * 3


def test_an_unfinished_session_and_one_that_proved_nothing() -> None:
    assert "3 of 5 steps are closed" in render(sample.unfinished())
    state = sample.state()
    assert state.verdict is not None
    nothing = replace(
        state.verdict, outcome="failed", title="nothing holds", run=None, command="", config=None
    )
    report = render(replace(state, verdict=nothing))
    assert "**nothing holds** (failed)" in report
    assert "no command line to hand over" in report
    assert "## Machine" in report.split("```")[0]


def test_a_box_without_a_gpu_says_what_stands_in() -> None:
    report = render(states.on_host())
    assert "no GPU: host memory of the engine's process stands in for VRAM" in report
    assert "does not apply: no GPU here" in report
    assert "driver" not in _section(report, "Machine, engine, model")
    state = states.on_host()
    noted = replace(
        state, started=replace(state.started, device=replace(state.started.device, note="shared memory"))
    )
    machine = _section(render(noted), "Machine, engine, model")
    assert "64.00 GiB, shared memory |" in machine
    assert "stands in" not in machine


def test_a_resumed_session_says_so() -> None:
    assert "resumed 2 times" in render(replace(sample.state(), resumed=2))
    assert "resumed" not in render(sample.state())


def test_memory_at_each_point_of_a_run() -> None:
    report = render(sample.state()).split("### Run 6")[1]
    rows = _rows(report[report.index("| memory (every 0.1 s, process) |") :].split("\n\n")[0])
    assert rows[:6] == [
        ["before, held by others", "611.0 MiB"],
        ["after load", "14.55 GiB"],
        ["after warm-up", "14.55 GiB"],
        ["peak in prefill", "14.64 GiB"],
        ["peak in decode", "14.57 GiB"],
        ["highest of all, in prefill", "14.64 GiB"],
    ]


def test_concurrency_is_a_table_of_its_own() -> None:
    result = ConcurrencyResult(4, 8192, 1, ("the slot | was full",), (18.0, 17.5, 17.1), 20.0)
    report = render(states.with_run(sample.state(), 6, concurrency=(result,)))
    assert "| 4 | 8,192 | 1 | 18.0 t/s, 17.5 t/s, 17.1 t/s | the slot &#124; was full |" in report


def test_speeds_state_their_spread_and_memory_its_forecast() -> None:
    report = render(sample.state()).split("### Run 6")[1]
    assert "| 47,104 | 690 t/s (683.1 to 696.9) | 19.7 t/s (19.5 to 19.9) | 1:08 | 2 | 97 % |  |" in report
    forecast = states.run(sample.state(), 6).forecast
    assert forecast is not None
    assert re.search(
        r"\| forecast for the whole engine \| [\d.]+ GiB, measured [+-][\d.]+ MiB \([+-][\d.]+ %\) \|", report
    )
    none = states.with_run(sample.state(), 6, forecast=replace(forecast, total_bytes=None))
    assert "| forecast for the whole engine | none |" in render(none).split("### Run 6")[1]


def test_full_pools_and_stability_are_tables_of_their_own() -> None:
    pool = FullPoolResult(4, 9000, 200, 32768, 1, ("context | full",), False, 30.0)
    timing = states.run(sample.state(), 6).speeds[0].repeats[0]
    held = StabilityResult(
        46000,
        128,
        3,
        100 << 20,
        (StabilityRequest(timing, 100 << 20), StabilityRequest(None, 112 << 20, "gone")),
        9.0,
    )
    report = render(states.with_run(sample.state(), 6, full_pool=(pool,), stability=(held,)))
    assert "| 4 | 9,000 + 200 | 32,768 | 1 | **no** | context &#124; full |" in report
    assert "| 46,000 + 128 | 2 of 3 | 1 | +12.0 MiB |" in report


def test_outputs_that_only_changed_in_wording_are_called_that() -> None:
    quality = _section(render(sample.state()), "Quality against the f16 baseline")
    assert "| text changed, no verdict did |" in quality


def test_raw_logs_are_where_the_caller_says() -> None:
    assert "`logs/run-06.log`" in render(sample.state())
    assert "`raw/run-06.log`" in render(sample.state(), log_dir="raw")


HOSTILE = [
    "a | b | c",
    "| --- |",
    "`code` ``two`` ```three",
    "```\n# not a heading\n```",
    "line\n\n# heading\n- item\r\n> quote",
    "<script>alert(1)</script><b>bold</b><!-- gone",
    "&lt; &amp; &#124; &copy",
    "[link](https://example.invalid) ![image](x) [ref]: x",
    "**bold** __bold__ *em* _em_ ~~gone~~ $x$",
    "\\ \\| \\` trailing\\",
    "- item",
    "+ item",
    "1. item",
    "12) item",
    "# heading",
    "> quote",
    "=====",
    "-----",
    "    indented",
    "\x1b[2J\x1b]0;title\x07\u202eevil\u200b\udc80",
    "'; rm -rf ~; '",
    "",
    " ",
    "x" * 10_000,
]


def _shape(report: str) -> tuple[list[tuple[str, str, int]], Counter[str]]:
    """The blocks of a report, and how many of each inline element there are besides text and code."""
    blocks, inline = [], Counter[str]()
    for token in READER.parse(report):
        blocks.append((token.type, token.tag, token.level))
        inline.update(
            child.type for child in token.children or [] if child.type not in ("text", "code_inline")
        )
    return blocks, inline


STATES = {"whole": sample.state(), "cut": sample.unfinished(), "bare": states.bare()}


@functools.cache
def _plain(name: str) -> tuple[list[tuple[str, str, int]], Counter[str]]:
    return _shape(render(states.spoken(STATES[name], "plain")))


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_can_change_how_the_report_is_read(words: str) -> None:
    _unbroken("whole", words)


@pytest.mark.parametrize("name", ["cut", "bare"])
@pytest.mark.parametrize("words", ["", HOSTILE[3], HOSTILE[5]])
def test_nor_where_there_is_little_to_report(name: str, words: str) -> None:
    _unbroken(name, words)


def _unbroken(name: str, words: str) -> None:
    report = render(states.spoken(STATES[name], words))
    assert all(line.isprintable() for line in report.splitlines())
    assert max(len(line) for line in report.splitlines() if line.startswith(("|", "-", "**"))) < 25_000
    blocks, inline = _shape(report)
    assert _headless(blocks) == _headless(_plain(name)[0])
    assert inline == _plain(name)[1]
    assert set(inline) <= {"strong_open", "strong_close"}


def _headless(blocks: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    # A paragraph of no words is no paragraph; everything else must be there however empty its text is.
    return [b for b in blocks if not b[0].startswith(("paragraph", "inline"))]


def _texts(token: Token) -> str:
    return "".join(child.content for child in token.children or [])


@given(st.text(max_size=60) | st.text("|`\\*_#<>&[]()~$-+=.1 \n", max_size=30))
def test_text_and_code_say_in_a_table_what_they_were_given(words: str) -> None:
    lines = table(("left", "right"), [(text(words), code(words))])
    cells = [t for t in READER.parse("\n".join(lines)) if t.type == "inline"]
    expected = clean(words, 600).strip()
    assert [_texts(c) for c in cells[:2]] == ["left", "right"]
    assert [re.sub(r"\s", " ", _texts(c)) for c in cells[2:]] == [re.sub(r"\s", " ", expected)] * 2


@given(st.text(max_size=40) | st.text("|`\\*_#<>&[]()~$-+=.1 ", max_size=20))
def test_text_in_a_list_item_stays_text(words: str) -> None:
    tokens = READER.parse(f"- {text(words)}")
    kinds = [t.type for t in tokens if t.type not in ("inline", "paragraph_open", "paragraph_close")]
    assert kinds == ["bullet_list_open", "list_item_open", "list_item_close", "bullet_list_close"]
    assert all(c.type == "text" for t in tokens for c in t.children or [])


@given(st.text("`~ab \\", max_size=30))
def test_no_backticks_end_a_code_block_early(words: str) -> None:
    (token,) = READER.parse("\n".join(fence(words, "sh")))
    assert (token.type, token.content) == ("fence", words + "\n")


@pytest.mark.parametrize("why", ["speeds are too low", "Speeds are too low."])
def test_a_finding_reads_as_sentences(why: str) -> None:
    finding = Finding("machine-busy", "info", "Others were busy", why, "repeat it", ())
    assert finding_lines(1, finding)[0].endswith("too low. Change next: `repeat it`.")
