"""What a dispatch reads of tables that it gathers from: the rows it takes, all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from eqsat.extract.candidates.space import Space
from eqsat.model.layout import Layout
from eqsat.model.movement import Move
from eqsat.model.tensor import cdiv


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
        made = {b for m in members for b in space.made[m]}
        classes = {space.buffer[c]: c for m in members for c in nodes[m].children}
        return {
            b: (math.ceil(times * space.nbytes(classes[b])), b in whole)
            for b, times in rows.items()
            if b not in made
        }

    def in_part(self, members: tuple[int, ...], writes: Iterable[int]) -> set[int]:
        """Members that are computed for the rows a gather takes of them alone."""
        if self.gathers.isdisjoint(members):
            return set()
        rows, whole = self._wanted(members, writes)
        return {
            m
            for m in members
            if any(b in rows for b in self.space.made[m]) and whole.isdisjoint(self.space.made[m])
        }

    def _wanted(
        self, members: tuple[int, ...], writes: Iterable[int]
    ) -> tuple[dict[int, Fraction], set[int]]:
        """Per buffer, what gathers read of it as a multiple of it; and the buffers read whole."""
        space = self.space
        rows: dict[int, Fraction] = {}
        whole = {space.buffer[w] for w in writes}
        made = {b: m for m in members for b in space.made[m]}
        for m in reversed(members):
            times = sum((rows.get(b, Fraction(0)) for b in space.made[m]), Fraction(0))
            is_whole = not whole.isdisjoint(space.made[m])
            for i, b in enumerate(space.operands[m]):
                if m in self.gathers and i == 0:
                    table, part = self._part(m, made.get(b))
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
