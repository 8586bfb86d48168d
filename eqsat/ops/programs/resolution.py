"""Encodings of a program's border → packs, or nothing, as the target says, before the search.

What arrives encoded for a contraction arrives as that contraction's packed form reads it, so the
contraction is packed here, too: the caller decided that its data are tiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.model.generic import Generic
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Node, Program, is_elementwise, prune
from eqsat.model.target import Target
from eqsat.ops.contractions.encodings import encoding_layout, encoding_tiles
from eqsat.ops.contractions.packing import pack_loops
from eqsat.ops.generics.propagate import pack_operand
from eqsat.ops.programs.border_layouts import held_in, held_of, put_in, taken_out
from eqsat.ops.targets.tiles import tiles_of

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
    found = (encoding_layout(encoding, tile) for tile in encoding_tiles(target, encoding))
    return next((layout for layout in found if layout is not None), None)


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
        for found in (self._contraction(n), self._elementwise(n)):
            if found is not None:
                return self._computed(i, *found)
        return self.builder.append(n.op, tuple(self.new[o] for o in n.operands), n.attr)

    def _computed(self, i: int, sig: Generic, read: Sequence[int], layout: Layout) -> int:
        """A value computed packed, and the plain one."""
        made = self.builder.append("generic", tuple(read), sig)
        self.held[i] = made, layout
        return self.builder.append("unpack", (made,), layout)

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
            found = pack_loops(n.attr, tile)
            pairs = [] if found is None else list(zip(n.operands, found.operands, strict=True))
            if found and all(self.held[o][1] == held for o, held in pairs if o in arrived):
                return found.sig, [self._read(o, layout) for o, layout in pairs], found.result
        return None

    def _elementwise(self, n: Node) -> _Packed | None:
        """An op without reductions whose operands are all there packed, tile by tile."""
        g = n.attr
        at = next((j for j, o in enumerate(n.operands) if o in self.held), None)
        if not isinstance(g, Generic) or not is_elementwise(g) or at is None:
            return None
        mine = self.held[n.operands[at]][1]
        found = pack_operand(g, at, mine)
        if found is None or found.result is None:
            return None
        layouts = (*found.before, mine, *found.after)
        pairs = list(zip(n.operands, layouts, strict=True))
        if not all(wanted is None or self._holds(o, wanted) for o, wanted in pairs):
            return None
        read = [self.new[o] if wanted is None else self.held[o][0] for o, wanted in pairs]
        return found.sig, read, found.result

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
