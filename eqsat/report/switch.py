"""A switch between programs by size, as tables: ranges, break-evens, and what was searched."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.sizeswitch import SizeRange, SizeSwitch, Values
from eqsat.report.finished import Finished, by_figures
from eqsat.report.formatting import count_text, goal_text, table_text
from eqsat.report.pareto import telling_contents


def switch_text(table: SizeSwitch, runs: Sequence[Finished]) -> str:
    """Which program runs at which sizes, what both cost where it changes, and what is proven."""
    name, (first, last, _) = table.symbol, table.sizes
    title = f"{runs[0].program.name} on {runs[0].target.name}, {name} = {first}..{last}"
    columns = (name, "program", f"{table.goals[0]} from", "to", "what is in it")
    body = [title, "", table_text(columns, _ranges(table, runs)).rstrip(), ""]
    if len(table.ranges) > 1:
        columns = (name, "program", *table.goals[:1], "the other", "")
        body += [table_text(columns, _break_evens(table, runs[0])).rstrip(), ""]
    return "\n".join([*body, _searched(table), ""])


def _ranges(table: SizeSwitch, runs: Sequence[Finished]) -> list[tuple[str, ...]]:
    contents, prices = telling_contents(runs), dict(table.prices)

    def row(r: SizeRange) -> tuple[str, ...]:
        ends = (_text(table, prices[size][r.program]) for size in (r.first, r.last))
        return f"{r.first}..{r.last}", str(r.program + 1), *ends, contents[r.program]

    return [row(r) for r in table.ranges]


def _break_evens(table: SizeSwitch, run: Finished) -> list[tuple[str, ...]]:
    """Two rows for each: the last size before the change, and the first one after it."""
    rows: list[tuple[str, ...]] = []
    words = {True: f"proven{by_figures(run.target, run.goals)}", False: "~ not proven"}
    for b in table.break_evens():
        for i, (size, values) in enumerate(zip(b.sizes, b.values, strict=True)):
            runs, other = (_text(table, values[k]) for k in (i, 1 - i))
            rows.append((str(size), str(b.programs[i] + 1), runs, other, words[b.proven[i]]))
    return rows


def _text(table: SizeSwitch, values: Values) -> str:
    return goal_text(table.goals[0], values[0]) if values else "not legal"


def _searched(table: SizeSwitch) -> str:
    first, last, step = table.sizes
    count, sizes = len(table.prices), len(range(first, last + 1, step))
    most = f"; what runs is within {table.within:.1%} of the best known" if table.within else ""
    searches = count_text(len(table.searches), "search", "searches")
    return f"{searches}; priced at {count:,} of {sizes:,} sizes{most}"
