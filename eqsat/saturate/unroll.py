"""Unrolling: the e-graph of a program with few equal blocks → that of the program with all of them.

The level of a class is the block that it belongs to.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from eqsat.model.program import Program
from eqsat.saturate.blocks import Blocks, Short
from eqsat.saturate.encode import SOURCE_BITS, Interner
from eqsat.saturate.snapshot import Raw, Tables

# ---- levels --------------------------------------------------------------------------------------
NOWHERE = -2  # level of what belongs to no block


class NotPeriodic(Exception):
    """The blocks are not alike; the text says how, for a reader of reports."""


@dataclass(frozen=True)
class Levels:
    """Level per class, and per node the lowest and the highest level it touches."""

    of: dict[int, int]
    spans: list[tuple[int, int]]


def levels_of(blocks: Blocks, short: Short, database: Tables) -> Levels:
    given = _given(blocks, short, database)
    level = _spread(database.nodes, given)
    while _pull_near(database.nodes, level, given):
        pass
    spans = [_span(n, level) for n in database.nodes]
    for (low, high), n in zip(spans, database.nodes, strict=True):
        if high - low > 1:
            raise NotPeriodic(f"a `{n[0]}` reaches across {high - low + 1} blocks")
    return Levels(level, spans)


def _span(node: Raw, level: Mapping[int, int]) -> tuple[int, int]:
    """The lowest and the highest level that a node touches."""
    touched = [at for c in (node[3], *node[2]) if (at := level[c]) != NOWHERE]
    return (min(touched), max(touched)) if touched else (NOWHERE, NOWHERE)


def _pull_near(nodes: list[Raw], level: dict[int, int], given: Collection[int]) -> bool:
    """Put classes that are no values of the program down to what they are computed from.

    The value that is nearest may stand behind them: a slice of the last block's value goes up
    through the block, and the slices of what is inside are near to the first one alone. Only
    classes of nodes that reach too far are moved; whether any was.
    """
    moved = False
    for node in nodes:
        low, high = _span(node, level)
        if high - low > 1 and node[3] not in given:
            under = max(level[c] for c in node[2])
            moved |= under < level[node[3]]
            level[node[3]] = min(under, level[node[3]])
    return moved


def _given(blocks: Blocks, short: Short, database: Tables) -> dict[int, int]:
    """Levels of the program's values; a class with values of many blocks belongs to none."""
    given: dict[int, set[int]] = defaultdict(set)
    placed: dict[int, int] = {}
    for column in blocks.columns:
        for b in range(short.block_count):
            placed[short.number[column[short.full(b)]]] = b
    placed |= {short.number[o]: NOWHERE for o in blocks.shared}
    placed |= {short.number[o]: short.block_count for o in blocks.suffix}
    for i, cls in enumerate(database.values):
        is_fill = short.program.nodes[i].op == "fill"
        given[cls].add(NOWHERE if is_fill else placed.get(i, -1))
    return {c: min(at) if max(at) - min(at) < 2 else NOWHERE for c, at in given.items()}


def _spread(nodes: list[Raw], given: dict[int, int]) -> dict[int, int]:
    """Every other class has the level of the nearest value of the program, the highest of several.

    What is made of shared values alone belongs to no block.
    """
    level = dict(given)
    _spread_shared(nodes, level)
    near: dict[int, set[int]] = defaultdict(set)
    for _, _, children, cls, _ in nodes:
        for c in children:
            near[cls].add(c)
            near[c].add(cls)
    ring = [c for c, at in level.items() if at != NOWHERE]
    while ring:
        reached: dict[int, int] = {}
        for c in ring:
            for d in near[c]:
                if d not in level:
                    reached[d] = max(reached.get(d, NOWHERE), level[c])
        level |= reached
        ring = list(reached)
    for n in nodes:
        level.setdefault(n[3], NOWHERE)
    return level


def _spread_shared(nodes: list[Raw], level: dict[int, int]) -> None:
    """Spread to what is made of shared values alone, not of a carried one as well."""
    given = set(level)
    shared = _upward(nodes, {c for c, at in level.items() if at == NOWHERE}, given)
    leaves = {n[3] for n in nodes if not n[2]}
    front = {c for c in given if level[c] == -1}
    computed = {n[3] for n in nodes if front & set(n[2])} & shared - given - leaves
    while computed:
        shared -= computed
        front = computed
        computed = {n[3] for n in nodes if front & set(n[2])} & shared - given - leaves
    level |= dict.fromkeys(shared - given, NOWHERE)


def _upward(nodes: list[Raw], start: set[int], given: set[int]) -> set[int]:
    """The classes that nodes over classes in `start` make, and so on; not those in `given`."""
    missing = [len(set(n[2])) for n in nodes]
    readers: dict[int, list[int]] = defaultdict(list)
    for i, n in enumerate(nodes):
        for c in set(n[2]):
            readers[c].append(i)
    reached = set(start)
    waiting = list(start)
    ready = [i for i, count in enumerate(missing) if not count]
    while ready or waiting:
        for c in (nodes[i][3] for i in ready):
            if c not in reached and c not in given:
                reached.add(c)
                waiting.append(c)
        ready = []
        while waiting:
            for i in readers[waiting.pop()]:
                missing[i] -= 1
                if not missing[i]:
                    ready.append(i)
    return reached


# ---- unrolling -----------------------------------------------------------------------------------
ATTRIBUTE = (1 << SOURCE_BITS) - 1


class TooLarge(NotPeriodic):
    """The full e-graph is larger than the limit, so a search of the whole program stops there."""


def unroll(
    program: Program, blocks: Blocks, short: Short, database: Tables, interner: Interner, most: int
) -> Tables:
    """The tables of the full program; NotPeriodic if the short one's do not repeat.

    TooLarge if the result has more than `most` nodes.
    """
    levels = levels_of(blocks, short, database)
    leaves = _Leaves(program, blocks, interner)
    shift = _Shift(blocks, short, database, levels, leaves)
    shift.follow()
    shift.check()
    copied = sum(high == short.border + 1 for _, high in levels.spans)
    if len(database.nodes) + short.left_out * copied > most:
        raise TooLarge(f"all copies together have more than {most} nodes")
    return _Copy(blocks, short, database, levels, leaves, shift.images).tables()


# ---- leaves a block owns ------------------------------------------------------------------------
class _Leaves:
    """Attribute ids of the leaves that blocks own, and which leaf stands for which."""

    def __init__(self, program: Program, blocks: Blocks, interner: Interner):
        self.place: dict[int, tuple[int, int]] = {}  # attribute id -> (column, full block)
        self.ids: list[list[int]] = []
        for column in blocks.columns:
            if program.nodes[column[0]].operands or program.nodes[column[0]].op == "fill":
                continue
            self.ids.append([interner.id(program.nodes[i].attr) for i in column])
            for b, i in enumerate(self.ids[-1]):
                self.place[i] = (len(self.ids) - 1, b)

    def moved(self, attr: int, blocks: int) -> int:
        """The attribute in place of this one so many blocks later; itself if no block owns it."""
        if attr not in self.place:
            return attr
        column, block = self.place[attr]
        return self.ids[column][block + blocks]


# ---- the shift by one block ---------------------------------------------------------------------
class _Shift:
    """The image of every class up to the first block in the middle under the shift by one."""

    def __init__(
        self, blocks: Blocks, short: Short, database: Tables, levels: Levels, leaves: _Leaves
    ):
        self.database, self.levels, self.leaves = database, levels, leaves
        self.one, self.two = short.border, short.border + 1  # the blocks that must be alike
        self.left_out = short.left_out
        self.nodes = database.nodes
        self.index = {(n[0], n[1], n[2]): i for i, n in enumerate(self.nodes)}
        self.images = {c: c for c, at in levels.of.items() if at == NOWHERE}
        self.moving = [i for i, (_, high) in enumerate(levels.spans) if -1 <= high <= self.one]
        self.readers: dict[int, list[int]] = defaultdict(list)
        for i in self.moving:
            for c in set(self.nodes[i][2]):
                self.readers[c].append(i)
        self.fresh: list[int] = []  # classes whose readers have not been looked at
        for one, two in self._seeds(blocks, short):
            self._map(one, two)

    def _seeds(self, blocks: Blocks, short: Short) -> Iterator[tuple[int, int]]:
        at = self.database.values
        for column in blocks.columns:
            inner = [at[short.number[column[short.full(b)]]] for b in range(short.block_count)]
            yield from itertools.pairwise(inner)
        for o, p in blocks.carried:
            yield at[short.number[o]], at[short.number[blocks.columns[p][0]]]

    def _map(self, one: int, two: int) -> None:
        if self.levels.of[one] > self.one:
            return
        image = self.images.get(one)
        if image is None:
            self.images[one] = two
            self.fresh.append(one)
        elif image != two and self.levels.of[one] != -1:
            raise NotPeriodic("values became equal in one block and not in the next")

    def _attr(self, attr: int) -> int:
        """The attribute one block later; 0 for leaves from behind the first in the middle."""
        if attr not in self.leaves.place:
            return attr
        block = self.leaves.place[attr][1]
        if block > self.one:
            return 0
        return self.leaves.moved(attr, 1 if block < self.one else 1 + self.left_out)

    def image(self, i: int) -> int | None:
        """The node that this one becomes, if it exists and all operands have an image."""
        op, attr, children, _, _ = self.nodes[i]
        moved = tuple(self.images.get(c, -1) for c in children)
        return self.index.get((op, self._attr(attr), moved))

    def follow(self) -> None:
        """Extend the shift from operands to nodes, and from nodes to operands if in no doubt."""
        self._upward(self.moving)
        while self._downward():
            self._upward(())

    def _upward(self, nodes: Iterable[int]) -> None:
        self._look(nodes)
        while self.fresh:
            self._look(self.readers[self.fresh.pop()])

    def _look(self, nodes: Iterable[int]) -> None:
        for i in nodes:
            j = self.image(i)
            if j is not None:
                self._map(self.nodes[i][3], self.nodes[j][3])

    def _downward(self) -> bool:
        """Whether an operand got its image from a node that can only have become one other."""
        members: dict[tuple[str, int, int], list[int]] | None = None
        for i in self.moving:
            op, attr, children, cls, _ = self.nodes[i]
            if cls not in self.images or all(c in self.images for c in children):
                continue
            members = members or self._members()
            there = members.get((op, self._attr(attr), self.images[cls]), [])
            fitting = [j for j in there if self._may_be(children, self.nodes[j][2])]
            if len(fitting) == 1:
                for c, d in zip(children, self.nodes[fitting[0]][2], strict=True):
                    self._map(c, d)
        return bool(self.fresh)

    def _members(self) -> dict[tuple[str, int, int], list[int]]:
        members: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        for j, (op, attr, _, cls, _) in enumerate(self.nodes):
            members[op, attr, cls].append(j)
        return members

    def _may_be(self, one: tuple[int, ...], two: tuple[int, ...]) -> bool:
        level = self.levels.of
        return len(one) == len(two) and all(
            self.images[c] == d if c in self.images else level[d] == level[c] + 1
            for c, d in zip(one, two, strict=True)
        )

    # ---- the blocks in the middle are alike ---------------------------------------------------
    def check(self) -> None:
        """NotPeriodic unless the shift takes all that ends in one to all that ends in the other."""
        middle = (self.one, self.two)
        ends = [[i for i, s in enumerate(self.levels.spans) if s[1] == b] for b in middle]
        images = {self._checked(i) for i in ends[0]}
        if images != set(ends[1]) or len(images) != len(ends[0]):
            raise NotPeriodic("neighbouring blocks did not get the same nodes")
        classes = [{c for c, at in self.levels.of.items() if at == b} for b in middle]
        if {self.images.get(c) for c in classes[0]} != classes[1] or len(classes[0]) != len(
            classes[1]
        ):
            raise NotPeriodic("neighbouring blocks did not get the same classes")

    def _checked(self, i: int) -> int:
        """The image of a node; it must be in the image's class, made by a rule if that is."""
        j = self.image(i)
        op, _, _, cls, subsumed = self.nodes[i]
        if j is None:
            raise NotPeriodic(f"a `{op}` was found in one block and not in the next")
        other = self.nodes[j]
        # of several rules that make a node in one step egglog keeps any: they need not be the same
        by_rule = [self.database.makers.get(n[:3], -1) >= 0 for n in (self.nodes[i], other)]
        if self.images.get(cls) != other[3] or subsumed != other[4] or by_rule[0] != by_rule[1]:
            raise NotPeriodic(f"a `{op}` was made in another way in the next block")
        return j


# ---- copies -------------------------------------------------------------------------------------
class _Copy:
    """The second block in the middle as often as needed.

    The last copy keeps the numbers of its classes, so what stands behind it stays as it is.
    """

    def __init__(
        self, blocks: Blocks, short: Short, database: Tables,
        levels: Levels, leaves: _Leaves, images: dict[int, int],
    ):  # fmt: skip
        self.blocks, self.short, self.database = blocks, short, database
        self.level, self.spans = levels.of, levels.spans
        self.leaves, self.images = leaves, images
        self.one, self.two = short.border, short.border + 1
        self.last = self.two + short.left_out  # the block of the full program that `two` is
        inner = sorted(c for c, at in self.level.items() if at == self.two)
        first = max(self.level) + 1
        self.number = {
            (c, block): first + (block - self.two) * len(inner) + k
            for block in range(self.two, self.last)
            for k, c in enumerate(inner)
        }

    def tables(self) -> Tables:
        nodes: list[Raw] = []
        makers: dict[tuple[str, int, tuple[int, ...]], int] = {}
        for n, (_, high) in zip(self.database.nodes, self.spans, strict=True):
            by = self.database.makers.get(n[:3])
            for copy, source in self._copies(n, by) if high == self.two else [(n, by)]:
                nodes.append(copy)
                if source is not None:
                    makers[copy[0], copy[1], copy[2]] = source
        return Tables(nodes, makers, self._values(), self._instead_of())

    def _copies(self, n: Raw, by: int | None) -> Iterator[tuple[Raw, int | None]]:
        op, attr, children, cls, subsumed = n
        for block in range(self.two, self.last + 1):
            inner = tuple(self._at(c, block) for c in children)
            copy = (op, self._attr(attr, block), inner, self._at(cls, block), subsumed)
            source = by
            if by is not None and by >= 0:
                source = (by & ~ATTRIBUTE) | self._attr(by & ATTRIBUTE, block)
            yield copy, source

    def _instead_of(self) -> dict[int, int]:
        instead_of = dict(self.database.instead_of)
        for c, loop in self.database.instead_of.items():
            for block in range(self.two, self.last) if self.level[c] == self.two else ():
                instead_of[self._at(c, block)] = self._at(loop, block)
        return instead_of

    def _at(self, cls: int, block: int) -> int:
        """The class that is to this block what the given one is to block `two`."""
        level = self.level[cls]
        if level == self.one and block > self.two:
            return self._at(self.images[cls], block - 1)
        return self.number.get((cls, block), cls) if level == self.two else cls

    def _attr(self, attr: int, block: int) -> int:
        if attr not in self.leaves.place:
            return attr
        home = self.leaves.place[attr][1]
        # the short program has its block `two` from the place of the last copy
        return self.leaves.moved(attr, block - (self.last if home > self.one else self.two))

    def _values(self) -> list[int]:
        # the last copy too: its values may have become equal to some of the block in front of it
        inner = {
            c[b]: (c[self.last], b)
            for c in self.blocks.columns
            for b in range(self.two, self.last + 1)
        }
        at = [self.database.values[i] for i in range(len(self.database.values))]
        values = []
        for i in self.blocks.same:
            stands_for, block = inner.get(i, (i, self.last))
            cls = at[self.short.number[stands_for]]
            values.append(self._at(cls, block) if i in inner else cls)
        return values
