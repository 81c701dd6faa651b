"""Reads memory over and over in a thread of its own, and keeps each phase's exact maximum."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import Literal

from kvtui.gpu.samples import MemoryRecord, Phase, Sample
from kvtui.gpu.series import Series
from kvtui.gpu.source import GpuLost, MemorySource, Reading

_STOP_LIMIT_S = 0.2


class Sampler:
    """Samples `source` at `hz` from `start` to `stop`. All methods may be called from any thread, none blocks.

    A source that hangs costs readings, never the caller. `on_sample` is called in the sampler's thread.
    The engine's memory is what the driver attributes to its process, else what the device's memory has grown
    since the last reading before the launch, else (no GPU) its resident memory.
    """

    def __init__(
        self, source: MemorySource, hz: float = 10.0, on_sample: Callable[[Sample], None] | None = None
    ) -> None:
        self._source = source
        self._interval = 1.0 / hz
        self._on_sample = on_sample
        self._lock = Condition()
        self._series = Series()
        self._phase: Phase = "before"
        self._switched = False
        self._pid: int | None = None
        self._baseline: int | None = None
        self._latest: Sample | None = None
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
        self._began = self._phase_began = time.monotonic()
        self._thread.start()

    def set_engine(self, pid: int | None) -> None:
        """The process whose memory counts from now on."""
        with self._lock:
            self._pid = pid

    def phase(self, name: Phase) -> None:
        """From now on it is phase `name`, and one sample is taken at once.

        It counts for the new phase alone: whether what it shows was there before the switch, it cannot tell.
        """
        with self._lock:
            if name == self._phase:
                return
            now = time.monotonic()
            self._series.spent(self._phase, now - self._phase_began)
            self._phase, self._phase_began, self._switched = name, now, True
            self._lock.notify()

    def record(self) -> MemoryRecord:
        """Everything up to now."""
        with self._lock:
            now = time.monotonic()
            if not self._stopping:
                self._series.spent(self._phase, now - self._phase_began)
                self._phase_began = now
            return MemoryRecord(
                device=self._source.device,
                baseline_used_bytes=self._baseline,
                peaks=self._series.peaks(),
                series=self._series.points(),
                interval_s=self._interval,
                lost=self._lost,
            )

    def stop(self) -> None:
        """End the thread; one that hangs in the driver is left behind (it is a daemon)."""
        with self._lock:
            if not self._stopping:
                self._series.spent(self._phase, time.monotonic() - self._phase_began)
            self._stopping = True
            self._lock.notify()
        if self._thread.is_alive():
            self._thread.join(_STOP_LIMIT_S)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            with self._lock:
                while not self._stopping and not self._switched and (wait := due - time.monotonic()) > 0:
                    self._lock.wait(wait)
                if self._stopping:
                    return
                self._switched = False
                phase, pid = self._phase, self._pid
            self._take(phase, pid)
            now = time.monotonic()
            due = max(due + self._interval, now) if now >= due else due

    def _take(self, phase: Phase, pid: int | None) -> None:
        try:
            reading = self._source.read(pid)
        except GpuLost:
            reading = Reading(None, None, None)
        with self._lock:
            if self._stopping:
                return
            sample = self._sample(reading, phase, pid)
            if sample is None:
                self._lost += 1
                return
            self._latest = sample
            self._series.add(sample)
        if self._on_sample is not None:
            self._on_sample(sample)

    def _sample(self, reading: Reading, phase: Phase, pid: int | None) -> Sample | None:
        if reading.used_bytes is None and reading.host_bytes is None:
            return None
        if phase == "before":
            self._baseline = reading.used_bytes
        engine, basis = self._engine_bytes(reading, pid)
        return Sample(
            t=time.monotonic() - self._began,
            phase=phase,
            engine_bytes=engine,
            used_bytes=reading.used_bytes,
            host_bytes=reading.host_bytes,
            basis=basis,
            gpu_util=reading.gpu_util,
        )

    def _engine_bytes(
        self, reading: Reading, pid: int | None
    ) -> tuple[int | None, Literal["process", "growth", "rss"] | None]:
        if pid is None:
            return None, None
        if self._source.device.kind == "host":
            return reading.host_bytes, None if reading.host_bytes is None else "rss"
        if reading.device_process_bytes is not None:
            return reading.device_process_bytes, "process"
        if reading.used_bytes is not None and self._baseline is not None:
            return max(0, reading.used_bytes - self._baseline), "growth"
        return None, None
