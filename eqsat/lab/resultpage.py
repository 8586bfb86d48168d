"""The page of an experiment, and the pages behind its rows.

Its table and figure, what rows lead to, and each row's dispatches; of each run a page, alone and
beside the best of its program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.lab.results import CellResult, Results
from eqsat.lab.rowtable import FIGURES, row_table
from eqsat.report.compare import compare_runs
from eqsat.report.compare.page import write_comparison
from eqsat.report.facts import goal_key
from eqsat.report.formatting import delta_text, document, goal_text, html_table, pre, us_text
from eqsat.run.saved import load_folder

if TYPE_CHECKING:
    from eqsat.lab.results import CellResult

# ---- pages of rows -------------------------------------------------------------------------------
MOST = 60  # rows that get pages if nobody asks for more: a page is a megabyte
PAGE = "report.html"
COMPARED = "compare"  # the folder of comparisons, below that of the results


@dataclass(frozen=True)
class RowPages:
    """Addresses below the folder of the results; the best row has no comparison.

    difference: by how much the first goal is more than that of the best row.
    """

    page: str
    comparison: str = ""
    difference: str = ""


def write_row_pages(outcomes: Sequence[CellResult], folder: Path) -> dict[str, RowPages]:
    """By row: the page of its run, and beside the best row of the same program and goal.

    Pages that are there stay: runs are kept by their content. Rows that are one run share theirs.
    """
    pages: dict[str, RowPages] = {}
    for o, best in _paired([o for o in outcomes if o.has_answer and o.folder is not None]):
        page = _page(o)
        address = page.relative_to(folder).as_posix()
        if best is None:
            pages[o.cell.name] = RowPages(address)
            continue
        beside = folder / COMPARED / f"{o.record.run[:16]}-{best.record.run[:16]}.html"
        if not beside.is_file():
            _compare(o, best, beside)
        goal = o.record.goals[0]["goal"]
        pages[o.cell.name] = RowPages(
            address, beside.relative_to(folder).as_posix(),
            delta_text(goal, o.first_goal - best.first_goal),
        )  # fmt: skip
    return pages


def _paired(rows: Sequence[CellResult]) -> Iterator[tuple[CellResult, CellResult | None]]:
    """Each row with the best one of its program; None for the best, and for the same program."""
    groups: dict[object, list[CellResult]] = {}
    for o in rows:
        key = o.cell.program, o.cell.sizes, o.record.goals[0]["goal"]
        groups.setdefault(key, []).append(o)
    for group in groups.values():
        best = min(group, key=lambda o: o.first_goal)
        for o in group:
            is_same = o.record.program_hash == best.record.program_hash
            yield o, None if is_same else best


def _page(o: CellResult) -> Path:
    assert o.folder is not None
    page = o.folder / PAGE
    if not page.is_file():
        load_folder(o.folder).report(page)
    return page


def _compare(o: CellResult, best: CellResult, path: Path) -> None:
    assert o.folder is not None
    assert best.folder is not None
    names = (o.cell.name, best.cell.name)
    comparison = compare_runs(load_folder(o.folder), load_folder(best.folder), names)
    path.parent.mkdir(exist_ok=True)
    pages = {r.cell.name: _from(path.parent, _page(r)) for r in (o, best)}
    write_comparison(comparison, path, pages)


def _from(folder: Path, page: Path) -> str:
    """The address of a page, seen from a folder beside that of the runs."""
    return Path("..", page.relative_to(folder.parent)).as_posix()


# ---- the page ------------------------------------------------------------------------------------
BESIDE = "vs best"  # the column of comparisons


def results_page(results: Results, pages: Mapping[str, RowPages]) -> str:
    """The whole page; pages: what rows lead to, by name."""
    columns, rows, links = _linked(results, pages)
    figures = tuple(i for i, c in enumerate(columns) if c in (*FIGURES, BESIDE))
    notes = results.proof_lines()
    drawn, _ = results.drawn
    body = [
        f"<h1>{escape(results.name)}</h1>",
        f'<p class="soft">{escape(results.doc)}</p>',
        html_table(columns, rows, figures, links),
        *(f'<p class="soft">{escape(n)}</p>' for n in (*notes, *results.rule_check_lines())),
        *([f"<figure>{drawn}</figure>"] if drawn else []),
        "<h2>Rows</h2>",
        *map(_row, results.outcomes),
    ]
    return document(results.name, "\n".join(body))


def _linked(
    results: Results, pages: Mapping[str, RowPages]
) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]], dict[tuple[int, int], str]]:
    """Columns, rows, and what the cells of names and of comparisons lead to."""
    table = row_table(results.outcomes)
    columns, rows = table.columns, list(table.rows)
    links: dict[tuple[int, int], str] = {}
    is_compared = any(p.comparison for p in pages.values())
    if is_compared:
        columns, rows = (*columns, BESIDE), [(*row, "") for row in rows]
    for i, o in enumerate(results.outcomes):
        row_pages = pages.get(o.cell.name)
        if row_pages is None:
            continue
        links[i, 0] = row_pages.page
        if row_pages.comparison:
            rows[i] = (*rows[i][:-1], row_pages.difference or "equal")
            links[i, len(columns) - 1] = row_pages.comparison
    return columns, rows, links


def _row(o: CellResult) -> str:
    title = f"<summary>{escape(o.cell.name)}: {escape(o.status_text())}</summary>"
    if not o.has_answer:
        text = "\n\n".join(d.full() for d in o.record.diagnostics)
        return f"<details>{title}{pre(text)}</details>"
    request = f"rules {', '.join(o.cell.rules)}; {', '.join(o.cell.set) or 'target as it is'}"
    place = f"; kept in {o.record.folder}" if o.record.folder else ""
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
        f'<p class="soft">{escape(request + place)}</p>',
        html_table(("goal", "input", "answer", "bound"), goals, range(1, 4)),
        html_table(columns, rows, (0, 4)),
    ]
    return f"<details>{title}{chr(10).join(parts)}</details>"


def _figure(goal: str, scaled: float | None) -> str:
    """A goal's figure as people read it; `scaled` is in the unit of the summary."""
    return "–" if scaled is None else goal_text(goal, round(scaled * goal_key(goal)[1]))
