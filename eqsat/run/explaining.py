"""Questions to a finished run: what a choice costs, which rules made it, what else there was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from eqsat.model.deadline import OutOfTime, elapsed, until
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.selection import AT_LEAST, Price, Question

if TYPE_CHECKING:
    from eqsat.extract.mesh.plan import MeshPlanner
    from eqsat.model.pipelines import PipelineTold
    from eqsat.report.explain import Explanation
    from eqsat.report.mesh import MeshTold
    from eqsat.run.run import Run

PRICING_SHARE = 0.4  # of the time for prices, to look for candidates
_BODY = re.compile(r"[^/]+/(?:body|condition|branch\d+)(?:/.*)?")  # of a loop, and a value in it


def explanation(run: Run, value: str | None, price: bool | None, time_limit: float) -> Explanation:
    """`Run.explain`; of a value in a body, that of the body's own search."""
    from eqsat.report.explain import explained

    if value is not None and _BODY.fullmatch(value):
        body, rest = _body(run, value)
        return explanation(body, rest, price, time_limit)
    wanted = value is not None if price is None else price
    result = explained(run, value, partial(run.prices, time_limit) if wanted else None)
    mesh = _mesh_told(run, value, time_limit if wanted else None)
    return replace(result, mesh=mesh, pipelines=_pipelines_told(run, result))


def _pipelines_told(run: Run, told: Explanation) -> tuple[PipelineTold, ...]:
    """Of the dispatches that are explained."""
    from eqsat.schedule.refusals import pipelines_told

    schedule = run.need_schedule()
    shown = {c.dispatch for c in told.choices}
    every = pipelines_told(schedule, run.target)
    return tuple(t for t in every if schedule.dispatches[t.dispatch] in shown)


def counterfactual_prices(run: Run, seconds: float, questions: Sequence[Question]) -> list[Price]:
    """Prices of other choices, within so many seconds for all of them."""
    from eqsat.extract.ask.counterfactual import counterfactuals

    begin = elapsed()
    assert run.egraph is not None
    assert run.selection is not None
    try:
        with until(begin + seconds):
            session = counterfactuals(
                run.egraph, run.target, run.goals, run.selection, run.baseline,
                run.search["seed"], enough=begin + PRICING_SHARE * seconds,
            )  # fmt: skip
            return session.prices(questions, seconds - (elapsed() - begin))
    except OutOfTime:
        return [Price(run.goals[0].name, AT_LEAST)] * len(questions)


def mesh_planner_of(run: Run) -> MeshPlanner:
    """The planner of the run's cut schedule on its mesh; EqsatError E232 if its target has none."""
    from eqsat.extract.mesh.plan import mesh_planner

    if run.mesh_plan is None:
        help = "use a target with a `mesh`, or `--mesh data=4`"
        raise fail("E232", f"`{run.target.name}` is one device", help=help)
    return mesh_planner(run.cut_schedule, run.target, run.mesh_plan.of, run.rules)


def _mesh_told(run: Run, value: str | None, seconds: float | None) -> tuple[MeshTold, ...]:
    """The mesh plan's facts about a value or about all; priced within so many seconds."""
    from eqsat.extract.mesh.plan import prices_without
    from eqsat.report.mesh import mesh_told

    if run.mesh_plan is None:
        return ()
    facts = mesh_told(run.mesh_plan, run.cut_schedule.program, value)
    if seconds is None:
        return facts
    reshards = [t.reshard for t in facts if t.reshard is not None]
    prices = prices_without(
        mesh_planner_of(run), run.mesh_plan, reshards, seconds, run.search["seed"]
    )
    return tuple(t.priced(prices.get(t.reshard)) if t.reshard else t for t in facts)


def _body(run: Run, value: str) -> tuple[Run, str | None]:
    """The body that a value like `%loop/body/%h` stands in, and what the body calls it."""
    head, label, *rest = value.split("/", 2)
    name = head.removeprefix("%")
    names = {name, _numbered(run, name)}
    for path, body in run.bodies.items():
        loop, part = path.removeprefix("%").split("/")
        if part == label and loop in names:
            return body, rest[0] if rest else None
    hint = did_you_mean(f"{head}/{label}", run.bodies)
    hint = hint if run.bodies else "it has no loop or branch"
    raise fail("E303", f"the program has no body `{head}/{label}`", help=hint)


def _numbered(run: Run, name: str) -> str:
    """The name of a value of the searched program that is told by its number."""
    nodes = run.canonical.nodes
    at = int(name) if name.isdigit() else len(nodes)
    return run.canonical.value_name(at).removeprefix("%") if at < len(nodes) else name
