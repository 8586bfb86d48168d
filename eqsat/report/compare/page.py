"""A comparison as a page: dispatches face each other, what differs stands between them.

It needs no script, so that a page for each pair of an experiment is small and reads well anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from eqsat.model.files import write_text
from eqsat.report.compare.comparison import Comparison, deltas, difference, fact_text, label
from eqsat.report.compare.rows import ROW_MAJOR, AlignedRow, ComparedWork, Held
from eqsat.report.formatting import (
    bytes_text,
    delta_text,
    document,
    goal_text,
    html_table,
    link,
    section,
)

HEADLINE = ("time_ps", "peak_bytes", "bytes_moved", "dispatches")
HUES = 8  # colours of blocked layouts; row-major is grey
STYLE = """
:root{--flat:#8a97a5;--hue0:#d98a1b;--hue1:#1f8f83;--hue2:#8559bd;--hue3:#c94378;--hue4:#2f83c8;
--hue5:#7f8f14;--hue6:#b5532c;--hue7:#4a5fc1}
@media (prefers-color-scheme:dark){:root{--flat:#8793a0;--hue0:#e8a33d;--hue1:#4db6ac;
--hue2:#b58ee0;--hue3:#e57ba1;--hue4:#7fb8e8;--hue5:#b5c05a;--hue6:#e08a63;--hue7:#93a2ee}}
.figures{display:flex;flex-wrap:wrap;gap:.2rem 1.6rem;margin:.4rem 0;padding:0;list-style:none}
.figures b{font-size:1.15rem;font-variant-numeric:tabular-nums}
ol.rows{list-style:none;margin:.5rem 0;padding:0;display:grid;gap:.35rem}
.row{border-top:1px solid var(--line);padding-top:.35rem;display:grid;gap:.6rem;
grid-template-columns:minmax(0,1fr) minmax(0,1.1fr) minmax(0,1fr);align-items:center}
.work{border:1.5px solid var(--own);border-radius:6px;padding:.25rem .5rem;overflow-wrap:anywhere;
background:color-mix(in srgb,var(--own) 14%,var(--paper))}
.work.moves{border-style:dashed}.work small,.gap small{color:var(--soft)}
.work .time{display:block;height:4px;border-radius:2px;background:var(--own);margin-top:.2rem}
.none{border:1.5px dotted var(--line);border-radius:6px;padding:.25rem .5rem;color:var(--soft)}
.gap{text-align:center;overflow-wrap:anywhere}.gap ul{list-style:none;margin:0;padding:0}
.gap b{font-variant-numeric:tabular-nums}.flip{color:var(--mark)}
.heads{font-weight:600}.same summary{color:var(--soft);text-align:center;cursor:pointer}
.key{display:inline-flex;gap:.3rem;align-items:center;margin-right:.9rem}
.swatch{width:.8rem;height:.8rem;border-radius:3px;background:var(--own)}
@media (max-width:640px){.row{grid-template-columns:minmax(0,1fr)}.gap{text-align:left}
.heads{display:none}.work::before,.none::before{content:attr(data-side);display:block;
font-size:.75rem;color:var(--soft)}}
"""


def write_comparison(
    comparison: Comparison, path: Path, pages: Mapping[str, str] | None = None
) -> Path:
    """The page of a comparison as a file; pages: of the two runs, by name, where there are any."""
    return write_text(path, comparison_page(comparison, pages or {}))


def comparison_page(comparison: Comparison, pages: Mapping[str, str]) -> str:
    """The whole page."""
    a, b = comparison.names
    title = f"{a} and {b}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _intro(comparison, pages),
        _headline(comparison),
        section("Asked for differently", _settings(comparison)),
        section(f"One change of {a} alone", _flips(comparison)),
        section("Dispatches in the order of their execution", _rows(comparison)),
        section("Differences by time", _kinds(comparison)),
        section("All figures", _figures(comparison)),
    ]
    return document(title, "\n".join(body), STYLE)


def _intro(comparison: Comparison, pages: Mapping[str, str]) -> str:
    a, b = comparison.names
    ratio = f"{comparison.same} of {len(comparison.rows)} dispatches are the same"
    text = f"{a} left, {b} right; differences say what {b} has more than {a}. {ratio}."
    if not comparison.same_input:
        text += " The inputs differ: dispatches are matched by what they compute."
    links = [link(pages[name], f"page of {name}") for name in comparison.names if name in pages]
    return f'<p class="soft">{escape(text)}</p>' + (f"<p>{' · '.join(links)}</p>" if links else "")


def _headline(comparison: Comparison) -> str:
    """The figures that matter most: both values, and by how much they differ."""
    items = [
        f"<li>{escape(label(k))} <b>{escape(fact_text(k, x))} → {escape(fact_text(k, y))}</b>"
        f' <span class="soft">{escape(difference(k, x, y) or "equal")}</span></li>'
        for k, x, y in comparison.facts
        if k in HEADLINE
    ]
    return f'<ul class="figures">{"".join(items)}</ul>'


def _figures(comparison: Comparison) -> str:
    rows = [
        (label(k), fact_text(k, x), fact_text(k, y), difference(k, x, y))
        for k, x, y in comparison.facts
        if x or y
    ]
    return html_table(("", *comparison.names, "difference"), rows, (1, 2, 3))


def _settings(comparison: Comparison) -> str:
    return (
        html_table(("", *comparison.names), list(comparison.settings))
        if comparison.settings
        else ""
    )


def _flips(comparison: Comparison) -> str:
    flips = comparison.flips or ()
    if not flips:
        return ""
    total = len(comparison.differences)
    rows = [
        (
            f.change,
            "nothing is admissible" if f.value is None else goal_text(f.goal, f.value),
            "all" if f.is_all else f"{len(f.rows)} of {total}",
        )
        for f in flips
    ]
    goal = flips[0].goal
    return html_table(
        ("change", goal, f"differences that are then as in {comparison.names[1]}"), rows, (1, 2)
    )


def _kinds(comparison: Comparison) -> str:
    """Rows that differ alike as one line, with what they cost in all."""
    rows = []
    for alike in comparison.kinds:
        first, *others = alike
        time, moved = (sum(getattr(r, k) for r in alike) for k in ("time_ps", "nbytes"))
        count = f" ×{len(alike)}" if others else ""
        changes = "; ".join(first.changes_text) or _alone_text(first, comparison.names)
        rules = ", ".join(rule for side in first.rules for rule, _ in side)
        figures = (
            (delta_text("time", time), delta_text("memory", moved)) if time or moved else ("", "")
        )
        flip = (comparison.flipped_by(first),) if comparison.flips else ()
        rows.append((first.name + count, changes, *figures, rules, *flip))
    columns = (
        "dispatch",
        "difference",
        "time",
        "bytes",
        "rules",
        *(["flips"] if comparison.flips else []),
    )
    return html_table(columns, rows, (2, 3)) if rows else ""


def _alone_text(row: AlignedRow, names: tuple[str, str]) -> str:
    other = names[1] if row.a is not None else names[0]
    return f"in {other} computed inside of {row.inside.name}" if row.inside else f"not in {other}"


# ---- rows ----------------------------------------------------------------------------------------
def _rows(comparison: Comparison) -> str:
    colours = _colours(comparison)
    most = max((w.time_ps for r in comparison.rows for w in (r.a, r.b) if w), default=0)
    a, b = map(escape, comparison.names)
    lines = [f'<li class="row heads"><span>{a}</span><span></span><span>{b}</span></li>']
    for same, rows in groupby(comparison.rows, key=lambda r: r.is_same):
        items = [_row(comparison, row, colours, most) for row in rows]
        lines += [_folded(items)] if same else items
    legend = "".join(
        f'<span class="key"><i class="swatch" style="--own:var(--{colour})"></i>'
        f"{escape(name)}</span>"
        for name, colour in colours.items()
    )
    note = '<span class="key soft">dashed: moves data inside; bar: time</span>'
    return f"<p>{legend}{note}</p>\n<ol class=rows>\n" + "\n".join(lines) + "\n</ol>"


def _folded(items: Sequence[str]) -> str:
    count = "1 dispatch is" if len(items) == 1 else f"{len(items)} dispatches are"
    inner = "\n".join(items)
    return (
        f'<li><details class="same"><summary>{count} the same</summary>'
        f"<ol class=rows>{inner}</ol></details></li>"
    )


def _row(comparison: Comparison, row: AlignedRow, colours: Mapping[str, str], most: int) -> str:
    sides = [
        _work(work, name, row, colours, most)
        for name, work in zip(comparison.names, (row.a, row.b), strict=True)
    ]
    return f'<li class="row">{sides[0]}{_between(comparison, row)}{sides[1]}</li>'


def _work(
    work: ComparedWork | None, side: str, row: AlignedRow, colours: Mapping[str, str], most: int
) -> str:
    named = f'data-side="{escape(side, quote=True)}"'
    if work is None:
        where = f"computed inside of {row.inside.name}" if row.inside else "not computed"
        return f'<div class="none" {named}>{escape(where)}</div>'
    moves = " moves" if work.conversions else ""
    colour = colours[_layout(work)]
    width = 100 * work.time_ps / most if most else 0
    figures = f"{goal_text('time', work.time_ps)} · {bytes_text(work.nbytes)}"
    buffers = "".join(f"<li>{escape(line)}</li>" for line in _held_lines(work))
    return (
        f'<div class="work{moves}" {named} style="--own:var(--{colour})">'
        f"<details><summary><b>{escape(work.name)}</b> <small>{escape(figures)}</small><br>"
        f"{escape(work.text)}</summary><ul>{buffers}</ul></details>"
        f'<span class="time" style="width:{width:.1f}%"></span></div>'
    )


def _held_lines(work: ComparedWork) -> Iterator[str]:
    for verb, values in (("reads", work.reads), ("writes", work.writes)):
        for h in values:
            yield f"{verb} {h.name}: {h.type}, {h.layout}, {bytes_text(h.nbytes)}"
    yield from (f"by {rule} {at}" for rule, at in work.rules)
    if work.bound:
        yield work.bound


def _between(comparison: Comparison, row: AlignedRow) -> str:
    if row.is_same:
        return '<div class="gap"><small>the same</small></div>'
    items = "".join(f"<li>{escape(change)}</li>" for change in row.changes_text)
    rules = [
        f"{name}: {', '.join(rule for rule, _ in rules)}"
        for name, rules in zip(comparison.names, row.rules, strict=True)
        if rules
    ]
    by = "".join(f"<div><small>{escape(text)}</small></div>" for text in rules)
    flip = comparison.flipped_by(row)
    flips = f'<div><small class="flip">flips {escape(flip)}</small></div>' if flip else ""
    return f'<div class="gap"><b>{escape(deltas(row))}</b><ul>{items}</ul>{by}{flips}</div>'


# ---- colours -------------------------------------------------------------------------------------
def _layout(work: ComparedWork) -> str:
    """The colour key of a dispatch: the layout of its result, without orders and paddings."""
    return _blocks(work.writes[-1]) if work.writes else ROW_MAJOR


def _blocks(held: Held) -> str:
    first = held.layout.split(".")[0]
    return f"@{first}" if first[:1].isdigit() else ROW_MAJOR


def _colours(comparison: Comparison) -> dict[str, str]:
    """Layout → the name of its colour, most bytes first; row-major is grey."""
    size: dict[str, int] = {}
    for row in comparison.rows:
        for work in filter(None, (row.a, row.b)):
            size[_layout(work)] = size.get(_layout(work), 0) + work.nbytes
    blocked = sorted((k for k in size if k != ROW_MAJOR), key=lambda k: (-size[k], k))
    colours = {ROW_MAJOR: "flat"} if ROW_MAJOR in size else {}
    return colours | {k: f"hue{i % HUES}" for i, k in enumerate(blocked)}
