"""The page of an experiment: its table and figure, what rows lead to, and each row's dispatches."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from eqsat.lab.pages import RowPages
from eqsat.lab.results import COLUMNS, CellResult, Results
from eqsat.report.facts import goal_key
from eqsat.report.html import document, html_table, pre
from eqsat.report.units import goal_text, us_text

BESIDE = "vs best"  # the column of comparisons
_FIGURES = (*range(4, 11), len(COLUMNS), len(COLUMNS) + 1)  # columns of figures


def results_page(results: Results, pages: Mapping[str, RowPages]) -> str:
    """The whole page; pages: what rows lead to, by name."""
    columns, rows, links = _linked(results, pages)
    notes = results.proof_lines()
    drawn, _ = results.drawn
    body = [
        f"<h1>{escape(results.name)}</h1>",
        f'<p class="soft">{escape(results.doc)}</p>',
        html_table(columns, rows, _FIGURES, links),
        *(f'<p class="soft">{escape(n)}</p>' for n in (*notes, *results.rule_check_lines())),
        *([f"<figure>{drawn}</figure>"] if drawn else []),
        "<h2>Rows</h2>",
        *map(_row, results.outcomes),
    ]
    return document(results.name, "\n".join(body))


def _linked(
    results: Results, pages: Mapping[str, RowPages]
) -> tuple[tuple[str, ...], list[tuple[str, ...]], dict[tuple[int, int], str]]:
    """Columns, rows, and what the cells of names and of comparisons lead to."""
    columns, rows = results.cells()
    links: dict[tuple[int, int], str] = {}
    is_compared = any(p.comparison for p in pages.values())
    if is_compared:
        columns, rows = (*columns, BESIDE), [(*row, "") for row in rows]
    for i, o in enumerate(results.outcomes):
        found = pages.get(o.cell.name)
        if found is None:
            continue
        links[i, 0] = found.page
        if found.comparison:
            rows[i] = (*rows[i][:-1], found.difference or "equal")
            links[i, len(columns) - 1] = found.comparison
    return columns, rows, links


def _row(o: CellResult) -> str:
    title = f"<summary>{escape(o.cell.name)}: {escape(o.status_text())}</summary>"
    if not o.has_answer:
        text = "\n\n".join(d.full() for d in o.record.diagnostics)
        return f"<details>{title}{pre(text)}</details>"
    asked = f"rules {', '.join(o.cell.rules)}; {', '.join(o.cell.set) or 'target as it is'}"
    kept = f"; kept in {o.record.folder}" if o.record.folder else ""
    rows = [
        (str(d["dispatch"]), d["name"], d["reads"], d["writes"], us_text(d["time_us"]),
         d["bound"] or "")
        for d in o.record.dispatches
    ]  # fmt: skip
    columns = ("", "dispatch", "reads", "writes", "time", "bound")
    goals = [
        (g["goal"], *(_figure(g["goal"], g[k]) for k in ("input", "value", "bound")))
        for g in o.record.goals
    ]
    parts = [
        f'<p class="soft">{escape(asked + kept)}</p>',
        html_table(("goal", "input", "answer", "bound"), goals, range(1, 4)),
        html_table(columns, rows, (0, 4)),
    ]
    return f"<details>{title}{chr(10).join(parts)}</details>"


def _figure(goal: str, scaled: float | None) -> str:
    """A goal's figure as people read it; `scaled` is in the unit of the summary."""
    return "–" if scaled is None else goal_text(goal, round(scaled * goal_key(goal)[1]))
