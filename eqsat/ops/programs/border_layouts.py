"""A program whose arguments and results cross its border in layouts, plain or of the caller's.

An argument that arrives packed is a leaf of the packed type and an `unpack` of it, whose padding
says what its lanes hold: zeros the caller promises, or anything. A result that leaves packed is a
`pack`. So nothing behind this file knows of borders: what a rule can do to a pack and an unpack is
what becomes of them, bytes are those of what crosses, and an encoding, the request of a layout, is
resolved by the target before the search.

A state is an argument that a result replaces in the next call. Kept in one layout on both sides it
is packed before the first call and unpacked after the last, and never in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.model.diag import Span, fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.layout import Border, Encoding, Held, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.ops import LEAVES, VIEWS
from eqsat.model.program import Builder, Node, Program
from eqsat.model.text import layout_text
from eqsat.ops.movement.lists import inverse

Layouts = Mapping[Border, Held]


# ---- one argument or result ----------------------------------------------------------------------
def held_in(leaf: Leaf, layout: Held) -> Leaf:
    """The argument, arriving in this layout."""
    shape = layout.packed_shape if isinstance(layout, Layout) else leaf.plain.shape
    return replace(leaf, type=leaf.type.with_shape(shape), layout=layout)


def taken_out(b: Builder, node: int) -> int:
    """The plain tensor of an argument."""
    leaf = b.nodes[node].attr
    assert isinstance(leaf, Leaf)
    layout = leaf.layout
    if not isinstance(layout, Layout):  # an encoded tensor is that tensor here
        return node
    if layout.tiles:
        return b.append("unpack", (node,), layout)
    return b.append("transpose", (node,), Transpose(layout.packed_shape, inverse(layout.outer)))


def put_in(b: Builder, node: int, layout: Held) -> int:
    """A result in its layout, from the plain one."""
    if held_of(b.nodes[node]) == layout:
        return node
    if isinstance(layout, Encoding):
        return b.append("set_encoding", (node,), layout)
    if layout.tiles:
        return b.append("pack", (node,), layout)
    return b.append("transpose", (node,), Transpose(layout.source, layout.outer))


def held_of(node: Node) -> Held | None:
    """The layout that an argument arrives in or an encoded result leaves in; None for a plain one.

    A result that is a `pack` is a plain tensor of the packed type.
    """
    if isinstance(node.attr, Leaf):
        return node.attr.layout
    return node.attr if node.op == "set_encoding" and isinstance(node.attr, Encoding) else None


def refuse_other(what: str, held: Held | None, asked: Held | None, span: Span | None) -> None:
    """EqsatError E393 if a border is in one layout and asked for in another (None: plain)."""
    if held is None or held == asked:
        return
    wanted = "plain" if asked is None else f"as {layout_text(asked)}"
    raise fail(
        "E393",
        f"{what} is {layout_text(held)} already and asked for {wanted}",
        span,
        help="ask for no other layout, or take this one out of the program and convert in it",
    )


def packed_borders(program: Program) -> dict[Border, Layout]:
    """The arguments and results that cross packed, with their layouts."""
    found: dict[Border, Layout] = {}
    for number, i in enumerate(program.inputs):
        layout = program.leaf(i).layout
        if isinstance(layout, Layout):
            found[Border("input", number)] = layout
    for number, r in enumerate(program.results):
        node = program.nodes[r]
        if node.op in ("pack", "relax") and isinstance(node.attr, Layout):
            found[Border("result", number)] = node.attr
    return found


# ---- whole programs ------------------------------------------------------------------------------
def laid_out(program: Program, layouts: Layouts) -> Program:
    """The same program, but these arguments and results, plain so far, cross in these layouts.

    ShapeError if a layout does not fit. For every state x: f'(pack(x)) = pack(f(x)).
    """
    inputs = {program.inputs[b.number]: held for b, held in layouts.items() if b.kind == "input"}
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        if i in inputs:
            arrives = b.append("input", (), held_in(program.leaf(i), inputs[i]))
            new[i] = taken_out(b, arrives)
        else:
            new[i] = b.append(n.op, tuple(new[o] for o in n.operands), n.attr)
    results = [new[r] for r in program.results]
    for border, held in layouts.items():
        if border.kind == "result":
            results[border.number] = put_in(b, results[border.number], held)
    return b.build(results, program.symbols)


def with_open_results(egraph: EGraph) -> EGraph:
    """The e-graph in which what serves as a result with open lanes is one of its nodes.

    No op reads a result, so a value with the right valid lanes can be written as it is, and nothing
    has to be packed again for the sake of open lanes.
    """
    known = {
        (root, n.op, n.attr, n.children) for root in egraph.roots for n in _members(egraph, root)
    }
    added: dict[ENode, None] = {}
    for root in dict.fromkeys(egraph.roots):
        for c in sorted(egraph.serving(root)):
            for n in _members(egraph, c):
                computes = n.op not in LEAVES and n.op not in VIEWS
                if computes and (root, n.op, n.attr, n.children) not in known:
                    added[replace(n, eclass=root)] = None
    return replace(egraph, nodes=(*egraph.nodes, *added)) if added else egraph


def _members(egraph: EGraph, eclass: int) -> list[ENode]:
    return [egraph.nodes[i] for i in egraph.classes[eclass]]


# ---- what a search would like --------------------------------------------------------------------
def demanded(egraph: EGraph) -> dict[Border, tuple[Layout, ...]]:
    """Per argument and result: the layouts that some op of the e-graph reads or makes it in.

    A layout without tiles is a permutation of the dims.
    """
    leaves = ((n.eclass, n.attr) for n in egraph.nodes if n.op == "input")
    inputs = {c: leaf.index for c, leaf in leaves if isinstance(leaf, Leaf)}
    roots: dict[int, list[int]] = {}
    for number, c in enumerate(egraph.roots):
        roots.setdefault(c, []).append(number)
    found: dict[Border, dict[Layout, None]] = {}
    for n in egraph.nodes:
        if len(n.children) == 1 and n.children[0] in inputs and n.op in ("pack", "transpose"):
            layout = _layout(n.attr, inward=True)
            found.setdefault(Border("input", inputs[n.children[0]]), {})[layout] = None
        if n.eclass in roots and n.op in ("unpack", "transpose"):
            for number in roots[n.eclass]:
                layout = _layout(n.attr, inward=False)
                found.setdefault(Border("result", number), {})[layout] = None
    return {border: tuple(layouts) for border, layouts in found.items()}


def _layout(attr: object, inward: bool) -> Layout:
    """Of a pack, an unpack, a transpose of an argument, or one that makes a result."""
    if isinstance(attr, Layout):
        return attr
    assert isinstance(attr, Transpose)
    if inward:
        return Layout(attr.source, (), (), attr.perm, ())
    return Layout(attr.result_shape, (), (), inverse(attr.perm), ())
