"""Peaks that a scenario injects are found, by the real nvidia-ml-py on the stand-in library."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from kvtui.gpu.sampler import Sampler
from kvtui.gpu.samples import MemoryRecord, Phase, Sample
from kvtui.gpu.source import open_source
from tests.gpu.conftest import GIB, Scenario, one_gpu

PID = 4242
MIB = 1 << 20
LEAST_S = 0.2
PHASES: tuple[Phase, ...] = ("load", "warm-up", "prefill", "decode")
PHASE_S = 2.5
Spike = tuple[float, float, int]
"""When it begins, how long it lasts (seconds), how high it is (bytes)."""


def spikes(seed: int) -> list[Spike]:
    """Three in each phase, each higher than a plain level of 8 GiB and different from all others."""
    chance = random.Random(seed)
    out = []
    for n in range(len(PHASES)):
        for third in range(3):
            length = chance.uniform(LEAST_S, 0.3)
            start = n * PHASE_S + third * PHASE_S / 3 + chance.uniform(0.05, PHASE_S / 3 - 0.4)
            out.append((start, length, 9 * GIB + chance.randrange(GIB)))
    return out


def lines(injected: Sequence[Spike]) -> list[str]:
    """The scenario: process and device memory over time."""
    out = [f"process 0 {PID} {8 * GIB}"]
    for start, length, height in injected:
        until = start + length
        out.append(f"during {start:.4f} {until:.4f} process 0 {PID} {height}")
        out.append(f"during {start:.4f} {until:.4f} memory 0 {24 * GIB} {GIB // 2} {height + GIB}")
    return out


def assert_peaks(record: MemoryRecord, injected: Sequence[Spike]) -> None:
    """Each phase's peak is the highest spike that was injected into it."""
    for n, phase in enumerate(PHASES):
        mine = [height for start, _, height in injected if n * PHASE_S <= start < (n + 1) * PHASE_S]
        peak = record.peak(phase)
        assert peak is not None
        assert (peak.engine_bytes, peak.used_bytes) == (max(mine), max(mine) + GIB + GIB // 2)
        assert any(s.phase == phase and s.engine_bytes == peak.engine_bytes for s in record.series)


def test_every_injected_peak_is_found_at_10_hz(load_nvml: Callable[[str], None], scenario: Scenario) -> None:
    """On the scenario's own clock: 10 readings a second, each as late as traffic counted for 40 ms makes it."""
    seen: list[Sample] = []
    now = [0.0]
    for seed in range(4):
        injected = spikes(seed)
        text = one_gpu(GIB, *lines(injected))
        scenario(f"{text}now 0")
        load_nvml("new")
        now[0] = 0.0
        sampler = Sampler(open_source(), on_sample=seen.append, clock=lambda: now[0])
        sampler.set_engine(PID)
        late = random.Random(seed)
        seen.clear()
        for tick in range(round(len(PHASES) * PHASE_S * 10)):
            now[0] = tick / 10 + (0.04 if tick % 5 == 0 else 0.0) + late.uniform(0, 0.02)
            sampler.phase(PHASES[int(tick / 10 / PHASE_S)])
            scenario(f"{text}now {now[0]}")
            sampler.take()
        found = {sample.engine_bytes for sample in seen}
        assert {height for *_, height in injected} <= found, "100 % of them"
        assert_peaks(sampler.record(), injected)


def test_injected_peaks_in_real_time(load_nvml: Callable[[str], None], scenario: Scenario) -> None:
    """A machine that is too busy may not run the sampler for 200 ms; only that may cost a peak."""
    injected = [(0.1 + 0.5 * n, LEAST_S, 9 * GIB + n) for n in range(6)]
    seen: list[Sample] = []
    began = time.monotonic()
    scenario(one_gpu(GIB, f"epoch {began}", *lines(injected)))
    load_nvml("new")
    sampler = Sampler(open_source(), on_sample=seen.append)
    sampler.set_engine(PID)
    started = time.monotonic() - began
    sampler.start()
    time.sleep(injected[-1][0] + LEAST_S + 0.1 - started)
    sampler.stop()
    found = {sample.engine_bytes for sample in seen}
    times = [started, *(started + sample.t for sample in seen)]
    holes = [(a, b) for a, b in pairwise(times) if b - a >= LEAST_S]
    for start, length, height in injected:
        excused = start < times[1] or any(a <= start and start + length <= b + 0.01 for a, b in holes)
        assert height in found or excused
    assert len(seen) >= 15, "half of what it should be is more than a busy machine explains"
