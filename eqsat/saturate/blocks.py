"""Repeated blocks of a Program: which ops are copies of which, and the program with few copies.

A model of 24 equal layers needs no search of 24 layers. Blocks are found in the sequence of ops,
not by cutting the graph at single values, so any number of values may run from one block to the
next; a weight is compared by its type, everything else by what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.model.equalities import Equalities
from eqsat.model.ops import LEAVES
from eqsat.model.program import Node, Program
from eqsat.model.shift import OWNED, periods
from eqsat.ops.programs.facts import Facts, facts_of

BORDER = 1  # blocks kept at each end, next to the two that must be alike
FEWEST = 5  # equal blocks that are worth it: one more than the shortest program has


@dataclass(frozen=True)
class Blocks:
    """`columns[p][b]` is the node at position p of block b; leaves that a block owns included.

    Node numbers are those of `same`, the first of equal nodes. `carried` maps a value that block 0
    reads to the column whose values the later blocks read there. `suffix`: nodes behind the blocks.
    """

    same: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]
    carried: tuple[tuple[int, int], ...]  # (node, column)
    shared: frozenset[int]  # in front of the blocks, and read (at last) by all or behind them
    suffix: frozenset[int]

    @property
    def count(self) -> int:
        return len(self.columns[0])

    def place(self, node: int) -> int | None:
        """The block of a node; None outside of all of them."""
        return self._places.get(self.same[node])

    @cached_property
    def _places(self) -> dict[int, int]:
        return {n: b for column in self.columns for b, n in enumerate(column)}


@dataclass(frozen=True)
class Short:
    """The program with 2 · `border` + 2 blocks: the first and the last `border` + 1 of all."""

    program: Program
    facts: Facts  # of each node, in the full program
    number: dict[int, int]  # node of the full program (the first of equal ones) -> node
    stands_for: dict[int, int]  # the same for every node; of a block left out, one in its place
    border: int
    block_count: int  # blocks it has
    left_out: int  # blocks it has not

    def full(self, block: int) -> int:
        """The block of the full program that a block of this one is."""
        return block if block <= self.border else block + self.left_out

    def knows(self, equalities: Sequence[Equalities]) -> tuple[Equalities, ...]:
        """Of what is known of the full program, that of the blocks it has."""
        numbers, stands_for, first = (
            dict(self.number),
            dict(self.stands_for),
            len(self.program.nodes),
        )
        renumbered = []
        for facts in equalities:
            moved, number = facts.renumbered(numbers, stands_for, first)
            numbers, stands_for, first = (
                numbers | number,
                stands_for | number,
                first + len(moved.nodes),
            )
            renumbered.append(moved)
        return tuple(renumbered)


def find_blocks(program: Program, facts: Facts | None = None) -> Blocks | None:
    """The longest run of equal blocks, if there are `FEWEST` at least.

    facts: what the search will ask about values; None: their uses.
    """
    facts = facts or facts_of(program, ())
    same = first_of_equals(program)
    ops = [i for i, n in enumerate(program.nodes) if same[i] == i and n.op not in LEAVES]
    best: Blocks | None = None
    for period in periods([(program.nodes[o].op, program.nodes[o].attr) for o in ops], FEWEST):
        candidate = _Finder(program, facts, same, ops, period).find()
        if candidate and (best is None or _covers(candidate) > _covers(best)):
            best = candidate
            if period * candidate.count > len(ops) - period:
                break  # no other period can find much more
    return best


def _covers(blocks: Blocks) -> int:
    return len(blocks.columns) * blocks.count


def first_of_equals(program: Program) -> tuple[int, ...]:
    """Per node the first that is equal to it, as the e-graph will see it."""
    first: dict[tuple[object, ...], int] = {}
    same: list[int] = []
    for i, n in enumerate(program.nodes):
        same.append(first.setdefault((n.op, n.attr, *(same[o] for o in n.operands)), i))
    return tuple(same)


class _Finder:
    """Looks for blocks of `period` ops."""

    def __init__(
        self, program: Program, facts: Facts, same: tuple[int, ...], ops: list[int], period: int
    ):
        self.program, self.facts, self.same = program, facts, same
        self.ops, self.period = ops, period
        self.place = {o: i for i, o in enumerate(ops)}
        self.start = 0
        self.count = 0
        self.owned: dict[int, tuple[int, int]] = {}  # leaf -> (block, column)
        self.carried: dict[int, int] = {}
        self.shared: set[int] = set()
        self.leaves: list[list[int]] = []  # columns of owned leaves

    def find(self) -> Blocks | None:
        begin, end = self._longest_run()
        for start in range(max(0, begin - self.period), begin + 1):
            count = (end - start) // self.period + 1
            if count < FEWEST:
                return None
            if self._is_like(start, begin) and self._fits(start, count):
                return self._blocks()
        return None

    # ---- a run of ops that repeat -------------------------------------------------------------
    def _longest_run(self) -> tuple[int, int]:
        """The longest [begin, end) in which every op is like the one a period later."""
        best, begin = (0, 0), 0
        last = len(self.ops) - self.period
        for i in range(last + 1):
            if i == last or not self._repeats(i):
                best = max(best, (begin, i), key=lambda r: r[1] - r[0])
                begin = i + 1
        return best

    def _repeats(self, i: int) -> bool:
        one, two = self._pair(i)
        return _alike(one, two) and all(
            self._moves(o, p) or o == p for o, p in self._operands(one, two)
        )

    def _moves(self, one: int, two: int) -> bool:
        """Whether two operands are the same value of two blocks, or leaves of the same type."""
        if one in self.place and two in self.place:
            return self.place[two] - self.place[one] == self.period
        a, b = self.program.nodes[one], self.program.nodes[two]
        return a.op == b.op and a.op in OWNED and a.types == b.types

    def _pair(self, i: int) -> tuple[Node, Node]:
        return tuple(self.program.nodes[self.ops[j]] for j in (i, i + self.period))  # type: ignore[return-value]

    def _operands(self, one: Node, two: Node) -> Iterator[tuple[int, int]]:
        for o, p in zip(one.operands, two.operands, strict=True):
            yield self.same[o], self.same[p]

    def _is_like(self, start: int, begin: int) -> bool:
        """Whether the ops in front of a run are those of its first block."""
        return all(_alike(*self._pair(i)) for i in range(start, begin))

    # ---- the blocks of a run ------------------------------------------------------------------
    def _fits(self, start: int, count: int) -> bool:
        self.start, self.count = start, count
        self.owned, self.carried, self.leaves, self.shared = {}, {}, [], set()
        for i in range(start, start + (count - 1) * self.period):
            block = (i - start) // self.period
            if not all(self._link(block, o, p) for o, p in self._operands(*self._pair(i))):
                return False
        if any(len(c) != count for c in self.leaves):
            return False
        return self._is_closed() and self._is_used_alike()

    def _level(self, node: int) -> int:
        """The block of a node; -1 in front of or beside all of them, `count` behind."""
        if node in self.owned:
            return self.owned[node][0]
        i = self.place.get(node)
        if i is None or i < self.start:
            return -1
        return min((i - self.start) // self.period, self.count)

    def _link(self, block: int, one: int, two: int) -> bool:
        """One operand of an op of this block and of the same op of the next block."""
        if one == two:
            self.shared.add(one)
            return self._level(one) == -1
        level = self._level(one)
        if two in self.place and self._level(two) == block and level == -1:
            return block == 0 and self._carry(one, two)
        if one in self.place and two in self.place:
            return self._moves(one, two) and level in (block - 1, block)
        return self._moves(one, two) and self._own(block, one, two)

    def _carry(self, one: int, two: int) -> bool:
        column = self.place[two] - self.start
        alike = self.program.nodes[one].types == self.program.nodes[two].types
        return alike and self.carried.setdefault(one, column) == column

    def _own(self, block: int, one: int, two: int) -> bool:
        """A leaf of this block and the one in its place in the next."""
        if block == 0 and one not in self.owned:
            self.owned[one] = (0, len(self.leaves))
            self.leaves.append([one])
        if one not in self.owned or self.owned[one][0] != block:
            return False
        column = self.leaves[self.owned[one][1]]
        if two not in self.owned and len(column) == block + 1:
            self.owned[two] = (block + 1, self.owned[one][1])
            column.append(two)
        return column[block + 1 : block + 2] == [two]

    def _is_closed(self) -> bool:
        """Ops behind the blocks read the last one only; leaves of a block are read in it only."""
        if self.shared & self.owned.keys():
            return False
        for o in self.ops:
            reader = self._level(o)
            for x in map(self.same.__getitem__, self.program.nodes[o].operands):
                level = self._level(x)
                if level == -1 and reader == self.count:
                    self.shared.add(x)
                if level in (-1, reader):
                    continue
                if x not in self.place or reader != level + 1:
                    return False
        return True

    def _is_used_alike(self) -> bool:
        """Between the first and the last block no fact depends on the block."""
        fact_of = self.facts.of
        inner = range(2, self.count - 1)
        return all(fact_of(c[b]) == fact_of(c[1]) for c in self._columns() for b in inner)

    def _columns(self) -> list[tuple[int, ...]]:
        inner = [
            tuple(self.ops[self.start + b * self.period + p] for b in range(self.count))
            for p in range(self.period)
        ]
        return inner + [tuple(c) for c in self.leaves]

    def _blocks(self) -> Blocks:
        behind = self.ops[self.start + self.count * self.period :]
        # a fill is the same wherever it stands, also where later blocks read something computed
        carried = tuple(
            (o, p)
            for o, p in sorted(self.carried.items())
            if o not in self.shared and self.program.nodes[o].op != "fill"
        )
        shared = self._behind_shared({o for o, _ in carried})
        return Blocks(self.same, tuple(self._columns()), carried, shared, frozenset(behind))

    def _behind_shared(self, carried: set[int]) -> frozenset[int]:
        """Shared values and what they are computed from: a rule may read that instead."""
        behind: set[int] = set()
        waiting = list(self.shared)
        while waiting:
            o = waiting.pop()
            if o not in behind and o not in carried:
                behind.add(o)
                waiting += [self.same[x] for x in self.program.nodes[o].operands]
        return frozenset(behind)


def _alike(one: Node, two: Node) -> bool:
    return (
        one.op == two.op
        and one.attr == two.attr
        and one.types == two.types
        and len(one.operands) == len(two.operands)
    )


def shorten(
    program: Program, blocks: Blocks, border: int = BORDER, facts: Facts | None = None
) -> Short | None:
    """Leave the blocks in the middle out; None if there are none to leave out.

    facts: as for `find_blocks`.
    """
    block_count = 2 * border + 2
    if blocks.count <= block_count:
        return None
    last = blocks.count - border - 1  # the first block behind those that are left out
    dropped = {c[b]: c[border] for c in blocks.columns for b in range(border + 1, last)}
    number: dict[int, int] = {}
    nodes: list[Node] = []
    for i, n in enumerate(program.nodes):
        if blocks.same[i] != i or i in dropped:
            continue
        operands = (blocks.same[o] for o in n.operands)
        number[i] = len(nodes)
        inner = tuple(number[dropped.get(o, o)] for o in operands)
        nodes.append(Node(n.op, inner, n.attr, n.types))
    results = (blocks.same[r] for r in program.results)
    kept_results = tuple(number[r] for r in results if r in number)
    short = Program(program.name, tuple(nodes), kept_results, program.symbols)
    kept_facts = (facts or facts_of(program, ())).of_classes(blocks.same, number)
    stands_for = {i: number[dropped.get(o, o)] for i, o in enumerate(blocks.same)}
    return Short(
        short, kept_facts, number, stands_for, border, block_count, blocks.count - block_count
    )
