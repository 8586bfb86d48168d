"""The order of the phases of a search: bodies, saturate, extract, schedule, mesh."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eqsat.frontends.source import Source
from eqsat.model.control import controls
from eqsat.model.equalities import Equalities
from eqsat.model.family import Family
from eqsat.model.program import Program
from eqsat.model.progress import Progress, heard, phase, settle, timed
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GREEDY, GoalRequest
from eqsat.model.symbols import sizes_of
from eqsat.model.target import Target
from eqsat.ops.programs.border_layouts import with_open_results
from eqsat.report.progress import log_phase, log_progress
from eqsat.run import Run
from eqsat.run.schedules import PLACING_SECONDS, with_schedules

if TYPE_CHECKING:
    from eqsat.model.deadline import Stop
    from eqsat.run.bodies import Bodies

Listener = Callable[[Progress], None]  # called whenever a search has something new to tell
SATURATING = 0.4  # of the time that is left, at most, for saturation
MESHING = 0.5  # of the time limit, kept for spreading values over a mesh
SCHEDULING = 0.05  # of the time limit, kept for making the schedules
BYTES = ("memory", "resident", "load_peak")  # goals that a body is searched for, if it is a budget


def searched(run: Run, stop_after: str | None, stop: Stop | None, deadline: float) -> Run:
    """Every stage up to `stop_after`; all together end at the deadline (of time.monotonic())."""
    if stop_after == "program":
        return run
    run, bodies = _with_bodies(_of_integers(run), deadline)
    phase("saturate")
    with timed(run.seconds, "saturate"):
        run = saturated(run, bodies, deadline)
    log_phase(run, "saturate")
    if stop_after == "egraph":
        return run
    with timed(run.seconds, "extract"):
        run = _extracted(run, bodies, stop, deadline)
    log_phase(run, "extract")
    assert run.selection is not None
    settle({g.name: run.selection.goal(g.name) for g in run.goals})
    if stop_after == "selection":
        return run
    phase("schedule")
    with timed(run.seconds, "schedule"):
        run = with_schedules(run, min(PLACING_SECONDS, (deadline - time.monotonic()) / 2))
    log_phase(run, "schedule")
    return run if run.target.mesh is None else _cut(run, deadline)


def _of_integers(run: Run) -> Run:
    """The run with products of integers from the start, where rules and target make them anyway."""
    from eqsat.ops.algebra.quantised import sums_integers
    from eqsat.ops.spelling.passes import with_integer_products

    makes_them = {r.name for r in run.rules.rules} >= {
        "multiply-integers",
        "multiply-shifted-integers",
    }
    if not makes_them or run.family is not None or not sums_integers(run.target):
        return run
    is_planned = run.target.executor == "kernels"
    return replace(run, canonical=with_integer_products(run.canonical, differences=is_planned))


def _cut(run: Run, deadline: float) -> Run:
    """The schedule cut over the mesh of the target."""
    from eqsat.run.schedules import with_mesh_plan

    phase("mesh")
    with timed(run.seconds, "mesh"):
        return with_mesh_plan(run, max(deadline - time.monotonic(), 1.0))


def saturated(
    run: Run, bodies: Bodies | None, deadline: float, extra: tuple[Equalities, ...] = ()
) -> Run:
    """The run with its e-graph; a family's is searched once for all sizes, then taken at these.

    extra: what is known beside the rules, of this search alone.
    """
    from eqsat.ops.programs.sharedproducts import OF_VALUES
    from eqsat.saturate import saturate

    now = time.monotonic()
    until = now + SATURATING * max(deadline - now, 0.0)
    family = run.family
    program = run.canonical if family is None else family.canonical
    equalities = unstated_equalities(
        program, run.rules, extra if bodies is None else bodies.equalities
    )
    graph = saturate(
        program, run.rules, run.target, run.limits, deadline=until, known=equalities,
        reuse_blocks=not extra and all(facts.rule != OF_VALUES for facts in equalities),
    )  # fmt: skip
    if family is not None:
        from eqsat.ops.programs.binding import bind_graph

        family = replace(family, egraph=graph)
        graph = bind_graph(graph, sizes_of(family.symbols)).egraph
    if bodies is not None:
        graph = bodies.counted_in(graph)
    return replace(run, egraph=with_open_results(graph), family=family)


def _extracted(run: Run, bodies: Bodies | None, stop: Stop | None, deadline: float) -> Run:
    from eqsat.extract import extract, extract_greedily

    assert run.egraph is not None
    reserve = SCHEDULING if run.target.mesh is None else SCHEDULING + MESHING
    left = deadline - time.monotonic() - reserve * run.search["time_limit"]
    options = {"time_limit": max(left, 0.0), "seed": run.search["seed"], "stop": stop}
    extractor = extract_greedily if run.search["extractor"] == GREEDY else extract
    selection, baseline = extractor(run.egraph, run.target, run.goals, **options)
    if bodies is None:
        return replace(run, selection=selection, baseline=baseline)
    chosen = bodies.chosen(run.egraph, selection)
    base = baseline if bodies.has_baseline else None
    proven = bodies.proven_in(selection)
    return replace(run, selection=proven, baseline=base, bodies=chosen)


def at_sizes(run: Run, family: Family) -> Run:
    """The run with its programs at the sizes at which its family is priced, before any search."""
    from eqsat.ops.programs.binding import bind_program

    sizes = sizes_of(family.symbols)
    source = replace(run.source, program=bind_program(family.program, sizes))
    canonical = bind_program(family.canonical, sizes)
    return replace(run, source=source, canonical=canonical, family=family)


def _with_bodies(run: Run, deadline: float) -> tuple[Run, Bodies | None]:
    """The run with the bodies of its loops and branches searched; None if it has none.

    Searches of bodies, a few for each, may take about half of the time limit; budgets are those
    of the whole program, so a body has none.
    """
    loops = controls(run.canonical)
    if not loops:
        return run, None
    from eqsat.run.bodies import search_bodies

    phase("bodies")
    count = len({body for _, attr in loops for body in attr.bodies})  # equal ones are one
    seconds = run.search["time_limit"] / 4 / count
    half = time.monotonic() + (deadline - time.monotonic()) / 2
    free = replace(run.target, budget=(), mesh=None)
    orders = [run.goals]
    for name in [n for n in BYTES if n in dict(run.target.budget)]:
        orders.append((GoalRequest(name), *(g for g in run.goals if g.name != name)))

    def search(body: Program) -> list[Run]:
        left = max(half - time.monotonic(), 0.0)
        options = run.search | {"time_limit": min(seconds, left)}
        runs = [_search_body(body, run, free, goals, options) for goals in orders]
        for name, took in ((k, v) for r in runs for k, v in r.seconds.items() if v):
            run.seconds[name] = (run.seconds.get(name) or 0.0) + took
        return runs

    bodies = search_bodies(run.canonical, search, run.rules.reorders_sums)
    # a family's bodies are searched at the sizes it is priced at, so the whole is, too
    return replace(run, canonical=bodies.canonical, bodies=bodies.runs, family=None), bodies


def _search_body(
    body: Program,
    run: Run,
    machine: Target,
    goals: tuple[GoalRequest, ...],
    options: dict[str, Any],
) -> Run:
    from eqsat.ops.spelling.passes import canonical as merged

    source = Source(body, {}, run.source.opaque)
    none: dict[str, float | None] = dict.fromkeys(run.seconds)
    rest = (goals, none, dict(options), run.limits)
    body_run = Run(source, merged(body), machine, run.rules, *rest)
    deadline = time.monotonic() + options["time_limit"]
    with heard(None):
        return searched(body_run, None, None, deadline)


# ---- what no rule states -------------------------------------------------------------------------
def unstated_equalities(
    program: Program, rules: RuleSet, loops: tuple[Equalities, ...]
) -> tuple[Equalities, ...]:
    """Equalities of a program that no rule states: of loops, of parts that are alike, of weights.

    Those of weights are stated only where no blocks repeat, or none of them needs another one, and
    all blocks are then searched: otherwise the equalities of one block would be copied to the
    others, although several may read one weight.
    """
    from eqsat.ops.programs.likeparts import like_parts
    from eqsat.ops.programs.sharedproducts import shared_weights, weights_of_one
    from eqsat.saturate.blocks import find_blocks

    if program.symbols:
        return loops

    def first() -> int:
        return len(program.nodes) + sum(len(facts.nodes) for facts in equalities)

    equalities = list(loops)
    alike = like_parts(program, first(), rules.reorders_sums)
    equalities += [] if alike is None else [alike]
    many, shared = weights_of_one(program, first()), shared_weights(program, first())
    blocks = find_blocks(program) if many is not None or shared is not None else None
    if blocks is not None:
        many = weights_of_one(program, first(), blocks.place)
    equalities += [] if many is None else [many]
    if shared is not None and many is not None:
        shared = shared_weights(program, first())  # numbered on from these
    if shared is not None and (blocks is None or not blocks.carried):
        equalities.append(shared)
    return tuple(equalities)


def progress_of(run: Run, time_limit: float, listen: Listener | None) -> Progress:
    """The progress of a search; goals with weights have no first goal to report."""
    first = run.goals[0]
    progress = Progress("" if first.weight is not None else first.name, dict(run.target.budget))
    progress.limit = time_limit

    def tell(now: Progress) -> None:
        log_progress(now)
        if listen is not None:
            listen(now)

    progress.listen = tell
    return progress
