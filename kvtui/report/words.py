"""How the report words a measurement: the same everywhere, and `not measured` where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable

from kvtui.core.units import MIB, duration, rate, signed_size, size, tokens
from kvtui.procedure.forecast import forecast_error
from kvtui.procedure.steps import PURPOSES
from kvtui.procedure.variables import BY_NAME
from kvtui.report.run_facts import ContextSize, KvBytes, RunFacts
from kvtui.session.state import RunRecord

NOT_MEASURED = "not measured"
NOT_PROVEN = "not proven"


def measured(value: float | None, write: Callable[[float], str], missing: str = NOT_MEASURED) -> str:
    """`value` as `write` words it, or `missing` when there is none."""
    return write(value) if value is not None and math.isfinite(value) else missing


def count(value: int | None, missing: str = NOT_PROVEN) -> str:
    """A token count, or `not proven`."""
    return missing if value is None else tokens(value)


def bytes_(value: float | None) -> str:
    """A size in bytes."""
    return measured(value, size)


def kv_bytes(value: float | None, missing: str = NOT_PROVEN) -> str:
    """A KV size with the two decimals that the engine's log has."""
    return measured(value, lambda n: f"{n / MIB:,.2f} MiB", missing)


def speed(value: float | None) -> str:
    """Tokens per second."""
    return measured(value, rate)


def spread(value: float | None, extremes: tuple[float, float] | None) -> str:
    """A speed with the slowest and fastest of its repeats: `31.2 t/s (30.8 to 31.4)`."""
    if value is None or extremes is None or not all(map(math.isfinite, (value, *extremes))):
        return speed(value)
    return f"{rate(value)} ({extremes[0]:,.1f} to {extremes[1]:,.1f})"


def seconds(value: float | None) -> str:
    """A time."""
    return measured(value, duration)


def quantization(quant: str, run: RunFacts) -> str:
    """Weights and KV, always together: `Q4_K_M weights, q8_0/q8_0 KV`."""
    kv = f"{run.kv_types} KV" if run.kv_types else f"{run.record.config.kv_types} KV (asked, not proven)"
    return f"{quant or 'unknown'} weights, {kv}"


def label(variable: str) -> str:
    """How a person calls a variable: `KV types` for `kv-types`."""
    known = BY_NAME.get(variable)
    return known.label if known is not None else variable


def purpose(value: str) -> str:
    """What a run was for, in words."""
    return next((title for name, title in PURPOSES.items() if name == value), value)


def outcome(run: RunRecord) -> str:
    """How a run ended."""
    return run.outcome or ("interrupted" if run.interrupted else "in progress")


def changed(run: RunFacts) -> str:
    """What a run changed: `KV types f16/f16 → q8_0/q8_0`, and what moved without being meant to."""
    change = run.record.change
    if change is None:
        return f"nothing: {purpose(run.record.purpose)}"
    moved = "".join(f"; also {label(m.variable)} {m.before} → {m.after}" for m in run.hidden)
    return (
        f"{label(change.variable)} {change.before} → {change.after}{moved} (against run {change.against_run})"
    )


def share(found: tuple[int, int] | None) -> str:
    """`4 of 5`."""
    return NOT_MEASURED if found is None else f"{found[0]} of {found[1]}"


def percent(part: float | None) -> str:
    """0.94 as `94 %`."""
    return measured(part, lambda p: f"{p * 100:.0f} %")


def context(sizes: ContextSize) -> str:
    """Asked, allocated, usable and used, in this order."""
    used = NOT_MEASURED if sizes.used is None else f"{sizes.used:,}"
    return (
        f"asked {tokens(sizes.asked)}, allocated {count(sizes.allocated)}, "
        f"usable per slot {count(sizes.per_slot)}, used {used}"
    )


def kv(sizes: KvBytes) -> str:
    """Forecast against proven, with the difference."""
    forecast = kv_bytes(sizes.forecast, "none")
    if sizes.forecast is not None and sizes.exactness:
        forecast = f"{forecast} ({sizes.exactness})"
    proven = kv_bytes(sizes.proven)
    if sizes.difference is None or sizes.rounding is None:
        return f"forecast {forecast}, proven {proven}"
    small = abs(sizes.difference) <= sizes.rounding
    gap = "none beyond the log's rounding" if small else gap_of(sizes.difference)
    return f"forecast {forecast}, proven {proven}, difference {gap}"


def forecast(run: RunFacts) -> str:
    """The engine's memory as it was forecast, and how far off that was."""
    expected = run.record.forecast.total_bytes if run.record.forecast is not None else None
    if expected is None:
        return "none"
    found = next((e for e in forecast_error(run.record) if e.what == "engine"), None)
    if found is None:
        return size(expected)
    return f"{size(expected)}, measured {signed_size(found.error)} ({found.share * 100:+.1f} %)"


def gap_of(n_bytes: int) -> str:
    """A difference that is never worded as nothing: below 0.05 MiB in bytes."""
    return signed_size(n_bytes) if abs(n_bytes) >= 0.05 * MIB else f"{n_bytes:+,} B"
