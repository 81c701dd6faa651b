"""The sampler: phases, bases, peaks, lost readings, and a driver that hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from kvtui.gpu.host import Family, resident_bytes
from kvtui.gpu.nvml import GpuLost
from kvtui.gpu.sampler import Sampler
from kvtui.gpu.samples import DeviceInfo, Gap, Level, Sample, Vitals
from kvtui.gpu.source import HostSource, Reading, open_source
from tests.gpu.conftest import GIB, Scenario, one_gpu

MIB = 1 << 20


class Scripted:
    """A source that answers what `reading` says; an exception is raised, an Event is waited for."""

    def __init__(self, kind: str = "nvml") -> None:
        self.device = DeviceInfo(kind, 0, "test", 24 * GIB)  # type: ignore[arg-type]
        self.family = Family()
        self.reading: Reading | Exception | threading.Event = Reading(1 * GIB, None, None)
        self.pids: list[int | None] = []

    def read(self, pid: int | None) -> Reading:
        self.pids.append(pid)
        reading = self.reading
        if isinstance(reading, Exception):
            raise reading
        if isinstance(reading, threading.Event):
            reading.wait()
            return Reading(9 * GIB, None, None)
        return reading

    def vitals(self) -> Vitals:
        return Vitals()

    def recover(self) -> None:
        if isinstance(self.reading, Exception):
            raise self.reading

    def close(self) -> None:
        """Nothing."""


def until(condition: Callable[[], object], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def test_phases_bases_and_peaks() -> None:
    source = Scripted()
    seen: list[Sample] = []
    sampler = Sampler(source, hz=100, on_sample=seen.append)
    sampler.start()
    until(lambda: len(seen) >= 2)
    assert (seen[0].phase, seen[0].engine_bytes, seen[0].basis) == ("before", None, None)
    sampler.set_engine(42)
    sampler.phase("load")
    until(lambda: seen[-1].phase == "load")
    source.reading = Reading(6 * GIB, None, 3 * MIB, 50)
    until(lambda: seen[-1].used_bytes == 6 * GIB)
    assert (seen[-1].engine_bytes, seen[-1].basis, seen[-1].gpu_util) == (5 * GIB, "growth", 50)
    source.reading = Reading(7 * GIB, 4 * GIB, 3 * MIB)
    until(lambda: seen[-1].used_bytes == 7 * GIB)
    assert (seen[-1].engine_bytes, seen[-1].basis) == (4 * GIB, "process")
    sampler.phase("decode")
    source.reading = Reading(GIB // 2, None, None)
    until(lambda: seen[-1].used_bytes == GIB // 2)
    assert (seen[-1].phase, seen[-1].engine_bytes, seen[-1].basis) == ("decode", 0, "growth")
    sampler.stop()
    record = sampler.record()
    assert record.baseline_used_bytes == GIB
    assert record.interval_s == 0.01
    assert record.lost == 0
    load = record.peak("load")
    assert load is not None
    assert (load.engine_bytes, load.used_bytes, load.host_bytes) == (5 * GIB, 7 * GIB, 3 * MIB)
    assert record.peak("prefill") is None
    assert record.highest == load
    assert sampler.latest == seen[-1]
    assert set(record.series) <= {replace(sample, vitals=None) for sample in seen}
    assert source.pids[0] is None
    assert source.pids[-1] == 42


def test_a_switch_takes_a_sample_at_once() -> None:
    seen: list[Sample] = []
    sampler = Sampler(Scripted(), hz=0.1, on_sample=seen.append)
    sampler.start()
    until(lambda: len(seen) == 1)
    for phase in ("load", "prefill", "decode"):
        began = time.monotonic()
        sampler.phase(phase)  # type: ignore[arg-type]
        until(lambda: seen[-1].phase == phase)  # noqa: B023
        assert time.monotonic() - began < 5, "the next one is due after 10 s"
    sampler.phase("decode")
    time.sleep(0.1)
    assert [sample.phase for sample in seen] == ["before", "load", "prefill", "decode"]
    sampler.stop()
    assert [(p.phase, p.n_samples) for p in sampler.record().peaks] == [
        ("before", 1),
        ("load", 1),
        ("prefill", 1),
        ("decode", 1),
    ]


def test_time_is_counted_by_phase() -> None:
    now = [0.0]
    sampler = Sampler(Scripted(), clock=lambda: now[0])
    for phase, seconds in (("load", 2.0), ("decode", 1.0), ("load", 4.0)):
        sampler.phase(phase)  # type: ignore[arg-type]
        sampler.take()
        now[0] += seconds
    assert [(p.phase, p.seconds) for p in sampler.record().peaks] == [("load", 6.0), ("decode", 1.0)]
    sampler.stop()
    stopped = sampler.record()
    now[0] += 8.0
    sampler.take()
    assert sampler.record() == stopped


def test_a_lost_gpu_costs_readings_and_nothing_else() -> None:
    source = Scripted()
    sampler = Sampler(source, hz=100)
    sampler.start()
    until(lambda: sampler.latest)
    source.reading = GpuLost("fell off the bus")
    until(lambda: sampler.record().lost >= 3)
    last = sampler.latest
    assert last is not None
    source.reading = Reading(2 * GIB, None, None)
    until(lambda: sampler.latest is not last)
    sampler.stop()


def test_a_driver_that_hangs_blocks_nobody() -> None:
    source = Scripted()
    hang = threading.Event()
    sampler = Sampler(source, hz=100)
    sampler.start()
    until(lambda: sampler.latest)
    source.reading = hang
    time.sleep(0.05)
    began = time.monotonic()
    sampler.phase("load")
    sampler.set_engine(1)
    record = sampler.record()
    sampler.stop()
    assert time.monotonic() - began < 5
    assert record.peak("before") is not None
    before = sampler.record()
    hang.set()
    time.sleep(0.1)
    assert sampler.record() == before, "a reading that came after the end does not count"


def test_a_hung_driver_does_not_keep_the_program_from_ending(
    fake_nvml: Callable[[str], object], scenario: Scenario
) -> None:
    scenario(one_gpu(GIB))
    code = (
        "import os, sys, time\n"
        "from kvtui.gpu.sampler import Sampler\n"
        "from kvtui.gpu.source import open_source\n"
        "source = open_source(); sampler = Sampler(source, hz=50); sampler.start(); time.sleep(0.2)\n"
        "assert sampler.latest.used_bytes\n"
        "open(os.environ['KVTUI_FAKE_NVML'], 'a').write('hang nvmlDeviceGetMemoryInfo_v2\\n')\n"
        "time.sleep(0.2); began = time.monotonic(); sampler.stop(); source.close()\n"
        "print(time.monotonic() - began)\n"
    )
    env = os.environ | {"LD_LIBRARY_PATH": str(fake_nvml("new"))}
    answer = subprocess.run(
        (sys.executable, "-W", "ignore", "-c", code), env=env, capture_output=True, text=True, timeout=30
    )
    assert answer.returncode == 0, answer.stderr
    assert float(answer.stdout) < 5


def test_stop_without_start() -> None:
    Sampler(Scripted()).stop()


def test_nvml_over_time(load_nvml: Callable[[str], None], scenario: Scenario) -> None:
    scenario(one_gpu(GIB))
    load_nvml("new")
    sampler = Sampler(open_source(), hz=100)
    sampler.start()
    until(lambda: sampler.latest)
    sampler.set_engine(77)
    for phase, used in (("load", 9), ("prefill", 12), ("decode", 11)):
        sampler.phase(phase)  # type: ignore[arg-type]
        until(lambda: sampler.latest and sampler.latest.phase == phase)  # noqa: B023
        scenario(one_gpu(used * GIB, f"process 0 77 {(used - 1) * GIB}"))
        until(lambda: sampler.latest and sampler.latest.engine_bytes == (used - 1) * GIB)  # noqa: B023
    sampler.stop()
    record = sampler.record()
    assert record.baseline_used_bytes == GIB + GIB // 2
    highest = record.highest
    assert highest is not None
    assert (highest.phase, highest.engine_bytes) == ("prefill", 11 * GIB)
    assert [(p.phase, p.engine_bytes) for p in record.peaks][1:] == [
        ("load", 8 * GIB),
        ("prefill", 11 * GIB),
        ("decode", 11 * GIB),
    ]


EATER = """
import sys
data = bytearray(100 << 20); print("full", flush=True); sys.stdin.readline()
more = bytearray(300 << 20); print("fuller", flush=True); sys.stdin.readline()
del more; print("less", flush=True); sys.stdin.readline()
"""


def test_a_real_process_without_a_gpu() -> None:
    sampler = Sampler(HostSource("no GPU"), hz=50)
    sampler.start()
    until(lambda: sampler.latest)
    command = (sys.executable, "-c", EATER)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as eater:
        assert eater.stdin is not None
        assert eater.stdout is not None
        for phase in ("load", "prefill", "decode"):
            eater.stdout.readline()
            sampler.set_engine(eater.pid)
            sampler.phase(phase)  # type: ignore[arg-type]
            until(lambda: sampler.latest and sampler.latest.phase == phase and sampler.latest.engine_bytes)  # noqa: B023
            eater.stdin.write("\n")
            eater.stdin.flush()
        sampler.phase("idle")
    sampler.stop()
    record = sampler.record()
    load, prefill, decode = (record.peak(phase) for phase in ("load", "prefill", "decode"))
    assert load is not None
    assert prefill is not None
    assert decode is not None
    assert load.engine_bytes is not None
    assert prefill.engine_bytes is not None
    assert 400 * MIB < prefill.engine_bytes < 500 * MIB
    assert load.engine_bytes >= 100 * MIB
    assert {sample.basis for sample in record.series} <= {"rss", None}
    assert record.highest is not None


def test_sampling_costs_next_to_nothing(load_nvml: Callable[[str], None], scenario: Scenario) -> None:
    """The limits here are wide, for busy machines; `tests.benchmarks.sampler_cost` measures the figures themselves."""
    scenario(one_gpu(GIB, f"process 0 {os.getpid()} 5", "power 0 1", "throttle 0 4", "pcie 0 1 1"))
    load_nvml("new")
    sampler = Sampler(open_source(), hz=10)
    sampler.set_engine(os.getpid())
    memory = resident_bytes(os.getpid())
    sampler.start()
    began, cpu = time.monotonic(), time.process_time()
    time.sleep(1.5)
    used = (time.process_time() - cpu) / (time.monotonic() - began)
    sampler.stop()
    assert used < 0.05
    assert (resident_bytes(os.getpid()) or 0) - (memory or 0) < 15 * MIB


def test_a_lost_gpu_is_looked_for_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    source, now = Scripted(), [100.0]
    shown: list[Sample] = []
    sampler = Sampler(source, on_sample=shown.append, clock=lambda: now[0])
    sampler._began = 100.0
    asked: list[float] = []
    monkeypatch.setattr(source, "recover", lambda: asked.append(now[0] - 100.0))
    sampler.take()
    source.reading = GpuLost("fell off the bus")
    for _ in range(24):
        now[0] += 0.125
        sampler.take()
    assert sampler.record().lost == 24
    assert sampler.record().gaps == (Gap(0.125, None, "fell off the bus"),)
    source.reading = Reading(3 * GIB, None, None)
    for _ in range(12):
        now[0] += 0.125
        sampler.take()
    assert sampler.record().gaps == (Gap(0.125, 3.125, "fell off the bus"),)
    assert [sample.lost for sample in shown].count("fell off the bus") == 25, "the screen is told"
    assert not any(sample.lost for sample in sampler.record().series)
    assert asked == [0.25, 1.25, 2.25, 3.25], "once a second, and no more once it is back"
    assert sampler.latest is not None
    assert sampler.latest.used_bytes == 3 * GIB


def test_a_driver_that_was_reloaded_while_it_was_sampled(
    load_nvml: Callable[[str], None], scenario: Scenario
) -> None:
    scenario(one_gpu(GIB, "uuid 0 GPU-a"))
    load_nvml("new")
    now = [0.0]
    sampler = Sampler(open_source(), clock=lambda: now[0])
    for at, lines in enumerate(((), ("generation 1", "error nvmlInitWithFlags 9"), ("generation 1",))):
        scenario(one_gpu(GIB + at, "uuid 0 GPU-a", *lines))
        for _ in range(15):
            now[0] += 0.1
            sampler.take()
    record = sampler.record()
    (gap,) = record.gaps
    assert gap.seconds is not None
    assert 1.0 < gap.seconds < 2.6
    assert record.lost > 10
    assert sampler.latest is not None
    assert sampler.latest.used_bytes == GIB + 2 + GIB // 2, "sampling came back"


def test_a_reading_that_came_late_is_a_gap() -> None:
    source, now = Scripted(), [0.0]
    sampler = Sampler(source, clock=lambda: now[0])

    def slow(pid: int | None) -> Reading:
        now[0] += 4.0
        assert [gap.seconds for gap in sampler.record().gaps] == [None], "seen while it lasts"
        return Reading(GIB, None, None)

    source.read = slow  # type: ignore[method-assign]
    sampler.take()
    assert sampler.record().gaps == (Gap(0.0, 4.0, "the driver did not answer"),)
    assert sampler.record().lost == 0


def test_what_an_engine_keeps_after_each_request() -> None:
    source, now = Scripted(), [0.0]
    sampler = Sampler(source, clock=lambda: now[0])
    sampler.take()
    sampler.set_engine(7)
    for n, tokens in enumerate((100, 900, 100)):
        sampler.phase("decode")
        source.reading = Reading(9 * GIB, (4 + n) * GIB, None)
        now[0] += 1
        sampler.take()
        sampler.finished(tokens)
        sampler.phase("idle")
        sampler.phase("prefill")
        source.reading = Reading(9 * GIB, (4 + n) * GIB - 1, None)
        sampler.take()
        sampler.take()
    assert sampler.record().levels == tuple(
        Level(n + 1.0, tokens, (4 + n) * GIB - 1, "process") for n, tokens in enumerate((100, 900, 100))
    )


def test_levels_of_a_run_without_end_are_bounded() -> None:
    source = Scripted("host")
    source.reading = Reading(GIB, None, 5)
    sampler = Sampler(source)
    sampler.set_engine(7)
    for tokens in range(5000):
        sampler.finished(tokens)
        sampler.take()
    levels = sampler.record().levels
    assert 100 < len(levels) <= 256
    assert levels[0].prompt_tokens == 0
    assert levels[-1].prompt_tokens > 4900


def test_the_conditions_of_one_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    source, now = Scripted(), [0.0]
    sampler = Sampler(source, clock=lambda: now[0])
    hot = Vitals(power_w=300.0, clock_mhz=1500, throttle=("thermal",), pcie_rx=100, pcie_tx=1)
    cool = Vitals(power_w=200.0, clock_mhz=2500, throttle=(), pcie_rx=200, pcie_tx=1)
    source.reading = Reading(GIB, None, None, 90)

    def pass_time(phase: str, vitals: Vitals, seconds: float) -> None:
        sampler.phase(phase)  # type: ignore[arg-type]
        monkeypatch.setattr(source, "vitals", lambda: vitals)
        for _ in range(round(seconds * 10)):
            now[0] += 0.1
            sampler.take()

    pass_time("prefill", hot, 3.0)
    window = sampler.window()
    pass_time("decode", cool, 3.0)
    pass_time("decode", hot, 1.0)
    pass_time("idle", hot, 5.0)
    found = window.close()
    assert found is not None
    assert found.throttled is not None
    ((reason, share),) = found.throttled
    assert (reason, share) == ("thermal", pytest.approx(0.25, abs=0.13))
    assert (found.clock_mhz_lowest, found.gpu_util) == (1500, 90)
    assert found.n_readings == pytest.approx(8, abs=1), "vitals that several samples carry count once"
    pass_time("decode", hot, 5.0)
    assert window.close() == found, "nothing is added after its end"
    record = sampler.record()
    prefill = record.during("prefill")
    assert prefill is not None
    assert prefill.throttled == (("thermal", 1.0),)
    assert record.during("load") is None
    assert all(sample.vitals is None for sample in record.series)


def test_others_and_several_devices_have_peaks_of_their_own() -> None:
    source = Scripted()

    def together(used: int, ours: tuple[int | None, int | None]) -> Reading:
        parts = tuple(Reading(used * GIB // 2, None if o is None else o * GIB, None) for o in ours)
        held = [o for o in ours if o is not None]
        return Reading(used * GIB, sum(held) * GIB if held else None, None, devices=parts)

    sampler = Sampler(source)
    source.reading = together(2, (None, None))
    sampler.take()
    sampler.set_engine(7)
    sampler.phase("decode")
    for reading in (together(10, (3, 5)), together(12, (6, None)), together(13, (4, 4))):
        source.reading = reading
        sampler.take()
    sampler.phase("idle")
    source.reading = together(8, (None, None))
    sampler.take()
    record = sampler.record()
    decode, idle = record.peak("decode"), record.peak("idle")
    assert decode is not None
    assert idle is not None
    assert (decode.engine_bytes, decode.per_device) == (8 * GIB, (6 * GIB, 5 * GIB))
    assert decode.others_bytes == 6 * GIB
    assert (idle.engine_bytes, idle.per_device, idle.others_bytes) == (6 * GIB, (3 * GIB, 3 * GIB), None)
    growth = record.others_growth
    assert growth is not None
    assert (growth[0], growth[1].phase) == (4 * GIB, "decode")
    assert record.basis == "process"


def test_host_memory_used_as_the_gpus() -> None:
    source = Scripted("amd")
    source.reading = Reading(GIB, None, None, gtt_used_bytes=100)
    sampler = Sampler(source)
    sampler.take()
    sampler.set_engine(7)
    sampler.phase("decode")
    source.reading = Reading(GIB, None, None, gtt_used_bytes=900)
    sampler.take()
    assert sampler.latest is not None
    assert sampler.latest.gtt_bytes == 800, "growth since the launch"
    source.reading = Reading(GIB, 5, None, gtt_process_bytes=700, gtt_used_bytes=5000)
    sampler.take()
    assert sampler.latest.gtt_bytes == 700, "what is the engine's"
    growth = sampler.record().gtt_growth
    assert growth is not None
    assert (growth[0], growth[1].phase) == (800, "decode")
