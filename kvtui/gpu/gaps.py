"""The times in which memory could not be read, and when to look again for a device that is lost."""

from __future__ import annotations

from dataclasses import replace

from kvtui.gpu.samples import Gap

STALL_S = 1.0
"""A reading that takes longer is a gap: memory was not seen in that time."""
RECOVER_S = 1.0
MAX_GAPS = 32


class Gaps:
    """Told of every reading; times are seconds of the sampler's clock."""

    def __init__(self) -> None:
        self._gaps: list[Gap] = []
        self._open: Gap | None = None
        self._reading_since: float | None = None
        self._recover_due = 0.0

    @property
    def lost(self) -> str:
        """Why the device is lost; empty while it is not."""
        return "" if self._open is None else self._open.why

    def due(self, now: float) -> bool:
        """Whether a lost device is to be looked for now; if so, not again within RECOVER_S."""
        if now < self._recover_due:
            return False
        self._recover_due = now + RECOVER_S
        return True

    def begin(self, now: float) -> None:
        """A reading begins."""
        self._reading_since = now

    def failed(self, began: float, now: float, why: str) -> None:
        """The reading that began at `began` ended without a device."""
        self._reading_since = None
        if self._open is None:
            self._open = Gap(began, None, why)
            self._recover_due = now

    def came(self, began: float, now: float) -> None:
        """The reading that began at `began` came, however late."""
        self._reading_since = None
        if self._open is not None:
            self._gaps.append(replace(self._open, seconds=now - self._open.t))
            self._open = None
        elif now - began > STALL_S:
            self._gaps.append(Gap(began, now - began, "the driver did not answer"))
        del self._gaps[MAX_GAPS:]

    def upto(self, now: float) -> tuple[Gap, ...]:
        """All gaps, the one that lasts included."""
        if self._open is not None:
            return (*self._gaps, self._open)
        since = self._reading_since
        if since is None or now - since <= STALL_S:
            return tuple(self._gaps)
        return (*self._gaps, Gap(since, None, "the driver did not answer"))
