"""Programs and e-graphs with symbols → the same at given sizes.

What the search found on extents that stand for every size holds for each of them: a union of two
values by a layout algebra that asked only what is so for all multiples. Here the sizes are put in,
and every op is typed again: a node that does not exist at these sizes (a slice that is too long for
them) is left out, and no answer can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from eqsat.model.attr import Attr, ShapeError
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.extents import bound
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program, infer

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class BoundGraph:
    """An e-graph at given sizes; `number` maps nodes of the symbolic one to its own."""

    egraph: EGraph
    number: Mapping[int, int]


def bind_attr(attr: Attr, sizes: Sizes) -> Attr:
    """An attribute with the sizes put in; a tile that divides there pads nothing."""
    at_sizes = bound(attr, sizes)
    if at_sizes is attr:
        return attr
    if isinstance(at_sizes, Leaf) and isinstance(at_sizes.layout, Layout):
        return replace(at_sizes, layout=_padded(at_sizes.layout))
    return _padded(at_sizes) if isinstance(at_sizes, Layout) else at_sizes


def _padded(layout: Layout) -> Layout:
    """Without padding where tiles divide."""
    pads = tuple(
        "-" if layout.source[d] % t == 0 else p
        for d, t, p in zip(layout.pos, layout.tiles, layout.pads, strict=True)
    )
    return replace(layout, pads=pads)


def bind_program(program: Program, sizes: Sizes) -> Program:
    """The program at these sizes; EqsatError E389 if an op of it does not exist there."""
    b = Builder(program.name)
    for i, n in enumerate(program.nodes):
        b.origin = n.origin
        try:
            b.append(n.op, n.operands, bind_attr(n.attr, sizes))
        except ShapeError as error:
            shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise fail(
                "E389", f"{program.value_name(i)} (`{n.op}`) does not exist at {shown}: {error}"
            ) from None
    return b.build(program.results)


def bind_graph(graph: EGraph, sizes: Sizes) -> BoundGraph:
    """The e-graph at these sizes, without the nodes that do not exist there."""
    change = cache(lambda attr: bind_attr(attr, sizes))
    types = tuple(bound(t, sizes) for t in graph.types)
    number: dict[int, int] = {}
    nodes: list[ENode] = []
    for i, n in enumerate(graph.nodes):
        node = replace(n, attr=change(n.attr))
        try:
            fits = infer(n.op, node.attr, [types[c] for c in n.children]) == types[n.eclass]
        except ShapeError:
            fits = False
        if fits:
            number[i] = len(nodes)
            nodes.append(node)
    renumbered = tuple(replace(n, source=number.get(n.source, -1)) for n in nodes)
    return BoundGraph(replace(graph, nodes=renumbered, types=types), number)
