"""Figures as people read them: times, bytes, counts, shares."""

from __future__ import annotations

from collections.abc import Sequence

PS_PER_US = 1e6
SIZES = ("memory", "relayout", "resident", "load_peak")  # goals that are bytes
_TIMES = (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3), ("ps", 1))
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def time_text(ps: int | float) -> str:
    """Picoseconds with three significant digits: `41.2 us`."""
    for unit, scale in _TIMES:
        if abs(ps) >= scale:
            return f"{_three(ps / scale)} {unit}"
    return "0 ps"


def bytes_text(n: int) -> str:
    """`512 KiB`, `1.5 MiB`; whole bytes below 1 KiB."""
    for unit, scale in _SIZES:
        if abs(n) >= scale:
            return f"{_three(n / scale)} {unit}"
    return f"{n} B"


def seconds_text(seconds: float | None) -> str:
    """Wall time of a phase: `4 ms`, `1.9 s`; a dash if the phase did not run."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def goal_text(goal: str, value: int) -> str:
    """A goal's value in its unit."""
    if goal == "time":
        return time_text(value)
    if goal == "weighted":  # a sum of goals, in millionths of it
        return f"{_three(value / 1e4)} %"
    return bytes_text(value) if goal in SIZES else f"{value:,}"


def us_text(us: float) -> str:
    """Microseconds, as JSON has them, with three significant digits: `41.2 us`."""
    return time_text(us * PS_PER_US)


def delta_text(goal: str, value: int) -> str:
    """A signed difference in the goal's unit: `+9.8 us`."""
    return f"{'-' if value < 0 else '+'}{goal_text(goal, abs(value))}"


def count_text(n: int, one: str, many: str = "") -> str:
    """`1 op`, `2 ops`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def ratio_text(before: int, after: int) -> str:
    """How the chosen program compares: `0.38x`; `1.00x` if both are nothing."""
    if before == after:
        return "1.00x"
    return f"{after / before:.2f}x" if before else "–"


def _three(x: float) -> str:
    digits = 0 if abs(x) >= 100 else 1 if abs(x) >= 10 else 2
    text = f"{x:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def table_text(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns aligned by spaces; figures to the right, the first and last column to the left."""
    table = [columns, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    last = len(columns) - 1
    lines = [
        "  ".join(
            c.ljust(w) if i in (0, last) else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join(lines) + "\n"
