"""What is behind a value: the log line with its neighbours, the samples, or the formula with its figures."""

from __future__ import annotations

from collections.abc import Sequence

from kvtui.core.text import clip
from kvtui.core.units import duration, rate, tokens
from kvtui.probes.results import NeedleResult, Timing
from kvtui.session.records import SettingCheck
from kvtui.session.state import RunRecord
from kvtui.tui import view_log
from kvtui.tui.lines import EMPTY, Line, Span, labelled, line
from kvtui.tui.view_marks import CHECK

AROUND = 8


def setting(
    run: RunRecord, check: SettingCheck, file: str, lines: Sequence[str], first: int, cells: int
) -> list[Line]:
    """The setting with the neighbourhood of its line: `lines` of `file` from line `first` on."""
    out = [
        line(Span(check.setting, "title"), "  ", CHECK[check.state]),
        *labelled("asked", check.asked, cells),
        *labelled("actual", check.actual, cells),
    ]
    if check.note:
        out += labelled("note", check.note, cells)
    out.append(EMPTY)
    if check.line is None:
        out += labelled(
            "proof", "none: no line of the log shows this value, so it is neither true nor false", cells
        )
        out += [
            r
            for m in run.missing
            for r in labelled("missing", f"{m.option} is unknown to this build: {m.lost}", cells)
        ]
        return out
    if not lines:
        text = run.facts.texts.get(check.line, "")
        out += labelled("proof", f"line {check.line} of the log of run {run.number}", cells)
        return [*out, *view_log.whole_row(text, check.line, cells)]
    out.append(line(Span(f"Line {check.line} of {clip(file, cells - 20)}", "title")))
    for number, text in enumerate(lines, first):
        proves = number == check.line
        out += view_log.whole_row(text, number, cells) if proves else [view_log.row(text, number, {}, cells)]
    return out


def neighbourhood(lines: Sequence[str], number: int, around: int = AROUND) -> tuple[list[str], int]:
    """The lines around line `number` (from 1) and the number of the first of them."""
    first = max(1, number - around)
    return list(lines[first - 1 : number + around]), first


def speeds(run: RunRecord, cells: int) -> list[Line]:
    """Every speed with the requests it is the median of."""
    out = [
        line(Span(f"Speeds of run {run.number}", "title"), "  medians over the repeats, prompt cache off"),
        line(Span("rate = tokens really processed / seconds, both as the engine timed them", "dim")),
    ]
    for s in run.speeds:
        out += [
            EMPTY,
            line(
                Span(f"{tokens(s.depth)} deep", "strong"),
                f"  prompt {rate(s.prompt_tps)}  decode {rate(s.decode_tps)}  first token {duration(s.first_token_s)}",
            ),
        ]
        if s.note:
            out.append(line(Span(f"  {s.note}", "warn")))
        out += [_repeat(n, t) for n, t in enumerate(s.repeats, 1)]
    for r in run.recalls:
        out += [EMPTY, line(Span(f"Recall at {tokens(r.depth)}", "strong"), f"  {r.found}/{len(r.needles)}")]
        out += [_needle(n) for n in r.needles]
    for t in run.tasks:
        mark = CHECK["proven" if t.passed else "differs"][0]
        why = t.error or t.why
        out.append(
            line("  ", mark, f" {t.task} at {tokens(t.depth)}", Span(f"  {why}" if why else "", "dim"))
        )
    return out if len(out) > 2 else [*out, line(Span("nothing measured yet", "dim"))]


def _repeat(number: int, t: Timing) -> Line:
    return line(
        f"  {number}. prompt {t.prompt_tokens - t.cached_tokens:,} tokens in {duration(t.prompt_s)}",
        f" = {rate(t.prompt_tps)}, decode {t.generated_tokens:,} in {duration(t.decode_s)} = {rate(t.decode_tps)}",
    )


def _needle(n: NeedleResult) -> Line:
    return line(
        "  ",
        CHECK["proven" if n.found else "differs"][0],
        f" at {n.position:.0%} (token {n.token_offset:,}) ",
        Span("asked ", "dim"),
        n.expected,
        Span("  answer ", "dim"),
        clip(n.answer, 40),
    )
