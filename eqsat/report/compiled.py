"""What compilers told of a run, and which programs were timed: tables of terminal and page."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.model.compiled import INPUT_BY_XLA, Checked, Figures, Measured, Told
from eqsat.report.units import PS_PER_US, bytes_text, goal_text

TOLD_COLUMNS = ("", "answer", "plain program", "predicted")
CHECKED_COLUMNS = ("program", "predicted", "cycles", "kernels", "memory", "scratch", "copies")
PLAIN = {"function": "the traced function", "program": "the ops of the input"}
NAMES = {"cycles": "cycles", "kernels": "kernels", "peak_bytes": "peak memory"}
UNKNOWN = "–"  # a compiler does not tell


def _count(n: int | None) -> str:
    return UNKNOWN if n is None else f"{n:,}"


def _bytes(n: int | None) -> str:
    return UNKNOWN if n is None else bytes_text(n)


def _cycles(f: Figures) -> str:
    """A lower bound where kernels have none of their own."""
    return UNKNOWN if f.cycles is None else f"{'≥ ' if f.uncounted else ''}{f.cycles:,}"


ROWS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("kernels", lambda f: _count(f.kernels)),
    ("peak memory", lambda f: _bytes(f.peak_bytes)),
    ("scratch of a kernel", lambda f: _bytes(f.scratch_bytes)),
    ("registers", lambda f: _count(f.registers)),
    ("spilled", lambda f: _bytes(f.spill_bytes)),
    ("cycles, estimated", _cycles),
    ("kernels without cycles", lambda f: _count(len(f.uncounted)) if f.cycles is not None else "–"),
    ("copies that change a layout", lambda f: _count(f.relayout_copies)),
)


def told_rows(told: Told) -> list[tuple[str, ...]]:
    """Rows of TOLD_COLUMNS; what no compiler tells of either side is left out."""
    p = told.predicted
    model = {
        "kernels": _count(p.dispatches),
        "peak memory": bytes_text(p.peak_bytes),
    }
    rows = [(name, f(told.chosen), f(told.plain), model.get(name, "")) for name, f in ROWS]
    known = [r for r in rows if {r[1], r[2]} != {UNKNOWN} or r[3]]
    return [*known, ("time", "", "", goal_text("time", p.time_ps))]


def told_head(told: Told) -> str:
    """Who was asked, about what."""
    return (
        f"{told.device}, by {told.asked.compiler}; weights are {told.weights}; plain program:"
        f" {PLAIN[told.plain_is]}; predicted on {told.predicted.target}"
    )


def refusals(told: Told) -> list[str]:
    """What the compiler does not take, in its words."""
    sides = (("the answer", told.chosen), ("the plain program", told.plain))
    return [f"refuses {what}: {f.refused}" for what, f in sides if f.refused is not None]


def told_lines(told: Told) -> list[str]:
    """All of it, for a terminal."""
    from eqsat.report.text import table_text

    table = table_text(TOLD_COLUMNS, told_rows(told)).splitlines()
    return [told_head(told), *table, *refusals(told)]


def checked_rows(found: Checked) -> list[tuple[str, ...]]:
    """Rows of CHECKED_COLUMNS: every program that was asked about."""
    return [
        (
            p.name,
            UNKNOWN if p.predicted_us is None
            else goal_text("time", round(p.predicted_us * PS_PER_US)),
            _cycles(p.figures), _count(p.figures.kernels), _bytes(p.figures.peak_bytes),
            _bytes(p.figures.scratch_bytes), _count(p.figures.relayout_copies),
        )
        for p in found.programs
    ]  # fmt: skip


def checked_kept(found: Checked) -> str:
    """Which program was kept, and by which count."""
    kept = found.programs[found.kept]
    by = NAMES.get(found.count, "no count, as it tells none")
    base = found.programs[-1]
    own, theirs = (getattr(p.figures, found.count, None) for p in (kept, base))
    beside = ""
    if kept is not base and base.origin == INPUT_BY_XLA and own is not None and theirs:
        beside = f": {own / theirs:.2f} of the input's"
        if found.count == "cycles" and found.auto_cycles:
            beside += f", {own / found.auto_cycles:.2f} of it in the compiler's layouts"
    return f"kept by {found.oracle}: {kept.name}, by {by}{beside}"


def checked_lines(found: Checked | None) -> list[str]:
    """A table of the programs and which was kept; nothing if no compiler was asked."""
    from eqsat.report.text import table_text

    if found is None:
        return []
    rows = checked_rows(found)
    refused = [
        f"{p.name} is refused: {p.figures.refused}"
        for p in found.programs
        if p.figures.refused is not None
    ]
    head = f"asked {found.oracle} about {len(rows)} programs; weights are {found.weights}"
    table = table_text(CHECKED_COLUMNS, rows).splitlines()
    return ["", head, *table, *refused, checked_kept(found)]


# ---- programs that `--measure` timed -------------------------------------------------------------
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
