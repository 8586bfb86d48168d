"""What an experiment found: rows as dicts, a table, a JSON file and a self-contained page."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.model.diag import Diagnostic, sort_diagnostics
from eqsat.report.summary import goal_key
from eqsat.report.units import bytes_text, goal_text, ratio_text, time_text

if TYPE_CHECKING:
    from eqsat.api import Run
    from eqsat.lang.experiments import Cell

COLUMNS = (
    "row", "program", "target", "first goal", "dispatches", "conversions", "moved", "peak",
    "predicted", "vs input", "gap", "stop", "verify",
)  # fmt: skip
_FIGURES = range(4, 11)
_PACKAGES = ("eqsat", "egglog", "ortools", "jax", "numpy")


@dataclass(frozen=True)
class CellResult:
    """One row: its cell, the run if there is one, and what went wrong."""

    cell: Cell
    run: Run | None
    status: str  # found | no program | error
    diagnostics: tuple[Diagnostic, ...] = ()  # why there is no run
    problems: tuple[Diagnostic, ...] = ()  # what makes the experiment fail
    measured: dict[str, Any] | None = None
    totals_s: tuple[float, ...] = ()

    def status_text(self) -> str:
        """One line: the figures, or the first message."""
        if self.run is None:
            return f"{self.status}: {self.diagnostics[0].message}"
        s = self.run.summary()
        time_us = s["goals"]["time_us"]["value"]
        return f"{s['counts']['dispatches']} dispatches, {time_text(time_us * 1e6)}, {s['claim']}"

    def to_json(self) -> dict[str, Any]:
        """A plain dict: what was asked, and the run's summary flattened one level."""
        c = self.cell
        row: dict[str, Any] = {
            "name": c.name,
            "program": c.program,
            "target": c.target,
            "rules": list(c.rules),
            "goals": [g.name for g in c.goals],
            "set": list(c.set),
            "budget": dict(c.budget),
            "without": list(c.without),
            "unchecked": c.unchecked,
            "seed": c.seed,
            "varied": dict(c.varied),
            "expect": c.expect,
            "covers": list(c.covers),
            "status": self.status,
            "as_expected": not self.problems,
            "message": "; ".join(d.message for d in self.diagnostics),
        }
        if self.run is None:
            return row
        s = self.run.summary()
        goals = s["goals"]
        row |= s["counts"] | s["bytes"]
        row |= {"time_us": goals["time_us"]["value"], "peak_bytes": goals["peak_bytes"]["value"]}
        name = self.run.goals[0].name
        first = goals[goal_key(name)[0]]
        row |= {k: s[k] for k in ("egraph", "baseline", "verify", "seconds", "rule_check")}
        row |= {k: s[k] for k in ("stop", "claim", "candidates")}
        return row | {
            "bound": first["bound"],
            "gap": first["gap"],
            "goals_found": goals,
            "measured": self.measured,
            "totals_s": list(self.totals_s),
        }


@dataclass(frozen=True)
class Results:
    """All rows of an experiment, in the order of its file."""

    name: str
    doc: str
    outcomes: tuple[CellResult, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict per row."""
        return [o.to_json() for o in self.outcomes]

    def to_json(self) -> dict[str, Any]:
        """Everything as one object, with the versions that made it."""
        return {
            "format": 1,
            "experiment": self.name,
            "doc": self.doc,
            "versions": {p: version(p) for p in _PACKAGES},
            "rows": self.rows(),
        }

    def problems(self) -> tuple[Diagnostic, ...]:
        """Rows that are not as expected, and mismatches; empty if all is well."""
        return sort_diagnostics(p for o in self.outcomes for p in o.problems)

    def cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """(columns, rows of text); `measured` is a column only if something was timed."""
        timed = any(o.measured for o in self.outcomes)
        columns = (*COLUMNS, "measured") if timed else COLUMNS
        return columns, [_cells(o, timed) for o in self.outcomes]

    def to_text(self) -> str:
        """A table for the terminal, and below it why rows have no program."""
        from eqsat.report.text import table_text

        columns, rows = self.cells()
        notes = [
            f"\n{o.cell.name}: {o.status}{' (as expected)' if not o.problems else ''}\n"
            + "\n".join(f"  {line}" for d in o.diagnostics for line in d.full().splitlines())
            for o in self.outcomes
            if o.diagnostics
        ]
        notes += [f"\n{line}" for line in self._rule_check()]
        return table_text(columns, rows) + "".join(f"{n}\n" for n in notes)

    def _rule_check(self) -> list[str]:
        """Per row what is not known of its rules."""
        from eqsat.report.text import rule_check_lines

        runs = [(o.cell.name, o.run) for o in self.outcomes if o.run is not None]
        return [f"{name}: {line}" for name, run in runs for line in rule_check_lines(run)]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """`NAME.json` and `NAME.html` in this folder, each written aside, then renamed."""
        from eqsat.model.textfile import write_text

        data = json.dumps(self.to_json(), indent=1) + "\n"
        name = re.sub(r"[^\w.@=+-]+", "-", self.name)  # a name may hold slashes, a file may not
        return (
            write_text(folder / f"{name}.json", data),
            write_text(folder / f"{name}.html", self.to_html()),
        )

    def to_html(self) -> str:
        """The table, then every row's dispatches, buffers and rules."""
        from eqsat.report.html import document, html_table

        columns, rows = self.cells()
        figures = (*_FIGURES, len(COLUMNS))
        body = [
            f"<h1>{escape(self.name)}</h1>",
            f'<p class="soft">{escape(self.doc)}</p>',
            html_table(columns, rows, figures),
            *(f'<p class="soft">{escape(line)}</p>' for line in self._rule_check()),
            "<h2>Rows</h2>",
            *(_row_html(o) for o in self.outcomes),
        ]
        return document(self.name, "\n".join(body))


def _cells(o: CellResult, timed: bool) -> tuple[str, ...]:
    c = o.cell
    asked = (c.name, Path(c.program).name, Path(c.target).name, c.goals[0].name)
    if o.run is None:
        return (*asked, o.status, *[""] * (len(COLUMNS) - 5 + timed))
    r = o.to_json()
    moves = sum(r[k] for k in ("packs", "unpacks", "transposes"))
    found = (
        str(r["dispatches"]),
        f"{moves} + {r['fused_conversions']} fused",
        bytes_text(r["bytes_moved"]),
        bytes_text(r["peak_bytes"]),
        goal_text("time", round(r["time_us"] * 1e6)),
        _versus(o.run),
        "–" if r["gap"] is None else f"{r['gap']:.1%}",
        r["claim"],
        _verified(r["verify"]),
    )
    return (*asked, *found, *([_measured(o.measured)] if timed else []))


def _versus(run: Run) -> str:
    """The first goal against the input's."""
    before, after = run.baseline, run.selection
    if before is None or after is None:
        return "–"
    name = run.goals[0].name
    return ratio_text(before.goal(name).value, after.goal(name).value)


def _verified(verify: dict[str, Any] | None) -> str:
    if verify is None:
        return "–"
    if verify["outcome"] == "unproven":
        return "NOT VERIFIED"
    error = verify["max_error"]
    text = "" if error is None else f" {error:.0e}"
    return f"{'ok' if verify['ok'] else 'MISMATCH'}{text}"


def _measured(measured: dict[str, Any] | None) -> str:
    return "–" if measured is None else time_text(measured["median_us"] * 1e6)


def _row_html(o: CellResult) -> str:
    from eqsat.report.finished import finished_stages
    from eqsat.report.html import buffers, dispatches_table, goals_table, pre
    from eqsat.report.origins import Names

    title = f"<summary>{escape(o.cell.name)}: {escape(o.status_text())}</summary>"
    if o.run is None:
        text = "\n\n".join(d.full() for d in o.diagnostics)
        return f"<details>{title}{pre(text)}</details>"
    egraph, selection, schedule = finished_stages(o.run)
    names = Names(egraph, o.run.canonical)
    asked = f"rules {', '.join(o.cell.rules)}; {', '.join(o.cell.set) or 'target as it is'}"
    parts = [
        f'<p class="soft">{escape(asked)}</p>',
        goals_table(o.run),
        dispatches_table(names, selection, schedule),
        buffers(schedule),
    ]
    return f"<details>{title}{chr(10).join(parts)}</details>"
