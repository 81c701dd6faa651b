"""Reads memory over and over in a thread of its own, and keeps each phase's exact maximum."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Condition, Thread
from typing import NamedTuple

from kvtui.gpu.conditions import Window
from kvtui.gpu.gaps import Gaps
from kvtui.gpu.host import LoadMeter
from kvtui.gpu.samples import DEFAULT_HZ, Basis, Level, MemoryRecord, Phase, Sample, Vitals
from kvtui.gpu.series import Series
from kvtui.gpu.source import GpuLost, MemorySource, Reading

VITALS_S = 0.5
"""Power, clocks and traffic are read this often: traffic alone takes 40 ms of waiting."""
MAX_LEVELS = 256
_STOP_LIMIT_S = 0.2


class _Turn(NamedTuple):
    """What was true when a reading began."""

    phase: Phase
    pid: int | None
    finished: int | None


class Sampler:
    """Samples `source` at `hz` from `start` to `stop`. All methods may be called from any thread, none blocks.

    A source that hangs costs readings, never the caller; a device that is lost is looked for every second.
    `on_sample` is called in the sampler's thread, for failed readings too. The engine's memory is what the driver
    attributes to its process, else what the device's memory has grown since the last reading before the launch,
    else (no GPU) its resident memory.
    """

    def __init__(
        self,
        source: MemorySource,
        hz: float = DEFAULT_HZ,
        on_sample: Callable[[Sample], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._interval = 1.0 / hz
        self._on_sample = on_sample
        self._clock = clock
        self._lock = Condition()
        self._series = Series()
        self._load = LoadMeter(source.family)
        self._phase: Phase = "before"
        self._switched = False
        self._pid: int | None = None
        self._finished: int | None = None
        self._held: Sample | None = None
        self._baseline: Reading | None = None
        self._latest: Sample | None = None
        self._vitals: Vitals | None = None
        self._vitals_due = 0.0
        self._windows: list[Window] = []
        self._levels: list[Level] = []
        self._gaps = Gaps()
        self._lost = 0
        self._stopping = False
        self._began = 0.0
        self._phase_began = 0.0
        self._thread = Thread(target=self._run, name="memory-sampler", daemon=True)

    @property
    def latest(self) -> Sample | None:
        """The last sample, None before the first."""
        return self._latest

    def start(self) -> None:
        """Begin, in the phase `before`."""
        self._began = self._phase_began = self._clock()
        self._thread.start()

    def set_engine(self, pid: int | None) -> None:
        """The process whose memory counts from now on, with all it starts."""
        with self._lock:
            self._pid = pid

    def phase(self, name: Phase) -> None:
        """From now on it is phase `name`, and one sample is taken at once.

        It counts for the new phase alone: whether what it shows was there before the switch, it cannot tell.
        """
        with self._lock:
            if name == self._phase:
                return
            now = self._clock()
            self._series.spent(self._phase, now - self._phase_began)
            self._phase, self._phase_began, self._switched = name, now, True
            self._lock.notify()

    def finished(self, prompt_tokens: int) -> None:
        """A request with a prompt of so many tokens is over: the next sample is what the engine keeps after it.

        Should the next request already have taken memory by then, the last sample of this one counts: the lower.
        """
        with self._lock:
            self._finished = prompt_tokens
            self._held = self._latest

    def window(self) -> Window:
        """Begin to collect the conditions of one measurement."""
        made = Window(self._forget)
        with self._lock:
            self._windows.append(made)
        return made

    def record(self) -> MemoryRecord:
        """Everything up to now."""
        with self._lock:
            now = self._clock()
            if not self._stopping:
                self._series.spent(self._phase, now - self._phase_began)
                self._phase_began = now
            baseline = self._baseline
            return MemoryRecord(
                device=self._source.device,
                baseline_used_bytes=None if baseline is None else baseline.used_bytes,
                peaks=self._series.peaks(),
                series=self._series.points(),
                interval_s=self._interval,
                lost=self._lost,
                conditions=self._series.conditions(),
                levels=tuple(self._levels),
                gaps=self._gaps.upto(now - self._began),
            )

    def stop(self) -> None:
        """End the thread; one that hangs in the driver is left behind (it is a daemon)."""
        with self._lock:
            if not self._stopping:
                self._series.spent(self._phase, self._clock() - self._phase_began)
            self._stopping = True
            self._lock.notify()
        if self._thread.is_alive():
            self._thread.join(_STOP_LIMIT_S)

    def _run(self) -> None:
        due = self._clock()
        while True:
            with self._lock:
                while not self._stopping and not self._switched and (wait := due - self._clock()) > 0:
                    self._lock.wait(wait)
                if self._stopping:
                    return
                self._switched = False
            self.take()
            now = self._clock()
            due = max(due + self._interval, now) if now >= due else due

    def take(self) -> None:
        """One reading, now. The sampler's thread does this; whoever has started none may."""
        with self._lock:
            turn = _Turn(self._phase, self._pid, self._finished)
            self._finished = None
            began = self._clock() - self._began
            self._gaps.begin(began)
        try:
            reading, why = self._read(turn.pid), ""
        except GpuLost as lost:
            reading, why = Reading(None, None, None), str(lost)
        at = self._clock() - self._began
        self._read_vitals(turn.pid, lost=bool(why))
        with self._lock:
            if self._stopping:
                return
            if why:
                self._gaps.failed(began, at, why)
            else:
                self._gaps.came(began, at)
            sample = self._sample(reading, turn, at)
            if sample is None:
                self._lost += 1
            else:
                self._keep(sample, turn.finished)
        if self._on_sample is not None:
            why = why or "the driver told nothing"
            self._on_sample(sample or Sample(at, turn.phase, None, None, None, None, lost=why))

    def _keep(self, sample: Sample, finished: int | None) -> None:
        self._latest = sample
        self._series.add(sample)
        self._add_level(sample, finished)
        for window in self._windows:
            window.add(sample)

    def _read(self, pid: int | None) -> Reading:
        """Raises GpuLost, which is also what a lost device costs until it is time to look for it again."""
        if why := self._gaps.lost:
            if not self._gaps.due(self._clock() - self._began):
                raise GpuLost(why)
            self._source.recover()
        return self._source.read(pid)

    def _read_vitals(self, pid: int | None, *, lost: bool) -> None:
        now = self._clock()
        if lost:
            self._vitals = None
        elif now >= self._vitals_due:
            self._vitals_due = now + VITALS_S
            others = self._load.read(pid)
            try:
                self._vitals = replace(self._source.vitals(), others_cpu=others)
            except GpuLost:  # the next reading of memory will say so
                self._vitals = None

    def _sample(self, reading: Reading, turn: _Turn, t: float) -> Sample | None:
        if reading.used_bytes is None and reading.host_bytes is None:
            return None
        if turn.phase == "before":
            self._baseline = reading
        engine, basis = self._engine_bytes(reading, turn.pid)
        known = basis == "process" and engine is not None and reading.used_bytes is not None
        return Sample(
            t=t,
            phase=turn.phase,
            engine_bytes=engine,
            used_bytes=reading.used_bytes,
            host_bytes=reading.host_bytes,
            basis=basis,
            gpu_util=reading.gpu_util,
            gtt_bytes=self._gtt_bytes(reading, turn.pid),
            others_bytes=max(0, (reading.used_bytes or 0) - (engine or 0)) if known else None,
            per_device=self._per_device(reading, basis),
            vitals=self._vitals,
        )

    def _engine_bytes(self, reading: Reading, pid: int | None) -> tuple[int | None, Basis | None]:
        if pid is None:
            return None, None
        if self._source.device.kind == "host":
            return reading.host_bytes, None if reading.host_bytes is None else "rss"
        if reading.device_process_bytes is not None:
            return reading.device_process_bytes, "process"
        grown = _growth(reading, self._baseline)
        return grown, None if grown is None else "growth"

    def _gtt_bytes(self, reading: Reading, pid: int | None) -> int | None:
        if pid is None:
            return None
        if reading.gtt_process_bytes is not None:
            return reading.gtt_process_bytes
        before = None if self._baseline is None else self._baseline.gtt_used_bytes
        if reading.gtt_used_bytes is None or before is None:
            return None
        return max(0, reading.gtt_used_bytes - before)

    def _per_device(self, reading: Reading, basis: Basis | None) -> tuple[int | None, ...]:
        """The engine's memory on each of several devices, by the same basis as their sum."""
        if basis == "process":
            return tuple(device.device_process_bytes or 0 for device in reading.devices)
        if basis == "growth" and self._baseline is not None:
            pairs = zip(reading.devices, self._baseline.devices, strict=False)
            return tuple(_growth(now, before) for now, before in pairs)
        return ()

    def _add_level(self, sample: Sample, prompt_tokens: int | None) -> None:
        if prompt_tokens is None or sample.engine_bytes is None or sample.basis is None:
            return
        held, kept = self._held, sample.engine_bytes
        if held is not None and held.basis == sample.basis and held.phase == "decode":
            kept = min(kept, held.engine_bytes or 0)
        self._levels.append(Level(sample.t, prompt_tokens, kept, sample.basis))
        if len(self._levels) > MAX_LEVELS:
            del self._levels[1::2]

    def _forget(self, window: Window) -> None:
        with self._lock:
            if window in self._windows:
                self._windows.remove(window)


def _growth(reading: Reading, before: Reading | None) -> int | None:
    if before is None or reading.used_bytes is None or before.used_bytes is None:
        return None
    return max(0, reading.used_bytes - before.used_bytes)
