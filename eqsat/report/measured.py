"""The programs that `--measure` timed, as lines of a terminal."""

from __future__ import annotations

from eqsat.model.measured import INPUT_BY_XLA, Measured
from eqsat.report.units import PS_PER_US, goal_text


def measured_lines(found: Measured | None) -> list[str]:
    """A table of the programs and which was kept; nothing if none was timed."""
    if found is None:
        return []
    count = len(found.programs)
    asked = f"{count} of {found.asked} programs" if count < found.asked else f"{count} programs"
    told = f"{asked} in {found.rounds} interleaved rounds"
    head = f"{'':14} {'predicted':>10} {'measured':>10} {'process':>10} {'times faster':>14}"
    return ["", f"measured {told}", head, *_rows(found), _kept(found)]


def _rows(found: Measured) -> list[str]:
    rows = []
    for i, p in enumerate(found.programs):
        known = "–" if p.predicted_us is None else _time(p.predicted_us)
        middle, low, high = p.ratio
        ratio = "1.00x" if i == 0 else f"{middle:.2f}x [{low:.2f}, {high:.2f}]"
        times = f"{known:>10} {_time(p.wall_us):>10} {_time(p.cpu_us):>10}"
        rows.append(f"{p.name:14} {times} {ratio:>14}")
    return rows


def _time(us: float) -> str:
    return goal_text("time", round(us * PS_PER_US))


def _kept(found: Measured) -> str:
    kept = found.programs[found.kept]
    if found.kept == 0:
        return "kept: chosen, as nothing is surely faster"
    told = ": the function itself, as XLA compiles it" if kept.origin == INPUT_BY_XLA else ""
    return f"kept: {kept.name}{told}"
