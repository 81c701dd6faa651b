"""Memory of one whole run: what the engine does between two readings ends in the record, its marks and its findings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError
from kvtui.gpu import gaps
from kvtui.gpu import sampler as sampler_module
from kvtui.gpu.host import Family
from kvtui.gpu.reading import Reading
from kvtui.gpu.samples import Vitals
from kvtui.gpu.source import GpuLost
from kvtui.logs.facts import EngineFacts
from kvtui.probes.asking import Completion
from kvtui.probes.results import SpeedResult, Timing
from kvtui.procedure import execute, probing
from kvtui.procedure.box import visible_gpus
from kvtui.procedure.execute import Execution
from kvtui.procedure.preset import load_preset
from kvtui.procedure.situation import Launch, ProbePlan, Situation
from kvtui.session import events as ev
from kvtui.session.codec import to_builtins
from kvtui.session.records import Recommendation
from kvtui.session.store import SessionStore
from tests.session import sample

GIB = 1 << 30
MIB = 1 << 20
HOT = Vitals(throttle=("thermal",), clock_mhz=900)


class Card:
    """A source that shows what the engine below does."""

    def __init__(self) -> None:
        self.device = sample.started().device
        self.family = Family()
        self.engine: int | None = None
        self.others = GIB
        self.lost = False
        self.asked = 0
        self.heat = Vitals(throttle=())

    def read(self, pid: int | None) -> Reading:
        self.asked += 1
        if self.lost:
            raise GpuLost("fell off the bus")
        return Reading(self.others + (self.engine or 0), self.engine if pid else None, 5, 90)

    def vitals(self) -> Vitals:
        return self.heat

    def recover(self) -> None:
        self.asked += 1
        if self.lost:
            raise GpuLost("still gone")

    def close(self) -> None:
        """Nothing."""


class Engine:
    """An engine that takes memory: weights at the launch, more in each request, for good."""

    pid, base_url = os.getpid(), "http://127.0.0.1:1"

    def __init__(self, card: Card, during: Callable[[int], None]) -> None:
        self._card, self._during = card, during
        self._requests = 0

    def command(self, config: RunConfig, port: int) -> Any:
        return SimpleNamespace(argv=("engine",), env=(), missing=(), follow=())

    def dry_run(self, config: RunConfig) -> None:
        """Nothing to tell."""

    def launch(self, config: RunConfig, log: Path, on_lines: Any) -> Engine:
        self._card.engine = 6 * GIB
        return self

    def wait_ready(self, timeout_s: float, cancel: Flag, progress: Any) -> float:
        self._settle()
        return 1.0

    def facts(self) -> EngineFacts:
        return EngineFacts(outcome="ready")

    @contextmanager
    def connect(self) -> Iterator[Engine]:
        yield self

    def tokenize(self, text: str, **_: bool) -> list[int]:
        return [1, 2, 3]

    def complete(self, prompt: list[int], n_predict: int, *, on_token: Any, **_: Any) -> Completion:
        assert self._card.engine is not None
        self._requests += 1
        self._card.engine += GIB
        self._settle()
        on_token(1)
        self._card.engine -= GIB - 100 * MIB
        self._during(self._requests)
        self._settle()
        timing = Timing(len(prompt), 0, n_predict, 100.0, 10.0, 0.1, 0.2, 0.1, 0.1)
        return Completion("", (1,) * n_predict, timing, "limit", truncated=False)

    def exit_code(self) -> int:
        return 0

    def stop(self) -> int:
        return 0

    def _settle(self) -> None:
        """Until a reading has been taken that began after now; 50 a second are."""
        before, deadline = self._card.asked, time.monotonic() + 5
        while self._card.asked < before + 2 and time.monotonic() < deadline:
            time.sleep(0.005)


class Silent:
    """An observer that keeps the samples and the events."""

    def __init__(self) -> None:
        self.samples: list[Any] = []
        self.events: list[ev.Event] = []

    def event(self, event: ev.Event, state: Any) -> None:
        self.events.append(event)

    def progress(self, progress: Any) -> None:
        """Nothing."""

    def sample(self, taken: Any) -> None:
        self.samples.append(taken)

    def log(self, lines: list[str]) -> None:
        """Nothing."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Silent, ev.RunFinished]]:
    """Executes one run with six equal requests; `during(card, n)` is what else happens in request `n` (1: warm-up)."""

    def measured(ask: Any, *_: Any, **__: Any) -> SpeedResult:
        answers = [ask.complete([1] * 900, 4, cache_prompt=False) for _ in range(6)]
        return SpeedResult(900, 100.0, 10.0, 0.1, tuple(a.timing for a in answers))

    def go(during: Callable[[Card, int], None], missing: int = 0) -> tuple[Silent, ev.RunFinished]:
        card, observer = Card(), Silent()
        tries = iter([InputError("no driver")] * missing)

        def reopen(device: Any) -> Card:
            for error in tries:
                raise error
            return card

        engine = Engine(card, lambda n: during(card, n))
        monkeypatch.setattr(execute, "reopen_source", reopen)
        monkeypatch.setattr(probing, "measure_speed", measured)
        monkeypatch.setattr(sampler_module, "VITALS_S", 0.0)
        monkeypatch.setattr(gaps, "RECOVER_S", 0.02)
        monkeypatch.setattr(execute, "BASELINE_S", 0.1)
        monkeypatch.setattr(execute, "IDLE_S", 0.1)
        started = replace(
            sample.started(), sample_hz=50.0, model=replace(sample.started().model, has_chat_template=False)
        )
        oracle: Any = SimpleNamespace(forecast=lambda *_: None)
        launch = Launch(
            1,
            "floor",
            "floor",
            RunConfig("m.gguf", 8192),
            ProbePlan(speed=900),
            Recommendation("run", "", ""),
        )
        started = replace(started, plan=to_builtins(load_preset("demo")))
        with SessionStore.create(started, tmp_path) as store:
            store.append(ev.StepStarted(started.at, 1))
            sit = Situation.of(store.state, oracle, engine)  # type: ignore[arg-type]
            Execution(sit, store, engine, observer, Flag(), launch, 1).execute()  # type: ignore[arg-type]
        (finished,) = (e for e in observer.events if isinstance(e, ev.RunFinished))
        return observer, finished

    return go


def test_peaks_levels_marks_and_findings_of_a_run(run: Callable[..., tuple[Silent, ev.RunFinished]]) -> None:
    def during(card: Card, n: int) -> None:
        card.heat = HOT
        if n == 4:
            card.others = 3 * GIB

    observer, finished = run(during)
    memory = finished.memory
    assert memory is not None
    base = 6 * GIB
    peaks = {p.phase: p.engine_bytes for p in memory.peaks}
    assert peaks["warm-up"] == base + GIB
    assert peaks["prefill"] == base + GIB + 600 * MIB, "the last of seven, each of which kept 100 MiB"
    assert memory.baseline_used_bytes == GIB
    levels = [(level.prompt_tokens, (level.engine_bytes - base) // MIB) for level in memory.levels]
    assert levels == [(3, 100), *((900, 100 * n) for n in range(2, 8))]
    (speed,) = (e.result for e in observer.events if isinstance(e, ev.SpeedMeasured))
    assert speed.gpu_util == 90
    assert "throttled: thermal" in speed.note
    found = {finding.id: finding for finding in finished.findings}
    assert {"memory-ratchet", "others-grew", "throttled"} <= set(found)
    assert "gpu-lost" not in found
    assert "100.0 MiB with each request" in found["memory-ratchet"].title


def test_a_gpu_that_is_lost_in_the_middle_is_a_finding(
    run: Callable[..., tuple[Silent, ev.RunFinished]],
) -> None:
    def during(card: Card, n: int) -> None:
        card.lost = n == 3

    observer, finished = run(during)
    assert finished.memory is not None
    assert finished.memory.lost > 0
    (gap,) = finished.memory.gaps
    assert gap.seconds is not None
    assert gap.why == "fell off the bus"
    found = {finding.id: finding for finding in finished.findings}
    assert found["gpu-lost"].severity == "warning"
    assert observer.samples[-1].engine_bytes == 6 * GIB + 700 * MIB, "sampling came back"


def test_an_engine_is_told_to_use_the_gpus_that_are_measured() -> None:
    card = sample.started().device
    member = card.as_member()
    both = replace(card, members=(replace(member, uuid="GPU-a"), replace(member, uuid="GPU-b", index=3)))
    order = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert visible_gpus(both) == (order, ("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"))
    nameless = replace(card, members=(member, replace(member, index=3)))
    assert visible_gpus(nameless) == (order, ("CUDA_VISIBLE_DEVICES", f"{card.index},3"))
    assert visible_gpus(replace(card, kind="amd", uuid="GPU-1f")) == (("ROCR_VISIBLE_DEVICES", "GPU-1f"),)
    assert visible_gpus(replace(card, kind="amd", uuid="")) == ()
    assert visible_gpus(replace(card, kind="host")) == ()


def test_a_driver_that_is_reloaded_between_two_runs_is_waited_for(
    run: Callable[..., tuple[Silent, ev.RunFinished]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Execution, "_pause", lambda self, seconds: time.sleep(0.2))
    _, finished = run(lambda card, n: None, missing=3)
    assert finished.memory is not None
    assert finished.memory.baseline_used_bytes == GIB
    monkeypatch.setattr(execute, "DEVICE_WAIT_S", 0.0)
    events = tmp_path / sample.SESSION / "events.jsonl"
    events.parent.rename(tmp_path / "earlier")
    with pytest.raises(InputError, match="no driver"):
        run(lambda card, n: None, missing=3)
    assert "run_started" not in events.read_text(), "no run is left open that never was one"
