"""Nodes that do what others do, on the same buffers, only in other shapes: one of them is enough.

A tensor may be reshaped for free, so an e-graph holds many ops twice: one packs `320x1024`, the
other `320x32x32`, and both read and write the same bytes. Nodes are twins if each group with one
of them is legal, and costs the same, with the other in its place. Most of what decides that is
about buffers and prices, which are compared one by one (`Twins.facts`). The rest is by which maps
something is read, which depends on shapes: what may be computed inside of a twin, and of which
readers a twin may be computed inside. That is compared for every way there is to read a twin's
result, through whatever lies between, and down to where both read alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.uses import Reader
from eqsat.extract.solve.linear import ASKED, OTHERS, moved_bytes, tie
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.candidates.pool import Pool

GOALS = frozenset({"time", "dispatches", *ASKED, *OTHERS})  # of these, twins add as much to each
MOST = 1000  # pairs of uses that are looked at for one pair of nodes; beyond, both of them stay
_Pair = tuple[int, int, int]  # a buffer, and what two uses of it mean
Producers = dict[int, tuple[int, ...]]  # per buffer: nodes that compute it


def without_twins(pool: Pool, producers: Producers) -> Producers:
    """One of each set of twins; of the input program's nodes all.

    They stay where plans or several devices look at shapes, and for plug-in goals.
    """
    target = pool.legality.target
    if target.is_planned or target.devices or not pool.asked <= GOALS:
        return producers
    gone = Twins(pool, producers).gone
    return {b: tuple([n for n in nodes if n not in gone]) for b, nodes in producers.items()}


@dataclass(frozen=True)
class Twins:
    """Finds them among these producers."""

    pool: Pool
    producers: Producers

    @cached_property
    def gone(self) -> frozenset[int]:
        """Nodes that have a twin which stays."""
        found, is_own = set[int](), self.pool.space.is_own
        for alike in self._sets:
            kept: list[int] = []
            for n in alike:
                tick()
                if is_own[n] or not any(self._are_twins(n, k) for k in kept):
                    kept.append(n)
                else:
                    found.add(n)
        return frozenset(found)

    # ---- what does not depend on maps ------------------------------------------------------------
    @cached_property
    def _sets(self) -> list[list[int]]:
        """Nodes with the same facts, the input program's first."""
        space, by = self.pool.space, dict[Hashable, list[int]]()
        for n in sorted({n for nodes in self.producers.values() for n in nodes}):
            if space.kinds[n] in ("conversion", "elementwise", "contraction", "reduction"):
                by.setdefault((space.made[n], space.operands[n]), []).append(n)
        found: dict[Hashable, list[int]] = {}
        for nodes in by.values():
            if len(nodes) > 1 and len(space.outputs[nodes[0]]) == 1:
                for n in sorted(nodes, key=lambda n: (not space.is_own[n], n)):
                    found.setdefault(self.facts(n), []).append(n)
        return [nodes for nodes in found.values() if len(nodes) > 1]

    @cached_property
    def _costs(self) -> Costs:
        return self.pool.space.remembered(Costs, self.pool.legality.target)

    def facts(self, node: int) -> Hashable:
        """All properties of a node in a group, except the maps by which it reads."""
        space, legality, costs = self.pool.space, self.pool.legality, self._costs
        uses, fusion, egraph = legality.uses, legality.fusion, space.egraph
        is_root, is_told = legality.is_root(node), False
        if is_root:  # pipelines and blocks of rows look at its loops
            is_told = bool(legality.target.pipelines) or legality.row_blocks.is_on
        elif space.kinds[node] == "conversion":
            is_told = not self._gathered.isdisjoint(space.made[node])
        return (
            node if is_told else -1,
            space.kinds[node],
            space.made[node],
            space.operands[node],
            uses.carries[node],
            uses.dequantises[node],
            costs.iterations[node],
            costs.compute_ps(node, 1),
            costs.relayout_ps[node],
            tie(egraph.nodes[node], moved_bytes(egraph, node)),
            legality.exclusive((node,)),
            legality.rows(node) if fusion.row_reductions > 1 and is_root else None,
            tuple(
                [legality.access(node, i) for i in range(len(space.operands[node]))]
                if fusion.siblings
                else ()
            ),
        )

    @cached_property
    def _gathered(self) -> frozenset[int]:
        """Buffers that rows are taken of: how they are laid out matters."""
        space = self.pool.space
        return frozenset(
            space.operands[n][0]
            for n, kind in enumerate(space.kinds)
            if kind == "move" and space.egraph.nodes[n].op == "gather"
        )

    # ---- by which maps they are read, and read ---------------------------------------------------
    def _are_twins(self, node: int, other: int) -> bool:
        """Whether `other` may be where a node may be, and reads alike there."""
        (b,) = self.pool.space.made[node]
        return self._read_alike(node, other, None) and all(
            self._read_alike(node, other, use) for use in self._used[b].values()
        )

    @cached_property
    def _pairs(self) -> _Pairs:
        return _Pairs(self)

    def _read_alike(self, node: int, other: int, use: int | None) -> bool:
        """Whether below this use of their result (None: it is written) both read alike."""
        uses, operands = self.pool.legality.uses, self.pool.space.operands[node]
        if use is not None:
            if not uses.joins(node, use):
                return True
            if not uses.joins(other, use):
                return False
            if not uses.carries[node]:
                return True  # the same as if it is written
        sides = list(enumerate(operands))
        if use is None:
            pairs = [(uses.direct((node, i)), uses.direct((other, i)), b) for i, b in sides]
        else:
            below = uses.below
            pairs = [(below(use, (node, i)), below(use, (other, i)), b) for i, b in sides]
        return self._pairs.are_alike(pairs)

    @cached_property
    def _readers(self) -> dict[int, list[Reader]]:
        """Per buffer: who may read it."""
        found: dict[int, list[Reader]] = {}
        for n in sorted({n for nodes in self.producers.values() for n in nodes}):
            for i, b in enumerate(self.pool.space.operands[n]):
                found.setdefault(b, []).append((n, i))
        return found

    def seen_from(self, buffer: int) -> tuple[int, ...]:
        """The buffers that a buffer may be seen as a view of: who reads it reads them."""
        relaxed = self.pool.relaxed.get(buffer, ())
        return tuple([self.pool.space.operands[v][0] for v in relaxed])

    @cached_property
    def _asked(self) -> set[int]:
        """Buffers that twins make, and those these are turned into inside of a group."""
        space, carries = self.pool.space, self.pool.legality.uses.carries
        shown: dict[int, list[int]] = {}
        for b in self.pool.relaxed:
            for below in self.seen_from(b):
                shown.setdefault(below, []).append(b)
        found: set[int] = set()
        waiting = [b for nodes in self._sets for b in space.made[nodes[0]]]
        while waiting:
            b = waiting.pop()
            if b not in found:
                found.add(b)
                waiting += shown.get(b, ())
                waiting += [
                    m for n, _ in self._readers.get(b, ()) if carries[n] for m in space.made[n]
                ]
        return found

    @cached_property
    def _used(self) -> dict[int, dict[int, int]]:
        """Per buffer that is asked about: a use of each kind that there may be in a group."""
        uses, operands = self.pool.legality.uses, self.pool.space.operands
        found: dict[int, dict[int, int]] = {b: {} for b in self._asked}
        work: list[tuple[int, int]] = []

        def add(b: int, use: int) -> None:
            if b in found and found[b].setdefault(uses.meaning(use), use) == use:
                work.append((b, use))

        for b in self._asked:
            for reader in self._readers.get(b, ()):
                add(b, uses.direct(reader))
        while work:
            tick()
            b, use = work.pop()
            for below in self.seen_from(b):
                add(below, use)
            for n in self.producers.get(b, ()):
                if uses.carries[n] and uses.joins(n, use):
                    for i, o in enumerate(operands[n]):
                        if o in found:
                            add(o, uses.below(use, (n, i)))
        return found


class _Pairs:
    """Asked whether two uses of one buffer are alike."""

    def __init__(self, twins: Twins):
        self.twins, self.uses = twins, twins.pool.legality.uses
        self.alike: set[_Pair] = set()
        self.unlike: set[_Pair] = set()

    def are_alike(self, pairs: Iterable[tuple[int, int, int]]) -> bool:
        """Whether the same may be computed inside of both of (use, use, buffer), down to the end.

        Those on the way are taken for alike until something tells them apart.
        """
        waiting, seen, meaning = list(pairs), set[_Pair](), self.uses.meaning
        while waiting:
            tick()
            one, two, b = waiting.pop()
            pair = b, meaning(one), meaning(two)
            if pair[1] == pair[2] or pair in seen or pair in self.alike:
                continue
            seen.add(pair)
            if pair in self.unlike or len(seen) > MOST or not self._is_same(one, two, b):
                self.unlike.add(pair)
                return False
            waiting += self._below(one, two, b)
        self.alike |= seen
        return True

    def _is_same(self, one: int, two: int, buffer: int) -> bool:
        """The properties of the uses of a buffer themselves."""
        uses, pool, sides = self.uses, self.twins.pool, (self.uses[one], self.uses[two])
        if uses.kind(sides[0]) != uses.kind(sides[1]):
            return False
        if uses.may_read(sides[0]) != uses.may_read(sides[1]):
            return False
        makers = self.twins.producers.get(buffer, ())
        if any(uses.joins(n, one) != uses.joins(n, two) for n in makers):
            return False
        if not pool.legality.target.pipelines:
            return True
        return all(uses.is_along(n, sides[0]) == uses.is_along(n, sides[1]) for n in makers)

    def _below(self, one: int, two: int, buffer: int) -> Iterator[tuple[int, int, int]]:
        uses, operands = self.uses, self.twins.pool.space.operands
        for b in self.twins.seen_from(buffer):
            yield one, two, b
        for n in self.twins.producers.get(buffer, ()):
            if uses.carries[n] and uses.joins(n, one):
                for i, b in enumerate(operands[n]):
                    yield uses.below(one, (n, i)), uses.below(two, (n, i)), b
