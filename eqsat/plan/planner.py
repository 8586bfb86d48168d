"""Plans and prices of dispatches as kernels: each kind of plan is asked in order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache

from eqsat.model.dispatch import Machine, Parts, Plan
from eqsat.model.egraph import EGraph
from eqsat.model.nest import Nest, NoNest, refused_by_check
from eqsat.model.pipelines import Padding
from eqsat.model.sets import union_find
from eqsat.model.target import Target
from eqsat.plan import passes, rowblocks, rows, tiling
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.price import Rates, price, rates
from eqsat.plan.storage import narrowed_types, unchanged_in_place
from eqsat.plan.updates import few_of

# planners in the order in which they are asked; each raises NoNest for what is not its own
PLANNERS: list[Callable[[Nest, Machine], Plan]] = [tiling.plan, rowblocks.plan, rows.plan]


def plan(nest: Nest, machine: Machine) -> Plan:
    """The plan of the first kind that takes the nest, or of every part if stores share no loops.

    Raises NoNest with the reasons of all kinds if none does.
    """
    if len(passes.parts_of(nest)) > 1:
        return passes.plan(nest, machine, _of_part)
    return _of_one(nest, machine)


@lru_cache(maxsize=1_000)
def _of_part(nest: Nest, machine: Machine) -> Plan:
    return _of_one(nest, machine)


def _of_one(nest: Nest, machine: Machine) -> Plan:
    reasons: list[str] = []
    for planner in PLANNERS:
        try:
            return planner(nest, machine)
        except NoNest as why:
            reasons.append(str(why))
    raise NoNest("; ".join(dict.fromkeys(reasons)))


@lru_cache(maxsize=50_000)
def _plan(nest: Nest, machine: Machine) -> Plan | str:
    """The plan of a nest, or why there is none; equal nests are planned once, and checked."""
    try:
        chosen = plan(nest, machine)
    except NoNest as why:
        return str(why)
    fault = next(plan_faults(nest, chosen), "")
    return refused_by_check(f"{chosen.kind} plan", fault, nest) if fault else chosen


@dataclass(frozen=True)
class BufferFacts:
    """Facts of buffers that a dispatch reads, besides that they are weights.

    donated: arguments that the caller reads no more. dying: values, such arguments among them,
    that nothing reads once their next state is there, and whose type a result has. lines: weights
    that hold 0, 1, …
    """

    donated: tuple[int, ...] = ()
    dying: tuple[int, ...] = ()
    lines: frozenset[int] = frozenset()


NOTHING = BufferFacts()


@dataclass(frozen=True)
class Planner:
    """Plans the dispatches of one program for one target.

    working_set: see `working_set` and `price`.
    """

    target: Target
    working_set: int

    def __call__(
        self, nest: Nest, weights: Collection[int], reads: BufferFacts = NOTHING
    ) -> tuple[Plan, Parts]:
        """weights: buffers that follow from weights alone. NoNest if there is no plan.

        Where a result may lie in the bytes of what is read no more, and few of its points change,
        that is priced: the plan is of the nest over these.
        """
        number = {b: i for i, b in enumerate(nest.buffers)}
        alike, chosen = plan_alike(nest, self.target.machine)
        resident = {number[w] for w in weights if w in number}
        gone = [number[b] for b in reads.dying if b in number]
        lines = frozenset(number[b] for b in reads.lines if b in number)
        few = few_of(alike, gone, lines) if gone and lines else None
        if few is not None:
            fewer = _plan(few, self.target.machine)
            if not isinstance(fewer, str):
                return fewer, price(few, fewer, self._rates, resident, self.working_set)
        if isinstance(chosen, str):
            raise NoNest(chosen)
        given = [number[b] for b in reads.donated if b in number]
        still = unchanged_in_place(alike, given) if given else frozenset[int]()
        return chosen, price(alike, chosen, self._rates, resident, self.working_set, still)

    @cached_property
    def _rates(self) -> Rates:
        return rates(self.target)


def plan_alike(nest: Nest, machine: Machine) -> tuple[Nest, Plan | str]:
    """A nest with its buffers numbered anew, and its plan, or why there is none."""
    alike = nest.anonymous()
    return alike, _plan(alike, machine)


def planner_of(egraph: EGraph, target: Target) -> Planner:
    """The planner of a program's dispatches; ValueError if the target has no kernels."""
    rates(target)
    return Planner(target, bytes_between_uses(egraph, target))


def bytes_between_uses(egraph: EGraph, target: Target) -> int:
    """The `working_set` of a program, or what its target says where it is one of several parts."""
    if target.touched_bytes is not None:
        return target.touched_bytes
    return working_set(egraph, target.padding)


def class_bytes(egraph: EGraph, padding: Padding | None) -> tuple[int, ...]:
    """Per class: the bytes of its buffer (of its first result if it has several).

    Shapes of the same bytes are one buffer, which has the fewest bytes that any of them takes. Of
    what `narrowed` keeps in another type, the bytes of that.
    """
    if padding is None:
        return tuple(t[0].nbytes for t in egraph.types)
    weights = weight_classes(egraph) if padding.narrowed else ()
    narrow = narrowed_types(egraph, padding, weights)
    sizes = [
        padding.buffer_bytes(t[0].shape, narrow.get(c, t[0].dtype))
        for c, t in enumerate(egraph.types)
    ]
    same = [(n.eclass, n.children[0]) for n in egraph.nodes if n.op == "reshape"]
    buffer, least = union_find(len(sizes), same), dict[int, int]()
    for b, nbytes in zip(buffer, sizes, strict=True):
        least[b] = min(nbytes, least.get(b, nbytes))
    return tuple(least[b] for b in buffer)


def working_set(egraph: EGraph, padding: Padding | None = None) -> int:
    """Bytes that lie between a run's read of a weight and the next run's, at the least.

    Arguments, results and weights, as the input program reads them: of a table that it only
    gathers from, the rows. So it is known before the search, and the same for every answer; what
    an answer writes in between comes on top and is not counted.
    """
    sizes, tables = class_bytes(egraph, padding), _gathered_bytes(egraph)
    read = {n.eclass for n in egraph.nodes if n.op in ("weight", "input")}.union(egraph.roots)
    further = sum(t.nbytes for c in read for t in egraph.types[c][1:])
    return further + sum(min(tables.get(c, sizes[c]), sizes[c]) for c in read)


def _gathered_bytes(egraph: EGraph) -> dict[int, int]:
    """Per class that the input program only gathers rows of: bytes of these."""
    rows: dict[int, int] = {}
    whole = set(egraph.roots)
    for n in egraph.nodes:
        if n.rule != -1:
            continue
        table = n.children[0] if n.op == "gather" else None
        if table is not None:
            rows[table] = rows.get(table, 0) + egraph.types[n.eclass][0].nbytes
        whole.update(c for i, c in enumerate(n.children) if i or c != table)
    return {c: nbytes for c, nbytes in rows.items() if c not in whole}


def weight_classes(egraph: EGraph) -> frozenset[int]:
    """Classes that follow from weights and constants alone, and need a weight."""
    weights = {n.eclass for n in egraph.nodes if n.op == "weight"}
    constants = {n.eclass for n in egraph.nodes if n.op == "fill"}
    left = [n for n in egraph.nodes if n.op not in ("weight", "fill", "input", "opaque")]
    size = -1
    while size != len(weights) + len(constants):
        size = len(weights) + len(constants)
        for n in left:
            if weights.isdisjoint(n.children):
                if constants.issuperset(n.children):
                    constants.add(n.eclass)
            elif all(c in weights or c in constants for c in n.children):
                weights.add(n.eclass)
        left = [n for n in left if n.eclass not in weights]
    return frozenset(weights)
