from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.core.units import GIB, MIB
from kvtui.gpu.samples import Sample, Vitals
from kvtui.procedure.checks import setting_checks
from kvtui.procedure.live import Progress
from kvtui.procedure.memory import Breakdown, breakdown
from kvtui.report import as_markdown
from kvtui.report.markdown_blocks import Table, blocks
from kvtui.session.records import SettingCheck
from kvtui.session.state import SessionState, fold
from kvtui.tui import (
    view_end,
    view_evidence,
    view_header,
    view_log,
    view_memory,
    view_next,
    view_report,
    view_run,
    view_runs,
    view_steps,
)
from kvtui.tui.lines import Line, text_of, width_of
from kvtui.tui.live import Bucket, Live, Question, Trace, trace_of
from tests.tui import story
from tests.tui.story import ev


def text(lines: list[Line]) -> str:
    return "\n".join(text_of(x).rstrip() for x in lines)


def at(kind: type[ev.Event], nth: int = 1) -> SessionState:
    return fold(story.up_to(kind, nth))


def test_the_header_drops_words_before_it_drops_the_model() -> None:
    state = at(ev.StepStarted)
    wide = text_of(view_header.header(state, 120))
    assert "embedded llama.cpp b11434" in wide
    assert wide.endswith("step 1 of 5")
    assert "  llama.cpp b11434" in text_of(view_header.header(state, 80))
    narrow = text_of(view_header.header(state, 40))
    assert "Gemma 3 270M" in narrow
    assert narrow.endswith("step 1 of 5")
    for cells in (36, 40, 60, 80, 120):
        assert width_of(view_header.header(state, cells)) == cells
    assert text_of(view_header.header(fold(story.story()), 80)).endswith("done")
    assert "reading" in text_of(view_header.header(None, 40, note="reading x"))


def test_every_step_has_a_glyph_and_the_open_one_its_runs() -> None:
    state = at(ev.SpeedMeasured, 3)
    progress = Progress(3, 3, "recall at 1K", 61, 100, "answers")
    rows = text(view_steps.checklist(state, progress, 24, 12))
    assert " ✓ 1 Weights floor" in rows
    assert " ▶ 3 Quantized KV" in rows
    assert "▶ recall at 1K 61%" in rows
    assert "✗ log: 1 differs" in rows
    assert " · 5 Transients" in rows


@pytest.mark.parametrize("rows", [5, 6, 9, 12, 30])
def test_the_checklist_never_loses_a_step(rows: int) -> None:
    out = view_steps.checklist(at(ev.SpeedMeasured, 5), None, 24, rows)
    assert len(out) <= rows
    assert [x for x in "12345" if f" {x} " in text(out)] == list("12345")


def test_the_checklist_shows_that_a_step_was_not_needed() -> None:
    assert "» 5 Transients" in text(view_steps.checklist(fold(story.story()), None, 24, 10))


def test_the_full_steps_tell_goal_gate_result_and_skipped_stages() -> None:
    out = text(view_steps.steps_in_full(fold(story.story()), 78))
    assert "not needed" in out
    assert "8K" in out
    assert "the model was trained for less" in out
    assert "goal" in out
    assert "run 5" in out


def test_the_table_shows_asked_actual_line_and_state_in_words() -> None:
    run = at(ev.EngineReady, 3).runs[-1]
    rows = view_run.settings(setting_checks(run), 55, 11)
    out = text(rows)
    assert "usable per slot  2048      512       17    ✗ differs" in out
    assert "K cache type     q8_0      q8_0      15    ✓ proven" in out
    assert all(width_of(r) == 55 for r in rows)


def test_what_is_not_proven_comes_first_where_not_all_fits() -> None:
    run = at(ev.EngineReady, 3).runs[-1]
    checks = setting_checks(run)
    assert view_run.ordered(checks, len(checks)) == checks
    assert view_run.ordered(checks, 3)[0].state == "differs"
    out = text(view_run.settings(view_run.ordered(checks, 3), 55, 4))
    assert f"+{len(checks) - 3} ↓" in out


def test_the_table_scrolls_to_the_cursor() -> None:
    checks = tuple(SettingCheck(f"setting {n}", "1", "1", "proven", n) for n in range(12))
    out = view_run.settings(checks, 55, 5, cursor=11)
    assert "setting 11" in text(out)
    assert "↑" in text(out)
    assert all("cursor" in s.tone for s in out[-1])


def test_without_a_log_nothing_is_proven() -> None:
    checks = setting_checks(at(ev.RunStarted).runs[-1])
    assert {c.state for c in checks} == {"unproven"}
    assert text_of(view_run.tally(checks)).startswith("0/")


def test_the_progress_bar_carries_share_rate_and_remaining_time() -> None:
    line = view_run.progress_line(Progress(3, 3, "Recall at 16K", 61, 100, "tokens", 1412.0, 42.0), 60)
    assert text_of(line).startswith(" Recall at 16K ▕██")
    assert text_of(line).rstrip().endswith("61 %  1,412 t/s  eta 42 s")
    assert width_of(line) == 60
    unknown = text_of(view_run.progress_line(Progress(1, 1, "load"), 40))
    assert unknown.strip() == "load"
    assert "eta" not in unknown


@pytest.mark.parametrize(("share", "cells"), [(0.0, 4), (0.5, 4), (1.0, 4), (0.53, 10)])
def test_a_bar_is_as_long_as_its_share(share: float, cells: int) -> None:
    drawn = view_run.bar(share, cells)
    assert len(drawn) == cells
    assert drawn.count("█") == int(share * cells)


@pytest.mark.parametrize("rows", [8, 9, 14, 25])
@pytest.mark.parametrize("cells", [36, 40, 55, 90])
def test_the_current_step_fits_its_panel(rows: int, cells: int) -> None:
    state = at(ev.TasksMeasured, 4)
    progress = Progress(4, 4, "speed", 1, 2, "tokens", 10.0, 1.0)
    out = view_run.current(state, state.runs[-1], progress, cells, rows, 0)
    assert len(out) <= rows
    assert all(width_of(x) == cells for x in out)
    assert "tasks ✗ 3/4" in text(out)


def test_the_title_says_as_much_as_fits() -> None:
    state = at(ev.RunStarted, 3)
    run = state.runs[-1]
    assert (
        text_of(view_run.title(state, run, 80)) == "Step 3 Quantized KV · run 3: KV types f16/f16 → q8_0/q8_0"
    )
    assert text_of(view_run.title(state, run, 40)) == "Step 3 · run 3: KV types → q8_0/q8_0"
    assert text_of(view_run.title(state, run, 10)) == "Step 3 · run 3"
    assert text_of(view_run.title(None, None, 40)) == "Preparing"


def test_the_axis_is_the_card_on_a_gpu_and_a_stated_round_figure_on_a_host() -> None:
    gpu = fold(story.up_to(ev.RunFinished, device=story.CARD))
    assert view_memory.scale_top(gpu, Trace(False)) == 16 * GIB
    state = at(ev.RunFinished)
    assert view_memory.scale_top(state, Trace(True)) == 800 * MIB
    trace = trace_of(state.runs[-1], True)
    assert "  800 MiB" in text(view_memory.chart(trace, 800 * MIB, 60, 3))


@pytest.mark.parametrize("mib", [1, 63, 90, 541, 999, 1000, 4000, 91_000])
def test_round_up_leaves_room_and_not_too_much(mib: int) -> None:
    top = view_memory.round_up(mib * MIB)
    assert 1.1 * mib * MIB <= top <= 1.8 * mib * MIB


def test_the_chart_height_is_the_value_on_the_scale_and_not_the_datas_range() -> None:
    trace = Trace(True)
    for n in range(10):
        trace.add(story.Sample(n / 2, "load", (500 + n) * MIB, None, None, "rss"))
    rows = [text_of(r)[view_memory.GUTTER :] for r in view_memory.chart(trace, 1000 * MIB, 30, 2)]
    assert rows[0].strip() == ""
    assert rows[1].startswith("█" * 10)


def test_missing_readings_leave_gaps_and_the_limit_is_drawn() -> None:
    trace = Trace(False)
    for n in range(8):
        value = None if n in (3, 4) else 8 * GIB
        trace.add(story.Sample(n / 2, "decode", None, value, None, None))
    rows = view_memory.chart(trace, 16 * GIB, 40, 4, 16 * GIB)
    assert "limit" in text_of(rows[0])
    assert text_of(rows[3])[view_memory.GUTTER :].startswith("███  ███")


def test_a_phase_is_named_where_it_begins_if_it_lasts_as_long_as_its_name() -> None:
    spans = (
        ("before", 8),
        ("load", 3),
        ("warm-up", 9),
        ("decode", 7),
        ("prefill", 1),
        ("decode", 9),
        ("idle", 2),
    )
    buckets = [Bucket(1, phase) for phase, n in spans for _ in range(n)]  # type: ignore[arg-type]
    row = view_memory.phase_row(buckets)
    assert row == "before     warm-up  decode" + " " * 11 + "idle"
    assert row.index("warm-up") == 11
    assert row.index("decode") == 20


def test_the_bar_gives_every_known_part_a_cell_and_the_legend_a_figure() -> None:
    b = Breakdown(16 * GIB, 10 * GIB, 1 * MIB, 900 * MIB, 600 * MIB, 600 * MIB, 4 * GIB, 11 * GIB, True)
    bar = text_of(view_memory.stacked(b, 16 * GIB, 80, host=False))
    assert bar.count("▓") == 1
    assert 45 <= bar.count("█") <= 50
    legend = text_of(view_memory.legend(replace(b, kv=GIB), 80, host=False))
    assert "GiB" in legend
    assert "weights 10.0" in legend
    assert "free 4.0" in legend
    unknown = text_of(view_memory.legend(replace(b, kv=None), 80, host=False))
    assert "KV n/a" in unknown
    assert "others" not in text_of(view_memory.legend(b, 80, host=True))


def test_figures_from_the_file_are_called_forecast_until_the_log_proves_them() -> None:
    state = at(ev.RunStarted)
    b = breakdown(state, state.runs[-1], None)
    assert "forecast" in text_of(view_memory.legend(b, 80, host=True))
    assert "forecast from the file" in text(view_memory.budget(state, state.runs[-1], b, 80))


def test_the_budget_holds_the_forecast_against_the_log() -> None:
    state = at(ev.RunFinished)
    run = state.runs[-1]
    out = text(view_memory.budget(state, run, breakdown(state, run, None), 80))
    assert "difference -0.1 MiB" in out
    assert "no GPU: host memory stands in for VRAM" in out
    assert "prefill" in out
    assert "every 0.1 s, 0 readings lost" in out


def live_at(kind: type[ev.Event], nth: int = 1) -> Live:
    live = Live(working=True)
    live.take_events([], at(kind, nth))
    return live


def test_a_waiting_recommendation_says_change_why_effect_and_risk() -> None:
    live = live_at(ev.Recommended, 3)
    assert live.state is not None
    advice = live.state.recommendation
    assert advice is not None
    live.question = Question(advice, live.state)
    low = text(view_next.panel(live, 80, 4))
    assert "why" in low
    assert "effect" in low
    assert "risk" in low
    assert "f16/f16 → q8_0/q8_0" in text_of(view_next.title(live, 4))
    high = text(view_next.panel(live, 80, 9))
    assert "change  kv-types  f16/f16 → q8_0/q8_0   -ctk/-ctv" in high
    assert "not     Fewer GPU layers would not help" in high
    assert "command llama-server" in high
    for rows in range(3, 12):
        out = view_next.panel(live, 80, rows)
        assert len(out) <= rows
        assert all(width_of(x) == 80 for x in out)


@pytest.mark.parametrize(
    ("kind", "word"), [("stop", "Stop here"), ("will-not-help", "This will not help"), ("run", "Next")]
)
def test_the_kind_of_advice_is_said_in_words(kind: str, word: str) -> None:
    live = live_at(ev.Recommended)
    assert live.state is not None
    live.question = Question(story.advice("x", kind=kind, variable=""), live.state)
    assert text_of(view_next.title(live, 8)).startswith(word)


def test_the_countdown_can_be_paused() -> None:
    live = live_at(ev.Recommended)
    assert live.state is not None
    live.unattended = True
    live.question = Question(story.advice("x"), live.state, 2)
    assert "accepted in 2 s" in text_of(view_next.countdown(live))
    live.paused = True
    assert "paused" in text_of(view_next.countdown(live))
    live.question, live.working = None, True
    assert "paused" in text_of(view_next.countdown(live)), "also while a run leaves nothing to decide"
    live.paused = False
    assert text_of(view_next.countdown(live)) == "unattended"
    live.unattended = False
    assert text_of(view_next.countdown(live)) == ""


def test_a_run_that_others_disturb_says_so_while_it_runs() -> None:
    live = live_at(ev.EngineReady)
    live.unattended = False
    live.sample = Sample(1.0, "decode", 1, None, None, "rss", vitals=Vitals(others_cpu=0.1))
    assert text_of(view_next.countdown(live)) == ""
    live.sample = replace(live.sample, vitals=Vitals(others_cpu=3.0))
    assert text_of(view_next.countdown(live)) == "! others keep cores busy"
    live.unattended = live.working = True
    assert text_of(view_next.countdown(live)) == "! others keep cores busy  unattended"


def test_a_disturbed_speed_says_so_where_it_stands() -> None:
    run = at(ev.SpeedMeasured, 3).runs[-1]
    speed = run.speeds[-1]
    for disturbed, word in (
        (speed, "first "),
        (replace(speed, others_cpu=3.0), "! others busy"),
        (replace(speed, throttled=(("power cap", 0.5),)), "! held down"),
    ):
        out = view_run.results(replace(run, speeds=(disturbed,)), 55, 3, 8)
        assert word in text(out)
        assert "decode" in text(out)
        assert all(width_of(row) == 55 for row in out)


def test_the_checklist_tells_how_far_the_run_is_as_a_whole() -> None:
    progress = Progress(3, 3, "long-instruction decode", 61, 100, "tokens", overall=0.4)
    assert "▶ this run 40%" in text(view_steps.checklist(at(ev.SpeedMeasured, 3), progress, 24, 12))


def test_an_interrupted_run_is_not_called_ended() -> None:
    state = fold([*story.up_to(ev.RunStarted), ev.SessionResumed(story.AT, "0", 1)])
    assert "run 1, interrupted" in text_of(view_memory.title(state, Trace(True)))


def test_the_budget_cuts_no_word_of_what_is_missing() -> None:
    state = at(ev.RunFinished)
    note = "no NVIDIA driver is installed: host memory of the engine's process stands in for VRAM"
    device = replace(state.started.device, note=note)
    state = replace(state, started=replace(state.started, device=device))
    run = state.runs[-1]
    out = view_memory.budget(state, run, breakdown(state, run, None), 60)
    assert note in " ".join(text(out).split())
    assert all(width_of(row) <= 60 for row in out[1:3])


def test_an_error_takes_the_place_of_the_advice() -> None:
    live = live_at(ev.EngineReady)
    live.failure = "the disk is full: make space"
    assert "Stopped by an error" in text_of(view_next.title(live, 4))
    assert text(view_next.panel(live, 60, 4)).strip() == "the disk is full: make space"


def test_the_verdict_comes_first_then_the_command_then_the_files() -> None:
    live = live_at(ev.SessionFinished)
    out = text(view_end.verdict(live, 78))
    assert out.startswith("✓ done: 4K context at q8_0/q8_0 holds")
    assert out.index("llama-server") < out.index("Report") < out.index("Runs")
    assert "not measured: concurrency" in out
    assert "There is no verdict yet." in text(view_end.verdict(Live(), 40))


def test_the_runs_table_puts_the_change_first_and_drops_columns_from_the_right() -> None:
    state = fold(story.story())
    wide = text(view_runs.table(state, 160))
    assert wide.splitlines()[0].split()[:2] == ["run", "changed"]
    assert "first" in wide
    narrow = text(view_runs.table(state, 60))
    assert "first" not in narrow
    assert "context 1024 → 4096" in narrow
    assert len(view_runs.table(state, 60, 3)) == 3
    assert "usable context is smaller" in text(view_runs.reasons(state, 100))


def test_evidence_is_the_line_with_its_neighbours() -> None:
    run = at(ev.EngineReady, 3).runs[-1]
    log = story.log_of(run.config)
    check = next(c for c in setting_checks(run) if c.setting == "K cache type")
    around, first = view_evidence.neighbourhood(log, check.line or 0, 2)
    assert (len(around), first) == (5, 13)
    out = text(view_evidence.setting(run, check, "run-03.log", around, first, 90))
    assert "Line 15 of run-03.log" in out
    assert "   15 ▶ 0.00.133.371 I llama_kv_cache: size" in out
    assert "   14   0.00.131.800" in out


def test_a_value_without_evidence_says_so_and_names_the_missing_option() -> None:
    run = replace(at(ev.RunStarted).runs[-1], missing=(ev.Missing("-lv", "the KV lines"),))
    check = setting_checks(run)[0]
    out = text(view_evidence.setting(run, check, "", [], 1, 90))
    assert "neither true nor false" in out
    assert "-lv is unknown to this build: the KV lines" in out


def test_speeds_show_the_requests_behind_the_median() -> None:
    out = text(view_evidence.speeds(at(ev.RunFinished).runs[-1], 100))
    assert "1. prompt 256 tokens in 0.2 s = 1,412 t/s" in out
    assert "the answer lacks 4711" in out
    assert "Recall at 256" in out


def test_proving_lines_are_marked_in_the_log() -> None:
    run = at(ev.EngineReady).runs[-1]
    marks = view_log.proving(run)
    rows = text(view_log.rows(story.log_of(run.config), 1, marks, 70))
    assert "   15 ▶" in rows
    assert "    2   0.00.000.350" in rows
    assert view_log.proving(None) == {}


def test_the_end_of_a_long_line_of_the_log_can_be_read() -> None:
    text_ = "0123456789" * 5 + "V (q8_0)"
    assert "V (q8_0)" not in text_of(view_log.row(text_, 7, {}, 40))
    shown = text_of(view_log.row(text_, 7, {}, 40, 30))
    assert shown.rstrip() == "    7   …1234567890123456789V (q8_0)"
    assert width_of(view_log.row(text_, 7, {}, 40, 500)) == 40
    assert text_of(view_log.row("", 7, {}, 40, 30)).rstrip() == "    7"


def test_what_the_shell_shows_after_the_app_says_how_to_go_on_or_where_the_report_is(tmp_path: Path) -> None:
    live = live_at(ev.RunFinished)
    live.folder = tmp_path / "20260101-000000-abcd"
    assert view_end.farewell(live) == [
        "session 20260101-000000-abcd is kept; go on with: kvtui tune --resume 20260101-000000-abcd"
    ]
    live = live_at(ev.SessionFinished)
    live.folder = tmp_path
    live.reports = (tmp_path / "report.json", tmp_path / "report.md")
    assert view_end.farewell(live)[1] == f"report: {tmp_path / 'report.md'}"
    assert view_end.farewell(Live()) == []


def test_nothing_is_called_now_when_no_engine_runs() -> None:
    live = live_at(ev.RunFinished)
    assert live.state is not None
    assert "now" not in text_of(view_memory.title(live.state, trace_of(live.state.runs[-1], True)))


@pytest.mark.parametrize("cells", [40, 78, 200])
def test_the_report_is_set_for_the_width_and_loses_no_word(cells: int) -> None:
    markdown = as_markdown(fold(story.story()))
    out = view_report.report(markdown, cells)
    assert max(width_of(row) for row in out) <= cells
    said = re.sub(r"\s", "", text(out))
    plain = [
        run.text
        for block in blocks(markdown)
        if isinstance(block, Table)
        for row in block.rows
        for cell in row[1:]
        for run in cell
    ]
    assert len(plain) > 50
    missing = [p for p in plain if re.sub(r"\s", "", p) not in said]
    assert not missing
    assert "**" not in text(out)
    assert "&lt;" not in text(out)


def test_a_report_of_hostile_text_is_text() -> None:
    out = view_report.report("# a \\*b\\* &lt;c&gt;\n\n- **x**: `y`\n  - below\n\n```sh\n[red]\n```\n", 30)
    assert [text_of(row) for row in out] == [
        "a *b* <c>",
        "─────────",
        "",
        "• x: y",
        "    below",
        "",
        "  [red]",
    ]
