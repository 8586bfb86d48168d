"""The results of an experiment: rows as dicts, a table, a JSON file and a self-contained page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.lab.effects import best_lines, busy_line, effect_lines
from eqsat.lab.rowtable import NOT_PROVEN, described, first_few, key_text, name_keys, row_table
from eqsat.lab.store.record import FOUND, NOT_RUN, RunRecord
from eqsat.lab.store.store import Measurement
from eqsat.model.diag import Diagnostic, EqsatError, fail, sort_diagnostics
from eqsat.model.files import write_text
from eqsat.model.rules import RuleCheck
from eqsat.report.facts import goal_key
from eqsat.report.finished import ELSEWHERE
from eqsat.report.formatting import count_text, us_text
from eqsat.report.text import check_lines
from eqsat.run import Run
from eqsat.run.content import used_versions
from eqsat.run.saved import load_folder

if TYPE_CHECKING:
    from eqsat.lang.experimentformat import Figure
    from eqsat.lang.experiments import Cell


@dataclass(frozen=True)
class CellResult:
    """One row: its cell, the record of its run, and what makes the experiment fail.

    held: the run, where this process has it; folder: where a store keeps it.
    """

    cell: Cell
    record: RunRecord
    held: Run | None = None
    folder: Path | None = None
    problems: tuple[Diagnostic, ...] = ()
    measured: Measurement | None = None

    @property
    def has_answer(self) -> bool:
        return self.record.status == FOUND

    @cached_property
    def run(self) -> Run | None:
        """The run with everything it made; None if there is no answer."""
        if self.held is not None or self.folder is None or not self.has_answer:
            return self.held
        return load_folder(self.folder)

    @property
    def first_goal(self) -> int:
        """The first goal's value in ps, bytes or a count; of a row that has an answer."""
        first = self.record.goals[0]
        return round(first["value"] * goal_key(first["goal"])[1])

    @property
    def is_proven(self) -> bool:
        """Whether nothing that the rules reach is better by the first goal."""
        summary = self.record.summary
        if summary is None:
            return False
        return self.record.goals[0]["gap"] == 0 and not summary.get("cuts")

    @property
    def is_of_measured_figures(self) -> bool:
        """Whether its target was measured where it was searched, or no time was asked for."""
        timed = any(g["goal"] == "time" for g in self.record.goals)
        return not timed or (self.record.summary or {}).get("figures_measured_here", False)

    @property
    def is_of_this_processor(self) -> bool:
        """Whether its calls run on the CPU, so that CPU time is what they cost."""
        executor = ((self.record.summary or {}).get("executor") or {}).get("name")
        if executor != "xla":
            return executor == "kernels"
        import jax

        return jax.default_backend() == "cpu"

    def need_run(self) -> Run:
        if self.run is None:
            raise fail("E405", f"the row `{self.cell.name}` has no answer")
        return self.run

    def status_text(self) -> str:
        """One line: the figures, or the first message."""
        return status_text(self.record)

    def asked(self) -> dict[str, Any]:
        """The row's request, as its file says it."""
        return self.asked_of(self.cell)

    @staticmethod
    def asked_of(c: Cell) -> dict[str, Any]:
        """The request of a cell."""
        return {
            "program": c.program,
            "target": c.target,
            "rules": list(c.rules),
            "goals": [g.name for g in c.goals],
            "set": list(c.set),
            "budget": dict(c.budget),
            "without": list(c.without),
            "unchecked": c.unchecked,
            "seed": c.seed,
            "extractor": c.extractor,
            "varied": dict(c.varied),
            "expect": c.expect,
            "covers": list(c.covers),
            "judge": c.judge,
        }

    def to_json(self) -> dict[str, Any]:
        """A plain dict: what was asked, and the run's summary flattened one level."""
        r = self.record
        row: dict[str, Any] = {"name": self.cell.name} | self.asked() | {
            "status": r.status,
            "as_expected": not self.problems,
            "message": r.message,
            "run": r.run,
            "folder": r.folder or None,
        }  # fmt: skip
        if r.summary is None:
            return row
        s = r.summary
        goals, first = s["goals"], r.goals[0]
        row |= s["counts"] | s["bytes"] | {"shared_moves": s["program"].get("shared_moves")}
        row |= {"time_us": goals["time_us"]["value"], "peak_bytes": goals["peak_bytes"]["value"]}
        row |= {k: s[k] for k in ("egraph", "baseline", "verify", "seconds", "rule_check")}
        row |= {k: s[k] for k in ("stop", "claim", "candidates")}
        row |= {} if s.get("mesh") is None else {"mesh": s["mesh"]}
        return row | {
            "bound": first["bound"],
            "gap": first["gap"],
            "goals_found": goals,
            "measured": None if self.measured is None else self.measured.to_json(),
            "totals_s": list(r.totals_s),
        }


def status_text(record: RunRecord) -> str:
    """A record in one line: the figures, or the first message."""
    if record.summary is None:
        return f"{record.status}: {record.diagnostics[0].message}"
    s = record.summary
    time_us = s["goals"]["time_us"]["value"]
    return f"{s['counts']['dispatches']} dispatches, {us_text(time_us)}, {s['claim']}"


@dataclass(frozen=True)
class Results:
    """The rows of an experiment that were asked for, in the order of its file.

    others: rows that the store has from earlier times; files that are written hold them, too.
    """

    name: str
    doc: str
    outcomes: tuple[CellResult, ...]
    others: tuple[CellResult, ...] = ()
    figure: Figure | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict per row."""
        return [o.to_json() for o in self.outcomes]

    def to_json(self) -> dict[str, Any]:
        """Everything as one object, with the versions that made it."""
        return {
            "format": 1,
            "experiment": self.name,
            "doc": self.doc,
            "versions": used_versions(),
            "rows": self.rows(),
        }

    def problems(self) -> tuple[Diagnostic, ...]:
        """Rows that are not as expected, and mismatches; empty if all is well."""
        return sort_diagnostics(p for o in self.outcomes for p in o.problems)

    def to_text(self, width: int = 0) -> str:
        """Table, effects and best rows for the terminal, and below it why rows have no program.

        width: of the terminal in characters; 0: as wide as it gets.
        """
        ran = [o for o in self.outcomes if o.record.status != NOT_RUN]
        table = row_table(ran)
        parts = [(table.within(width) if width else table).to_text(), *self.notes(width)]
        parts += [
            f"\n{o.cell.name}: {o.record.status}{' (as expected)' if not o.problems else ''}\n"
            + "\n".join(f"  {line}" for d in o.record.diagnostics for line in d.full().splitlines())
            + "\n"
            for o in ran
            if o.record.diagnostics
        ]
        alike = "\n".join(self.alike())
        ends = (*self.rule_check_lines(), *([alike] if alike else []), *self.not_run())
        return "".join([*parts, *(f"\n{line}\n" for line in ends)])

    def notes(self, width: int = 0) -> list[str]:
        """Parts below the table: what marks mean, what factors are worth, what is best."""
        busy = busy_line(self.outcomes)
        parts = [[*self.proof_lines(), *([busy] if busy else [])]]
        parts += [effect_lines(self.outcomes, width), best_lines(self.outcomes, width)]
        texts = ["\n".join(lines) + "\n" for lines in parts if lines]
        return [texts[0], *(f"\n{t}" for t in texts[1:])] if parts[0] else [f"\n{t}" for t in texts]

    def proof_lines(self) -> list[str]:
        """The meaning of marks of proofs, and whose figures proofs are about."""
        marks = any(o.has_answer and not o.is_proven for o in self.outcomes)
        return [*([NOT_PROVEN] if marks else []), *basis_lines(self.outcomes)]

    def not_run(self) -> list[str]:
        """How many rows a screening left out, and the first of them."""
        names = [o.cell.varied[-1][1] for o in self.outcomes if o.record.status == NOT_RUN]
        reason = "not run, as nothing that they leave out matched"
        count = f"{len(names)} of {count_text(len(self.outcomes), 'row')}"
        return [f"{count} {reason}: {first_few(names)}"] if names else []

    def alike(self) -> list[str]:
        """A line for rows of one program that have the same answer in the same dispatches."""
        keys = name_keys(self.outcomes)
        same: dict[tuple[object, ...], list[CellResult]] = {}
        for o in (o for o in self.outcomes if o.has_answer):
            key = o.cell.program, o.cell.sizes, o.record.program_hash
            same.setdefault(key, []).append(o)
        return [
            f"same program of {key_text(rows[0], 'program')}: "
            + described(
                rows, [o for o in self.outcomes if o.cell.program == rows[0].cell.program], keys
            )
            + f" ({len(rows)} rows)"
            for rows in same.values()
            if len(rows) > 1
        ]

    def rule_check_lines(self) -> list[str]:
        """Per row what is not known of its rules."""
        every_line = []
        for o in self.outcomes:
            check = (o.record.summary or {}).get("rule_check")
            lines = check_lines(None if check is None else RuleCheck.from_json(check))
            every_line += [f"{o.cell.name}: {line}" for line in lines]
        return every_line

    def pivot(self, rows: str, columns: str, value: str = "time_us") -> str:
        """The rows as a table of two keys; EqsatError (E438) if there is no such key or figure."""
        from eqsat.lab.drawing import pivot_text

        return pivot_text(self.outcomes, rows, columns, value)

    def whole(self, order: Sequence[str]) -> Results:
        """The results with the rows of earlier times among them, in this order of names."""
        rows = sorted((*self.outcomes, *self.others), key=lambda o: order.index(o.cell.name))
        return Results(self.name, self.doc, tuple(rows), figure=self.figure)

    @cached_property
    def drawn(self) -> tuple[str, Diagnostic | None]:
        """The figure as SVG, or "" and why there is none, where the experiment asks for one."""
        if self.figure is None:
            return "", None
        from eqsat.lab.drawing import svg_of

        try:
            return svg_of(self.figure, self.outcomes), None
        except EqsatError as e:
            return "", replace(e.diagnostics[0], severity="warning")

    def write(self, folder: Path, pages: bool = False) -> tuple[Path, ...]:
        """`NAME.json`, `NAME.html` and, if there is a figure, `NAME.svg` in this folder.

        Each is written aside, then renamed. pages: also a page for the run of each row, and one
        beside the best row of its program.
        """
        from eqsat.lab.resultpage import results_page, write_row_pages

        linked = write_row_pages(self.outcomes, folder) if pages else {}

        data = json.dumps(self.to_json(), indent=1) + "\n"
        name = page_name(self.name)
        texts = {"json": data, "html": results_page(self, linked), "svg": self.drawn[0]}
        return tuple(write_text(folder / f"{name}.{k}", t) for k, t in texts.items() if t)


def page_name(experiment: str) -> str:
    """The name of its files: that of an experiment may hold slashes, a file's may not."""
    return re.sub(r"[^\w.@=+-]+", "-", experiment)


def basis_lines(outcomes: Sequence[CellResult]) -> list[str]:
    """A line that names the targets of proven answers whose figures were not measured here."""
    targets = [o.cell.target for o in outcomes if o.is_proven and not o.is_of_measured_figures]
    names = dict.fromkeys(Path(t).name for t in targets)
    return [f"what is proven is so {ELSEWHERE}: {', '.join(names)}"] if names else []
