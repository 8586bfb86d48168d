"""Selections: of the outcome of a search, of dispatches that nobody searched here, of one part.

Each is told by its groups, and by the value and the bound of every goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.extract.blocks import Rolled
from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space, order
from eqsat.extract.check import Checker, check
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.dispatch.rules import Devices
from eqsat.extract.memory.bestorder import DispatchGraph, best_order
from eqsat.extract.minimiser import Outcome
from eqsat.model.compiled import CutProgram
from eqsat.model.deadline import (
    INTERRUPTED,
    OTHER_SIZES,
    OUT_OF_TIME,
    gc_paused,
    whatever_it_takes,
)
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.leaves import Leaf
from eqsat.model.ops import SAME_BYTES
from eqsat.model.program import Program
from eqsat.model.selection import (
    GoalRequest,
    GoalResult,
    Group,
    Removed,
    Selection,
    short_of_time,
)
from eqsat.model.target import Target
from eqsat.ops.programs.cutting import own_leaf
from eqsat.ops.programs.placement import ANYWHERE


def selection_of(
    assembly: Assembly, outcome: Outcome, goals: tuple[GoalRequest, ...], seconds: float
) -> Selection:
    """The chosen groups with the value and the bound of every goal; not checked."""
    assert outcome.answer is not None
    groups = assembly.groups(outcome.answer)
    results = outcome.results(assembly.choice, goals)
    ahead, removed = assembly.ahead(groups), _largest(assembly.removed)
    sides = removed, seconds, assembly.cuts, assembly.looked_at
    return Selection(groups, ahead, results, outcome.status, *sides)


def with_floors(selection: Selection, floors: Mapping[str, int]) -> Selection:
    """With bounds that are no less than the floors; where candidates were cut nothing is proven.

    What the time limit cut, the bounds hold for as well (`dispatch.floors`); those that a cap
    leaves out are not among what they are about.
    """
    in_time = not short_of_time(selection.cuts)
    bounds = {n: max(r.bound * in_time, min(r.value, floors.get(n, 0))) for n, r in selection.goals}
    if not selection.cuts:
        goals = tuple((n, replace(r, bound=bounds[n])) for n, r in selection.goals)
        return replace(selection, goals=goals)
    goals = tuple((n, GoalResult(r.value, bounds[n])) for n, r in selection.goals)
    stop = selection.stop
    if stop in ("optimal", "gap"):
        stop = "cut" if in_time else OUT_OF_TIME
    return replace(selection, goals=goals, stop=stop)


def _largest(removed: tuple[Removed, ...]) -> tuple[Removed, ...]:
    """One record per name, the largest first."""
    best: dict[tuple[str, str], Removed] = {}
    for r in removed:
        key = (r.what, r.limit_name)
        if key not in best or best[key].bytes < r.bytes:
            best[key] = r
    # the largest are for messages and `explain`
    return tuple(sorted(best.values(), key=lambda r: (-r.bytes, r.what))[:256])


# ---- results that nobody reads -------------------------------------------------------------------
def with_read_results(assembly: Assembly, target: Target, selection: Selection) -> Selection:
    """The selection without results that nobody reads, or as it was; no goal is worse.

    A candidate is an option for each set of values that it may write: a search that ended before
    its proof may have chosen one that writes a value for a reader which is not in the answer.
    A dispatch whose price would rise keeps its results: without one of them it may be a kernel
    that costs more. Bounds, proofs and why the search ended stay. What is changed has passed
    `extract.check`.
    """
    space = assembly.pool.space
    trimmed = selection
    while (fewer := _once(space, target, trimmed)) != trimmed.groups:
        trimmed = replace(trimmed, groups=fewer, ahead=assembly.ahead(fewer))
    if trimmed is selection:
        return selection
    names = (*dict(selection.goals), *dict(target.budget), TIE_BREAK)
    before, after = (Checker(space, target, s).goal_values(names) for s in (selection, trimmed))
    if any(after[n] > before[n] for n in before):
        return selection
    trimmed = replace(
        trimmed, goals=tuple((n, replace(r, value=after[n])) for n, r in selection.goals)
    )
    return selection if check(space.egraph, target, trimmed) else trimmed


def _once(space: Space, target: Target, selection: Selection) -> tuple[Group, ...]:
    """The groups, without what none of them reads as they are now."""
    wanted = {space.buffer[r] for g in selection.groups for r in g.reads} | set(space.roots)
    checker = Checker(space, target, selection)
    groups: list[Group] = []
    for g in selection.groups:
        writes = tuple(w for w in g.writes if space.buffer[w] in wanted)
        if writes == g.writes or not writes:
            groups.append(g)
            continue
        less = _computing(space, g, writes)
        less = replace(less, time_ps=checker.price_ps(less))
        groups.append(min(less, g, key=lambda g: g.time_ps))
    return tuple(groups)


def _computing(space: Space, g: Group, writes: tuple[int, ...]) -> Group:
    """The group with these results alone, without the members and reads that they do not need."""
    needed = {space.buffer[w] for w in writes}
    members: list[int] = []
    for m in reversed(g.members):
        if not needed.isdisjoint(space.output_buffers[m]):
            members.append(m)
            needed.update(space.operands[m])
    reads = tuple(r for r in g.reads if space.buffer[r] in needed)
    return replace(g, members=tuple(reversed(members)), reads=reads, writes=writes)


# ---- dispatches that nobody searched here --------------------------------------------------------
TOLD = ("time", "memory", "dispatches")  # goals that are told of every program


def graph_of_program(program: Program) -> EGraph:
    """An e-graph that holds one program and nothing else: class i is node i."""
    nodes = tuple(ENode(n.op, n.attr, n.operands, i) for i, n in enumerate(program.nodes))
    types = tuple(n.types for n in program.nodes)
    every = tuple(range(len(nodes)))
    return EGraph(nodes, types, program.results, every, (), 0, "saturated", 0.0)


def first_answer(
    egraph: EGraph, target: Target, goals: tuple[GoalRequest, ...]
) -> Callable[[], Selection] | None:
    """The answer that takes no search: the program of an e-graph of its own, an op per dispatch.

    What is called prices and checks it, which takes longer than to find it; nothing bounds it. None
    if it does not keep the budgets, or the target does not admit it.
    """
    pool, budget = Pool(Legality(Space(egraph, target.padding), target), True), dict(target.budget)
    with gc_paused():
        dispatches = _single_ops(pool)
    if dispatches is None:
        return None

    def priced() -> Selection:
        with gc_paused(), whatever_it_takes():
            names = (*(g.name for g in goals), *budget)
            answer = priced_selection(egraph, target, *dispatches, names)
            answer = replace(answer, stop=INTERRUPTED)
            _verify(egraph, target, answer, "the first answer")
            return answer

    if not budget:
        return priced
    answer = priced()
    return (lambda: answer) if all(answer.goal(n).value <= m for n, m in budget.items()) else None


def _single_ops(pool: Pool) -> tuple[tuple[Group, ...], tuple[int, ...]] | None:
    """Dispatches of one op each, in the program's order, and what is computed ahead of them.

    None if an op may be in none.
    """
    space, nodes, wanted = pool.space, pool.space.egraph.nodes, set(pool.space.roots)
    held = space.inputs | pool.resident
    groups: list[Group] = []
    for i in reversed(range(len(nodes))):
        made = wanted.intersection(space.output_buffers[i]) - held
        if not made or nodes[i].op in ("result", *SAME_BYTES):
            continue
        if not all(i in pool.producers.get(b, (pool.fills.get(b),)) for b in made):
            return None
        group = _single_op(pool, i)
        if pool.legality.of(group.members).refusal(group.members):
            return None
        groups.append(group)
        wanted.update([space.buffer[r] for r in group.reads])
    steps = (replace(g, step=n) for n, g in enumerate(reversed(groups)))
    return tuple(steps), pool.ahead_nodes(wanted & pool.resident)


def _single_op(pool: Pool, node: int) -> Group:
    """A node as a dispatch, with the constants and the forgotten pads that it reads through."""
    space, nodes = pool.space, pool.space.egraph.nodes
    members, reads = {node, *space.views_of(node)}, dict[int, int]()
    for operand in nodes[node].children:
        seen = operand
        while (b := space.buffer[seen]) in pool.relaxed:
            (view,) = pool.relaxed[b]
            members.add(view)
            (seen,) = nodes[view].children
        if b in pool.fills:
            members.add(pool.fills[b])
        else:
            reads.setdefault(b, seen)
    return Group(order(space, members), tuple(reads.values()), space.outputs[node], 0, 0)


def groups_of_cut(cut: CutProgram) -> tuple[Group, ...]:
    """Its dispatches, one step after the other, not priced yet."""
    return tuple(
        Group(d.members, d.reads, d.writes, 0, step) for step, d in enumerate(cut.dispatches)
    )


def read_weights(cut: CutProgram) -> tuple[int, ...]:
    """The weights that are there before the first dispatch, as a selection's `ahead`."""
    read = {r for d in cut.dispatches for r in d.reads} | set(cut.program.results)
    return tuple(w for w in cut.program.weights if w in read)


def priced_selection(
    egraph: EGraph,
    target: Target,
    groups: Sequence[Group],
    ahead: tuple[int, ...] = (),
    goals: Sequence[str] = TOLD,
) -> Selection:
    """These dispatches with what they cost on a target, whether it allows them or not.

    Values only: no bound is claimed.
    """
    space = Space(egraph, target.padding)
    costs = Costs(space, target)
    steps = {s: n for n, s in enumerate(sorted({g.step for g in groups}))}
    priced = tuple(_priced(costs, replace(g, step=steps[g.step])) for g in groups)
    bare = Selection(priced, ahead, (), "gap")
    values = Checker(space, target, bare).goal_values((*goals, *TOLD))
    return replace(bare, goals=tuple((n, GoalResult(v, 0)) for n, v in values.items()))


def reprice(
    egraph: EGraph, target: Target, selection: Selection, number: Mapping[int, int], where: str
) -> Selection:
    """A selection at other sizes: its dispatches in their order, with this e-graph's prices.

    number: nodes of the selection -> nodes of `egraph`. Nothing bounds the goals: nobody searched
    here. EqsatError E389 if a node does not exist at these sizes, or a limit of the target forbids
    a dispatch; `where` names the sizes.
    """
    groups = [replace(g, members=_renumbered(g.members, number, where)) for g in selection.groups]
    ahead = _renumbered(selection.ahead, number, where)
    goals = [n for n, _ in selection.goals if n != TIE_BREAK]
    priced = priced_selection(egraph, target, groups, ahead, goals)
    repriced = replace(
        selection, groups=priced.groups, goals=priced.goals, ahead=ahead, removed=(),
        stop=OTHER_SIZES,
    )  # fmt: skip
    faults = check(egraph, target, repriced)
    if faults:
        why = f"the program that was found is not legal at {where}: {'; '.join(faults)}"
        raise fail("E389", why, help="search at these sizes: `--size`")
    return repriced


def _renumbered(nodes: Iterable[int], number: Mapping[int, int], where: str) -> tuple[int, ...]:
    old = tuple(nodes)
    if any(n not in number for n in old):
        why = f"an op of the program that was found does not exist at {where}"
        raise fail("E389", why, help="search at these sizes: `--size`")
    return tuple(number[n] for n in old)


def _priced(costs: Costs, g: Group) -> Group:
    here = costs.of(g.members)
    pipeline = here.pipeline_of(g.members)
    time_ps = here.group_ps(g.members, g.reads, g.writes, pipeline)
    return replace(g, time_ps=time_ps, pipeline=pipeline)


# ---- one part of an answer for several programs --------------------------------------------------
@dataclass(frozen=True)
class CutPart:
    """The limits of a part: its name, the number of its first argument, its results.

    values: the numbers in the joined program of its program's values.
    """

    name: str
    first: int
    results: range
    values: tuple[int, ...]


@dataclass(frozen=True)
class PartNumbers:
    """Classes and nodes of the whole e-graph → those of the part."""

    classes: Mapping[int, int]
    nodes: Mapping[int, int]


def part_egraph(egraph: EGraph, target: Target, part: CutPart) -> tuple[EGraph, PartNumbers]:
    """The e-graph of one part: whatever depends on no argument of another part.

    target: that of all parts, in which each is a device.
    """
    computable = _computable(egraph, target, part)
    classes = {c: i for i, c in enumerate(computable)}
    node_numbers = [
        i
        for i, n in enumerate(egraph.nodes)
        if n.eclass in classes and all(c in classes for c in n.children)
    ]
    nodes = {n: i for i, n in enumerate(node_numbers)}
    part_graph = EGraph(
        tuple(_moved(egraph.nodes[i], part, classes, nodes) for i in node_numbers),
        tuple(egraph.types[c] for c in computable),
        tuple(classes[egraph.roots[r]] for r in part.results),
        tuple(classes[egraph.values[v]] for v in part.values),
        egraph.rules, egraph.rounds, egraph.stop, egraph.seconds,
        left_out=egraph.left_out,
        names=tuple(egraph.names[v] for v in part.values) if egraph.names else (),
    )  # fmt: skip
    return part_graph, PartNumbers(classes, nodes)


def _computable(egraph: EGraph, target: Target, part: CutPart) -> list[int]:
    """The classes that some nodes compute from the arguments of the part and weights alone."""
    held = Devices(Space(egraph, target.padding), target).classes
    classes: set[int] = set()
    left = [n for n in egraph.nodes if held[n.eclass] in (part.name, ANYWHERE)]
    size = -1
    while size != len(classes):
        size, waiting = len(classes), list[ENode]()
        for n in left:
            if classes.issuperset(n.children):
                classes.add(n.eclass)
            else:
                waiting.append(n)
        left = waiting
    return sorted(classes)


def _moved(n: ENode, part: CutPart, classes: Mapping[int, int], nodes: Mapping[int, int]) -> ENode:
    attr = n.attr
    if n.op == "input":
        assert isinstance(attr, Leaf)
        attr = own_leaf(attr, part.name, part.first)
    children = tuple([classes[c] for c in n.children])
    source = nodes.get(n.source, -1)
    return replace(n, attr=attr, children=children, eclass=classes[n.eclass], source=source)


def part_selection(
    whole: Selection,
    egraph: EGraph,
    target: Target,
    numbers: PartNumbers,
    goals: Iterable[GoalRequest],
) -> Selection:
    """The dispatches of a selection that a part needs, priced in its own e-graph for one call.

    target: that of the part, of one call. Nothing bounds the goals: the part alone was not
    searched. EqsatError E902 (our bug) if it is not legal.
    """
    space = Space(egraph, target.padding)
    groups = [g for g in whole.groups if numbers.nodes.keys() >= set(g.members)]
    needed = _needed(space, [_group(g, numbers) for g in groups])
    ahead = [numbers.nodes[i] for i in whole.ahead if i in numbers.nodes]
    names = [g.name for g in goals]
    selection = priced_selection(egraph, target, needed, _needed_ahead(space, needed, ahead), names)
    searched = whole.stop in ("optimal", "gap")
    stop, cuts = "gap" if searched else whole.stop, whole.cuts
    selection = replace(selection, stop=stop, cuts=cuts, candidates=whole.candidates)
    _verify(egraph, target, selection, "a part of the answer")
    return selection


def _verify(egraph: EGraph, target: Target, selection: Selection, what: str) -> None:
    if faults := check(egraph, target, selection):
        raise fail("E902", f"{what} is not legal: {'; '.join(faults)}", exit_code=4)


def _group(g: Group, numbers: PartNumbers) -> Group:
    def at(classes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([numbers.classes[c] for c in classes])

    members = tuple([numbers.nodes[m] for m in g.members])
    return replace(g, members=members, reads=at(g.reads), writes=at(g.writes))


def _needed(space: Space, groups: list[Group]) -> list[Group]:
    """The dispatches that results are computed from, in their order."""
    wanted, needed = set(space.roots), list[Group]()
    for g in reversed(groups):
        if not wanted.isdisjoint(space.buffer[w] for w in g.writes):
            wanted.update(space.buffer[r] for r in g.reads)
            needed.append(g)
    return needed[::-1]


def _needed_ahead(space: Space, groups: list[Group], ahead: list[int]) -> tuple[int, ...]:
    """Nodes computed ahead of time for these dispatches and results, operands first."""
    wanted = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
    needed: list[int] = []
    for i in reversed(ahead):
        if space.buffer[space.egraph.nodes[i].eclass] in wanted:
            wanted.update(space.operands[i])
            needed.append(i)
    return tuple(needed[::-1])


def whole_selection(
    rolled: Rolled,
    target: Target,
    goals: tuple[GoalRequest, ...],
    selection: Selection,
) -> Selection:
    """Its dispatches in all blocks; the values of the goals are computed anew, bounds stay.

    Bounds of the short problem are those of the whole one (`choice.blockrows`). Where the order of
    the short answer, repeated block by block, needs more bytes, a better one is looked for.
    """
    space = Space(rolled.whole, target.padding)
    pool = Pool(Legality(space, target), False)
    groups = rolled.unrolled(selection.groups, space.buffer)
    buffers = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
    buffers -= {space.buffer[w] for g in groups for w in g.writes}
    ahead = pool.ahead_nodes(b for b in buffers if b in pool.resident)
    unrolled = replace(selection, groups=groups, ahead=ahead)
    names = (*dict(selection.goals), *dict(target.budget), TIE_BREAK)
    values = Checker(space, target, unrolled).goal_values(names)
    memory = selection.goal("memory").value
    if values["memory"] > memory:
        other = replace(unrolled, groups=_in_best_order(space, groups))
        after = Checker(space, target, other).goal_values(names)
        if after["memory"] < values["memory"]:
            unrolled, values = other, after
    results = tuple(
        (n, GoalResult(values[n], min(r.bound, values[n]), r.proof if r.bound >= values[n] else ""))
        for n, r in selection.goals
        if n != TIE_BREAK
    )
    unrolled = replace(unrolled, goals=results)
    is_open = any(unrolled.goal(g.name).gap > 0 for g in goals if g.weight is None)
    return replace(
        unrolled, stop="gap" if is_open and selection.stop == "optimal" else selection.stop
    )


def _in_best_order(space: Space, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """These dispatches in the order of least peak."""
    sides = (
        tuple(tuple(sorted({space.buffer[c] for c in side})) for side in of)
        for of in ([g.reads for g in groups], [g.writes for g in groups])
    )
    reads, writes = sides
    used = {b for of in writes for b in of}
    nbytes = {b: 0 if b in space.roots else space.sizes[b] for b in sorted(used)}
    reads = tuple(tuple(b for b in of if b in used) for of in reads)
    order = best_order(DispatchGraph(reads, writes, nbytes)).order
    return tuple(replace(groups[i], step=n) for n, i in enumerate(order))
