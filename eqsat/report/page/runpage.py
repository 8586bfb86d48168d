"""The page of a finished run: its graphs, drawn by scripts, and what reads well as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from eqsat.model.compiled import Told
from eqsat.model.files import write_text
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.model.target import Target
from eqsat.plan.innerloop import MachineCode
from eqsat.report.compiled import (
    CHECKED_COLUMNS,
    TOLD_COLUMNS,
    checked_kept,
    checked_rows,
    refusals,
    told_head,
    told_rows,
)
from eqsat.report.explain import removed_lines
from eqsat.report.facts import RunFacts
from eqsat.report.finished import Finished, by_figures, finished_stages, proof_text
from eqsat.report.formatting import bytes_text, html_table, pre, section
from eqsat.report.kernelcode import code_section
from eqsat.report.mesh import plan_text
from eqsat.report.page.data import PageData, PageGraph, Roofs
from eqsat.report.page.graph import RuleTable, program_graph, reasons, schedule_graph
from eqsat.report.page.headline import headline
from eqsat.report.page.onefile import scripted_document
from eqsat.report.text import (
    CURVE_COLUMNS,
    CURVE_FIGURES,
    GOAL_COLUMNS,
    GOAL_FIGURES,
    RULE_COLUMNS,
    curve_rows,
    cut_lines,
    execution_lines,
    goal_cells,
    phase_lines,
    rule_check_lines,
    rules_table,
    verification_text,
)
from eqsat.report.weights import COLUMNS, FIGURES, WeightLives, life_rows

SCRIPTS = (
    "base.js", "fold.js", "arrange.js", "minimap.js", "graph.js", "table.js", "charts.js",
    "prices.js", "panel.js", "app.js",
)  # fmt: skip
# ---- the page ------------------------------------------------------------------------------------
TOOLS = """<div class="bar">
<button id="before" aria-pressed="false">before</button>
<button id="after" aria-pressed="true">after</button>
<span id="path"></span>
<button id="open-all">open all</button>
<button id="fold-all">fold all</button>
<button id="closer" aria-label="zoom in">+</button>
<button id="further" aria-label="zoom out">−</button>
<button id="fit">fit</button>
<input id="search" type="search" placeholder="find an op, a weight, a layout"
 aria-label="find dispatches by op, weight or layout">
<span id="found" class="soft" role="status"></span>
</div>
<div id="legend"></div>
<div class="work">
<div id="graph" role="application" tabindex="0"
 aria-label="graph of dispatches: arrows walk, Enter opens; the table holds the same"></div>
<aside id="panel" aria-label="the chosen dispatch" aria-live="polite"></aside>
<div id="table" role="region" aria-label="dispatches" tabindex="0"></div>
</div>
<div id="charts"></div>
<noscript><p>The graph is drawn by scripts; the tables below need none.</p></noscript>"""


def write_page(run: Finished, path: Path, codes: Sequence[MachineCode] = ()) -> Path:
    """The page of a run as a file."""
    return write_text(path, page(run, codes))


def page(run: Finished, codes: Sequence[MachineCode] = ()) -> str:
    """The whole page; EqsatError (E405) if the run stopped before a schedule was made.

    codes: of its kernels, where they are to be shown.
    """
    _, selection, schedule = finished_stages(run)
    data, facts = page_data(run), RunFacts(run)
    body = [
        f"<h1>{escape(data.title)}</h1>",
        headline(facts),
        TOOLS,
        section("Result", html_table(GOAL_COLUMNS, goal_cells(facts), GOAL_FIGURES)),
        section("What is known of it", _known(run, selection)),
        *_compilers(run),
        *_mesh(run),
        section("Phases", pre("\n".join(phase_lines(run)))),
        section("Rules", _rules(facts)),
        section("Log of the search", _search(run)),
        section("Weights", _weights(WeightLives(schedule))),
        *code_section(codes),
        section("Removed by limits", _removed(selection)),
        section("Program", _programs(run, schedule)),
    ]
    return scripted_document(data.title, "\n".join(body), data.to_json(), SCRIPTS)


def framed(page_text: str, height_px: int = 900) -> str:
    """A page inside of another, as a notebook shows it; its scripts reach nothing outside."""
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{escape(page_text)}" title="page of a run" '
        f'style="width:100%;height:{height_px}px;border:0"></iframe>'
    )


def _compilers(run: Finished) -> list[str]:
    """A section for what compilers of other devices told; none where none was asked."""
    tables = (
        [] if run.compiled is None else [table for t in run.compiled.told for table in _told(t)]
    )
    if run.checked is not None:
        rows = checked_rows(run.checked)
        tables += [
            f'<p class="soft">{escape(checked_kept(run.checked))}</p>',
            html_table(CHECKED_COLUMNS, rows, range(1, len(CHECKED_COLUMNS))),
        ]
    return [section("Other devices' compilers", "\n".join(tables))] if tables else []


def _mesh(run: Finished) -> list[str]:
    """A section for the plan of a mesh; none where the target is one device."""
    if run.mesh_plan is None:
        return []
    text = plan_text(run.mesh_plan, run.cut_schedule.program, by_figures(run.target, run.goals))
    return [section("Mesh", pre(text))]


def _told(answer: Told) -> Iterator[str]:
    lines = [told_head(answer), *refusals(answer)]
    yield "\n".join(f'<p class="soft">{escape(line)}</p>' for line in lines)
    yield html_table(TOLD_COLUMNS, told_rows(answer), range(1, len(TOLD_COLUMNS)))


def _known(run: Finished, selection: Selection) -> str:
    """How far the answer is proven, what it runs by, and how it was checked."""
    goals = ", then ".join(g.name for g in run.goals)
    lines = [f"rules {run.rules.name}; goals {goals}; search ended: {selection.stop}"]
    lines += [
        f"{g.name}: {proof_text(selection, g.name, run.target, run.goals)}"
        for g in run.goals
        if g.name in dict(selection.goals)
    ]
    lines += cut_lines(run) if selection.cuts else []
    lines += execution_lines(run.execution)
    lines += rule_check_lines(run)
    if run.verification is not None:
        lines.append(f"verified against float64: {verification_text(run.verification)}")
    if run.baseline is None:
        lines.append("the input itself is not admissible under this request")
    return "\n".join(f'<p class="soft">{escape(line)}</p>' for line in lines)


def _folded(what: str, body: str) -> str:
    return f"<details><summary>{escape(what)}</summary>{body}</details>"


def _rules(facts: RunFacts) -> str:
    """Rules of the result, and folded away those that fired only and those that never did."""
    rules = facts.rules_by("result")
    rows = rules_table(rules)
    kinds: dict[str, list[tuple[str, ...]]] = {"used": [], "fired": [], "idle": []}
    for fact, row in zip(rules, rows, strict=True):
        kind = "used" if fact["in_result"] else "fired" if fact["matches"] else "idle"
        kinds[kind].append(row)
    figures = range(1, 5)
    parts = [html_table(RULE_COLUMNS, kinds["used"], figures) if kinds["used"] else ""]
    for kind, what in (("fired", "fired, but led to nothing chosen"), ("idle", "never fired")):
        if kinds[kind]:
            table = html_table(RULE_COLUMNS, kinds[kind], figures)
            parts.append(_folded(f"{len(kinds[kind])} {what}", table))
    return "\n".join(parts)


def _search(run: Finished) -> str:
    if run.curve is None or not run.curve.points:
        return ""
    table = html_table(CURVE_COLUMNS, curve_rows(run.curve), CURVE_FIGURES)
    return _folded("phases, values and bounds by the second", table)


def _weights(lives: WeightLives) -> str:
    """How each weight lives; nothing if there are none."""
    rows = life_rows(lives)
    if not rows:
        return ""
    total = f"{len(rows)} weights, {bytes_text(lives.schedule.resident_bytes)} in memory"
    return _folded(total, html_table(COLUMNS, rows, FIGURES))


def _removed(selection: Selection) -> str:
    lines = removed_lines(selection.removed)
    return pre("\n".join(lines[1:])) if lines else ""


def _programs(run: Finished, schedule: Schedule) -> str:
    before, after = run.program.to_text(), schedule.program.to_text()
    pair = (
        '<div class="pair">'
        f"<div><p>before</p>{pre(before)}</div>"
        f"<div><p>after</p>{pre(after)}</div></div>"
    )
    return _folded("as text, before and after", pair)


# ---- what is drawn -------------------------------------------------------------------------------
AFTER, BEFORE = "after", "before"


def page_data(run: Finished) -> PageData:
    """Everything that is drawn; EqsatError (E405) if the run stopped before a schedule was made."""
    _, _, schedule = finished_stages(run)
    table = RuleTable()
    graphs = schedule_graph(schedule, AFTER, "after", reasons(run, table)).graphs
    graphs |= _before(run)
    goal = run.goals[0].name
    points = run.curve.points if run.curve else ()
    measured = run.measured.programs if run.measured else ()
    return PageData(
        title=f"{run.program.name} on {run.target.name}",
        graphs=graphs,
        layouts=layouts_by_bytes(graphs.values()),
        rules=table.rules,
        machine=_machine(run.target),
        curve=tuple((p.seconds, p.phase, p.value, p.bound) for p in points if p.goal in ("", goal)),
        goal=goal,
        measured=tuple((p.name, p.predicted_us, p.wall_us) for p in measured),
    )


def _before(run: Finished) -> dict[str, PageGraph]:
    """The input's own schedule; its ops, where the target cannot run it as it is."""
    if run.baseline_schedule is not None:
        return schedule_graph(run.baseline_schedule, BEFORE, "before").graphs
    return program_graph(run.canonical, BEFORE, "before, ops without a schedule").graphs


def layouts_by_bytes(graphs: Iterable[PageGraph]) -> tuple[str, ...]:
    """Every layout once, the one that holds most bytes first."""
    nbytes: Counter[str] = Counter()
    for graph in graphs:
        for v in graph.values:
            nbytes[v.layout] += v.nbytes
    return tuple(sorted(nbytes, key=lambda k: (-nbytes[k], k)))


def _machine(target: Target) -> Roofs | None:
    """None for a target that counts no arithmetic or no memory."""
    rates = dict(target.rates)
    if not rates or not target.memory:
        return None
    rate = rates.get("f32", max(rates.values()))
    cores = target.kernels.cores if target.kernels else 1
    return Roofs(rate * cores, tuple((m.name, m.bandwidth) for m in target.memory))
