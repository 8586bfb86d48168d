"""One self-contained page of a finished run: no network, no scripts, light and dark."""

from __future__ import annotations

from html import escape
from pathlib import Path

from eqsat.model.egraph import EGraph
from eqsat.model.ops import LEAVES
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.selection import Group, Selection
from eqsat.model.textfile import write_text
from eqsat.report.explain import choice_lines, explained, removed_lines
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.lifetimes import lifetime_chart
from eqsat.report.origins import Names, op_word, rule_chain
from eqsat.report.progress import CURVE_COLUMNS, CURVE_FIGURES, curve_chart, curve_rows
from eqsat.report.text import (
    GOAL_COLUMNS,
    GOAL_FIGURES,
    RULE_COLUMNS,
    cut_lines,
    goal_rows,
    phase_lines,
    rule_check_lines,
    rules_table,
    verification_text,
)
from eqsat.report.units import bytes_text, goal_text, time_text
from eqsat.report.weights import COLUMNS, FIGURES, life_rows

STYLE = """
:root{--ink:#1b1f24;--soft:#59636e;--paper:#fff;--line:#d1d9e0;--tint:#f3f5f7;--mark:#0b62c4;
--argument:#6b8fb5;--result:#3a9a6b;--weight:#a98545;--temporary:#b85c6e}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--paper:#14181c;
--line:#39414a;--tint:#1d2329;--mark:#69aef5;--argument:#5b80a8;--result:#3f9f72;
--weight:#b0904f;--temporary:#c46c7e}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:90rem;padding:1rem;color:var(--ink);background:var(--paper);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{margin:.4rem 0}.soft{color:var(--soft)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}
.wide{overflow-x:auto}
pre,code{font:13px/1.45 ui-monospace,monospace}
pre{background:var(--tint);padding:.6rem;margin:0;overflow-x:auto;border-radius:4px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:1rem}
.pair>div{min-width:0}
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
svg .axis{stroke:var(--line)}svg .argument{fill:var(--argument)}svg .result{fill:var(--result)}
svg polyline{fill:none;stroke-width:2}svg .value{stroke:var(--mark)}
svg .bound{stroke:var(--result)}svg .weight{fill:var(--weight)}svg .temporary{fill:var(--temporary)}
"""


def write_page(run: Finished, path: Path) -> Path:
    """The page of a run as a file."""
    return write_text(path, page(run))


def page(run: Finished) -> str:
    """The whole page; EqsatError (E405) if the run stopped before a schedule was made."""
    egraph, selection, schedule = finished_stages(run)
    names = Names(egraph, run.canonical)
    title = f"{run.program.name} on {run.target.name}"
    body = [
        f"<h1>{escape(title)}</h1>",
        _intro(run, selection),
        section("Result", goals_table(run)),
        section("Phases", pre("\n".join(phase_lines(run)))),
        section("Search", _search(run)),
        section("Dispatches", dispatches_table(names, selection, schedule)),
        section("Buffers", buffers(schedule)),
        section("Weights", _weights(schedule)),
        section("Choices", _choices(run)),
        section("Removed by limits", _removed(selection)),
        section("Rules", html_table(RULE_COLUMNS, rules_table(run, "result"), range(1, 5))),
        section("Program", _before_after(run, schedule)),
    ]
    return document(title, "\n".join(body))


def document(title: str, body: str) -> str:
    """A page around this body."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def section(title: str, body: str) -> str:
    """A heading and what it heads; nothing if there is nothing."""
    return f"<section><h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def html_table(
    columns: tuple[str, ...], rows: list[tuple[str, ...]], figures: range | tuple[int, ...] = ()
) -> str:
    """A table of escaped cells; `figures` are the right-aligned columns."""
    head = "".join(_cell("th", c, i in figures) for i, c in enumerate(columns))
    lines = [
        "<tr>" + "".join(_cell("td", c, i in figures) for i, c in enumerate(row)) + "</tr>"
        for row in rows
    ]
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def goals_table(run: Finished) -> str:
    """Baseline, chosen, bound, gap and proof."""
    rows = [tuple(r.cells()) for r in goal_rows(run)]
    return html_table(GOAL_COLUMNS, rows, GOAL_FIGURES)


def dispatches_table(names: Names, selection: Selection, schedule: Schedule) -> str:
    """Each dispatch: its ops with the rules behind them, what it reads and writes, bytes, time.

    And where the target has any, the pipeline that computes it, or its plan and what bounds it.
    """
    columns = ("", "ops", "reads", "writes", "moved", "time", "rules")
    piped = any(g.pipeline for g in selection.groups)
    planned = any(d.price_lines for d in schedule.dispatches)
    rows = [
        (
            str(i),
            _ops(names, g),
            _values(names, g.reads),
            _values(names, g.writes),
            bytes_text(_traffic(names.egraph, g)),
            time_text(d.time_ps),
            _rules(names.egraph, g),
            *([g.pipeline] if piped else []),
            *([d.bound_text, d.plan.to_text() if d.plan else d.no_plan] if planned else []),
        )
        for i, (g, d) in enumerate(_paired(selection, schedule))
    ]
    return html_table(
        columns + ("pipeline",) * piped + ("bound", "plan") * planned, rows, (0, 4, 5)
    )


def _weights(schedule: Schedule) -> str:
    """How each weight lives; nothing if there are none."""
    rows = life_rows(schedule)
    return html_table(COLUMNS, rows, FIGURES) if rows else ""


def buffers(schedule: Schedule) -> str:
    """The lifetime chart with its own short legend in text."""
    total = bytes_text(schedule.peak_bytes)
    weights = bytes_text(schedule.resident_bytes)
    return f"<p>peak {total}, of it {weights} of weights</p>\n" + lifetime_chart(schedule)


def _search(run: Finished) -> str:
    """How the first goal's value and its bound came together, and when each phase began."""
    if run.curve is None or not run.curve.points:
        return ""
    chart = curve_chart(run.curve, run.goals[0].name)
    table = html_table(CURVE_COLUMNS, curve_rows(run.curve), CURVE_FIGURES)
    what = "phases, values and bounds by the second"
    return f"{chart}<details><summary>{what}</summary>{table}</details>"


def _cell(tag: str, text: str, is_figure: bool) -> str:
    return f"<{tag}{' class=n' if is_figure else ''}>{escape(text)}</{tag}>"


def _intro(run: Finished, selection: Selection) -> str:
    goals = ", then ".join(g.name for g in run.goals)
    first = run.goals[0].name
    found = selection.goal(first)
    proof = (
        "proven: nothing better in this e-graph under this cost model"
        if found.gap == 0
        else f"at most {found.gap:.1%} above the best of this e-graph"
    )
    if selection.cuts:
        (proof,) = cut_lines(run)  # over what it is the best
    lines = [
        f"rules {run.rules.name}; goals {goals}",
        f"{first} {goal_text(first, found.value)}, {proof} (stop: {selection.stop})",
    ]
    lines += rule_check_lines(run)
    if run.verification is not None:
        lines.append(f"verified against float64: {verification_text(run.verification)}")
    if run.baseline is None:
        lines.append("the input itself is not admissible under this request")
    return "\n".join(f'<p class="soft">{escape(line)}</p>' for line in lines)


def _paired(selection: Selection, schedule: Schedule) -> list[tuple[Group, Dispatch]]:
    return list(zip(selection.groups, schedule.dispatches, strict=True))


def _ops(names: Names, group: Group) -> str:
    nodes = [names.egraph.nodes[m] for m in group.members]
    return " + ".join(op_word(n) for n in nodes if n.op not in LEAVES)


def _values(names: Names, classes: tuple[int, ...]) -> str:
    return ", ".join(
        f"{names.values.get(c) or names.logical_name(c)}: {names.type_of(c)}" for c in classes
    )


def _traffic(egraph: EGraph, group: Group) -> int:
    return sum(t.nbytes for c in (*group.reads, *group.writes) for t in egraph.types[c])


def _rules(egraph: EGraph, group: Group) -> str:
    steps = [s.rule for m in group.members for s in rule_chain(egraph, m)]
    return ", ".join(dict.fromkeys(steps))


def _choices(run: Finished) -> str:
    """Rules behind each choice and what else there was, folded away; `explain` knows prices."""
    lines = "\n\n".join("\n".join(choice_lines(c, False)) for c in explained(run).choices)
    what = "rules behind each choice, and what else there was"
    return f"<details><summary>{what}</summary>{pre(lines)}</details>" if lines else ""


def _removed(selection: Selection) -> str:
    lines = removed_lines(selection.removed)
    return pre("\n".join(lines[1:])) if lines else ""


def _before_after(run: Finished, schedule: Schedule) -> str:
    before, after = run.program.to_text(), schedule.program.to_text()
    return (
        '<div class="pair">'
        f"<div><p>before</p>{pre(before)}</div>"
        f"<div><p>after</p>{pre(after)}</div></div>"
    )
