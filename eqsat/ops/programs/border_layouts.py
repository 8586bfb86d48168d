"""Layouts at the border of a program, plain or of the caller's, and encodings of it resolved.

An argument that arrives packed is a leaf of the packed type and an `unpack` of it, whose padding
says what its lanes hold: zeros the caller promises, or anything. A result that leaves packed is a
`pack`. So nothing behind this file knows of borders: what a rule can do to a pack and an unpack is
what becomes of them, and bytes are those of what crosses.

An encoding, the request of a layout, becomes packs, or nothing, as the target says, before the
search. What arrives encoded for a contraction arrives as that contraction's packed form reads it,
so the contraction is packed here, too: the caller decided that its data are tiled.

A state is an argument that a result replaces in the next call. Kept in one layout on both sides it
is packed before the first call and unpacked after the last, and never in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eqsat.model.diag import Span, fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.generic import Generic
from eqsat.model.layout import ROWS, Border, Encoding, Held, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.ops import LEAVES, VIEWS
from eqsat.model.program import Builder, Node, Program, is_elementwise, prune
from eqsat.model.target import Target
from eqsat.model.text import layout_text
from eqsat.ops.contractions.encodings import encoding_layout, encoding_tiles
from eqsat.ops.contractions.packing import pack_loops
from eqsat.ops.generics.propagate import pack_operand
from eqsat.ops.movement.lists import inverse
from eqsat.ops.targets.rows import longer_rows
from eqsat.ops.targets.tiles import tiles_of

# ---- layouts -------------------------------------------------------------------------------------
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
    n = b.nodes[node]
    if held_of(n) == layout:
        return node
    if n.op == "unpack" and n.attr == layout and b.nodes[n.operands[0]].op == "pack":
        return n.operands[0]
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
    borders: dict[Border, Layout] = {}
    for number, i in enumerate(program.inputs):
        layout = program.leaf(i).layout
        if isinstance(layout, Layout):
            borders[Border("input", number)] = layout
    for number, r in enumerate(program.results):
        node = program.nodes[r]
        if node.op in ("pack", "relax") and isinstance(node.attr, Layout):
            borders[Border("result", number)] = node.attr
    return borders


# ---- whole programs ------------------------------------------------------------------------------
def laid_out(program: Program, layouts: Layouts) -> Program:
    """The program whose arguments and results, plain so far, cross in these layouts.

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
    present = {
        (root, n.op, n.attr, n.children) for root in egraph.roots for n in _members(egraph, root)
    }
    added: dict[ENode, None] = {}
    for root in dict.fromkeys(egraph.roots):
        for c in sorted(egraph.serving(root)):
            for n in _members(egraph, c):
                computes = n.op not in LEAVES and n.op not in VIEWS
                if computes and (root, n.op, n.attr, n.children) not in present:
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
    demands: dict[Border, dict[Layout, None]] = {}
    for n in egraph.nodes:
        if len(n.children) == 1 and n.children[0] in inputs and n.op in ("pack", "transpose"):
            layout = _layout(n.attr, inward=True)
            demands.setdefault(Border("input", inputs[n.children[0]]), {})[layout] = None
        if n.eclass in roots and n.op in ("unpack", "transpose"):
            for number in roots[n.eclass]:
                layout = _layout(n.attr, inward=False)
                demands.setdefault(Border("result", number), {})[layout] = None
    return {border: tuple(layouts) for border, layouts in demands.items()}


def _layout(attr: object, inward: bool) -> Layout:
    """Of a pack, an unpack, a transpose of an argument, or one that makes a result."""
    if isinstance(attr, Layout):
        return attr
    assert isinstance(attr, Transpose)
    if inward:
        return Layout(attr.source, (), (), attr.perm, ())
    return Layout(attr.result_shape, (), (), inverse(attr.perm), ())


# ---- encodings resolved --------------------------------------------------------------------------
_Packed = tuple[Generic, Sequence[int], Layout]  # a generic, what it reads, its result's layout


def is_encoded(program: Program) -> bool:
    """Whether the layout of an argument, a weight or a result is left to the target."""
    nodes = (program.nodes[i] for i in (*program.inputs, *program.weights, *program.results))
    return any(isinstance(held_of(n), Encoding) for n in nodes)


def resolution(encoding: Encoding, target: Target) -> Layout | None:
    """The layout that this target gives an encoded tensor; None: it stays plain.

    It is that of the first of the tiles which its table has for the contraction, whoever asks, so
    programs for one target agree on what an encoding is.
    """
    if encoding.role == ROWS:
        return longer_rows(target.row_padding, encoding.source, encoding.dtypes[0])
    layouts = (encoding_layout(encoding, tile) for tile in encoding_tiles(target, encoding))
    return next((layout for layout in layouts if layout is not None), None)


def resolved(program: Program, target: Target) -> Program:
    """The program with every encoding of its border turned into a pack or into nothing."""
    return _Resolver(program, target).program() if is_encoded(program) else program


class _Resolver:
    """Writes every node anew; `held` has values that are there packed, with their layouts."""

    def __init__(self, source: Program, target: Target):
        self.source, self.target = source, target
        self.builder = Builder(source.name)
        self.new: dict[int, int] = {}
        self.encoded: set[int] = set()  # arguments
        self.held: dict[int, tuple[int, Layout]] = {}

    def program(self) -> Program:
        for i, n in self.builder.following(self.source, self.new):
            self.new[i] = self._node(i, n)
        results = [self._result(r) for r in self.source.results]
        return prune(self.builder.build(results, self.source.symbols))

    def _node(self, i: int, n: Node) -> int:
        if isinstance(n.attr, Leaf) and isinstance(n.attr.layout, Encoding):
            return self._leaf(i, n, n.attr, n.attr.layout)
        if n.op == "unset_encoding" and n.operands[0] in self.encoded:
            return self.new[n.operands[0]]
        for packed in (self._contraction(n), self._elementwise(n)):
            if packed is not None:
                return self._computed(i, *packed)
        return self.builder.append(n.op, tuple(self.new[o] for o in n.operands), n.attr)

    def _computed(self, i: int, sig: Generic, read: Sequence[int], layout: Layout) -> int:
        """A value computed packed, and the plain one."""
        packed = self.builder.append("generic", tuple(read), sig)
        self.held[i] = packed, layout
        return self.builder.append("unpack", (packed,), layout)

    def _leaf(self, i: int, n: Node, leaf: Leaf, encoding: Encoding) -> int:
        self.encoded.add(i)
        plain = replace(leaf, layout=None)
        # a weight comes plain, and how it is kept is for the search to choose
        layout = resolution(encoding, self.target) if n.op == "input" else None
        if layout is None:
            return self.builder.append(n.op, (), plain)
        node = self.builder.append(n.op, (), held_in(plain, layout))
        self.held[i] = node, layout
        return taken_out(self.builder, node)

    def _contraction(self, n: Node) -> _Packed | None:
        """A contraction that reads what arrives as it lies."""
        arrived = self.encoded & self.held.keys()
        if not isinstance(n.attr, Generic) or arrived.isdisjoint(n.operands):
            return None
        for tile in tiles_of(self.target, n.attr):
            packed = pack_loops(n.attr, tile)
            pairs = [] if packed is None else list(zip(n.operands, packed.operands, strict=True))
            if packed and all(self.held[o][1] == held for o, held in pairs if o in arrived):
                return packed.sig, [self._read(o, layout) for o, layout in pairs], packed.result
        return None

    def _elementwise(self, n: Node) -> _Packed | None:
        """An op without reductions whose operands are all there packed, tile by tile."""
        g = n.attr
        at = next((j for j, o in enumerate(n.operands) if o in self.held), None)
        if not isinstance(g, Generic) or not is_elementwise(g) or at is None:
            return None
        mine = self.held[n.operands[at]][1]
        packed = pack_operand(g, at, mine)
        if packed is None or packed.result is None:
            return None
        layouts = (*packed.before, mine, *packed.after)
        pairs = list(zip(n.operands, layouts, strict=True))
        if not all(wanted is None or self._holds(o, wanted) for o, wanted in pairs):
            return None
        read = [self.new[o] if wanted is None else self.held[o][0] for o, wanted in pairs]
        return packed.sig, read, packed.result

    def _holds(self, o: int, wanted: Layout) -> bool:
        """Whether a value is there in this layout, whatever lanes beyond it hold."""
        return o in self.held and replace(self.held[o][1], pads=wanted.pads) == wanted

    def _read(self, o: int, layout: Layout | None) -> int:
        """An operand in the layout a packed contraction reads it in."""
        if layout is None:
            return self.new[o]
        if o in self.encoded and o in self.held:
            return self.held[o][0]
        node = self.source.nodes[o]
        plain = node.operands[0] if node.op == "set_encoding" else o
        return self.builder.append("pack", (self.new[plain],), layout)

    def _result(self, r: int) -> int:
        """A result as it leaves the program."""
        node = self.source.nodes[r]
        held = held_of(node)
        if not isinstance(held, Encoding):
            return self.new[r]
        layout = resolution(held, self.target)
        source = node.operands[0] if node.operands else r
        if layout is None:
            return self.new[source]
        if self.held.get(source, (0, None))[1] == layout:
            # a view that says in which layout the result is, as a `pack` would
            return self.builder.append("relax", (self.held[source][0],), layout)
        return put_in(self.builder, self.new[source], layout)
