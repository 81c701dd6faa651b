"""What was read beside memory: on which basis, who else took some, what slowed the device, when it was lost."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.units import GIB, MIB, duration, signed_size, size
from kvtui.gpu.samples import Basis, Conditions, DeviceInfo, MemoryRecord, Sample, Vitals
from kvtui.tui.lines import EMPTY, Line, Span, line

BASIS: dict[Basis, str] = {
    "process": "what the driver attributes to the engine's process",
    "growth": "growth since before the launch: processes are not told apart",
    "rss": "resident host memory of the engine's process",
}
GTT_SHOWN = 256 * MIB


def remark(sample: Sample | None, *, host: bool) -> Line:
    """The live words beside the present value: how it is known where that matters, and what is wrong right now."""
    if sample is None:
        return EMPTY
    if sample.lost:
        return line(Span(f"  no reading: {sample.lost}", "bad"))
    out: list[Line] = []
    if sample.basis is not None and not host:
        known = sample.basis == "process"
        out.append(
            line(Span("  by process" if known else "  by growth since launch", "dim" if known else "warn"))
        )
    if sample.gtt_bytes is not None and sample.gtt_bytes >= GTT_SHOWN:
        out.append(line(Span(f"  {size(sample.gtt_bytes)} in host memory (GTT)", "warn")))
    if sample.vitals is not None and sample.vitals.throttle:
        out.append(line(Span(f"  held down: {', '.join(sample.vitals.throttle)}", "warn")))
    return line(*out)


def now(sample: Sample | None, cores: int) -> list[Line]:
    """The latest vitals, one line each; nothing that is not told."""
    vitals = sample.vitals if sample is not None else None
    if sample is None or vitals is None:
        return []
    rows = [*_device_rows(sample.gpu_util, vitals), *_load_row(vitals.others_cpu, cores)]
    return [line(Span("Device now", "title")), *rows, EMPTY] if rows else []


def readings(device: DeviceInfo, memory: MemoryRecord, cores: int) -> list[Line]:
    """What the readings of a run show beside its peaks."""
    out = [line(Span("Readings", "title"))]
    if memory.basis is not None:
        out.append(_row("engine by", BASIS[memory.basis]))
    out += _members(device, memory)
    others, gtt = memory.others_growth, memory.gtt_growth
    if others is not None:
        phase = f", most in {others[1].phase}" if others[0] else ""
        out.append(
            _row(
                "others",
                f"{signed_size(others[0])} since before the launch{phase}",
                bad=others[0] > GTT_SHOWN,
            )
        )
    if gtt is not None:
        bad = gtt[0] >= GTT_SHOWN
        out.append(
            _row("GTT", f"{size(gtt[0])} of host memory used as the card's, most in {gtt[1].phase}", bad=bad)
        )
    for conditions in memory.conditions:
        if conditions.phase in ("prefill", "decode"):
            out += _of_phase(conditions, cores)
    for gap in memory.gaps:
        until = "until the end" if gap.seconds is None else f"for {duration(gap.seconds)}"
        out.append(_row("lost", f"at {duration(gap.t)} {until}: {gap.why}", bad=True))
    return [*out, EMPTY] if len(out) > 1 else []


def facts(device: DeviceInfo) -> Line:
    """Driver, CUDA or ROCm, and what else of the card bears on memory; empty on a host."""
    words = [
        device.driver and f"driver {device.driver}",
        device.cuda and f"CUDA {device.cuda}",
        device.rocm and f"ROCm {device.rocm}",
        device.compute_capability and f"compute capability {device.compute_capability}",
        None if device.mig is None else f"MIG instance {device.mig}",
        None if device.ecc is None else f"ECC {'on' if device.ecc else 'off'}",
        None if device.reserved_bytes is None else f"{size(device.reserved_bytes)} reserved by the driver",
        {True: "a display is attached", False: "no display attached", None: None}[device.display_attached],
    ]
    text = ", ".join(word for word in words if word)
    return line(Span(f"  {text}", "dim")) if text and device.kind != "host" else EMPTY


def _members(device: DeviceInfo, memory: MemoryRecord) -> Iterator[Line]:
    """Each of several GPUs with the most that the engine held on it."""
    for at, member in enumerate(device.members):
        held = [p.per_device[at] for p in memory.peaks if at < len(p.per_device)]
        top = max((value for value in held if value is not None), default=None)
        peak = "n/a" if top is None else f"{size(top)} of {size(member.total_bytes)}"
        full = top is not None and member.total_bytes - top < GIB // 2
        yield _row(f"GPU {member.index}", f"{peak} at most, {member.name}", bad=full)


def _of_phase(c: Conditions, cores: int) -> Iterator[Line]:
    vitals = Vitals(c.power_w, c.clock_mhz_lowest, c.pcie_rx, c.pcie_tx)
    for row in _device_rows(c.gpu_util, vitals, "lowest clock "):
        yield line(row, Span(f"  in {c.phase}", "dim"))
    if c.throttled is not None:
        held = ", ".join(f"{word} {share:.0%}" for word, share in c.throttled)
        yield _row("held down", f"{held or 'by nothing'}, in {c.phase}", bad=bool(held))
    yield from _load_row(c.others_cpu, cores, f", in {c.phase}")


def _device_rows(util: int | None, vitals: Vitals, clock: str = "") -> list[Line]:
    words = [
        None if util is None else f"{util} % busy",
        None if vitals.power_w is None else f"{vitals.power_w:,.0f} W",
        None if vitals.clock_mhz is None else f"{clock}{vitals.clock_mhz:,} MHz",
    ]
    out = [_row("device", ", ".join(word for word in words if word))] if any(words) else []
    if vitals.pcie_rx is not None and vitals.pcie_tx is not None:
        out.append(_row("PCIe", f"{_traffic(vitals.pcie_rx)} to the GPU, {_traffic(vitals.pcie_tx)} from it"))
    if vitals.throttle:
        out.append(_row("held down", ", ".join(vitals.throttle), bad=True))
    return out


def _load_row(others: float | None, cores: int, where: str = "") -> list[Line]:
    if others is None:
        return []
    return [
        _row(
            "host", f"other programs keep {others:.1f} of {cores} cores busy{where}", bad=others >= cores / 4
        )
    ]


def _traffic(per_second: int) -> str:
    return f"{per_second / 1e9:.1f} GB/s" if per_second >= 1e9 else f"{per_second / 1e6:,.0f} MB/s"


def _row(label: str, text: str, *, bad: bool = False) -> Line:
    return line(Span(f"  {label:<12}", "dim"), Span(text, "warn" if bad else ""))
