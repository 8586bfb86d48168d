"""The rows of an experiment as a table of two of its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.lab.results import BEST, NOT_PROVEN, UNPROVEN, CellResult, basis_lines, measured_text
from eqsat.lab.store.record import NOT_RUN
from eqsat.lang.experimentformat import ASKED, MEASURED, ROW
from eqsat.model.diag import did_you_mean, fail
from eqsat.report.units import bytes_text, table_text, us_text

LEGEND = f"{BEST} best of its line   {NOT_PROVEN}"


def pivot_text(
    outcomes: Sequence[CellResult], rows: str, columns: str, value: str = "time_us"
) -> str:
    """A line per value of one key, a column per value of another one, a legend below.

    value: a figure of `Experiment.rows()`, or `measured`. Where several rows meet in one place the
    least value is shown, with their number. EqsatError (E438) for a key or figure that no row has.
    """
    table: dict[str, dict[str, list[CellResult]]] = {}
    for o in outcomes:
        at = table.setdefault(key_of_row(o, rows, outcomes), {})
        at.setdefault(key_of_row(o, columns, outcomes), []).append(o)
    table, silent = _run_lines(table)
    heads = list(dict.fromkeys(c for line in table.values() for c in line))
    lines = [_line(name, [at.get(h, []) for h in heads], value) for name, at in table.items()]
    legend = "\n".join([LEGEND, *basis_lines(outcomes)])
    return f"{table_text((rows, *heads), lines)}\n{legend}\n{silent}"


def _run_lines(
    table: Mapping[str, dict[str, list[CellResult]]],
) -> tuple[dict[str, dict[str, list[CellResult]]], str]:
    """The lines in which something ran, and what is said of the others."""

    def ran(line: dict[str, list[CellResult]]) -> bool:
        return any(o.record.status != NOT_RUN for place in line.values() for o in place)

    with_runs = {name: line for name, line in table.items() if ran(line)}
    left_out = len(table) - len(with_runs)
    return with_runs, f"lines of which nothing was run: {left_out}\n" if left_out else ""


def key_of_row(o: CellResult, key: str, outcomes: Sequence[CellResult]) -> str:
    """The value of a row's key: what is varied, else what is asked; E438 if no row has it.

    Keys joined by `+` are one key.
    """
    if "+" in key:
        return " ".join(key_of_row(o, part, outcomes) for part in key.split("+"))
    varied = dict(o.cell.varied)
    if key == ROW:
        return o.cell.name
    if key in varied:
        return varied[key]
    if key in ASKED:
        requested = o.asked()[key]
        return ", ".join(map(str, requested)) if isinstance(requested, list) else str(requested)
    keys = (*dict.fromkeys(k for o in outcomes for k, _ in o.cell.varied), *ASKED, ROW)
    raise fail("E438", f"the rows have no key `{key}`", help=did_you_mean(key, keys))


def _line(name: str, places: Sequence[Sequence[CellResult]], value: str) -> tuple[str, ...]:
    least = [min((f for o in p if (f := figure_of(o, value)) is not None), default=None)
             for p in places]  # fmt: skip
    best = min((f for f in least if f is not None), default=None)
    return (name, *(_place(p, f, f == best, value) for p, f in zip(places, least, strict=True)))


def _place(place: Sequence[CellResult], least: float | None, is_best: bool, value: str) -> str:
    if least is None:
        return ", ".join(dict.fromkeys(o.record.status for o in place)) or ""
    shown = next(o for o in place if figure_of(o, value) == least)
    text = measured_text(shown.measured) if value == MEASURED else _text(value, least)
    marks = ("" if shown.is_proven else UNPROVEN) + (BEST if is_best else "")
    several = f" (of {len(place)})" if len(place) > 1 else ""
    return f"{text}{marks and ' '}{marks}{several}"


def figure_of(o: CellResult, value: str) -> float | None:
    """The figure of a row (`egraph.nodes`: one inside), None where it has no answer; E438."""
    if not o.has_answer:
        return None
    if value == MEASURED:
        return None if o.measured is None else o.measured.median_us
    row = _flat(o.to_json())
    if value in row:
        return row[value]
    figures = [*row, MEASURED]
    raise fail("E438", f"the rows have no figure `{value}`", help=did_you_mean(value, figures))


def _flat(row: dict[str, Any], before: str = "") -> dict[str, float]:
    """The figures of a row by their names; those inside as `egraph.nodes`."""
    figures: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            figures |= _flat(value, f"{before}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            figures[before + key] = value
    return figures


def _text(value: str, figure: float) -> str:
    if value.endswith("_us"):
        return us_text(figure)
    return bytes_text(round(figure)) if value.endswith("bytes") else f"{figure:,g}"
