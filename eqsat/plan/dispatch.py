"""A dispatch as a kernel: its plan, and what that costs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache

from eqsat.model.egraph import EGraph
from eqsat.model.nest import Nest, NoNest
from eqsat.model.plan import Machine, Parts, Plan
from eqsat.model.target import Target
from eqsat.plan.planner import plan
from eqsat.plan.price import Rates, price, rates


@lru_cache(maxsize=50_000)
def _plan(nest: Nest, machine: Machine) -> Plan | str:
    """The plan of a nest, or why there is none; equal nests are planned once."""
    try:
        return plan(nest, machine)
    except NoNest as why:
        return str(why)


@dataclass(frozen=True)
class Planner:
    """Plans the dispatches of one program for one target.

    weight_bytes: of all its weights: see `price`.
    """

    target: Target
    weight_bytes: int

    def __call__(self, nest: Nest, weights: Collection[int]) -> tuple[Plan, Parts]:
        """weights: buffers that follow from weights alone. NoNest if there is no plan."""
        number: dict[int, int] = {}
        for b in (*nest.reads, *nest.writes):
            number.setdefault(b, len(number))
        alike = nest.renumbered(_Unnumbered(number))
        chosen = _plan(alike, self.target.machine)
        if isinstance(chosen, str):
            raise NoNest(chosen)
        kept = {number[w] for w in weights if w in number}
        return chosen, price(alike, chosen, self._rates, kept, self.weight_bytes)

    @cached_property
    def _rates(self) -> Rates:
        return rates(self.target)


class _Unnumbered(dict[int, int]):
    """Names of buffers; those of the members do not matter to a plan."""

    def __missing__(self, _: int) -> int:
        return -1


def planner_of(egraph: EGraph, target: Target) -> Planner:
    """The planner of a program's dispatches; ValueError if the target has no kernels."""
    classes = {n.eclass for n in egraph.nodes if n.op == "weight"}
    rates(target)
    return Planner(target, sum(t.nbytes for c in classes for t in egraph.types[c]))


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
