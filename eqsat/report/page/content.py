"""A finished run as the data of its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from eqsat.model.target import Target
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.page.data import PageData, PageGraph, Roofs
from eqsat.report.page.graph import program_graph, schedule_graph
from eqsat.report.page.why import RuleTable, reasons

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
