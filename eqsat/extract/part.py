"""One part of an answer for several programs at once: its own e-graph, and its own selection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from eqsat.extract.candidates.space import Space
from eqsat.extract.check import check
from eqsat.extract.dispatch.rules import Devices
from eqsat.extract.given import priced_selection
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.leaves import Leaf
from eqsat.model.selection import GoalRequest, Group, Selection
from eqsat.model.target import Target
from eqsat.ops.programs.placement import ANYWHERE
from eqsat.ops.programs.together import own_leaf


@dataclass(frozen=True)
class CutPart:
    """What belongs to a part: its name, the number of its first argument, its results.

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
    """What of an e-graph depends on no argument of another part, as an e-graph of its own.

    target: that of all parts, in which each is a device.
    """
    kept = _computable(egraph, target, part)
    classes = {c: i for i, c in enumerate(kept)}
    own = [
        i
        for i, n in enumerate(egraph.nodes)
        if n.eclass in classes and all(c in classes for c in n.children)
    ]
    nodes = {n: i for i, n in enumerate(own)}
    found = EGraph(
        tuple(_moved(egraph.nodes[i], part, classes, nodes) for i in own),
        tuple(egraph.types[c] for c in kept),
        tuple(classes[egraph.roots[r]] for r in part.results),
        tuple(classes[egraph.values[v]] for v in part.values),
        egraph.rules, egraph.rounds, egraph.stop, egraph.seconds,
        left_out=egraph.left_out,
        names=tuple(egraph.names[v] for v in part.values) if egraph.names else (),
    )  # fmt: skip
    return found, PartNumbers(classes, nodes)


def _computable(egraph: EGraph, target: Target, part: CutPart) -> list[int]:
    """The classes that some nodes compute from the arguments of the part and weights alone."""
    held = Devices(Space(egraph, target.padding), target).classes
    found: set[int] = set()
    left = [n for n in egraph.nodes if held[n.eclass] in (part.name, ANYWHERE)]
    size = -1
    while size != len(found):
        size, waiting = len(found), list[ENode]()
        for n in left:
            if found.issuperset(n.children):
                found.add(n.eclass)
            else:
                waiting.append(n)
        left = waiting
    return sorted(found)


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
    own = _needed(space, [_group(g, numbers) for g in groups])
    ahead = [numbers.nodes[i] for i in whole.ahead if i in numbers.nodes]
    names = [g.name for g in goals]
    found = priced_selection(egraph, target, own, _needed_ahead(space, own, ahead), names)
    searched = whole.stop in ("optimal", "gap")
    stop, cuts = "gap" if searched else whole.stop, whole.cuts
    found = replace(found, stop=stop, cuts=cuts, candidates=whole.candidates)
    faults = check(egraph, target, found)
    if faults:
        raise fail("E902", f"a part of the answer is not legal: {'; '.join(faults)}", exit_code=4)
    return found


def _group(g: Group, numbers: PartNumbers) -> Group:
    def at(classes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([numbers.classes[c] for c in classes])

    members = tuple([numbers.nodes[m] for m in g.members])
    return replace(g, members=members, reads=at(g.reads), writes=at(g.writes))


def _needed(space: Space, groups: list[Group]) -> list[Group]:
    """The dispatches that results are computed from, in their order."""
    wanted, found = set(space.roots), list[Group]()
    for g in reversed(groups):
        if not wanted.isdisjoint(space.buffer[w] for w in g.writes):
            wanted.update(space.buffer[r] for r in g.reads)
            found.append(g)
    return found[::-1]


def _needed_ahead(space: Space, groups: list[Group], ahead: list[int]) -> tuple[int, ...]:
    """What is computed ahead of time for these dispatches and results, operands first."""
    wanted = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
    found: list[int] = []
    for i in reversed(ahead):
        if space.buffer[space.egraph.nodes[i].eclass] in wanted:
            wanted.update(space.operands[i])
            found.append(i)
    return tuple(found[::-1])
