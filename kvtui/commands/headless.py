"""The procedure without a screen: progress lines on stderr, every recommendation accepted."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from types import FrameType

from kvtui.commands.output import err, write_err
from kvtui.core.units import duration, rate, size
from kvtui.gpu.samples import Sample
from kvtui.procedure.checks import setting_checks
from kvtui.procedure.live import Progress
from kvtui.procedure.steps import STEPS
from kvtui.session import events as ev
from kvtui.session.records import Recommendation
from kvtui.session.state import SessionState

EVERY_S = 2.0
_LEAD = {"run": "next", "stop": "stop here", "will-not-help": "this will not help", "skip": "skip"}


class Unattended:
    """Accepts every recommendation; with `insist`, stages that the forecast advises to leave out are run as well."""

    def __init__(self, insist: bool = False) -> None:
        self._insist = insist

    def decide(self, recommendation: Recommendation, state: SessionState) -> ev.Decided:
        """`accept`, or `insist` on a stage."""
        step = state.current_step
        number = step.number if step else 0
        if self._insist and recommendation.kind == "skip" and recommendation.variable == "context":
            return ev.Decided("", number, "insist", "unattended", reason="--insist")
        return ev.Decided("", number, "accept", "unattended")


class Narrator:
    """An observer that writes lines: what happens, and how far the work in hand has come."""

    def __init__(self, state: SessionState) -> None:
        self._said = 0.0
        self._what = ""
        self._sample: Sample | None = None
        self._live = sys.stderr.isatty()
        device = state.started.device
        what = f"{device.name}, {size(device.total_bytes)}"
        err(f"kvtui: {what}" + (f" ({device.note})" if device.note else ""))

    def event(self, event: ev.Event, state: SessionState) -> None:
        """Say what an operator wants to read of it."""
        for line in _lines(event, state):
            self._clear()
            err(line)

    def progress(self, progress: Progress) -> None:
        """At most one line in two seconds, and one whenever something else begins."""
        now = time.monotonic()
        if progress.what == self._what and now - self._said < EVERY_S:
            return
        self._what, self._said = progress.what, now
        parts = [f"  step {progress.step} of 5, run {progress.run}: {progress.what}"]
        if progress.total:
            parts.append(f"{progress.done / progress.total:.0%}")
        if progress.rate is not None:
            parts.append(f"{progress.rate:,.1f} {progress.unit}/s")
        if progress.eta_s is not None:
            parts.append(f"{duration(progress.eta_s)} left")
        if self._sample is not None and self._sample.engine_bytes is not None:
            parts.append(f"memory {size(self._sample.engine_bytes)}")
        text = ", ".join(parts)
        if self._live:
            write_err(f"\r\x1b[K{text[:118]}")
        else:
            err(text)

    def sample(self, sample: Sample) -> None:
        """Kept for the next progress line."""
        self._sample = sample

    def log(self, lines: list[str]) -> None:
        """The log is in the session's folder."""

    def _clear(self) -> None:
        if self._live:
            write_err("\r\x1b[K")


def _lines(event: ev.Event, state: SessionState) -> Iterator[str]:
    match event:
        case ev.StepStarted(step=number):
            yield f"step {number} of 5: {STEPS[number - 1].title}"
        case ev.Recommended(recommendation=advice):
            yield f"  {_LEAD[advice.kind]}: {advice.title}"
            if advice.variable:
                effect = advice.effect or "effect unknown"
                yield f"        change {advice.variable} {advice.before} -> {advice.after} ({effect})"
        case ev.RunStarted(missing=missing):
            for option in missing:
                yield f"  this build does not know {option.option}, so there is no proof of {option.lost}"
        case ev.EngineReady(run=number, load_s=load):
            yield f"  run {number}: ready after {duration(load)}"
            run = state.run(number)
            for check in setting_checks(run) if run else ():
                if check.state != "proven":
                    note = f" ({check.note})" if check.note else ""
                    yield f"    {check.setting}: {check.asked} asked, {check.actual} {check.state}{note}"
        case ev.SpeedMeasured(result=speed):
            yield (
                f"    depth {speed.depth:,}: prefill {rate(speed.prompt_tps)}, decode {rate(speed.decode_tps)}, "
                f"first token {duration(speed.first_token_s)}"
            )
        case ev.RecallMeasured(result=recall):
            yield f"    recall at {recall.depth:,}: {recall.found} of {len(recall.needles)}"
        case ev.TasksMeasured(results=tasks):
            graded = [t for t in tasks if t.graded]
            yield f"    tasks: {sum(t.passed for t in graded)} of {len(graded)} pass"
        case ev.TasksRepeated(results=tasks):
            yield f"    the same {len(tasks)} tasks again, to see whether outputs repeat"
        case ev.ConcurrencyMeasured(result=result):
            yield f"    {result.requested} requests at once: {result.failed} failed"
        case ev.FullPoolMeasured(result=pool):
            yield f"    {pool.requested} requests for more than the pool holds: {pool.failed} broken off"
        case ev.StabilityMeasured(result=steady):
            yield f"    filled {len(steady.requests)} times to {steady.depth:,} tokens: {steady.failed} failed"
        case ev.RunFinished(run=number, outcome=outcome, reason=reason):
            yield f"  run {number}: {outcome}" + (f", {reason}" if reason else "")
        case ev.StageSkipped(context=context, reason=reason):
            yield f"  {context:,} tokens skipped: {reason}"
        case ev.StepFinished(step=number, outcome=outcome, summary=summary):
            yield f"step {number}: {outcome}: {summary}"
        case _:
            return


@contextmanager
def stop_on_signals(cancel: Flag) -> Iterator[Callable[[], int | None]]:
    """TERM, HUP and INT set `cancel`, so that the engine is ended and the session closed in order."""
    caught: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        cancel.set()

    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {n: signal.signal(n, handler) for n in numbers}
    try:
        yield lambda: caught[0] if caught else None
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
