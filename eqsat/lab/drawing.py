"""Rows of an experiment as a table of two keys, and as a figure (the home of matplotlib)."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.lab.results import CellResult, basis_lines
from eqsat.lab.rowtable import BEST, NOT_PROVEN, UNPROVEN, measured_text
from eqsat.lab.store.record import NOT_RUN
from eqsat.lang.experimentformat import ASKED, MEASURED, ROW, Figure, cell_key
from eqsat.model.diag import did_you_mean, fail
from eqsat.report.formatting import bytes_text, table_text, us_text

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
    value = cell_key(o.cell, key)
    if value is not None:
        return value
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


# Okabe and Ito's colours, which colour-blind readers tell apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
MARKS = "os^Dv<>p"
INCHES = (8.0, 4.0)
STYLE: Any = {
    "svg.hashsalt": "eqsat",
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.axisbelow": True,
}
LABELS = {
    "time_us": "predicted time (us)", MEASURED: "measured time (us)", "peak_bytes": "peak (bytes)",
    "bytes_moved": "bytes moved", "seconds.total": "search", "egraph.nodes": "e-nodes",
    "seconds.saturate": "saturation", "seconds.extract": "extraction",
}  # fmt: skip
WIDE = 0.8  # of the place of a category that its bars take
MOST_TURNED = 28  # characters of all names of the x axis per inch, before they are turned


@dataclass
class RowSeries:
    """A series: one point per row, in the order of the rows."""

    name: str
    x: list[Any] = field(default_factory=list)  # a category, or a number
    y: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)  # ends of the interval of what was measured
    high: list[float] = field(default_factory=list)
    proven: list[bool] = field(default_factory=list)


def svg_of(figure: Figure, outcomes: Sequence[CellResult]) -> str:
    """The figure, the same for the same rows.

    EqsatError: E451 if matplotlib is missing, E452 if no row has both figures, E438 for a figure
    that rows do not have.
    """
    series = [p for p in series_of(figure, outcomes) if p.x]
    if not series:
        raise fail("E452", f"nothing to draw: no row has `{figure.x}` and `{', '.join(figure.y)}`")
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Canvas
    except ImportError as e:
        raise fail(
            "E451", f"no file of the figure is written: {e}", help="pip install 'eqsat[lab]'"
        ) from None
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=INCHES, layout="constrained")
        axes = canvas.add_subplot()
        {"bars": _bars, "line": _lines, "scatter": _scatter}[figure.kind](axes, figure, series)
        _frame(axes, figure, series)
        out = io.StringIO()
        FigureCanvasSVG(canvas).print_svg(out, metadata={"Date": None, "Creator": None})
    return _inline(out.getvalue())


def series_of(figure: Figure, outcomes: Sequence[CellResult]) -> list[RowSeries]:
    """The points of every series; with `versus`, divided by those of that series."""
    by_name: dict[str, RowSeries] = {}
    for o in (o for o in outcomes if o.has_answer):
        if any(key_of_row(o, k, outcomes) != v for k, v in figure.where):
            continue
        for value in figure.y:
            name = value if figure.series is None else key_of_row(o, figure.series, outcomes)
            _add(by_name.setdefault(name, RowSeries(name)), figure, o, value, outcomes)
    return list(by_name.values()) if figure.versus is None else _divided(by_name, figure.versus)


def _add(
    points: RowSeries, figure: Figure, o: CellResult, value: str, outcomes: Sequence[CellResult]
) -> None:
    x: Any = (
        figure_of(o, figure.x) if figure.kind == "scatter" else key_of_row(o, figure.x, outcomes)
    )
    y = figure_of(o, value)
    if x is None or y is None:
        return
    points.x.append(x)
    points.y.append(y)
    m = o.measured if value == MEASURED else None
    points.low.append(y if m is None else m.low_us)
    points.high.append(y if m is None else m.high_us)
    points.proven.append(o.is_proven)


def _divided(by_name: dict[str, RowSeries], versus: str) -> list[RowSeries]:
    """Each point divided by that of the series `versus` at its x, or by its series' own there."""
    if versus in by_name:
        base = dict(zip(by_name[versus].x, by_name[versus].y, strict=True))
        return [_shares(p, [base.get(x) for x in p.x]) for p in by_name.values()]
    shares = []
    for p in by_name.values():
        base_at = dict(zip(p.x, p.y, strict=True)).get(versus)
        shares.append(_shares(p, [base_at] * len(p.x)))
    if not any(p.x for p in shares):
        names = ", ".join(
            dict.fromkeys([*by_name, *(str(x) for p in by_name.values() for x in p.x)])
        )
        raise fail("E452", f"nothing to divide by: no `{versus}`", help=f"one of {names}")
    return shares


def _shares(p: RowSeries, by: Sequence[float | None]) -> RowSeries:
    shares = RowSeries(p.name)
    for x, y, low, high, proven, b in zip(p.x, p.y, p.low, p.high, p.proven, by, strict=True):
        if b:
            shares.x.append(x)
            shares.y.append(y / b)
            shares.low.append(low / b)
            shares.high.append(high / b)
            shares.proven.append(proven)
    return shares


# ---- kinds ---------------------------------------------------------------------------------------
def _bars(axes: Any, figure: Figure, series: Sequence[RowSeries]) -> None:
    places = {x: i for i, x in enumerate(dict.fromkeys(x for p in series for x in p.x))}
    width = WIDE / len(series)
    for k, p in enumerate(series):
        at = [places[x] - WIDE / 2 + (k + 0.5) * width for x in p.x]
        bars = axes.bar(at, p.y, width, label=series_label(p.name), color=_colour(k))
        for bar, proven in zip(bars, p.proven, strict=True):
            if not proven:
                bar.set_hatch("///")
        _intervals(axes, at, p)
    _name_places(axes, list(places))


def _lines(axes: Any, figure: Figure, series: Sequence[RowSeries]) -> None:
    names = list(dict.fromkeys(x for p in series for x in p.x))
    numbers = [_number(x) for x in names]
    is_numeric = None not in numbers
    place: dict[Any, Any] = dict(
        zip(names, numbers if is_numeric else range(len(names)), strict=True)
    )
    for k, p in enumerate(series):
        at = [place[x] for x in p.x]
        axes.plot(
            at, p.y, marker=MARKS[k % len(MARKS)], label=series_label(p.name), color=_colour(k)
        )
        open_ = [i for i, proven in enumerate(p.proven) if not proven]
        axes.plot([at[i] for i in open_], [p.y[i] for i in open_], MARKS[k % len(MARKS)],
                  markerfacecolor="white", color=_colour(k))  # fmt: skip
        _intervals(axes, at, p)
    if not is_numeric:
        _name_places(axes, names)
    elif figure.log in ("x", "both"):
        axes.set_xscale("log")
        axes.set_xticks(numbers, names, minor=False)
        axes.set_xticks([], minor=True)


def _scatter(axes: Any, figure: Figure, series: Sequence[RowSeries]) -> None:
    for k, p in enumerate(series):
        mark, colour = MARKS[k % len(MARKS)], _colour(k)
        axes.plot(p.x, p.y, mark, label=series_label(p.name), color=colour, alpha=0.8)
        _intervals(axes, p.x, p)
    if figure.diagonal:
        ends = [v for p in series for v in (*p.x, *p.y)]
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color="#888888", linewidth=0.8)


def _intervals(axes: Any, at: Sequence[float], p: RowSeries) -> None:
    below = [y - low for y, low in zip(p.y, p.low, strict=True)]
    above = [high - y for y, high in zip(p.y, p.high, strict=True)]
    if any(below) or any(above):
        axes.errorbar(at, p.y, [below, above], fmt="none", ecolor="#333333", capsize=2, lw=0.8)


# ---- around the plot -----------------------------------------------------------------------------
def _frame(axes: Any, figure: Figure, series: Sequence[RowSeries]) -> None:
    x, y = axis_labels(figure)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if figure.title:
        axes.set_title(figure.title, fontsize=10)
    if figure.log in ("x", "both") and figure.kind == "scatter":
        axes.set_xscale("log")
    if figure.log in ("y", "both"):
        axes.set_yscale("log")
    axes.grid(axis="both" if figure.kind != "bars" else "y", color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    if not all(all(p.proven) for p in series) and figure.kind != "scatter":
        style = "hatched" if figure.kind == "bars" else "hollow"
        axes.text(1, 1.01, f"{style}: not proven to be the best", transform=axes.transAxes,
                  ha="right", va="bottom", fontsize=7, color="#555555")  # fmt: skip


def axis_labels(figure: Figure) -> tuple[str, str]:
    """What the axes of a figure are called."""
    y = LABELS.get(figure.y[0], figure.y[0]) if len(figure.y) == 1 else "us"
    y = figure.y_label or (f"{y} / {figure.versus}" if figure.versus else y)
    return figure.x_label or LABELS.get(figure.x, figure.x), y


def _name_places(axes: Any, names: Sequence[str]) -> None:
    short = [series_label(n) for n in names]
    turned = sum(map(len, short)) > MOST_TURNED * 3
    axes.set_xticks(range(len(names)), short, rotation=30 if turned else 0,
                    ha="right" if turned else "center")  # fmt: skip


def series_label(name: str) -> str:
    """A name as a reader needs it: `mlp.py:mlp_784` is `mlp_784`, `policy/keep` is `keep`."""
    return LABELS.get(name, name.rsplit(":", 1)[-1].rsplit("/", 1)[-1])


def _colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _inline(svg: str) -> str:
    """The SVG element alone, as a page holds it, and without what differs between versions."""
    body = svg[svg.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
