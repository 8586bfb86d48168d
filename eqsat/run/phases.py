"""The order of the phases of a search: bodies, saturate, extract, schedule, mesh."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eqsat.frontends.source import Source
from eqsat.model.control import controls
from eqsat.model.deadline import OutOfTime, Stop, elapsed, until
from eqsat.model.diag import fail
from eqsat.model.equalities import Equalities, Family
from eqsat.model.layout import Encoding
from eqsat.model.mesh import ANSWER, INPUT, MeshPlan
from eqsat.model.program import Program
from eqsat.model.progress import Progress, heard, phase, settle, timed
from eqsat.model.rules import RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GREEDY, GoalRequest, Selection
from eqsat.model.sharding import Lifetime
from eqsat.model.symbols import sizes_of
from eqsat.model.target import Target
from eqsat.ops.mesh.apart import with_parts_apart
from eqsat.ops.programs.binding import bind_graph, bind_program
from eqsat.ops.programs.border_layouts import with_open_results
from eqsat.ops.programs.everywhere import pinned_values, placed_facts
from eqsat.report.formatting import bytes_text
from eqsat.report.text import log_phase, log_progress
from eqsat.run import Run

if TYPE_CHECKING:
    from eqsat.extract.mesh.plan import MeshPlanner
    from eqsat.run.bodies import Bodies

PLACING_SECONDS = 3.0  # at most; ordinary schedules need milliseconds, whatever the clock says


def with_schedules(run: Run, seconds: float = PLACING_SECONDS) -> Run:
    """The run with schedules of selection and baseline; `seconds` to place temporaries, each."""
    from eqsat.schedule import build

    assert run.egraph is not None
    assert run.selection is not None
    schedule, base = schedule_of(run, run.selection, seconds), None
    if run.baseline is not None:
        base = place_temporaries(build(run.egraph, run.baseline, run.target), seconds)
    return replace(run, schedule=schedule, baseline_schedule=base)


def schedule_of(run: Run, selection: Selection, seconds: float = PLACING_SECONDS) -> Schedule:
    """The placed schedule of a selection from a run's e-graph; EqsatError if it is not legal."""
    from eqsat.schedule import build

    assert run.egraph is not None
    schedule = place_temporaries(build(run.egraph, selection, run.target), seconds)
    check_legality(schedule, run)
    return schedule


def place_temporaries(schedule: Schedule, seconds: float = PLACING_SECONDS) -> Schedule:
    """The schedule with an offset in one arena for every temporary."""
    from eqsat.extract.place import place

    buffers = [Lifetime(f"%{b.node}", b.first, b.last + 1, b.nbytes) for b in schedule.temporaries]
    return schedule.placed(place(buffers, quick=True, seconds=max(seconds, 0.0)).offsets)


def _refuse_requests(schedule: Schedule, run: Run) -> None:
    """EqsatError if a requested layout was not resolved: E390, or E410 if time ran out."""
    left = [i for _, i in schedule.ops({*Encoding.ops})]
    left += [i for i in schedule.ahead if schedule.program.nodes[i].op in Encoding.ops]
    assert run.egraph is not None
    assert run.selection is not None
    if left and (run.selection.cuts or run.egraph.stop != "saturated"):
        message = f"nothing admissible found in time: {len(left)} requested layout(s) are left"
        hint = "give the search more time (`--time-limit`), or raise the limit that stopped it"
        raise fail("E410", message, help=hint, exit_code=3)
    if left:
        message = f"no rule says what becomes of {len(left)} requested layout(s) of the program"
        hint = "use `layout/encoding`, which `default` holds, beside your rule sets"
        raise fail("E390", message, help=hint)


def check_legality(schedule: Schedule, run: Run) -> None:
    """EqsatError E905 (our bug) if a schedule breaks what the target's file says."""
    from eqsat.schedule import faults

    _refuse_requests(schedule, run)
    breaches = faults(schedule, run.target, run.canonical)
    if breaches:
        message = f"the schedule is not legal on `{run.target.name}`: {'; '.join(breaches)}"
        raise fail("E905", message, exit_code=4)


# ---- cut over a mesh -----------------------------------------------------------------------------
def with_mesh_plan(run: Run, seconds: float) -> Run:
    """The run with its quickest plan, of answer or input, on the mesh; itself where there is none.

    EqsatError: E231 if no axis divides anything, E233 if the rules permit no plan, E410 if nothing
    fits the memory of a device.
    """
    if run.target.mesh is None or run.schedule is None:
        return run
    begin, plans_or_status = elapsed(), list[MeshPlan | str]()
    planners, cut_evenly = list(planners_of(run)), _cut_evenly(run, seconds / 4)
    if cut_evenly is not None:
        planners.append(next(planners_of(cut_evenly)))
    _refuse_undivided(run, planners)
    for left, planner in zip(range(len(planners), 0, -1), planners, strict=True):
        share = (seconds - (elapsed() - begin)) / left
        limit = run.target.mesh.memory_bytes
        plans_or_status.append(planner.quickest(share, run.search["seed"], limit))
    plans = [p for p in plans_or_status if isinstance(p, MeshPlan)]
    if not plans:
        raise _nothing_fits(run, planners, plans_or_status)
    best = min(plans, key=lambda p: (p.time_ps, p.peak_bytes, p.of))
    best.verify()
    if cut_evenly is not None and best is plans_or_status[-1]:
        run = cut_evenly
    return replace(run, mesh_plan=best)


def _cut_evenly(run: Run, seconds: float) -> Run | None:
    """The run with the answer for one device as quick as all together; None if it is no other one.

    A dispatch that each device does its share of is short beside its launch, so that fewer of them
    may be worth work that one device would not do again.
    """
    from eqsat.extract import extract
    from eqsat.extract.selected import priced_selection

    mesh, target, first = run.target.mesh, run.target, run.selection
    assert mesh is not None and run.schedule is not None and first is not None
    if run.egraph is None or run.bodies or first.stop == GREEDY or run.goals[0].name != "time":
        return None
    together = replace(
        target, mesh=None, rates=tuple((k, rate * mesh.devices) for k, rate in target.rates),
        memory=tuple(replace(m, bandwidth=m.bandwidth * mesh.devices) for m in target.memory),
        relayout=target.relayout and target.relayout * mesh.devices,
    )  # fmt: skip
    with heard(None):
        found, _ = extract(
            run.egraph, together, run.goals, time_limit=seconds, seed=run.search["seed"], stop=None
        )
    names = [name for name, _ in first.goals]
    found = priced_selection(run.egraph, target, found.groups, found.ahead, names)
    bounds = {run.goals[0].name: first.goal(run.goals[0].name).bound}
    goals = tuple((n, replace(found.goal(n), bound=bounds.get(n, 0))) for n in names)
    answer = replace(first, groups=found.groups, ahead=found.ahead, goals=goals, stop="gap")
    schedule = schedule_of(run, answer)
    same = schedule.program == run.schedule.program
    if same and schedule.dispatches == run.schedule.dispatches:
        return None
    return replace(run, selection=answer, schedule=schedule)


def planners_of(run: Run) -> Iterator[MeshPlanner]:
    """Planners of the answer, and of the input where that is another program."""
    from eqsat.extract.mesh.plan import mesh_planner

    assert run.schedule is not None
    yield mesh_planner(with_parts_apart(run.schedule), run.target, ANSWER, run.rules)
    if run.baseline_schedule is not None and not run.is_input:
        base = with_parts_apart(run.baseline_schedule)
        yield mesh_planner(base, run.target, INPUT, run.rules)


def _refuse_undivided(run: Run, planners: list[MeshPlanner]) -> None:
    mesh = run.target.mesh
    assert mesh is not None
    spreads = [s for p in planners for choices in p.spreads.possible.values() for s in choices]
    for i, axis in enumerate(mesh.axes):
        if axis.devices > 1 and not any(s.cuts[i] not in ("", "parts") for s in spreads):
            message = f"axis `{axis.name}` of {axis.devices} devices divides no dim of the program"
            help = "choose an axis whose size divides a dim, with `--mesh`"
            raise fail("E231", message, help=help)


def _nothing_fits(
    run: Run, planners: list[MeshPlanner], statuses: list[MeshPlan | str]
) -> Exception:
    from eqsat.extract.mesh.options import HELP

    mesh = run.target.mesh
    assert mesh is not None
    limit = bytes_text(mesh.memory_bytes or 0)
    if any(status != "infeasible" for status in statuses):
        message = f"no plan for the mesh {mesh.to_text()} was found in time"
        return fail("E410", message, help="give it more time: `--time-limit`", exit_code=3)
    least = [p.leanest(10.0, run.search["seed"]) for p in planners]
    if all(status == "infeasible" for status in least):
        message = "the rules of spreads permit no plan: ops and values that meet do not fit"
        return fail("E233", message, help=HELP)
    needed = min((p.peak_bytes for p in least if isinstance(p, MeshPlan)), default=None)
    message = f"nothing admissible: no plan holds {limit} or less on a device"
    hint = "" if needed is None else f"the smallest plan found holds {bytes_text(needed)}"
    return fail("E410", message, help=hint or "use more devices: `--mesh`", exit_code=3)


Listener = Callable[[Progress], None]  # called whenever a search has something new to tell
SATURATING = 0.4  # of the time that is left, at most, for saturation
MESHING = 0.5  # of the time limit, kept for spreading values over a mesh
SCHEDULING = 0.05  # of the time limit, kept for making the schedules
BYTES = ("memory", "resident", "load_peak")  # goals that a body is searched for, if it is a budget


def searched(run: Run, stop_after: str | None, stop: Stop | None, deadline: float) -> Run:
    """Every stage up to `stop_after`; all together end at the deadline (of `elapsed`)."""
    if stop_after == "program":
        return run
    run, bodies = _with_bodies(_of_integers(run), deadline)
    first = None if stop is None or bodies is not None else _first_answer(run, stop)
    try:
        with until(math.inf, stop) if first is not None else nullcontext():
            run = _optimised(run, bodies, stop_after, stop, deadline)
    except OutOfTime:
        if first is None:
            raise
        run = first()
    if stop_after == "egraph":
        return run
    assert run.selection is not None
    settle({g.name: run.selection.goal(g.name) for g in run.goals})
    if stop_after == "selection":
        return run
    phase("schedule")
    with timed(run.seconds, "schedule"):
        run = with_schedules(run, min(PLACING_SECONDS, (deadline - elapsed()) / 2))
    log_phase(run, "schedule")
    return run if run.target.mesh is None else _cut(run, deadline)


def _first_answer(run: Run, stop: Stop) -> Callable[[], Run] | None:
    """The program as it is, for who stops the search before there is a better answer.

    None if the target does not admit it, or it requests layouts, which only rules resolve.
    """
    from eqsat.extract import first_answer, graph_of_program

    if any(n.op in Encoding.ops for n in run.canonical.nodes):
        return None
    phase("first answer")
    graph = graph_of_program(run.canonical)
    with timed(run.seconds, "extract"):
        priced = first_answer(graph, run.target, run.goals)
    if priced is None:
        return None
    stop.has_answer = True

    def finished() -> Run:
        answer = priced()
        return replace(run, egraph=graph, selection=answer, baseline=answer, family=None)

    return finished


def _optimised(
    run: Run, bodies: Bodies | None, stop_after: str | None, stop: Stop | None, deadline: float
) -> Run:
    """With the e-graph, and the best answer in it unless the e-graph is all that is wanted."""
    phase("saturate")
    with timed(run.seconds, "saturate"):
        run = saturated(run, bodies, deadline)
    log_phase(run, "saturate")
    if stop_after == "egraph":
        return run
    with timed(run.seconds, "extract"):
        run = _extracted(run, bodies, stop, deadline)
    log_phase(run, "extract")
    return run


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

    phase("mesh")
    with timed(run.seconds, "mesh"):
        return with_mesh_plan(run, max(deadline - elapsed(), 1.0))


def saturated(
    run: Run, bodies: Bodies | None, deadline: float, extra: tuple[Equalities, ...] = ()
) -> Run:
    """The run with its e-graph; a family's is searched once for all sizes, then taken at these.

    extra: what is known beside the rules, of this search alone.
    """
    from eqsat.ops.programs.sharedproducts import OF_VALUES
    from eqsat.saturate import saturate

    now = elapsed()
    until = now + SATURATING * max(deadline - now, 0.0)
    family = run.family
    program = run.canonical if family is None else family.canonical
    facts = extra if bodies is None else bodies.equalities
    first = len(program.nodes) + sum(len(f.nodes) for f in facts)
    placed = placed_facts(program, run.target, pinned_values(run.program, run.target), first)
    facts = facts if placed is None else (*facts, placed)
    equalities = unstated_equalities(program, run.rules, facts)
    known = None if family is None else family.egraph  # of a search at other sizes
    graph = known or saturate(
        program, run.rules, run.target, run.limits, deadline=until, equalities=equalities,
        reuse_blocks=not extra and all(f.rule != OF_VALUES for f in equalities),
    )  # fmt: skip
    if family is not None:
        graph = with_open_results(graph)  # before it is bound, so that an answer has its nodes
        family = replace(family, egraph=graph)
        graph = bind_graph(graph, sizes_of(family.symbols)).egraph
    if bodies is not None:
        graph = bodies.counted_in(graph)
    return replace(run, egraph=with_open_results(graph), family=family)


def _extracted(run: Run, bodies: Bodies | None, stop: Stop | None, deadline: float) -> Run:
    from eqsat.extract import extract, extract_greedily

    assert run.egraph is not None
    reserve = SCHEDULING if run.target.mesh is None else SCHEDULING + MESHING
    left = deadline - elapsed() - reserve * run.search["time_limit"]
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
    canonical = bind_program(family.canonical, sizes_of(family.symbols))
    source = sized_source(replace(run.source, program=family.program))
    return replace(run, source=source, canonical=canonical, family=family)


def sized_source(source: Source) -> Source:
    """The source of a family with its program at the sizes at which it is priced."""
    program = source.program
    return replace(source, program=bind_program(program, sizes_of(program.symbols)))


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
    half = elapsed() + (deadline - elapsed()) / 2
    machine = run.target.devices[0][1] if run.target.links else run.target  # loops stay there
    free = replace(machine, budget=(), mesh=None)
    orders = [run.goals]
    for name in [n for n in BYTES if n in dict(run.target.budget)]:
        orders.append((GoalRequest(name), *(g for g in run.goals if g.name != name)))

    def search(body: Program) -> list[Run]:
        left = max(half - elapsed(), 0.0)
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
    deadline = elapsed() + options["time_limit"]
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
    from eqsat.ops.programs.horizontal_fusion import like_parts
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
