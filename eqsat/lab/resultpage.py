"""The page of an experiment, and the pages behind its rows.

Its table and figure, what rows lead to, and each row's dispatches; of each run a page, alone and
beside the best of its program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from eqsat.lab.drawing import axis_labels, series_label, series_of
from eqsat.lab.effects import (
    best_rows,
    best_table,
    busy_line,
    comparable_lines,
    effect_tables,
    effects,
    goal_value,
    measured_value,
    value_of,
)
from eqsat.lab.results import CellResult, Results
from eqsat.lab.rowtable import FIGURES, CellTable, described, key_text, name_keys, row_table
from eqsat.lab.store.record import NOT_RUN
from eqsat.model.diag import EqsatError
from eqsat.report.compare import compare_runs
from eqsat.report.compare.page import write_comparison
from eqsat.report.facts import goal_key
from eqsat.report.formatting import (
    delta_text,
    goal_text,
    html_table,
    link,
    pre,
    section,
    us_text,
)
from eqsat.report.page.onefile import scripted_document
from eqsat.run.saved import load_folder

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
            delta_text(goal, o.first_goal - best.first_goal)
            if o.first_goal != best.first_goal else "equal",
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
ROW_SCRIPTS = ("base.js", "rows.js")
TOOLS = """<div class="bar">
<input id="search" type="search" placeholder="show rows with these words" aria-label="filter rows">
<span id="found" class="soft" role="status"></span></div>"""


def results_page(results: Results, pages: Mapping[str, RowPages]) -> str:
    """The whole page; pages: what rows lead to, by name."""
    ran = [o for o in results.outcomes if o.record.status != NOT_RUN]
    table = row_table(ran)
    equal = ", ".join(f"{k} {v}" for k, v in table.equal)
    busy = busy_line(ran)
    notes = [f"all rows: {equal}" if equal else "", *results.proof_lines(), busy]
    notes += [*results.rule_check_lines(), *results.not_run()]
    columns, best = best_table(ran)
    figures = tuple(i for i, c in enumerate(columns) if c in ("value", "worst"))
    body = [
        f"<h1>{escape(results.name)}</h1>",
        f'<p class="soft">{escape(results.doc)}</p>',
        '<div id="charts"></div>',
        section("Best of each line", html_table(columns, best, figures) if best else ""),
        *(section(head.capitalize(), html_table(("factor", ""), rows))
          for head, rows in effect_tables(ran).items()),
        section("Rows", TOOLS + _table(ran, table, pages)),
        *(f'<p class="soft">{escape(n)}</p>' for n in notes if n),
        f"<details><summary>dispatches of each row</summary>{chr(10).join(map(_row, ran))}"
        "</details>",
    ]  # fmt: skip
    data = {"lines": _chart_lines(ran), "figure": _figure_data(results)}
    return scripted_document(results.name, "\n".join(body), data, ROW_SCRIPTS, charts=True)


def _table(outcomes: Sequence[CellResult], table: CellTable, pages: Mapping[str, RowPages]) -> str:
    """The rows, the best of each line marked; scripts sort them by `data-v`."""
    lines = [(line, best_rows(line, value_of(line))) for line in comparable_lines(outcomes)]
    best = {o.cell.name for line, rows in lines if len(rows) < len(line) for o in rows}
    beside = any(p.comparison for p in pages.values())
    columns = (*table.columns, *([BESIDE] if beside else []))
    heads = "".join(_cell("th", c, c) for c in columns)
    body = []
    for o, row in zip(outcomes, table.rows, strict=True):
        to = pages.get(o.cell.name, RowPages(""))
        raw = _sorted_by(o)
        cells = [
            _cell("td", c, text, to.page if i == 0 else "", raw.get(c))
            for i, (c, text) in enumerate(zip(table.columns, row, strict=True))
        ]
        if beside:
            cells.append(_cell("td", BESIDE, to.difference, to.comparison))
        mark = ' class="best" title="the best of its line"' if o.cell.name in best else ""
        body.append(f"<tr{mark}>{''.join(cells)}</tr>")
    return (
        f'<div class="wide"><table id="rows">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n'
        + "\n".join(body) + "\n</tbody></table></div>"
    )  # fmt: skip


def _cell(tag: str, column: str, text: str, path: str = "", raw: float | None = None) -> str:
    kind = " class=n" if column in (*FIGURES, BESIDE) else ""
    value = "" if raw is None else f' data-v="{raw}"'
    return f"<{tag}{kind}{value}>{link(path, text) if path else escape(text)}</{tag}>"


def _sorted_by(o: CellResult) -> dict[str, float]:
    """The plain figures by which the columns of a row are sorted."""
    if not o.has_answer:
        return {}
    r, m = o.to_json(), o.measured
    clock = {} if m is None else {"measured": m.median_us, "CPU": m.cpu_us}
    keys = {"moved": "bytes_moved", "peak": "peak_bytes", "predicted": "time_us", "gap": "gap"}
    return {c: r[k] for c, k in keys.items() if r[k] is not None} | clock


# ---- charts --------------------------------------------------------------------------------------
def _chart_lines(outcomes: Sequence[CellResult]) -> list[dict[str, Any]]:
    """Every row as a point on its line: how many times the best of the line it takes."""
    keys = name_keys(outcomes)
    table = effects([o for o in outcomes if o.has_answer], goal_value)
    factor = max(table, key=lambda k: table[k][-1][1], default="")
    points = []
    for line in (rows for rows in comparable_lines(outcomes) if len(rows) > 1):
        value = value_of(line)
        least = min(map(value, line))
        for o in line:
            clock = value is measured_value
            figure = us_text(value(o)) if clock else _figure_of_goal(o)
            points.append(
                {
                    "line": f"{key_text(o, 'program')} @ {key_text(o, 'target')}",
                    "row": described([o], line, keys), "text": figure,
                    "share": value(o) / least if least else 1.0,
                    "value": key_text(o, factor) if factor else "", "factor": factor,
                    "figure": "measured time" if clock else f"predicted {o.cell.goals[0].name}",
                }
            )  # fmt: skip
    return points


def _figure_of_goal(o: CellResult) -> str:
    return goal_text(o.record.goals[0]["goal"], o.first_goal)


def _figure_data(results: Results) -> dict[str, Any] | None:
    """The figure that the experiment asks for, as its points; None where there is none."""
    figure = results.figure
    if figure is None:
        return None
    try:
        series = [asdict(p) for p in series_of(figure, results.outcomes) if p.x]
    except EqsatError:  # said where the file of the figure is written
        return None
    x, y = axis_labels(figure)
    words = {"kind": figure.kind, "log": figure.log, "title": figure.title, "x": x, "y": y}
    for p in series:
        p["name"] = series_label(p["name"])
    return words | {"diagonal": figure.diagonal, "series": series} if series else None


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
