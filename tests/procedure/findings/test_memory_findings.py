"""What the readings of a run show: each finding with its evidence, and not where it has no ground."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.findings import Finding
from kvtui.gpu.samples import Conditions, DeviceInfo, Gap, Level, Member, MemoryRecord, PhasePeak, Sample
from kvtui.logs.facts import BufferFacts, ContextFacts, EngineFacts
from kvtui.probes.results import SpeedResult
from kvtui.procedure.findings.memory import CATALOGUE, memory_findings
from kvtui.procedure.marks import marked
from kvtui.session.records import HostInfo
from kvtui.session.state import RunRecord

GIB = 1 << 30
MIB = 1 << 20
CARD = DeviceInfo("nvml", 0, "Card", 16 * GIB)
AMD = replace(CARD, kind="amd")
BOX = HostInfo("Linux", "cpu", 8, 64 * GIB, "3.12")
SPEED = SpeedResult(1000, 500.0, 40.0, 2.0, ())


def peak(phase: str, engine: int, used: int, **more: Any) -> PhasePeak:
    return PhasePeak(phase, engine, used, 0, 1.0, 10, 1.0, **more)  # type: ignore[arg-type]


def record(**more: Any) -> MemoryRecord:
    peaks = (peak("before", 0, GIB), peak("decode", 9 * GIB, 10 * GIB, others_bytes=GIB, others_at=7.0))
    fields: dict[str, Any] = {"device": CARD, "baseline_used_bytes": GIB, "peaks": peaks, "series": ()}
    return MemoryRecord(**(fields | {"interval_s": 0.1} | more))


def during(phase: str, **more: Any) -> Conditions:
    return Conditions(n_readings=10, phase=phase, **more)  # type: ignore[arg-type]


def found(memory: MemoryRecord | None, facts: EngineFacts | None = None, **config: Any) -> dict[str, Finding]:
    run = RunRecord(1, 1, "floor", RunConfig("m.gguf", 8192, **config), (), (), "", memory=memory,
                    facts=facts or EngineFacts(), speeds=(SPEED,))  # fmt: skip
    made = {finding.id: finding for finding in memory_findings(run, BOX)}
    documented = {name: severity for name, severity, _ in CATALOGUE}
    assert all(finding.severity in documented[name].split(", ") for name, finding in made.items())
    return made


def evidence(finding: Finding) -> str:
    return "\n".join(piece.text for piece in finding.evidence)


def test_a_run_without_trouble_has_no_findings() -> None:
    calm = (
        during("prefill", throttled=(), others_cpu=0.3, pcie_rx=9_000_000),
        during("decode", throttled=None),
    )
    assert found(record(conditions=calm)) == {}
    assert found(None) == {}


@pytest.mark.parametrize(("seconds", "severity"), [(3.0, "warning"), (None, "error")])
def test_a_gpu_that_was_lost(seconds: float | None, severity: str) -> None:
    finding = found(record(gaps=(Gap(12.0, seconds, "GPU is lost"),)))["gpu-lost"]
    assert finding.severity == severity
    assert evidence(finding).startswith("at 12.0 s, ")
    assert evidence(finding).endswith(": GPU is lost")


def gtt(size: int) -> MemoryRecord:
    return record(device=AMD, peaks=(peak("decode", 9 * GIB, 10 * GIB, gtt_bytes=size),))


def test_memory_that_went_to_the_host_by_gtt() -> None:
    assert "GTT 3.00 GiB in decode" in evidence(found(gtt(3 * GIB))["spill-to-host"])
    assert found(gtt(200 * MIB)) == {}, "queues and staging"
    context = ContextFacts(compute_buffers=(BufferFacts("ROCm_Host", 900.0, 5),))
    facts = EngineFacts(contexts=(context,), model_buffers=(BufferFacts("CPU_Mapped", 5000.0, 4),))
    assert found(gtt(1000 * MIB), facts) == {}, "the engine's own pinned buffers"
    assert found(gtt(1200 * MIB), facts).keys() == {"spill-to-host"}


def test_memory_that_went_to_the_host_by_traffic() -> None:
    spilled = record(conditions=(during("decode", pcie_rx=3_200_000_000),))
    assert "3.2 GB/s to the GPU during decode" in evidence(found(spilled)["spill-to-host"])
    assert found(spilled, n_cpu_moe=12) == {}, "experts on the CPU on purpose"
    assert found(spilled, EngineFacts(offloaded=(20, 33))) == {}
    assert found(spilled, EngineFacts(offloaded=(33, 33))).keys() == {"spill-to-host"}
    assert found(record(conditions=(during("prefill", pcie_rx=3_200_000_000),))) == {}, "prompts may travel"
    short = replace(during("decode", pcie_rx=3_200_000_000), n_readings=1)
    assert found(record(conditions=(short,))) == {}, "one reading proves nothing"


def test_memory_that_went_to_the_host_by_the_process_growing() -> None:
    series = tuple(
        Sample(float(n), "decode", 9 * GIB, 10 * GIB, (1000 + 300 * n) * MIB, "process") for n in range(8)
    )
    assert "host memory grew by 1.17 GiB" in evidence(found(record(series=series))["spill-to-host"])
    assert found(record(series=series), cache_ram_mib=4096) == {}, "its prompt cache may"
    assert found(record(series=series), cache_ram_mib=-1) == {}, "without a limit"
    assert found(record(series=series, device=replace(CARD, kind="host"))) == {}, (
        "host memory is where it works"
    )


def test_others_that_grew() -> None:
    grown = (peak("decode", 9 * GIB, 12 * GIB, others_bytes=3 * GIB, others_at=42.0),)
    finding = found(record(peaks=grown))["others-grew"]
    assert "2.00 GiB of the card" in finding.title
    assert evidence(finding) == "others before the launch 1.00 GiB\nothers 3.00 GiB in decode at 42.0 s"
    assert found(record(peaks=(replace(grown[0], others_bytes=GIB + 100 * MIB),))) == {}
    assert found(record(peaks=(replace(grown[0], others_bytes=None),))) == {}, "not known by process"


@pytest.mark.parametrize(("basis", "severity"), [("process", "warning"), ("growth", "info")])
def test_memory_that_is_not_given_back(basis: Any, severity: str) -> None:
    levels = tuple(Level(float(n), 4000, (4000 + 120 * n) * MIB, basis) for n in range(6))
    finding = found(record(levels=levels))["memory-ratchet"]
    assert (finding.severity, "120.0 MiB with each request" in finding.title) == (severity, True)
    assert "600.0 MiB over 6 requests" in evidence(finding)
    assert ("another process" in finding.why) == (basis == "growth")


def test_clocks_that_were_held_down() -> None:
    hot = (
        during("prefill", throttled=(("thermal", 0.2), ("power cap", 0.05)), clock_mhz_lowest=1400),
        during("decode", throttled=(("thermal", 0.6),), clock_mhz_lowest=1100),
    )
    finding = found(record(conditions=hot))["throttled"]
    assert (finding.severity, "measured: thermal" in finding.title) == ("warning", True)
    assert evidence(finding) == "thermal: 60% of the readings in decode, lowest clock 1,100 MHz"
    capped = record(conditions=(during("decode", throttled=(("power cap", 1.0),)),))
    assert found(capped)["throttled"].severity == "info", "what the card gives in every long run"
    assert found(record(conditions=(during("load", throttled=(("thermal", 1.0),)),))) == {}, "no speed then"


def test_a_machine_that_others_keep_busy() -> None:
    busy = record(conditions=(during("decode", others_cpu=3.5), during("load", others_cpu=8.0)))
    finding = found(busy)["machine-busy"]
    assert (finding.severity, evidence(finding)) == ("info", "3.5 cores in decode")
    assert found(record(conditions=(during("decode", others_cpu=0.7),))) == {}, "a tenth of 8 cores"


def test_one_of_several_gpus_is_full() -> None:
    members = (Member(0, "a", 24 * GIB), Member(1, "b", 8 * GIB))
    both = DeviceInfo("nvml", 0, "both", 32 * GIB, members=members)
    full = (peak("prefill", 18 * GIB, 18 * GIB, per_device=(10 * GIB, 8 * GIB - MIB)),)
    finding = found(record(device=both, peaks=full))["gpus-unbalanced"]
    assert finding.title == "GPU 1 is full while the others have room"
    even = (peak("prefill", 14 * GIB, 14 * GIB, per_device=(10 * GIB, 4 * GIB)),)
    assert found(record(device=both, peaks=even)) == {}
    packed = (peak("prefill", 31 * GIB, 31 * GIB + 800 * MIB, per_device=(23 * GIB, 8 * GIB - MIB)),)
    assert found(record(device=both, peaks=packed)) == {}, "full as a whole is no imbalance"


def test_a_speed_carries_what_it_was_measured_under() -> None:
    hot = Conditions(10, throttled=(("thermal", 0.4), ("power cap", 0.01)), gpu_util=98, others_cpu=3.0)
    speed = marked(replace(SPEED, note="decode ended early"), hot, 8)
    assert (
        speed.note
        == "decode ended early; throttled: thermal 40% of the time; others kept 3.0 of 8 cores busy"
    )
    assert (speed.gpu_util, speed.throttled, speed.others_cpu) == (98, (("thermal", 0.4),), 3.0)
    assert marked(SPEED, Conditions(10, throttled=(), others_cpu=0.2), 8).note == ""
    assert marked(SPEED, None, 8) == SPEED
