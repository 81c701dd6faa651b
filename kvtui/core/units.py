"""Units and how they are written: binary sizes, token counts, rates, durations."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def mib(n_bytes: float) -> str:
    """Bytes as MiB with one decimal below 1,000 MiB: `12.8 MiB`, `1,536 MiB`."""
    value = n_bytes / MIB
    return f"{value:,.1f} MiB" if abs(value) < 1000 else f"{value:,.0f} MiB"


def gib(n_bytes: float, digits: int = 1) -> str:
    """Bytes as GiB: `9.9 GiB`."""
    return f"{n_bytes / GIB:.{digits}f} GiB"


def size(n_bytes: float) -> str:
    """Bytes in the unit a person would choose: MiB below 1 GiB, else GiB with two decimals."""
    return gib(n_bytes, 2) if abs(n_bytes) >= GIB else mib(n_bytes)


def signed_size(n_bytes: float) -> str:
    """A difference of sizes, always with its sign: `+12.8 MiB`, `-1.20 GiB`, `±0 MiB`."""
    if abs(n_bytes) < 0.05 * MIB:
        return "±0 MiB"
    return ("+" if n_bytes > 0 else "-") + size(abs(n_bytes))


def tokens(n: int) -> str:
    """A token count: exact multiples of 1,024 as `32K`, all others in full as `45,056`... `1,000`."""
    return f"{n // 1024}K" if n >= 1024 and n % 1024 == 0 else f"{n:,}"


def rate(per_second: float | None) -> str:
    """Tokens per second with three significant figures: `1,412 t/s`, `48.1 t/s`, `n/a`."""
    if per_second is None:
        return "n/a"
    if per_second >= 100:
        return f"{per_second:,.0f} t/s"
    return f"{per_second:.1f} t/s" if per_second >= 10 else f"{per_second:.2f} t/s"


def duration(seconds: float | None) -> str:
    """Seconds as `0.4 s`, `11.6 s`, `1:42`, `1:02:03`, or `n/a`."""
    if seconds is None:
        return "n/a"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"
