"""What the clocks of a run show: that kvtui stood still, that the box slept, that the time of day was set."""

from __future__ import annotations

from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import duration
from kvtui.procedure.clocks import TICK_S, Disturbed
from kvtui.procedure.findings.kind import Kind

STOOD_STILL_S = 5.0
DRIFT_S = 2.0

CATALOGUE: tuple[Kind, ...] = (
    Kind(
        "kvtui-stood-still", "warning", f"two ticks of {TICK_S} s were more than {STOOD_STILL_S:.0f} s apart"
    ),
    Kind(
        "box-slept",
        "warning",
        f"the clock that counts sleep went more than {DRIFT_S:.0f} s further than the other",
    ),
    Kind(
        "clock-jumped",
        "info",
        f"calendar time changed by more than {DRIFT_S:.0f} s against the time that passed",
    ),
)


def clock_findings(seen: Disturbed) -> tuple[Finding, ...]:
    """What of it an operator should know."""
    found = []
    if seen.stood_still_s > STOOD_STILL_S:
        found.append(
            Finding(
                "kvtui-stood-still",
                "warning",
                f"kvtui did not run for {duration(seen.stood_still_s)}",
                "it was suspended (Ctrl+Z, SIGSTOP) or the box was too busy; the engine went on. Peaks of that time"
                " were not sampled, and a first token that came then is timed too late",
                "the same run again; tmux keeps a session running when its terminal goes",
                (Evidence(None, f"two ticks of {TICK_S} s were {seen.stood_still_s:.1f} s apart"),),
            )
        )
    if seen.slept_s > DRIFT_S:
        found.append(
            Finding(
                "box-slept",
                "warning",
                f"The box slept for {duration(seen.slept_s)} during this run",
                "the GPU loses its clocks, and maybe its memory, when the box sleeps",
                "the same run again with sleep inhibited: systemd-inhibit kvtui ..",
                (Evidence(None, f"the clock that counts sleep went {seen.slept_s:.1f} s further"),),
            )
        )
    if abs(seen.set_by_s) > DRIFT_S:
        found.append(
            Finding(
                "clock-jumped",
                "info",
                f"The clock was set {'forward' if seen.set_by_s > 0 else 'back'} by {duration(abs(seen.set_by_s))}",
                "times of day in the record are off by that much; durations and speeds are not: they do not use it",
                "",
                (Evidence(None, f"calendar time changed {seen.set_by_s:+.1f} s against time passed"),),
            )
        )
    return tuple(found)
