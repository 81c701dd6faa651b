"""What was read beside memory, in words: the basis, others, GTT, clocks, traffic, gaps; within 80 cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtui.gpu.samples import (
    Basis,
    Conditions,
    DeviceInfo,
    Gap,
    Member,
    MemoryRecord,
    PhasePeak,
    Sample,
    Vitals,
)
from kvtui.session.state import fold
from kvtui.tui import view_memory, view_readings
from kvtui.tui.lines import Line, text_of, width_of
from kvtui.tui.live import Trace
from tests.tui import story

GIB = 1 << 30
MIB = 1 << 20
CARD = DeviceInfo("nvml", 0, "RTX 4080", 16 * GIB, driver="575.51", cuda="12.9", compute_capability="8.9",
                  display_attached=True, ecc=False)  # fmt: skip
SAMPLE = Sample(1.0, "decode", 9 * GIB, 10 * GIB, GIB, "process", 97)
DECODE = Conditions(12, (("thermal", 0.25),), 1400, 280.0, 12_000_000, 3_000_000, 96, 3.4, "decode")


def record(basis: Basis = "process", device: DeviceInfo = CARD, **more: Any) -> MemoryRecord:
    peak = PhasePeak("prefill", 9 * GIB, 12 * GIB, 0, 1.0, 9, 1.0, gtt_bytes=3 * GIB, others_bytes=3 * GIB,
                     others_at=4.0, per_device=(6 * GIB, 3 * GIB))  # fmt: skip
    return MemoryRecord(device, GIB, (peak,), (replace(SAMPLE, basis=basis),), 0.1, **more)


def joined(lines: list[Line]) -> str:
    assert all(width_of(row) <= 80 for row in lines)
    return "\n".join(text_of(row) for row in lines)


@pytest.mark.parametrize(
    ("basis", "words"), [("process", "attributes to"), ("growth", "growth since before")]
)
def test_the_screen_says_which_basis(basis: Basis, words: str) -> None:
    out = joined(view_readings.readings(CARD, record(basis), 8))
    assert words in out.splitlines()[1]
    live = text_of(view_readings.remark(replace(SAMPLE, basis=basis), host=False))
    assert live == ("  by process" if basis == "process" else "  by growth since launch")
    assert view_readings.remark(replace(SAMPLE, basis="rss"), host=True) == ()
    assert view_readings.remark(None, host=False) == ()


def test_what_is_wrong_right_now_stands_beside_the_value() -> None:
    bad = replace(SAMPLE, gtt_bytes=2 * GIB, vitals=Vitals(throttle=("thermal", "power cap")))
    assert text_of(view_readings.remark(bad, host=False)) == (
        "  by process  2.00 GiB in host memory (GTT)  held down: thermal, power cap"
    )
    gone = Sample(9.0, "decode", None, None, None, None, lost="GPU is lost")
    assert text_of(view_readings.remark(gone, host=False)) == "  no reading: GPU is lost"
    state = fold(story.up_to(story.ev.RunStarted, device=CARD))
    trace = Trace(False)
    trace.add(bad)
    assert "now 10.00 GiB  by process  2.00 GiB in host memory" in text_of(
        view_memory.title(state, trace, bad)
    )


def test_the_device_now() -> None:
    vitals = Vitals(287.6, 2520, 1_200_000_000, 40_000_000, ("power cap",), 0.4)
    assert joined(view_readings.now(replace(SAMPLE, vitals=vitals), 8)) == (
        "Device now\n"
        "  device      97 % busy, 288 W, 2,520 MHz\n"
        "  PCIe        1.2 GB/s to the GPU, 40 MB/s from it\n"
        "  held down   power cap\n"
        "  host        other programs keep 0.4 of 8 cores busy\n"
    )
    assert view_readings.now(None, 8) == []
    assert view_readings.now(replace(SAMPLE, gpu_util=None, vitals=Vitals()), 8) == []


def test_the_readings_of_a_run() -> None:
    memory = record(conditions=(DECODE, replace(DECODE, phase="load")), gaps=(Gap(9.0, 3.0, "GPU is lost"),))
    assert joined(view_readings.readings(CARD, memory, 8)).splitlines()[2:] == [
        "  others      +2.00 GiB since before the launch, most in prefill",
        "  GTT         3.00 GiB of host memory used as the card's, most in prefill",
        "  device      96 % busy, 280 W, lowest clock 1,400 MHz  in decode",
        "  PCIe        12 MB/s to the GPU, 3 MB/s from it  in decode",
        "  held down   thermal 25%, in decode",
        "  host        other programs keep 3.4 of 8 cores busy, in decode",
        "  lost        at 9.0 s for 3.0 s: GPU is lost",
    ]


def test_nothing_is_said_of_what_was_not_read() -> None:
    bare = MemoryRecord(CARD, None, (), (), 0.1, conditions=(Conditions(0, phase="decode"),))
    assert view_readings.readings(CARD, bare, 8) == []
    calm = record(conditions=(Conditions(3, (), phase="decode"),))
    assert "held down   by nothing, in decode" in joined(view_readings.readings(CARD, calm, 8))


def test_several_gpus_one_by_one() -> None:
    members = (Member(0, "NVIDIA GeForce RTX 4090", 24 * GIB), Member(1, "NVIDIA A2", 3 * GIB))
    both = replace(CARD, members=members, total_bytes=27 * GIB)
    out = view_readings.readings(both, record(device=both), 8)
    assert "GPU 0       6.00 GiB of 24.00 GiB at most, NVIDIA GeForce RTX 4090" in joined(out)
    full = next(row for row in out if "GPU 1" in text_of(row))
    assert any(span.tone == "warn" for span in full), "the one without room"


def test_facts_of_the_card_stand_above_the_budget() -> None:
    words = "driver 575.51, CUDA 12.9, compute capability 8.9, ECC off, a display is attached"
    assert text_of(view_readings.facts(CARD)) == f"  {words}"
    amd = DeviceInfo("amd", 0, "RX 7900", GIB, driver="6.10", rocm="6.4", mig=None)
    assert text_of(view_readings.facts(amd)) == "  driver 6.10, ROCm 6.4"
    assert text_of(view_readings.facts(replace(CARD, mig=2))).count("MIG instance 2") == 1
    assert "512.0 MiB reserved by the driver" in text_of(
        view_readings.facts(replace(CARD, reserved_bytes=512 * MIB))
    )
    assert view_readings.facts(replace(CARD, kind="host")) == ()
