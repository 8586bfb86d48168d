"""Dispatches with several results: two small groups that share a node or an operand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eqsat.extract.candidates.pool import DevicePool, Pool
from eqsat.extract.candidates.space import order
from eqsat.extract.groups.borders import SMALL
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.ragged import Ints, distinct
from eqsat.model.deadline import OutOfTime, tick
from eqsat.model.selection import TIME_LIMIT, Removed
from eqsat.model.sets import by_key

AT_ONCE = 1 << 19  # pairs of which each is told once

Key = tuple[frozenset[int], tuple[int, ...]]  # nodes, classes written


@dataclass(frozen=True)
class Merger(DevicePool):
    """Merges single-result groups of one pool."""

    @cached_property
    def removed(self) -> dict[str, Removed]:
        """Merges that the vector limit removed, the largest per name."""
        return {}

    def part(self, c: Candidate) -> MergePart:
        space = self.space
        makers: dict[int, int] = {}
        for m in sorted(c.members):
            for b in space.output_buffers[m]:
                makers.setdefault(b, m)
        ops = frozenset(m for m in c.members if space.is_op[m])
        touched = frozenset(space.buffer[r] for r in (*c.reads, *c.writes))
        value = space.value[c.writes[0]]
        return MergePart(c, frozenset(c.members), ops, makers, touched, value)

    # ---- all merges of some groups ---------------------------------------------------------------
    def merges(self, grown: Sequence[Candidate]) -> list[Candidate]:
        """All legal merges of two of these groups."""
        fusion, wanted = self.legality.fusion, self.pool.merged
        if not (fusion.multi_result or fusion.siblings):
            return []
        small = sorted(filter(self.is_small, grown), key=lambda c: (len(c.members), c[:2]))
        parts, merged = [self.part(c) for c in small], dict[Key, Candidate]()
        try:
            for one, two in self._paired(parts):
                for i, j in zip(one.tolist(), two.tolist(), strict=True):
                    tick()
                    a, b = parts[i], parts[j]
                    if wanted is None or self.space.computes(a.ops | b.ops) in wanted:
                        self.merge(merged, a, b)
        except OutOfTime:
            self.removed["merges"] = Removed("merges", len(merged), len(merged), TIME_LIMIT, "")
        return list(merged.values())

    def _paired(self, parts: Sequence[MergePart]) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of parts that may merge, by what they share: many at once, and there each once."""
        pairs = MergePairs(self.pool, parts)
        for shared_by, apart in ((self._nodes_inside, False), (self._operands, True)):
            waiting: list[Ints] = []
            buckets = by_key(
                (key, n) for n, p in enumerate(parts) for key in shared_by(p.candidate)
            )
            for key, bucket in sorted(buckets.items()):
                tick()
                one, two = pairs.mergeable(bucket, apart=apart)
                if apart and self.legality.target.limits.vector_bytes is not None:
                    several = zip(one.tolist(), two.tolist(), strict=True)
                    fits = [self._may_be_siblings(key, parts[i], parts[j]) for i, j in several]
                    one, two = one[np.array(fits, bool)], two[np.array(fits, bool)]
                waiting.append(one * len(parts) + two)
                if sum(map(len, waiting)) > AT_ONCE:
                    yield _each_once(waiting, len(parts))
                    waiting = []
            if waiting:
                yield _each_once(waiting, len(parts))

    def is_small(self, c: Candidate) -> bool:
        """Whether a group may be part of a merge."""
        is_op = self.space.is_op
        return len(c.writes) == 1 and sum([is_op[m] for m in c.members]) <= SMALL

    def _nodes_inside(self, c: Candidate) -> list[int]:
        """The ops that a part computes inside, if groups that share one may merge."""
        if not self.legality.fusion.multi_result:
            return []
        space, sink = self.space, (self.space.buffer[c.writes[0]],)
        kinds, cloned = self.legality.uses.join_kinds, self.legality.fusion.cloned
        inside = [m for m in c.members if space.is_op[m] and kinds[m] not in cloned]
        return [m for m in inside if space.output_buffers[m] != sink]

    def _operands(self, c: Candidate) -> list[int]:
        """The buffers that a part reads, weights apart, if groups that share one may merge."""
        if not self.legality.fusion.siblings:
            return []
        operands = dict.fromkeys([self.space.buffer[r] for r in c.reads])
        return [b for b in operands if b not in self.pool.resident]

    def _may_be_siblings(self, operand: int, a: MergePart, b: MergePart) -> bool:
        tick()
        readers = self.legality.readers
        first, second = sorted([readers(p.candidate.members)[operand][0] for p in (a, b)])
        unfused = self.legality.unfused(first, second)
        if unfused is None or unfused[1] is None:
            return True
        if self._joined(a, b) is not None:
            refused = self.removed.get(unfused[1].what)
            if refused is None or refused.bytes < unfused[1].bytes:
                self.removed[unfused[1].what] = unfused[1]
        return False

    def merge(self, merged: dict[Key, Candidate], a: MergePart, b: MergePart) -> None:
        """Add both groups as one dispatch if that is one; these nodes may be merged already."""
        writes = tuple(sorted((*a.candidate.writes, *b.candidate.writes)))
        key = (a.nodes | b.nodes, writes)
        joined = self._joined(a, b) if key not in merged else None
        if joined is not None:
            merged[key] = joined

    def _joined(self, a: MergePart, b: MergePart) -> Candidate | None:
        """A pair of groups as one dispatch; None if their roots crowd."""
        legality, space, ops = self.legality, self.space, a.ops | b.ops
        buffer, one, two = space.buffer, a.candidate, b.candidate
        writes = (*one.writes, *two.writes)
        reads = tuple({buffer[r]: r for r in (*two.reads, *one.reads)}.values())
        members = order(space, a.nodes | b.nodes)
        has_roots = any(map(legality.is_root, ops))
        makers = a.makers | b.makers
        if has_roots and legality.count_inside(makers) > legality.fusion.roots:
            return None
        if has_roots and legality.crowds(legality.roots_inside(members)):
            return None
        staged = {b for m in legality.in_front(members) for b in space.output_buffers[m]}
        if not staged.isdisjoint(map(buffer.__getitem__, writes)):
            return None
        shown = dict.fromkeys((*one.exposable, *two.exposable))
        exposable = tuple([c for c in shown if buffer[c] not in staged])
        price = self.costs.stated(members, reads, writes)
        return Candidate(members, reads, writes, exposable, *price)


def _each_once(keys: Sequence[Ints], parts: int) -> tuple[Ints, Ints]:
    pairs = distinct(np.concatenate(keys))
    return pairs // parts, pairs % parts


# ---- which two may be one ------------------------------------------------------------------------
CELLS = 1 << 20  # of a block of pairs that is looked at at once

PAIRS = 1 << 14  # that are asked about at once

Matrix = NDArray[np.float32]
Numbers = NDArray[np.int64]
TOUCHED, MADE = 1, 2  # of a buffer: it is read or written from outside; it is computed
COMPUTED, USER = 1, 2  # of a value: it is computed; it is computed from the result, and not here


@dataclass(frozen=True, eq=False)
class MergePart:
    """A small group that may become part of a merge, with what merging asks of it."""

    candidate: Candidate
    nodes: frozenset[int]
    ops: frozenset[int]  # without views and fills
    makers: dict[int, int]  # buffer -> the node that computes it; the first if several do
    touched: frozenset[int]  # buffers it reads or writes from outside
    value: int  # that of its result


class MergePairs:
    """Asked about buckets of some parts: which two of a bucket may be one dispatch.

    Two parts contradict each other if one computes what the other reads or writes, or if both
    compute a buffer by different nodes; views may differ. Neither may wait for what the other one
    alone may compute. Both results must be needed outside, and together they must keep the numbers
    of ops, roots and operands that fusion allows.
    """

    def __init__(self, pool: Pool, parts: Sequence[MergePart]):
        self.space, self.legality = pool.space, pool.legality
        self.waits, self.parts = pool.waits, parts
        self._first = [0]  # where the facts of a part begin
        self._facts: list[tuple[int, int]] = []  # (number of a thing, what of it)
        for p in parts:
            self._facts += self._of(p)
            self._first.append(len(self._facts))
        self._table = np.array(self._facts, np.int64).reshape(-1, 2)

    # ---- facts of parts ------------------------------------------------------------------------
    @cached_property
    def _ways(self) -> dict[tuple[int, int], int]:
        return {}

    def _of(self, p: MergePart) -> list[tuple[int, int]]:
        """Its buffers, makers of buffers, ops, roots, reads and values."""
        space, kinds = self.space, self._kinds
        buffers = dict.fromkeys(p.touched, TOUCHED)
        for b in p.makers:
            buffers[b] = buffers.get(b, 0) | MADE
        ways = [self._ways.setdefault(w, len(self._ways)) for w in p.makers.items()]
        computed = space.computes(p.ops)
        users = space.consumers.get(p.value, frozenset()) - computed
        caller = len(space.egraph.types)
        return [
            *buffers.items(),
            *((kinds["way"] + w, 1) for w in ways),
            *((kinds["op"] + n, 1) for n in p.ops),
            *((kinds["root"] + n, 1) for n in p.ops if self.legality.is_root(n)),
            *((kinds["read"] + space.buffer[r], 1) for r in p.candidate.reads),
            *((kinds["view"] + n, 1) for n in p.makers.values() if space.kinds[n] == "view"),
            *((kinds["value"] + v, COMPUTED) for v in computed),
            *((kinds["value"] + (caller if v < 0 else v), USER) for v in users),
        ]

    @cached_property
    def _kinds(self) -> dict[str, int]:
        """Per kind of thing: its first number. The caller is one more value."""
        size = max(len(self.space.egraph.types), len(self.space.egraph.nodes)) + 2
        size = max(size, sum(len(p.makers) for p in self.parts))
        names = ("buffer", "way", "op", "root", "read", "view", "value", "end")
        return {name: (1 + at) * size if at else 0 for at, name in enumerate(names)}

    # ---- pairs of a bucket -----------------------------------------------------------------------
    def mergeable(self, bucket: Sequence[int], *, apart: bool) -> tuple[Numbers, Numbers]:
        """Pairs of these parts that may be one dispatch, in order; `apart` ones share no op."""
        nothing = np.zeros(0, np.int64)
        number, one, two = np.array(bucket, np.int64), [nothing], [nothing]
        if len(bucket) > 1:
            facts = self._matrices(bucket)
            for rows, columns in self._small(bucket, facts, apart):
                tick()
                fine = self._fits(facts, rows, columns)
                first, second = number[rows[fine]], number[columns[fine]]
                agree = self._agree(first, second)
                one.append(first[agree])
                two.append(second[agree])
        return np.concatenate(one), np.concatenate(two)

    def _small(
        self, bucket: Sequence[int], facts: dict[str, Matrix], apart: bool
    ) -> Iterator[tuple[Numbers, Numbers]]:
        """MergePairs that have no more ops than fusion allows and do not wait, block by block.

        It is what refuses most; all else is asked of what is left.
        """
        ops, (value, computes, waits) = facts["op"], self._waiting(bucket)
        sizes, step = ops.sum(axis=1), max(1, CELLS // len(bucket))
        for first in range(0, len(bucket), step):
            tick()
            rows = slice(first, min(len(bucket), first + step))
            shared = ops[rows] @ ops.T
            most = self.legality.fusion.members
            fine = sizes[rows, None] + sizes[None, :] - shared <= most
            fine &= value[rows, None] != value
            fine &= ~(waits[rows][:, value] & computes)
            fine &= ~(waits[:, value[rows]].T & computes[rows, None])
            if apart:
                fine &= shared == 0
            i, j = np.nonzero(np.triu(fine, k=1 + first))
            for at in range(0, len(i), PAIRS):
                yield i[at : at + PAIRS] + first, j[at : at + PAIRS]

    def _waiting(
        self, bucket: Sequence[int]
    ) -> tuple[Numbers, NDArray[np.bool_], NDArray[np.bool_]]:
        """Per part: its value, by number; whether it computes that; [part, value] it waits for.

        That is, another dispatch computes the value, as only one may, before this part.
        """
        parts = [self.parts[p] for p in bucket]
        values, value = np.unique([p.value for p in parts], return_inverse=True)
        number = {v: i for i, v in enumerate(values.tolist())}
        after = np.zeros((len(values), len(values)), dtype=bool)
        for i, j in self.waits.among(list(number)):
            after[i, j] = True
        waits, computes = after[value], np.zeros(len(parts), dtype=bool)
        for i, p in enumerate(parts):
            inside = [number[v] for v in self.space.computes(p.ops) if v in number]
            waits[i, inside] = False
            computes[i] = value[i] in inside
        return value, computes, waits

    def _matrices(self, bucket: Sequence[int]) -> dict[str, Matrix]:
        """Per kind of thing: a row per part of a bucket, a column per thing that one has."""
        first = self._first
        at = np.concatenate([np.arange(first[p], first[p + 1]) for p in bucket])
        sizes = [first[p + 1] - first[p] for p in bucket]
        row = np.repeat(np.arange(len(bucket)), sizes)
        things, column = np.unique(self._table[at, 0], return_inverse=True)
        matrix = np.zeros((len(bucket), len(things)), np.float32)
        matrix[row, column] = self._table[at, 1]
        names = list(self._kinds)
        ends = np.searchsorted(things, list(self._kinds.values()))
        facts = {n: matrix[:, a:b] for n, a, b in zip(names, ends, ends[1:], strict=False)}
        buffers, values = facts["buffer"], facts["value"]
        facts["touched"] = _is(buffers, TOUCHED) + _is(buffers, TOUCHED + MADE)
        facts["made"] = _is(buffers, MADE) + _is(buffers, TOUCHED + MADE)
        facts["computed"], facts["user"] = _is(values, COMPUTED), _is(values, USER)
        return facts

    def _fits(self, facts: dict[str, Matrix], rows: Numbers, columns: Numbers) -> NDArray[np.bool_]:
        """Whether these pairs keep the other numbers, and do not contradict each other."""
        fusion = self.legality.fusion

        def both(what: str, other: str = "") -> Matrix:
            one, two = facts[what][rows], facts[other or what][columns]
            return np.einsum("ij,ij->i", one, two)

        def together(what: str) -> Matrix:
            sizes = facts[what].sum(axis=1)
            return sizes[rows] + sizes[columns] - both(what)

        fine = together("root") <= fusion.roots + fusion.output_reductions  # `merge` counts them
        fine &= together("read") + 2 <= fusion.operands  # and two results
        fine &= both("touched", "made") + both("made", "touched") == 0
        has_view = facts["view"].sum(axis=1) > 0
        fine &= (both("made") == both("way")) | has_view[rows] | has_view[columns]
        users = facts["user"].sum(axis=1)
        fine &= both("user", "computed") < users[rows]
        return fine & (both("computed", "user") < users[columns])

    def _agree(self, rows: Numbers, columns: Numbers) -> NDArray[np.bool_]:
        """Per pair: whether both compute alike what both compute; only views are asked."""
        parts, kinds = self.parts, self.space.kinds
        agree = np.ones(len(rows), dtype=bool)
        for k in np.flatnonzero(self._has_view[rows] | self._has_view[columns]).tolist():
            one, two = parts[rows[k]].makers, parts[columns[k]].makers
            agree[k] = all(
                one[o] == two[o] or kinds[max(one[o], two[o])] == "view"
                for o in (one.keys() & two.keys())
            )
        return agree

    @cached_property
    def _has_view(self) -> NDArray[np.bool_]:
        kinds = self.space.kinds
        has_view = [any(kinds[n] == "view" for n in p.makers.values()) for p in self.parts]
        return np.array(has_view, dtype=bool)


def _is(matrix: Matrix, what: int) -> Matrix:
    return (matrix == what).astype(np.float32)
