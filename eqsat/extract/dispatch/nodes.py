"""Prices of single nodes and buffers on a target: rates, traffic, what is laid out anew,
and which rows of a table a gather takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from eqsat.extract.candidates.space import MOVING, Space
from eqsat.extract.dispatch.rules import PerDevice, iterations
from eqsat.model.attr import Attr
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.egraph import ENode
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom
from eqsat.model.movement import Move
from eqsat.model.sets import by_key
from eqsat.model.target import Memory
from eqsat.model.tensor import NONE, cdiv
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.meaning.scalar import cost_all
from eqsat.ops.targets.kernels import (
    RESULT,
    KernelChoice,
    kernel_choices,
    misread,
    miswrites,
    moves_innermost,
)
from eqsat.ops.targets.tiles import tiles_of
from eqsat.plan.planner import bytes_between_uses


@dataclass(frozen=True)
class Gathered:
    """Asked about dispatches of one e-graph."""

    space: Space

    @cached_property
    def gathers(self) -> frozenset[int]:
        return frozenset(i for i, n in enumerate(self.space.egraph.nodes) if n.op == "gather")

    def taken(self, members: tuple[int, ...], writes: Iterable[int]) -> dict[int, tuple[int, bool]]:
        """Per buffer in memory that gathers take rows of: bytes of these, and if all is read too.

        Members are in topological order. What is computed inside, and turned or changed on its
        way to a gather, is read as the gather's table itself would be: a row of it per row taken.
        """
        space, nodes = self.space, self.space.egraph.nodes
        rows, whole = self._wanted(members, writes)
        inside = {b for m in members for b in space.output_buffers[m]}
        classes = {space.buffer[c]: c for m in members for c in nodes[m].children}
        return {
            b: (math.ceil(times * space.nbytes(classes[b])), b in whole)
            for b, times in rows.items()
            if b not in inside
        }

    def in_part(self, members: tuple[int, ...], writes: Iterable[int]) -> set[int]:
        """Members that are computed for the rows a gather takes of them alone."""
        if self.gathers.isdisjoint(members):
            return set()
        rows, whole = self._wanted(members, writes)
        return {
            m
            for m in members
            if any(b in rows for b in self.space.output_buffers[m])
            and whole.isdisjoint(self.space.output_buffers[m])
        }

    def _wanted(
        self, members: tuple[int, ...], writes: Iterable[int]
    ) -> tuple[dict[int, Fraction], set[int]]:
        """Per buffer, what gathers read of it as a multiple of it; and the buffers read whole."""
        space = self.space
        rows: dict[int, Fraction] = {}
        whole = {space.buffer[w] for w in writes}
        maker_of = {b: m for m in members for b in space.output_buffers[m]}
        for m in reversed(members):
            times = sum((rows.get(b, Fraction(0)) for b in space.output_buffers[m]), Fraction(0))
            is_whole = not whole.isdisjoint(space.output_buffers[m])
            for i, b in enumerate(space.operands[m]):
                if m in self.gathers and i == 0:
                    table, part = self._part(m, maker_of.get(b))
                    rows[table] = rows.get(table, Fraction(0)) + (times + is_whole) * part
                    continue
                if times:
                    rows[b] = rows.get(b, Fraction(0)) + times
                if is_whole:
                    whole.add(b)
        return rows, whole

    def _part(self, gather: int, maker: int | None) -> tuple[int, Fraction]:
        """The buffer a gather takes rows of, and how much of it.

        A table that is unpacked for it is read in blocks, unless it is unpacked in another shape.
        """
        space, nodes = self.space, self.space.egraph.nodes
        n, table = nodes[gather], nodes[gather].children[0]
        share = Fraction(space.nbytes(n.eclass), space.nbytes(table) or 1)
        if maker is None or nodes[maker].op != "unpack":
            return space.buffer[table], share
        layout, (packed,) = nodes[maker].attr, nodes[maker].children
        assert isinstance(n.attr, Move)
        assert isinstance(layout, Layout)
        if layout.source != space.type(table).shape:
            return space.buffer[packed], share
        axis = int(n.attr.args[0])
        tile = dict(zip(layout.pos, layout.tiles, strict=True)).get(axis, 1)
        blocks = cdiv(layout.source[axis], tile)
        return space.buffer[packed], Fraction(space.type(n.children[1]).size, blocks or 1)


@dataclass(frozen=True)
class NodePrices(PerDevice):
    """Of the nodes and classes of one e-graph on one target."""

    @cached_property
    def _traffic(self) -> dict[tuple[int, int], int]:
        return {}

    def traffic_ps(self, nbytes: int, between: int = 0) -> int:
        """Picoseconds to move a buffer, at the nearest memory level that holds it.

        between: bytes that lie between two uses of it, if that is more than it has.
        """
        key = nbytes, between
        if key not in self._traffic:
            bandwidth = self.level_of(max(nbytes, between)).bandwidth
            self._traffic[key] = round(nbytes * PS_PER_SECOND / bandwidth)
        return self._traffic[key]

    def level_of(self, nbytes: int) -> Memory:
        """The nearest memory level that holds so much."""
        levels = self.target.memory
        return next((m for m in levels if m.size_bytes >= nbytes), levels[-1])

    @cached_property
    def class_ps(self) -> tuple[int, ...]:
        """Per class: picoseconds to move it.

        What follows from weights alone is read once per run and is not written in between, so it
        comes from the level that holds all that a run touches (`working_set`). Where compilers keep
        temporaries in a level, what the caller has is beyond it.
        """
        between, sizes = self.between, enumerate(self.space.sizes)
        return tuple(self.traffic_ps(s, between(c)) for c, s in sizes)

    def between(self, eclass: int) -> int:
        """Bytes that a run touches between two uses of a class, beside itself; 0: unknown."""
        if self.space.buffer[eclass] not in self._from_afar:
            return 0
        kept = sum(m.size_bytes + 1 for m in self.target.memory if m.temporaries)
        return max(self._working_set, kept)

    @cached_property
    def _from_afar(self) -> frozenset[int]:
        """Buffers of weights, where the nearest level does not hold all that a run touches; of all
        that the caller has, where it is for temporaries."""
        levels = self.target.memory
        if levels[0].temporaries:
            return self.space.from_weights.union(self.space.inputs, self.space.roots)
        is_near = len(levels) == 1 or self._working_set <= levels[0].size_bytes
        return frozenset() if is_near else self.space.from_weights

    @cached_property
    def _working_set(self) -> int:
        return bytes_between_uses(self.space.whole, self.target)

    @cached_property
    def _shares(self) -> dict[tuple[int, ...], float]:
        """Share of the peak rate per (m, n, k) tile of any vocabulary; the first one counts.

        A kernel also serves the tile with m and n exchanged, where the tile says at another rate;
        a panel does not.
        """
        shares: dict[tuple[int, ...], float] = {}
        tiles = [t for what, _ in self.target.tiles for t in self.target.vocabulary(what)]
        if self.target.strategies:  # they were asked about the generics that are here
            generics = [n.attr for n in self.space.egraph.nodes if isinstance(n.attr, Generic)]
            tiles += [t for g in generics for t in tiles_of(self.target, g)]
        for tile in tiles:
            shares.setdefault(tile.extents, tile.rate)
        for tile in tiles:
            m, n, k = tile.extents
            if not tile.panel:
                shares.setdefault((n, m, k), tile.rate if tile.swapped is None else tile.swapped)
        return shares

    def share(self, node: int) -> float:
        """Share of the peak rate a contraction reaches."""
        call = self._call(node)
        return self.target.untiled_rate if call is None else call.rate

    def _call(self, node: int) -> KernelChoice | None:
        """The kernel for a contraction that takes the least time, transposes included.

        XLA's library knows no packed forms: it is handed plain ones, so all of them is laid out.
        That is so for what a target with kernels has no plan for, too.
        """
        attr = self.space.egraph.nodes[node].attr
        if not isinstance(attr, Generic) or contraction_roles(attr) is None:
            return None
        if attr.tile:
            share = self._shares.get(attr.tile, self.target.untiled_rate)
            by_xla = self.target.executor == "xla" or self.target.is_planned
            return KernelChoice(share, self._fragments(node) if by_xla else ())
        kernels = kernel_choices(self.target, attr)
        if len(kernels) == 1:
            return kernels[0]
        n, rate = self.space.egraph.nodes[node], self._peak(node) or math.inf
        work = self._operations(n, True) * self.iterations[node] * PS_PER_SECOND / rate
        return min(kernels, key=lambda c: work / c.rate + self._moved_ps(node, c.misplaced))

    def _fragments(self, node: int) -> tuple[int, ...]:
        """Operands and RESULT of a packed contraction that are laid out anew.

        A compiler for a memory that pads has products of any rank, and pays by their padding; but
        what a window slides over is laid out for it.
        """
        g = self.space.egraph.nodes[node].attr
        assert isinstance(g, Generic)
        slides = any(e.dim is None for m in g.maps for e in m)
        return (0, 1, RESULT) if slides or self.target.padding is None else ()

    def _moved_ps(self, node: int, misplaced: Iterable[int]) -> float:
        """Picoseconds of the passes that lay operands (RESULT: the result) out for a kernel."""
        if self.target.relayout is None:
            return 0.0
        n = self.space.egraph.nodes[node]
        nbytes = [self.space.nbytes(n.eclass if i == RESULT else n.children[i]) for i in misplaced]
        started = 0 if self.target.padding is None else len(nbytes) * self.target.launch_ps
        return started + sum(2 * b for b in nbytes) * PS_PER_SECOND / self.target.relayout

    @cached_property
    def relayout_ps(self) -> tuple[int, ...]:
        """Per node: what it costs beyond its traffic that a dim moves inwards or outwards.

        None of it where the target does not say how fast that is.
        """
        nodes = self.space.egraph.nodes
        if self.target.relayout is None:
            return (0,) * len(nodes)
        return tuple(math.ceil(self._relayout_of(i)) for i in range(len(nodes)))

    def _relayout_of(self, node: int) -> float:
        n, call = self.space.egraph.nodes[node], self._call(node)
        if call is not None:
            return self._moved_ps(node, call.misplaced)
        if self.space.kinds[node] == "conversion" and self._is_pass(n):
            return self._slower_ps(n.children[0])
        if not isinstance(n.attr, Generic):
            return 0.0
        across = [n.children[i] for i in misread(n.attr)]
        if miswrites(n.attr):
            across += self.space.outputs[node]
        return sum(map(self._slower_ps, across))

    def _is_pass(self, n: ENode) -> bool:
        """Whether a conversion is a pass at the speed of `relayout`.

        What a target with kernels has no plan for runs as XLA ops, and XLA moves the blocks of a
        pack element by element, whichever dim is innermost (0.8 MB: 113 us, predicted 16).
        """
        is_block = isinstance(n.attr, Layout) and not n.attr.is_in_place(n.op)
        return moves_innermost(n.op, n.attr) or (self.target.is_planned and is_block)

    def _slower_ps(self, eclass: int) -> float:
        """The extra cost of reading and writing a buffer in another order than its own."""
        assert self.target.relayout is not None
        there = 2 * self.space.nbytes(eclass) * PS_PER_SECOND / self.target.relayout
        return max(0.0, there - 2 * self.class_ps[eclass])

    def _peak(self, node: int) -> float | None:
        """Operations per second at the peak, by the element type a node reads and its precision."""
        n = self.space.egraph.nodes[node]
        dtype = self.space.type(n.children[0] if n.children else n.eclass).dtype
        precision = n.attr.precision if isinstance(n.attr, Generic) else NONE
        return self.target.rate(dtype, precision)

    # ---- what is computed of a node -----------------------------------------------------------
    @cached_property
    def beside_pads(self) -> tuple[float, ...]:
        """Per contraction the least share of its products that read no pad; of other nodes 1.

        Plans of windows leave the others out.
        """
        nodes, kinds = self.space.egraph.nodes, self.space.kinds
        if all(n.op != "pad" for n in nodes):
            return (1.0,) * len(nodes)
        every = range(len(nodes))
        return tuple(self._beside_pads(i) if kinds[i] == "contraction" else 1.0 for i in every)

    def _beside_pads(self, node: int) -> float:
        nodes, value = self.space.egraph.nodes, self.space.value
        g, lost = nodes[node].attr, 0.0
        assert isinstance(g, Generic)
        for operand, c in enumerate(nodes[node].children):
            pads = [p for p in self.below([self.space.buffer[c]]) if nodes[p].op == "pad"]
            direct = [p for p in pads if nodes[p].eclass == c]
            if pads and (not direct or any(value[nodes[p].eclass] != value[c] for p in pads)):
                return 0.0  # another op is between, or the pad of another value
            lost += max((_of_pads(g, operand, nodes[p].attr) for p in direct), default=0.0)
        return max(0.0, 1.0 - lost)

    def below(self, buffers: Iterable[int]) -> set[int]:
        """The nodes without a sum that compute for these buffers, in one dispatch or others."""
        nodes, left = set[int](), list(buffers)
        while left:
            for i in self._makers.get(left.pop(), ()):
                if i not in nodes and self.space.kinds[i] in ("elementwise", *MOVING, "move"):
                    nodes.add(i)
                    left += self.space.operands[i]
        return nodes

    @cached_property
    def _makers(self) -> dict[int, list[int]]:
        """Per buffer: the nodes that make it."""
        return by_key((b, i) for i, bs in enumerate(self.space.output_buffers) for b in bs)

    @cached_property
    def iterations(self) -> tuple[int, ...]:
        """Per node: how often its body runs if it runs once."""
        return tuple(iterations(n) for n in self.space.egraph.nodes)

    def _operations(self, n: ENode, is_contraction: bool) -> int:
        """Scalar operations of one run of a node's body."""
        match n.attr:
            case Generic():
                yields = n.attr.yields
                operations = cost_all(tuple(y.body for y in yields)) + sum(
                    bool(y.combine) for y in yields
                )
                return 2 if is_contraction else operations
            case Custom():
                return n.attr.operations
        return 0


def _of_pads(g: Generic, operand: int, pad: Attr) -> float:
    """The share of a contraction's products that read pads of an operand, at the most."""
    assert isinstance(pad, Move)
    (source,), (low, *_) = pad.sources, pad.args
    lost = 0.0
    for index, start, size, whole in zip(g.maps[operand], low, source, pad.shape, strict=True):
        if size == whole:
            continue
        loops = [range(0, g.sizes[d] * s, s) for d, s in index.terms]
        values = [index.constant + sum(at) for at in itertools.product(*loops)]
        lost += sum(not start <= v < start + size for v in values) / max(len(values), 1)
    return lost
