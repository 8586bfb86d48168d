"""The rows of an experiment as a table of two of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.lab.results import BEST, NOT_PROVEN, UNPROVEN, CellResult, measured_text
from eqsat.model.diag import did_you_mean, fail
from eqsat.report.text import table_text
from eqsat.report.units import bytes_text, time_text

ASKED = ("program", "target", "rules", "goals", "seed")  # keys that every row has
MEASURED = "measured"
LEGEND = f"{BEST} best of its line   {NOT_PROVEN}"


def pivot_text(
    outcomes: Sequence[CellResult], rows: str, columns: str, value: str = "time_us"
) -> str:
    """A line per value of one key, a column per value of another one, a legend below.

    value: a figure of `Experiment.rows()`, or `measured`. Where several rows meet in one place the
    least value is shown, with their number. EqsatError (E438) for a key or figure that no row has.
    """
    found: dict[str, dict[str, list[CellResult]]] = {}
    for o in outcomes:
        at = found.setdefault(_key(o, rows, outcomes), {})
        at.setdefault(_key(o, columns, outcomes), []).append(o)
    heads = list(dict.fromkeys(c for line in found.values() for c in line))
    lines = [_line(name, [at.get(h, []) for h in heads], value) for name, at in found.items()]
    return f"{table_text((rows, *heads), lines)}\n{LEGEND}\n"


def _key(o: CellResult, key: str, outcomes: Sequence[CellResult]) -> str:
    """What a row has for a key: what is varied, else what is asked."""
    varied = dict(o.cell.varied)
    if key in varied:
        return varied[key]
    if key in ASKED:
        said = o.asked()[key]
        return ", ".join(map(str, said)) if isinstance(said, list) else str(said)
    known = (*dict.fromkeys(k for o in outcomes for k, _ in o.cell.varied), *ASKED)
    raise fail("E438", f"the rows have no key `{key}`", help=did_you_mean(key, known))


def _line(name: str, places: Sequence[Sequence[CellResult]], value: str) -> tuple[str, ...]:
    least = [min((f for o in p if (f := _figure(o, value)) is not None), default=None)
             for p in places]  # fmt: skip
    best = min((f for f in least if f is not None), default=None)
    return (name, *(_place(p, f, f == best, value) for p, f in zip(places, least, strict=True)))


def _place(place: Sequence[CellResult], least: float | None, is_best: bool, value: str) -> str:
    if least is None:
        return ", ".join(dict.fromkeys(o.record.status for o in place)) or ""
    shown = next(o for o in place if _figure(o, value) == least)
    text = measured_text(shown.measured) if value == MEASURED else _text(value, least)
    marks = ("" if shown.is_proven else UNPROVEN) + (BEST if is_best else "")
    several = f" (of {len(place)})" if len(place) > 1 else ""
    return f"{text}{marks and ' '}{marks}{several}"


def _figure(o: CellResult, value: str) -> float | None:
    """The figure of a row, None where it has no answer."""
    if not o.has_answer:
        return None
    if value == MEASURED:
        return None if o.measured is None else o.measured.median_us
    row: dict[str, Any] = o.to_json()
    if isinstance(row.get(value), int | float) and not isinstance(row[value], bool):
        return row[value]
    known = [k for k, v in row.items() if isinstance(v, int | float)] + [MEASURED]
    raise fail("E438", f"the rows have no figure `{value}`", help=did_you_mean(value, known))


def _text(value: str, figure: float) -> str:
    if value.endswith("_us"):
        return time_text(figure * 1e6)
    return bytes_text(round(figure)) if value.endswith("bytes") else f"{figure:,g}"
