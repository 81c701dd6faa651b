"""What the readings of a run show to be wrong: spill, growth, clocks held down, a GPU that was lost.

These are inferred from samples, not from the log; the evidence is the figures themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import GIB, MIB, duration, size
from kvtui.gpu.samples import MemoryRecord, Phase
from kvtui.gpu.trend import ratchet
from kvtui.logs.facts import BufferFacts
from kvtui.procedure.findings.kind import Kind
from kvtui.procedure.marks import busy_cores, throttled
from kvtui.session.records import HostInfo
from kvtui.session.state import RunRecord

SPILL_BYTES = 256 * MIB
SPILL_TRAFFIC = 500_000_000
"""Bytes per second to the GPU during decode; tokens and logits are a thousandth of it."""
SPILL_READINGS = 3
OTHERS_BYTES = 256 * MIB
FULL_SHARE = 0.97
HARMLESS = frozenset(("power cap", "sync boost"))
"""What a card does in every long run of its own accord: the speed is what this card gives."""

CATALOGUE: tuple[Kind, ...] = (
    Kind(
        "gpu-lost",
        "warning, error",
        "the driver said that the GPU or itself is gone, or did not answer for 1 s",
    ),
    Kind(
        "spill-to-host",
        "warning",
        "GTT beyond the host buffers in the log by 256 MiB; 0.5 GB/s to the GPU in decode with every layer on it; "
        "or the engine's host memory grew by 256 MiB beyond its prompt cache while it decoded",
    ),
    Kind(
        "gpus-unbalanced",
        "warning",
        "the engine holds 97 % of one of several GPUs while all together have room",
    ),
    Kind(
        "others-grew",
        "warning",
        "processes other than the engine took 256 MiB of the card since before the launch",
    ),
    Kind(
        "memory-ratchet",
        "warning, info",
        "4 MiB and more kept after each of five requests no longer than earlier ones, 64 MiB in all, on a line that "
        "explains 80 % of it",
    ),
    Kind("throttled", "warning, info", "clocks held down in a tenth of the readings in prefill or decode"),
    Kind(
        "machine-busy",
        "info",
        "other programs kept half a core, and a tenth of all, busy in prefill or decode",
    ),
)


def memory_findings(run: RunRecord, host: HostInfo) -> tuple[Finding, ...]:
    """All that the readings of `run` show; nothing without readings. `host` is the box it ran on."""
    memory = run.memory
    if memory is None:
        return ()
    rules: tuple[Callable[[RunRecord, MemoryRecord], Iterator[Finding]], ...] = (
        _lost,
        _spill,
        _full_member,
        _others,
        _ratchet,
        _throttled,
    )
    found = [finding for rule in rules for finding in rule(run, memory)]
    return (*found, *_busy(run, memory, host.cores))


def _lost(_run: RunRecord, memory: MemoryRecord) -> Iterator[Finding]:
    if not memory.gaps:
        return
    evidence = tuple(
        Evidence(None, f"at {duration(gap.t)}, {_for(gap.seconds)}: {gap.why}") for gap in memory.gaps[:8]
    )
    back = memory.gaps[-1].seconds is not None
    yield Finding(
        id="gpu-lost",
        severity="warning" if back else "error",
        title="The GPU was not to be read for a time" if back else "The GPU was lost and did not come back",
        why="memory in that time is not known, so the peaks may be too low",
        next="repeat the run; where it happens again, look into the system's log for the driver's messages",
        evidence=evidence,
    )


def _for(seconds: float | None) -> str:
    return "until the end" if seconds is None else f"for {duration(seconds)}"


def _spill(run: RunRecord, memory: MemoryRecord) -> Iterator[Finding]:
    """Memory that was meant for the GPU and is in the host's: by GTT, by traffic, or by the process growing."""
    if memory.device.kind == "host":
        return
    evidence = [text for text in (_gtt(run, memory), _traffic(run, memory), _resident(run, memory)) if text]
    if evidence:
        yield Finding(
            id="spill-to-host",
            severity="warning",
            title="A part of what belongs on the GPU is in host memory",
            why="inferred from readings, the log does not say it: each token then waits for the bus",
            next="less context, or one cache type smaller, until it fits",
            evidence=tuple(Evidence(None, text) for text in evidence),
        )


def _gtt(run: RunRecord, memory: MemoryRecord) -> str | None:
    growth = memory.gtt_growth
    if growth is None:
        return None
    wanted = _host_buffers(run)
    if growth[0] - wanted < SPILL_BYTES:
        return None
    return f"GTT {size(growth[0])} in {growth[1].phase}, host buffers in the log {size(wanted)}"


def _host_buffers(run: RunRecord) -> int:
    """Bytes that the engine puts into pinned host memory by itself, by its log."""
    contexts = run.facts.contexts
    buffers: list[BufferFacts] = [*run.facts.model_buffers]
    for context in contexts:
        buffers += (
            *context.kv_buffers,
            *context.rs_buffers,
            *context.compute_buffers,
            *context.output_buffers,
        )
    return round(sum(b.mib for b in buffers if b.device.endswith("_Host")) * MIB)


def _traffic(run: RunRecord, memory: MemoryRecord) -> str | None:
    decode = memory.during("decode")
    if decode is None or decode.pcie_rx is None or decode.n_readings < SPILL_READINGS or _is_partial(run):
        return None
    if decode.pcie_rx < SPILL_TRAFFIC:
        return None
    return f"{decode.pcie_rx / 1e9:.1f} GB/s to the GPU during decode, over {decode.n_readings} readings"


def _is_partial(run: RunRecord) -> bool:
    """Whether layers or experts were left on the CPU on purpose, for which traffic is the price."""
    offloaded = run.facts.offloaded
    return (
        bool(run.config.n_cpu_moe)
        or not run.config.kv_offload
        or (offloaded is not None and offloaded[0] < offloaded[1])
    )


def _resident(run: RunRecord, memory: MemoryRecord) -> str | None:
    """Growth of the process in host memory while it decodes, beyond what its prompt cache may take."""
    decode = [s.host_bytes for s in memory.series if s.phase == "decode" and s.host_bytes is not None]
    if len(decode) < 4:
        return None
    half = len(decode) // 2
    growth = round(median(decode[half:]) - median(decode[:half]))
    allowed = max(run.config.cache_ram_mib, 0) * MIB
    if run.config.cache_ram_mib < 0 or growth - allowed < SPILL_BYTES or _is_partial(run):
        return None
    return f"the engine's host memory grew by {size(growth)} while it decoded"


def _full_member(_run: RunRecord, memory: MemoryRecord) -> Iterator[Finding]:
    """One of several GPUs is full while their sum has room: the next allocation on it fails."""
    for at, member in enumerate(memory.device.members):
        held = [p.per_device[at] for p in memory.peaks if at < len(p.per_device)]
        top = max((value for value in held if value is not None), default=0)
        if top < FULL_SHARE * member.total_bytes:
            continue
        peak = memory.highest
        rest = (
            None if peak is None or peak.used_bytes is None else memory.device.total_bytes - peak.used_bytes
        )
        if rest is not None and rest > 2 * (member.total_bytes - top) + GIB:
            yield Finding(
                id="gpus-unbalanced",
                severity="warning",
                title=f"GPU {member.index} is full while the others have room",
                why="an allocation fails on the one that is full, whatever the sum of all says",
                next="--tensor-split: a smaller share for this GPU",
                evidence=(
                    Evidence(None, f"{size(top)} of {size(member.total_bytes)} on GPU {member.index}"),
                    Evidence(None, f"{size(rest)} free on all together"),
                ),
            )


def _others(_run: RunRecord, memory: MemoryRecord) -> Iterator[Finding]:
    growth = memory.others_growth
    if growth is None or growth[0] < OTHERS_BYTES:
        return
    grown, peak = growth
    at = f" at {duration(peak.others_at)}" if peak.others_at is not None else ""
    yield Finding(
        id="others-grew",
        severity="warning",
        title=f"Other processes took {size(grown)} of the card during the run",
        why="the engine's own figures are apart from it, but what is free is less than the budget assumed",
        next="end the other process, or give it its memory: --reserve",
        evidence=(
            Evidence(None, f"others before the launch {size(memory.baseline_used_bytes or 0)}"),
            Evidence(None, f"others {size(peak.others_bytes or 0)} in {peak.phase}{at}"),
        ),
    )


def _ratchet(_run: RunRecord, memory: MemoryRecord) -> Iterator[Finding]:
    found = ratchet(memory.levels)
    if found is None:
        return
    others = memory.levels[-1].basis == "growth"
    yield Finding(
        id="memory-ratchet",
        severity="info" if others else "warning",
        title=f"Memory grows by {size(found.slope)} with each request and is not given back",
        why="requests no longer than earlier ones need no more memory; at this rate the card is full some hours later"
        + ("; only the card's growth is known here, which may be another process's" if others else ""),
        next="a newer build of the engine; else f16 KV, which needs no scratch memory",
        evidence=(
            Evidence(
                None,
                f"{size(found.growth)} over {found.n} requests, a line explains {found.fit:.0%} of it",
            ),
        ),
    )


def _throttled(_run: RunRecord, memory: MemoryRecord) -> Iterator[Finding]:
    held: dict[str, tuple[Phase, float, int | None]] = {}
    for phase in ("prefill", "decode"):
        conditions = memory.during(phase)
        for word, share in throttled(conditions):
            if conditions is not None and share > held.get(word, ("idle", 0.0, None))[1]:
                held[word] = (phase, share, conditions.clock_mhz_lowest)
    if not held:
        return
    names = ", ".join(held)
    yield Finding(
        id="throttled",
        severity="info" if HARMLESS.issuperset(held) else "warning",
        title=f"The GPU's clocks were held down while it was measured: {names}",
        why="the speeds of this run are those of a card that is held back, and may be higher or lower another time",
        next=""
        if HARMLESS.issuperset(held)
        else "cool the card or look at its power supply, then repeat the run",
        evidence=tuple(
            Evidence(None, f"{word}: {share:.0%} of the readings in {phase}{_clock(mhz)}")
            for word, (phase, share, mhz) in held.items()
        ),
    )


def _clock(mhz: int | None) -> str:
    return "" if mhz is None else f", lowest clock {mhz:,} MHz"


def _busy(run: RunRecord, memory: MemoryRecord, cores: int) -> Iterator[Finding]:
    """Speeds measured while other programs worked."""
    if not run.speeds:
        return
    busy = {
        c.phase: n
        for c in memory.conditions
        if c.phase in ("prefill", "decode") and (n := busy_cores(c, cores))
    }
    if busy:
        top = max(busy.values())
        yield Finding(
            id="machine-busy",
            severity="info",
            title=f"Other programs kept {top:.1f} of {cores} cores busy while speed was measured",
            why="speeds are too low by what they took, more so for layers on the CPU",
            next="repeat the run on a machine that is idle",
            evidence=tuple(Evidence(None, f"{n:.1f} cores in {phase}") for phase, n in busy.items()),
        )
