"""The picture that an experiment asks for: which keys and figures of its rows, drawn how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.lang.experimentformat import FigureRecord
from eqsat.model.diag import did_you_mean, fail

ROW = "row"  # the key that tells every row apart
ASKED = ("program", "target", "rules", "goals", "seed", "extractor")  # keys that every row has
MEASURED = "measured"  # the figure that the clock gives


@dataclass(frozen=True)
class Figure:
    """kind: bars | line | scatter. x: a key of the rows; of a scatter, one of their figures.

    y: figures; of several each is a series. series: a key that tells lines, bars or colours apart.
    versus: a value of `series`, or of `x`, by whose y the others are divided. where: keys and the
    values of the rows that are drawn. log: none | x | y | both. diagonal: a line where x and y are
    equal. Keys joined by `+` are one key.
    """

    kind: str
    x: str
    y: tuple[str, ...]
    series: str | None = None
    versus: str | None = None
    where: tuple[tuple[str, str], ...] = ()
    log: str = "none"
    diagonal: bool = False
    title: str = ""
    x_label: str = ""
    y_label: str = ""


def figure_asked(r: FigureRecord, varied: Iterable[str], ablate: str | None) -> Figure:
    """What a file asks for; EqsatError (E270) where its rows have no such keys."""
    found = Figure(
        r.kind, r.x, tuple(r.y), r.series, r.versus, tuple(r.where.items()), r.log, r.diagonal,
        r.title, r.x_label,
        r.y_label,
    )  # fmt: skip
    _check(found, (ROW, *ASKED, *varied, *(["without"] if ablate else [])))
    return found


def _check(figure: Figure, known: Iterable[str]) -> None:
    asked = {"series": figure.series} | ({} if figure.kind == "scatter" else {"x": figure.x})
    keys = [(name, key) for name, joined in asked.items() for key in (joined or "").split("+")]
    for name, key in (*keys, *(("where", k) for k, _ in figure.where)):
        if key and key not in known:
            raise fail("E270", f"{name}: no row has a key `{key}`", help=did_you_mean(key, known))
    if len(figure.y) != 1 and (figure.series is not None or figure.kind == "scatter"):
        raise fail(
            "E270", f"`y` has {len(figure.y)} figures",
            help="one, with `series:` or in a scatter; several are a series each",
        )  # fmt: skip
