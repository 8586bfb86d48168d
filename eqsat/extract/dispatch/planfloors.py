"""Floors of the plans of a dispatch, without making one.

The formula of `plan.price`, given the least work and the least traffic any plan has: arithmetic of
full vectors, every byte fetched or written once. A dispatch that turns out to have no plan costs
what its XLA ops do, so the floor is the less of both. What is not certain is left out: members that
others read in part only, and bodies that a plan may move, share or put off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.plans import PlanPrices
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.ragged import Ints, Mask, Ragged
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.dispatch import Constants
from eqsat.model.generic import Generic
from eqsat.model.target import Target
from eqsat.model.tensor import DTYPES, TensorType
from eqsat.ops.nests.nest import MOST_PIECES
from eqsat.plan.contraction import most_at_once
from eqsat.plan.price import FULL, GONE
from eqsat.plan.rowwork import element_bytes
from eqsat.plan.stages import additions_of

Floats = np.ndarray
ROUNDING = 1e-9  # of a sum of picoseconds in floating point
# Ops that read every element, if all of their result is wanted; and those that read none twice. Of
# any other op the floor is lower than it could be: it is a floor all the same.
WHOLE = frozenset({"transpose", "reshape", "pack", "pad", "concat"})
APART = WHOLE | {"unpack", "slice"}


@dataclass(frozen=True)
class PlanFloors:
    """Floors of the dispatches of one e-graph on one target with kernels."""

    space: Space
    target: Target

    @cached_property
    def _planned(self) -> PlanPrices:
        return self.space.remembered(PlanPrices, self.target)

    @cached_property
    def _constants(self) -> Constants:
        assert self.target.kernels is not None, "planned"
        return self.target.kernels.constants

    def of(self, members: Ragged, reads: Ragged, writes: Ragged) -> Ints:
        """Picoseconds per dispatch: `members` are nodes in topological order, the others buffers.

        No time that `Costs.price` gives such a dispatch is less.
        """
        parts = self._parts(members, reads, writes)
        compute = self._compute_ps(members, parts, writes)
        moved = self._moved_ps(parts, writes)
        exposed = (1 - self._constants.overlap) * np.minimum(compute, moved)
        few = members.any(self.facts.is_update[members.index])
        planned = np.where(few, 0.0, np.maximum(compute, moved) + exposed) * (1 - ROUNDING)
        launch_ps = self.target.launch_ps
        one_by_one = np.maximum(members.sums(self.facts.op_ps[members.index]), launch_ps)
        return np.minimum(np.floor(planned).astype(np.int64) + launch_ps, one_by_one)

    # ---- a plan ----------------------------------------------------------------------------------
    def _compute_ps(self, members: Ragged, parts: _CertainParts, writes: Ragged) -> Floats:
        """Multiply-adds, bodies, and what is read and written at the ends, in full vectors.

        A product below a sum may be a factor of a contraction: it becomes a multiply-add, and its
        factors are computed for their own loops. Of row blocks only the contractions are certain.
        """
        facts, c, index = self.facts, self._constants, members.index
        roots = members.sums(facts.is_root[index].astype(np.int64))
        contracts = members.any(facts.is_contraction[index])
        multiplies = members.any(facts.is_product[index])
        in_rows = (roots > 1) & (contracts | multiplies)
        in_tiles = (roots > 0) & (contracts | multiplies)
        vector_ps = parts.bodies + np.where(in_tiles, 0.0, parts.products)
        vector_ps = np.where(in_rows, 0.0, vector_ps + parts.sums) + parts.contractions
        width = facts.element_bytes[writes.index]
        widest = np.maximum.reduceat(np.append(width, 0), writes.start[:-1])
        machine = self.target.machine
        lanes = np.maximum(machine.lanes(4), machine.vector_bytes // np.maximum(widest, 1))
        written = _sums(writes, facts.elements[writes.index])
        store = np.minimum(np.minimum(c.scalar_ps, c.load_ps) / lanes, c.strided_ps)
        ends = np.minimum(c.load_ps / lanes, c.strided_ps) * (written + parts.read_elements)
        # of several results one is a tile's: others may be rows, whose arithmetic hides stores
        tiled = np.minimum.reduceat(np.append(facts.elements[writes.index], 0), writes.start[:-1])
        ends = np.where(in_rows, 0.0, np.where(in_tiles, store * tiled, ends))
        arithmetic = vector_ps / lanes  # beside which rows are read and written
        both = np.where(in_tiles, arithmetic + ends, np.maximum(arithmetic, ends))
        return both / machine.cores

    def _moved_ps(self, parts: _CertainParts, writes: Ragged) -> Floats:
        """Every byte once, from the nearest level that holds what the dispatch touches."""
        run_bytes = parts.run_bytes + parts.share * _sums(writes, self.facts.nbytes[writes.index])
        total = run_bytes + parts.weight_bytes
        cached_bytes = np.where(
            parts.weight_bytes > 0, np.maximum(total, self._planned.working_set), 0
        )
        return run_bytes * self.byte_ps(total) + parts.weight_bytes * self.byte_ps(cached_bytes)

    def byte_ps(self, between: Floats) -> Floats:
        """Picoseconds to fetch a byte, if so many bytes have to stay cached for it."""
        *caches, last = self.target.memory
        ps = np.full(len(between), PS_PER_SECOND / last.bandwidth)
        for m in reversed(caches):
            gone = np.clip((between / m.size_bytes - FULL) / (GONE - FULL), 0, 1)
            ps = gone * ps + (1 - gone) * PS_PER_SECOND / m.bandwidth
        return ps

    # ---- what is certain -------------------------------------------------------------------------
    @cached_property
    def facts(self) -> FloorFacts:
        return FloorFacts(self.space, self.target, self._constants)

    def _parts(self, members: Ragged, reads: Ragged, writes: Ragged) -> _CertainParts:
        facts, index = self.facts, members.index
        # what a concat cuts, the price counts by its largest piece
        share = np.where(members.any(facts.is_concat[index]), 1 / MOST_PIECES, 1.0)
        computed = np.array([_sums(members, ps[index]) for ps in facts.point_ps])
        fetched = np.array([_sums(reads, of[reads.index]) for of in self._fetched])
        for i in np.flatnonzero(~members.all(facts.is_solid[index])).tolist():
            nodes, read = facts.certain(members[i].tolist(), reads[i].tolist(), writes[i].tolist())
            computed[:, i] = facts.point_ps[:, nodes].sum(axis=1)
            fetched[:, i] = self._fetched[:, read].sum(axis=1)
        contractions, sums, products, bodies = computed
        elements, run, weights = fetched
        return _CertainParts(
            contractions, sums, products, bodies, elements, share * run, share * weights, share
        )

    @cached_property
    def _fetched(self) -> Floats:
        """Per buffer: its elements, its bytes if they are of the run, and if they are weights."""
        facts, is_weight = self.facts, self.facts.is_one_of(self._planned.weights)
        return np.array([facts.elements, facts.nbytes * ~is_weight, facts.nbytes * is_weight])


class _CertainParts(NamedTuple):
    """Per dispatch, of what is certain: picoseconds by points of bodies, not by vectors."""

    contractions: Floats
    sums: Floats  # of reductions that are none
    products: Floats  # bodies that multiply in the end
    bodies: Floats  # all others
    read_elements: Floats
    run_bytes: Floats  # read
    weight_bytes: Floats
    share: Floats  # of what is written that is written at once: the largest piece of a concat


class FloorFacts:
    """Per node and per buffer of an e-graph."""

    def __init__(self, space: Space, target: Target, constants: Constants):
        self.costs, self.space, self.constants = space.remembered(Costs, target), space, constants
        self.nodes, kinds = space.egraph.nodes, space.kinds
        self.is_contraction = np.array([k == "contraction" for k in kinds])
        self.is_root = self.is_contraction | np.array([k == "reduction" for k in kinds])
        self.is_concat = np.array([n.op == "concat" for n in self.nodes])
        generics = [_single(n.attr) for n in self.nodes]
        self.is_product = np.array([g is not None and g.body.fn == "mul" for g in generics])
        self.is_product &= ~self.is_contraction
        # of what an update in place chooses, it may compute and read a few points
        every = np.arange(len(self.nodes))
        self.is_update = np.isin(every, sorted(space.updates))
        written = [b for i in space.updates for b in space.operands[i]]
        in_part = space.updates | self.costs.below(written)
        self.is_in_part = np.isin(every, sorted(in_part))
        types = [space.type(b) for b in range(len(space.buffer))]
        self.element_bytes = np.array([element_bytes(t.dtype) for t in types])
        sizes = np.array([t.size for t in types], dtype=float)
        self.elements = self._unpadded(sizes)
        self.nbytes = self._unpadded(np.array([t.size * DTYPES[t.dtype][0] / 8 for t in types]))
        self.nbytes[self.is_one_of(self._maybe_in_place(types))] = 0
        self._price(generics, self.elements / np.maximum(sizes, 1))
        fills = {space.buffer[n.eclass] for n in self.nodes if n.op == "fill"}
        self.fills = frozenset(fills)

    def _maybe_in_place(self, types: Sequence[TensorType]) -> frozenset[int]:
        """Buffers that are donated or die, and those in their place: prices may leave these out."""
        gone = self.space.donated | self.space.dying
        alike = {types[b] for b in gone}
        return frozenset(b for b, t in enumerate(types) if t in alike) if gone else gone

    def _unpadded(self, sizes: Floats) -> Floats:
        """Per buffer the least of its value's layouts: a nest may leave padding out."""
        value = np.array(self.space.value)
        least = np.full(len(sizes), np.inf)
        np.minimum.at(least, value, sizes)
        return least[value]

    def _price(self, generics: Sequence[Generic | None], share: Floats) -> None:
        """Picoseconds of all points of a node, one by one, by what they are (see `_CertainParts`).

        share: per buffer, what of it is no padding.
        """
        c = self.constants
        points = np.array(self.costs.iterations, dtype=float)
        for i, (results, operands) in enumerate(
            zip(self.space.output_buffers, self.space.operands, strict=True)
        ):
            points[i] *= math.prod(share[[*results, *operands]].tolist())
        additions = [0 if g is None else additions_of(g.body) for g in generics]
        body = np.array(additions, dtype=float) * c.scalar_ps * points
        sums = points * min(c.fma_ps, c.scalar_ps)
        is_plain = ~self.is_contraction & ~self.is_product
        is_known = np.array([g is not None for g in generics])
        contraction = points * min(c.fma_ps, 2 * c.scalar_ps) / self._products_at_once()
        contraction *= np.array(self.costs.beside_pads)
        body = np.where(self.is_in_part, 0.0, body)
        self.point_ps = np.array(
            [
                np.where(self.is_contraction & is_known, contraction, 0.0),
                np.where(self.is_root & ~self.is_contraction & is_known, sums, 0.0),
                np.where(self.is_product, body, 0.0),
                np.where(is_plain, body, 0.0),
            ]
        )
        self.op_ps = np.array(self.costs.one_by_one.least_ps, dtype=np.int64)

    def _products_at_once(self) -> Floats:
        """Per node: points that one multiply-add may stand for: several, of integers."""
        most = most_at_once(self.costs.target.machine)
        sums = [{self.space.type(c).dtype for c in o} for o in self.space.outputs]
        return np.array([most if "i32" in dtypes else 1 for dtypes in sums])

    def is_one_of(self, buffers: frozenset[int]) -> Mask:
        mask = np.zeros(len(self.nbytes), dtype=bool)
        mask[list(buffers)] = True
        return mask

    # ---- members that read in part ---------------------------------------------------------------
    @cached_property
    def is_solid(self) -> Mask:
        """Per node: whether, of a result that is all wanted, it computes every point and reads all.

        Where all members are such, they need not be examined one by one.
        """
        return np.array([self._is_solid(i) for i in range(len(self.nodes))])

    def _is_solid(self, node: int) -> bool:
        n, buffers = self.nodes[node], self.space.operands[node]
        if n.op == "fill":
            return True
        dense = [b not in self.fills for b in buffers]
        return all(self.whole[node]) and self.is_dense(node, dense)

    @cached_property
    def whole(self) -> list[tuple[bool, ...]]:
        """Per node and operand: whether it reads every element, if all of its result is wanted."""
        return [self._reads_whole(i) for i in range(len(self.nodes))]

    def _reads_whole(self, node: int) -> tuple[bool, ...]:
        n, size = self.nodes[node], self.space.type
        generic = _single(n.attr)
        if self.is_in_part[node]:
            return (False,) * len(n.children)
        if generic is not None:
            used = frozenset(generic.body.operands())
            return tuple(i in used and _is_all(generic, i) for i in range(len(n.children)))
        if n.op == "unpack":  # lanes of padding are not read
            return (size(n.children[0]).size == size(n.eclass).size,)
        return (n.op in WHOLE,) * len(n.children)

    def is_dense(self, node: int, operands: Sequence[bool]) -> bool:
        """Whether no point of a node is the same as another by what it reads: given its operands.

        A nest computes what is the same along a loop once.
        """
        n, generic = self.nodes[node], _single(self.nodes[node].attr)
        if generic is None:
            return n.op in APART and all(operands)
        used = frozenset(generic.body.operands())
        loops = {
            d
            for i, m in enumerate(generic.maps)
            if operands[i] and i in used
            for e in m
            for d, _ in e.terms
        }
        return all(d in loops for d, size in enumerate(generic.sizes) if size > 1)

    def certain(
        self, members: Sequence[int], reads: Sequence[int], writes: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """Members that compute all their points, and buffers that are read whole."""
        space = self.space
        inside = {b for m in members for b in space.output_buffers[m]}
        dense = dict.fromkeys(reads, True)
        for m in members:
            are_dense = [
                dense.get(b, b not in inside and b not in self.fills) for b in space.operands[m]
            ]
            is_dense = self.is_dense(m, are_dense)
            dense |= dict.fromkeys(space.output_buffers[m], is_dense)
        whole, complete = set(writes), list[int]()
        for m in reversed(members):
            if whole.isdisjoint(space.output_buffers[m]):
                continue
            if all(dense[b] for b in space.output_buffers[m]):
                complete.append(m)
            whole |= {b for b, w in zip(space.operands[m], self.whole[m], strict=True) if w}
        return complete, [b for b in reads if b in whole]


def _single(attr: object) -> Generic | None:
    """A generic of one result."""
    return attr if isinstance(attr, Generic) and len(attr.yields) == 1 else None


def _is_all(g: Generic, operand: int) -> bool:
    """Whether a map takes every element of its operand, each at a loop of its own."""
    sides = zip(g.maps[operand], g.shapes[operand], strict=True)
    dims = [(e.dim, size) for e, size in sides if size > 1]
    is_whole = all(d is not None and g.sizes[d] == size for d, size in dims)
    return is_whole and len(set(dims)) == len(dims)


def _sums(rows: Ragged, values: Floats) -> Floats:
    """Per row the sum of its places' values; sums of one row do not round another's."""
    return np.bincount(rows.rows, weights=values, minlength=len(rows))
