"""What earlier sessions measured beside weights and KV, of the same model on the same card."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvtui.procedure.budget.money import MeasuredRuntime

if TYPE_CHECKING:
    from kvtui.session.events import SessionStarted

NEWEST = 50
MAX_START_BYTES = 1 << 20
MAX_SESSION_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Measurements:
    """The newest sessions on a card of one name, newest first: each with the hash of its model's header."""

    sessions: tuple[tuple[str, Path], ...] = ()

    def of(self, header_sha256: str) -> tuple[MeasuredRuntime, ...]:
        """What the newest session of this model that measured any tells, one entry for each run."""
        for sha, folder in self.sessions:
            if sha == header_sha256 and (found := _runs(folder)):
                return found
        return ()


def read_measurements(device_name: str | None) -> Measurements:
    """What the newest 50 sessions say they are of; none where no card is known. Reads the first line of each.

    Sessions that were imported are left out: their card is another one.
    """
    if device_name is None:
        return Measurements()
    return Measurements(
        tuple(
            (started.model.header_sha256, folder)
            for folder, started in newest_sessions()
            if started.device.kind != "host" and started.device.name == device_name
        )
    )


def pick(
    found: Sequence[MeasuredRuntime], n_ubatch: int, layers: tuple[int | None, int | None]
) -> MeasuredRuntime | None:
    """The run that held most, of those with that micro-batch and as many layers and experts on the GPU."""
    same = [one for one in found if one.n_ubatch == n_ubatch and one.layers == in_full(*layers)]
    return max(same, key=lambda one: one.n_bytes, default=None)


def in_full(n_gpu_layers: int | None, n_cpu_moe: int | None) -> tuple[int | None, int]:
    """`-ngl` and `--n-cpu-moe` so that what means the same is the same: None is all layers, and 0 no experts."""
    return None if n_gpu_layers is None or n_gpu_layers >= 999 else n_gpu_layers, n_cpu_moe or 0


def newest_sessions() -> Iterator[tuple[Path, SessionStarted]]:
    """The newest 50 sessions of this machine that can be read, newest first, each with how it began."""
    from kvtui.core.errors import SessionError
    from kvtui.session.store import is_imported, list_folders

    for folder in reversed(list_folders()[-NEWEST:]):
        if is_imported(folder):
            continue
        try:
            started = _first_event(folder)
        except (OSError, SessionError):
            continue
        if started is not None:
            yield folder, started


def _first_event(folder: Path) -> SessionStarted | None:
    from kvtui.session.codec import decode_foreign
    from kvtui.session.events import SessionStarted
    from kvtui.session.store import EVENTS

    with (folder / EVENTS).open("rb") as file:
        event = decode_foreign(file.readline(MAX_START_BYTES).rstrip(b"\n"))
    return event if isinstance(event, SessionStarted) else None


def _runs(folder: Path) -> tuple[MeasuredRuntime, ...]:
    from kvtui.core.errors import SessionError
    from kvtui.procedure.forecast import measured_overhead
    from kvtui.session.store import EVENTS, load

    try:
        if os.path.getsize(folder / EVENTS) > MAX_SESSION_BYTES:
            return ()
        state = load(folder)
    except (OSError, SessionError):
        return ()
    found = []
    for run in state.runs:
        held = measured_overhead(state, run) if run.outcome == "ok" else None
        if held is not None:
            layers = in_full(run.config.n_gpu_layers, run.config.n_cpu_moe)
            found.append(
                MeasuredRuntime(held, folder.name, run.number, run.config.n_ctx, run.config.n_ubatch, layers)
            )
    return tuple(found)
