"""An e-graph and the values of its leaves → every class evaluated, every node held to its class.

Lanes that may hold anything ("?" padding) are open: every op that reads them is evaluated with
several kinds of garbage there, and a lane of its result is open if the results differ. A class is
open wherever one of its nodes is; on all other lanes its nodes must agree. The open lanes grow to a
fixpoint, as a union is transitive and a class may be reached from itself.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.model.attr import Attr
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Program
from eqsat.ops.builtin.layouts import pack
from eqsat.ops.meaning.programs import OpaqueFunction, evaluate_node

Array = np.ndarray[Any, Any]
RUNS = 3  # kinds of garbage: NaN or the largest, the smallest, random


@dataclass(frozen=True)
class Partial:
    """An array and the lanes of it that may hold anything."""

    value: Array
    is_open: Array  # bool, of the same shape

    @staticmethod
    def whole(value: Array) -> Partial:
        return Partial(value, np.zeros(value.shape, bool))

    def filled(self, run: int) -> Array:
        """The array with garbage of one kind in its open lanes."""
        if not self.is_open.any():
            return self.value
        return np.where(self.is_open, _garbage(self.value, run), self.value)


@dataclass(frozen=True)
class Disagreement:
    """A node and its class differ on a lane that both define."""

    node: int
    lane: tuple[int, ...]
    in_class: Any
    in_node: Any

    def __str__(self) -> str:
        at = list(self.lane)
        return f"at {at} node {self.node} is {self.in_node}, its class {self.in_class}"


@dataclass(frozen=True)
class Values:
    """The results of every class (None: not reached), and the first disagreement."""

    classes: tuple[tuple[Partial, ...] | None, ...]
    compared: int  # nodes that were held to a class with a value of another node
    disagreement: Disagreement | None


def evaluate_classes(
    graph: EGraph,
    leaves: Mapping[Attr, Array],
    tolerance: float = 1e-9,
    opaque: Mapping[str, OpaqueFunction] | None = None,
) -> Values:
    """Every class of `graph` with these inputs and weights, in held form, by their attributes.

    Floats agree within `tolerance` of the larger of 1 and the largest finite value of the class;
    all else is equal, NaN to NaN.
    """
    held: list[tuple[Partial, ...] | None] = [None] * len(graph.types)
    readers: dict[int, list[int]] = defaultdict(list)
    for i, n in enumerate(graph.nodes):
        for c in set(n.children):
            readers[c].append(i)
    work = deque(range(len(graph.nodes)))
    waiting = set(work)
    compared: set[int] = set()
    first: dict[int, int] = {}  # class -> the node that gave it its value
    while work:
        i = work.popleft()
        waiting.discard(i)
        n = graph.nodes[i]
        operands = [held[c] for c in n.children]
        if any(o is None for o in operands):
            continue  # its last operand wakes it
        results = _node(n.op, n.attr, [o for o in operands if o is not None], leaves, opaque)
        before = held[n.eclass]
        if before is not None:
            compared |= {i} - {first[n.eclass]}
            wrong = _compare(i, before, results, tolerance)
            if wrong is not None:
                return Values(tuple(held), len(compared), wrong)
        joined = results if before is None else tuple(map(_join, before, results))
        if before is not None and all(map(_as_open, before, joined)):
            continue
        held[n.eclass] = joined
        first.setdefault(n.eclass, i)
        for r in readers[n.eclass]:
            if r not in waiting:
                waiting.add(r)
                work.append(r)
    return Values(tuple(held), len(compared), None)


def as_graph(program: Program) -> EGraph:
    """The program by itself as an e-graph, a class per node."""
    nodes = [ENode(n.op, n.attr, n.operands, i) for i, n in enumerate(program.nodes)]
    types = tuple(n.types for n in program.nodes)
    values = tuple(range(len(nodes)))
    return EGraph(tuple(nodes), types, program.results, values, (), 0, "saturated", 0.0)


def _garbage(like: Array, run: int) -> Any:
    kind = like.dtype.kind
    if kind == "b":
        return run == 0
    if run == 2:  # of both signs and of no pattern, but the same every time
        noise = np.random.default_rng(like.size).integers(-100, 100, like.shape)
        return noise.astype(like.dtype)
    if kind == "f":
        return (np.nan, -1e6)[run]
    info = np.iinfo(like.dtype)
    return like.dtype.type((info.max, info.min)[run])


def _node(
    op: str,
    attr: Attr,
    operands: Sequence[tuple[Partial, ...]],
    leaves: Mapping[Attr, Array],
    opaque: Mapping[str, OpaqueFunction] | None,
) -> tuple[Partial, ...]:
    if isinstance(attr, Leaf):
        return (Partial.whole(leaves[attr]),)
    flat = [p for o in operands for p in o]
    runs = RUNS if any(p.is_open.any() for p in flat) else 1
    results = [evaluate_node(op, attr, [p.filled(r) for p in flat], opaque) for r in range(runs)]
    found = []
    for kinds in zip(*results, strict=True):
        is_open = np.zeros(kinds[0].shape, bool)
        for other in kinds[1:]:
            is_open |= ~_same(kinds[0], other)
        if isinstance(attr, Layout) and op in ("pack", "retype"):
            is_open |= _padding(attr)
        found.append(Partial(kinds[0], is_open))
    return tuple(found)


def _same(a: Array, b: Array) -> Array:
    same = a == b
    return same | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else same


def _padding(layout: Layout) -> Array:
    """The lanes of the packed tensor that may hold anything."""
    pads = tuple("true" if p == "?" else "false" if p != "-" else p for p in layout.pads)
    return pack(replace(layout, pads=pads), np.zeros(layout.source, bool))


def _join(a: Partial, b: Partial) -> Partial:
    return Partial(a.value, a.is_open | b.is_open)


def _as_open(a: Partial, b: Partial) -> bool:
    return np.array_equal(a.is_open, b.is_open)


def _compare(
    node: int, before: Sequence[Partial], after: Sequence[Partial], tolerance: float
) -> Disagreement | None:
    for a, b in zip(before, after, strict=True):
        wrong = ~(a.is_open | b.is_open | _agree(a, b, tolerance))
        if wrong.any():
            lane = tuple(int(x) for x in np.argwhere(wrong)[0])
            return Disagreement(node, lane, a.value[lane], b.value[lane])
    return None


def _agree(a: Partial, b: Partial, tolerance: float) -> Array:
    same = _same(a.value, b.value)
    if a.value.dtype.kind != "f" or same.all():
        return same
    known = np.isfinite(a.value) & np.isfinite(b.value) & ~a.is_open
    largest = np.abs(a.value[known]).max(initial=1.0)
    with np.errstate(invalid="ignore"):
        return same | (np.abs(a.value - b.value) <= tolerance * largest)
