"""The answer of an experiment: what each factor is worth, and the best row of each line.

A line are the rows of one program on one target at one size by one goal; factors are what else
their requests vary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from eqsat.lab.rowtable import UNPROVEN, described, key_text, name_keys
from eqsat.report.formatting import elided, goal_text, table_text, us_text

if TYPE_CHECKING:
    from eqsat.lab.results import CellResult

MOST_VALUES = 8  # of a factor that are shown: half of them the best, half the worst
MOST_LINES = 12
SAME = 1.005  # a factor whose worst value is no more than this has no effect
BUSY = 1.5  # wall over CPU time from which on something else runs
Value = Callable[["CellResult"], float]


def line_of(o: CellResult) -> tuple[object, ...]:
    """The key of a row's line: rows of one compare."""
    c = o.cell
    return c.program, c.target, c.sizes, o.record.goals[0]["goal"]


def comparable_lines(outcomes: Iterable[CellResult]) -> list[list[CellResult]]:
    """The rows with an answer, by line."""
    lines: dict[object, list[CellResult]] = {}
    for o in outcomes:
        if o.has_answer:
            lines.setdefault(line_of(o), []).append(o)
    return list(lines.values())


def best_rows(line: Sequence[CellResult], value: Value | None = None) -> list[CellResult]:
    """The best row of a line and those as good: on the clock, whose intervals overlap its own."""
    worth = value or value_of(line)
    best = min(line, key=worth)
    if best.measured is None or worth is not measured_value:
        return [o for o in line if worth(o) == worth(best)]
    return [o for o in line if o.measured and o.measured.low_us <= best.measured.high_us]


def value_of(line: Sequence[CellResult]) -> Value:
    """The figure that ranks a line: the clock's if all rows have one, else the first goal's."""
    return measured_value if all(o.measured for o in line) else goal_value


def measured_value(o: CellResult) -> float:
    assert o.measured is not None
    return o.measured.median_us


def goal_value(o: CellResult) -> float:
    return o.first_goal


def grid_factors(outcomes: Sequence[CellResult]) -> tuple[str, ...]:
    """The factors of a grid; a list of rows has none."""
    beside = ("row", "program", "target", "sizes", "goals")
    return tuple(k for k in name_keys(outcomes) if k.partition(".")[0] not in beside)


def effects(outcomes: Sequence[CellResult], value: Value) -> dict[str, list[tuple[str, float]]]:
    """Per factor its values with their main effects, the best first.

    An effect is how many times the best of all rows that differ in this factor alone a value
    takes, as the geometric mean over all such rows.
    """
    lines = comparable_lines(outcomes)
    factors = grid_factors(outcomes)
    found: dict[str, list[tuple[str, float]]] = {}
    for factor in factors:
        shares: dict[str, list[float]] = {}
        for block in (b for line in lines for b in _blocks(line, factors, factor)):
            least = min(map(value, block))
            for o in block:
                if least > 0:
                    shares.setdefault(key_text(o, factor), []).append(math.log(value(o) / least))
        means = [(v, math.exp(sum(x) / len(x))) for v, x in shares.items()]
        found[factor] = sorted(means, key=lambda m: m[1])
    return {factor: means for factor, means in found.items() if means}


def _blocks(
    line: Sequence[CellResult], factors: Sequence[str], factor: str
) -> list[list[CellResult]]:
    """Rows of a line that differ in this factor alone, where there are several."""
    blocks: dict[tuple[str, ...], list[CellResult]] = {}
    for o in line:
        blocks.setdefault(tuple(key_text(o, k) for k in factors if k != factor), []).append(o)
    return [b for b in blocks.values() if len(b) > 1]


# ---- text ----------------------------------------------------------------------------------------
def effect_tables(outcomes: Sequence[CellResult]) -> dict[str, list[tuple[str, str]]]:
    """By a heading (factor, its values by their effect); none where nothing can be compared."""
    answered = [o for o in outcomes if o.has_answer]
    goals = ", ".join(dict.fromkeys(o.record.goals[0]["goal"] for o in answered))
    figures = {f"predicted {goals}": goal_value}
    if answered and all(o.measured for o in answered):
        figures["measured time"] = measured_value
    tables = {}
    for what, value in figures.items():
        rows = [(k, _values(means)) for k, means in effects(answered, value).items()]
        if rows:
            head = f"effect of each factor on {what}, times the best of rows equal but for it"
            tables[head] = rows
    return tables


def effect_lines(outcomes: Sequence[CellResult], width: int = 0) -> list[str]:
    """The tables of effects as lines, no longer than this if it is not 0."""
    lines = []
    for head, rows in effect_tables(outcomes).items():
        room = max(len(factor) for factor, _ in rows)
        lines += [head, *(f"  {factor.ljust(room)}  {values}" for factor, values in rows)]
    if not width:
        return lines
    return [part for line in lines for part in wrap(line, width, subsequent_indent=" " * 6)]


def _values(means: Sequence[tuple[str, float]]) -> str:
    if means[-1][1] <= SAME:
        return f"no effect ({len(means)} values)"
    texts = [f"{elided(v, 30)} {mean:.2f}x" for v, mean in means]
    if len(texts) > MOST_VALUES:
        half = MOST_VALUES // 2
        texts[half:-half] = [f"… {len(texts) - MOST_VALUES} more …"]
    return ", ".join(texts)


def best_table(
    outcomes: Sequence[CellResult],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(columns, rows): the best row of each line with several, and how much the worst takes."""
    lines = [line for line in comparable_lines(outcomes) if len(line) > 1]
    keys = name_keys(outcomes)
    rows = [_best_row(line, keys) for line in lines]
    columns = ("program", "target", "value", "worst", "best")
    if len({r[1] for r in rows}) == 1:  # the table of rows names it
        return ("program", *columns[2:]), [(r[0], *r[2:]) for r in rows]
    return columns, rows


def best_lines(outcomes: Sequence[CellResult], width: int = 0) -> list[str]:
    """The table of best rows as lines, no longer than this if it is not 0."""
    columns, rows = best_table(outcomes)
    if not rows:
        return []
    shown = rows[:MOST_LINES]
    if width:
        rest = sum(2 + max(len(r[i]) for r in (columns, *shown)) for i in range(len(columns) - 1))
        shown = [(*r[:-1], elided(r[-1], max(width - rest, LEAST_BEST))) for r in shown]
    more = len(rows) - len(shown)
    text = table_text(columns, shown).rstrip("\n").splitlines()
    return [*text, *([f"and {more} more: `--pivot` shows all"] if more else [])]


LEAST_BEST = 16


def _best_row(line: Sequence[CellResult], keys: Sequence[str]) -> tuple[str, ...]:
    value = value_of(line)
    best = best_rows(line, value)
    first = min(best, key=value)
    worst = max(map(value, line))
    figure = us_text(value(first)) if value is measured_value else goal_text(
        first.record.goals[0]["goal"], round(value(first))
    )  # fmt: skip
    mark = "" if first.is_proven or value is measured_value else f" {UNPROVEN}"
    share = f"{worst / value(first):.2f}x" if value(first) else "–"
    names = key_text(first, "program"), key_text(first, "target")
    return (*names, figure + mark, share, described(best, line, keys))


def busy_line(outcomes: Iterable[CellResult]) -> str:
    """A warning where calls took far longer than the processor worked on them; else ""."""
    shares = [
        o.measured.median_us / o.measured.cpu_us
        for o in outcomes
        if o.measured and o.measured.cpu_us and o.is_of_this_processor
    ]
    worst = max(shares, default=0.0)
    if worst < BUSY:
        return ""
    return (
        f"the machine is busy: calls took up to {worst:.1f} times their CPU time; compare CPU,"
        " or measure again with nothing else running"
    )
