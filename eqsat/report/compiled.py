"""Compilers' answers about a run, and timed programs, as tables of terminal and page."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.model.compiled import INPUT_BY_XLA, Checked, Figures, Measured, Told
from eqsat.report.formatting import PS_PER_US, bytes_text, goal_text, table_text

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


def told_rows(answer: Told) -> list[tuple[str, ...]]:
    """Rows of TOLD_COLUMNS; what no compiler tells of either side is left out."""
    p = answer.predicted
    model = {
        "kernels": _count(p.dispatches),
        "peak memory": bytes_text(p.peak_bytes),
    }
    rows = [(name, f(answer.chosen), f(answer.plain), model.get(name, "")) for name, f in ROWS]
    counted = [r for r in rows if {r[1], r[2]} != {UNKNOWN} or r[3]]
    return [*counted, ("time", "", "", goal_text("time", p.time_ps))]


def told_head(answer: Told) -> str:
    """The compiler that was asked, and the program."""
    return (
        f"{answer.device}, by {answer.asked.compiler}; weights are {answer.weights}; plain program:"
        f" {PLAIN[answer.plain_is]}; predicted on {answer.predicted.target}"
    )


def refusals(answer: Told) -> list[str]:
    """Programs the compiler refuses, in its words."""
    sides = (("the answer", answer.chosen), ("the plain program", answer.plain))
    return [f"refuses {what}: {f.refused}" for what, f in sides if f.refused is not None]


def told_lines(answer: Told) -> list[str]:
    """The answers as lines for a terminal."""
    table = table_text(TOLD_COLUMNS, told_rows(answer)).splitlines()
    return [told_head(answer), *table, *refusals(answer)]


def checked_rows(checked: Checked) -> list[tuple[str, ...]]:
    """Rows of CHECKED_COLUMNS: every program that was asked about."""
    return [
        (
            p.name,
            UNKNOWN if p.predicted_us is None
            else goal_text("time", round(p.predicted_us * PS_PER_US)),
            _cycles(p.figures), _count(p.figures.kernels), _bytes(p.figures.peak_bytes),
            _bytes(p.figures.scratch_bytes), _count(p.figures.relayout_copies),
        )
        for p in checked.programs
    ]  # fmt: skip


def checked_kept(checked: Checked) -> str:
    """Which program was kept, and by which count."""
    winner = checked.programs[checked.kept]
    by = NAMES.get(checked.count, "no count, as it tells none")
    base = checked.programs[-1]
    value, theirs = (getattr(p.figures, checked.count, None) for p in (winner, base))
    beside = ""
    if winner is not base and base.origin == INPUT_BY_XLA and value is not None and theirs:
        beside = f": {value / theirs:.2f} of the input's"
        if checked.count == "cycles" and checked.auto_cycles:
            beside += f", {value / checked.auto_cycles:.2f} of it in the compiler's layouts"
    return f"kept by {checked.oracle}: {winner.name}, by {by}{beside}"


def checked_lines(checked: Checked | None) -> list[str]:
    """A table of the programs and which was kept; nothing if no compiler was asked."""
    if checked is None:
        return []
    rows = checked_rows(checked)
    refused = [
        f"{p.name} is refused: {p.figures.refused}"
        for p in checked.programs
        if p.figures.refused is not None
    ]
    head = f"asked {checked.oracle} about {len(rows)} programs; weights are {checked.weights}"
    table = table_text(CHECKED_COLUMNS, rows).splitlines()
    return ["", head, *table, *refused, checked_kept(checked)]


# ---- programs that `--measure` timed -------------------------------------------------------------
def measured_lines(measured: Measured | None) -> list[str]:
    """A table of the programs and which was kept; nothing if none was timed."""
    if measured is None:
        return []
    count = len(measured.programs)
    counts = (
        f"{count} of {measured.asked} programs" if count < measured.asked else f"{count} programs"
    )
    sentence = f"{counts} in {measured.rounds} interleaved rounds"
    head = f"{'':14} {'predicted':>10} {'measured':>10} {'process':>10} {'times faster':>14}"
    return ["", f"measured {sentence}", head, *_rows(measured), _kept(measured)]


def _rows(measured: Measured) -> list[str]:
    rows = []
    for i, p in enumerate(measured.programs):
        predicted = "–" if p.predicted_us is None else _time(p.predicted_us)
        middle, low, high = p.ratio
        ratio = "1.00x" if i == 0 else f"{middle:.2f}x [{low:.2f}, {high:.2f}]"
        times = f"{predicted:>10} {_time(p.wall_us):>10} {_time(p.cpu_us):>10}"
        rows.append(f"{p.name:14} {times} {ratio:>14}")
    return rows


def _time(us: float) -> str:
    return goal_text("time", round(us * PS_PER_US))


def _kept(measured: Measured) -> str:
    winner = measured.programs[measured.kept]
    if measured.kept == 0:
        return "kept: chosen, as nothing is surely faster"
    note = ": the function itself, as XLA compiles it" if winner.origin == INPUT_BY_XLA else ""
    return f"kept: {winner.name}{note}"
