"""The e-graph of a program of equal blocks with four of them, and its dispatches in all blocks.

Blocks 0, 1, N - 2 and N - 1 are kept; block N - 2 reads what block 1 makes, and stands for all
blocks from 2 on. That is the e-graph of the program with four blocks if blocks 1 to N - 2 are the
same under the shift, node by node, and no node reaches further than to the next block. Both is
checked here, so it does not matter how the e-graph was made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.model.egraph import EGraph, ENode
from eqsat.model.ops import LEAVES
from eqsat.model.selection import Group
from eqsat.model.sets import topological
from eqsat.model.shift import Shift
from eqsat.model.target import Fusion
from eqsat.ops.contractions.roles import kind

KEPT = 4  # blocks of the short program; as a level: behind all of them
ONE, TWO = 1, 2  # of these, the two in the middle, which are alike
NOWHERE = -1  # the level of what is in front of all blocks, or beside them


@dataclass(frozen=True)
class Rolled:
    """The e-graph with four blocks, `short`, and what its nodes and classes are in `whole`.

    `count`: blocks that block `TWO` stands for. `level`: per class of `short` its block, `NOWHERE`
    or `KEPT`.
    """

    whole: EGraph
    short: EGraph
    nodes: tuple[int, ...]
    classes: tuple[int, ...]
    level: tuple[int, ...]
    count: int

    @property
    def shift(self) -> Shift:
        assert self.whole.shift is not None
        return self.whole.shift

    @cached_property
    def high(self) -> tuple[int, ...]:
        """Per node of `short`: the last block that it touches."""
        level = self.level
        return tuple(max(level[c] for c in (n.eclass, *n.children)) for n in self.short.nodes)

    @cached_property
    def low(self) -> tuple[int, ...]:
        """Per node of `short`: the first block that it touches, `KEPT` if there is none.

        What the shift takes from in front of all blocks into block 0 is the end of one more block:
        `NOWHERE`.
        """
        level, images = self.level, self.images
        return tuple(
            NOWHERE
            if level[n.eclass] == NOWHERE and images[n.eclass] not in (-1, n.eclass)
            else min([at for c in (n.eclass, *n.children) if (at := level[c]) >= 0], default=KEPT)
            for n in self.short.nodes
        )

    def last(self, members: Sequence[int]) -> int:
        """The last block that a dispatch touches."""
        return max([self.high[m] for m in members], default=NOWHERE)

    def is_near(self, members: Sequence[int]) -> bool:
        """Whether a dispatch touches no more than two blocks, one behind the other.

        Others have no image in each of the blocks, and are left out.
        """
        first = min([self.low[m] for m in members], default=KEPT)
        return self.last(members) - first <= 1

    def times(self, members: Sequence[int]) -> int:
        """How often a dispatch is there in the whole program."""
        return self.count if self.last(members) == TWO else 1

    @cached_property
    def ops(self) -> tuple[ENode, ...]:
        """The ops of the program in a block."""
        pairs = zip(self.short.nodes, self.high, strict=True)
        return tuple(n for n, at in pairs if n.rule == -1 and n.op not in LEAVES and at == TWO)

    def may_be_inside(self, fusion: Fusion) -> bool:
        """Whether a dispatch may hold a block and so touch three: as any ops, or as a template."""
        size, kinds = len(self.ops), [kind(n.op, n.attr) for n in self.ops]
        roots = sum(k in ("contraction", "reduction") for k in kinds)
        return size <= fusion.members or (roots <= 1 and size <= fusion.template)

    def may_be_crossed(self, fusion: Fusion) -> bool:
        """Whether a dispatch may hold a way through a block, and so touch three.

        A way leads from an op that reads the block before to one of the next block. The least ops
        and the least roots of any way are counted apart; a contraction counts as all the reductions
        that may stand in its place, and one more may keep rows of it.
        """
        worth = {"contraction": fusion.row_reductions, "reduction": 1}
        ops = self._least_through(lambda kind: int(kind not in ("leaf", "view")))
        roots = self._least_through(lambda kind: worth.get(kind, 0))
        many = fusion.roots + bool(fusion.row_block)
        most = many * fusion.row_reductions + fusion.output_reductions
        return ops <= max(fusion.members, fusion.template) and roots <= most

    def _least_through(self, of: Callable[[str], int]) -> float:
        """The least sum over the kinds of the nodes of a way through block `TWO` and its reader."""
        least: dict[int, float] = {c: 0 for c, at in enumerate(self.level) if at == ONE}
        changed, ends = True, math.inf
        while changed:
            changed = False
            for n in self.short.nodes:
                at = self.level[n.eclass]
                if at < TWO or not (below := [least[c] for c in n.children if c in least]):
                    continue
                sum_ = min(below) + of(kind(n.op, n.attr))
                if at == TWO and sum_ < least.get(n.eclass, math.inf):
                    least[n.eclass], changed = sum_, True
                elif at > TWO and any(self.level[c] == TWO for c in n.children):
                    ends = min(ends, sum_)
        return ends

    @cached_property
    def class_times(self) -> tuple[int, ...]:
        """Per class of `short`: how many of the whole program it stands for."""
        return tuple(self.count if at == TWO else 1 for at in self.level)

    # ---- one block later, within `short` ---------------------------------------------------------
    @cached_property
    def images(self) -> tuple[int, ...]:
        """Per class of `short` the one a block later, -1 if there is none."""
        return _images(self.classes, self.level, self.shift.eclass, self.count)

    @cached_property
    def node_images(self) -> tuple[int, ...]:
        """Per node of `short` the one a block later, -1 if there is none."""
        return _images(self.nodes, self.high, self.shift.node, self.count)

    # ---- back to all blocks ----------------------------------------------------------------------
    def unrolled(self, groups: Sequence[Group], buffer: Sequence[int]) -> tuple[Group, ...]:
        """The groups of the whole program, each behind what it reads, else block by block.

        Those whose last block is `TWO` are there in all blocks that it stands for. `buffer`: per
        class of the whole program its buffer.
        """
        places = self._places(groups)
        keyed = []
        for g, place, step in zip(groups, places, range(len(groups)), strict=True):
            for back in self.copies(g.members):
                key = (place, 0, step) if back is None else (TWO, self.count - back, step)
                keyed.append((key, self._group(g, back)))
        return _in_order(sorted(keyed, key=lambda f: f[0]), buffer)

    def _places(self, groups: Sequence[Group]) -> list[int]:
        """Per group its block; of what is in none that of the next one behind it."""
        blocks: list[int] = []
        place = KEPT
        for g in reversed(groups):
            last = self.last(g.members)
            place = place if last == NOWHERE else last
            blocks.append(place)
        return blocks[::-1]

    def _group(self, g: Group, back: int | None) -> Group:
        """A group so many blocks in front of where it is; None: it is there once."""
        reads, writes = (self.classes_at(side, back) for side in (g.reads, g.writes))
        return replace(g, members=self.nodes_at(g.members, back), reads=reads, writes=writes)

    def copies(self, members: Sequence[int]) -> Sequence[int | None]:
        """How many blocks in front of where it is a dispatch is there as well; None: it is once."""
        return range(self.count) if self.last(members) == TWO else (None,)

    def nodes_at(self, nodes: Iterable[int], back: int | None) -> tuple[int, ...]:
        """Nodes of the whole program, of a dispatch so many blocks in front of where it is."""
        return tuple(self._moved(n, self.high[n], back, self._by_node) for n in nodes)

    def classes_at(self, classes: Iterable[int], back: int | None) -> tuple[int, ...]:
        """As `nodes_at`."""
        return tuple(self._moved(c, self.level[c], back, self._by_class) for c in classes)

    def _moved(self, number: int, level: int, back: int | None, sides: _Sides) -> int:
        numbers, later, earlier = sides
        at = numbers[number]
        if back is None or level == NOWHERE:
            return at
        ways, steps = (earlier, back) if level == TWO else (later, self.count - 1 - back)
        for _ in range(steps):
            at = ways[at]
        return at

    @cached_property
    def _by_node(self) -> _Sides:
        return self.nodes, self.shift.node, _earlier(self.shift.node)

    @cached_property
    def _by_class(self) -> _Sides:
        return self.classes, self.shift.eclass, _earlier(self.shift.eclass)


@dataclass(frozen=True)
class Later:
    """The shift by one block, by number: -1 where there is nothing.

    Exclusive numbers are those of nodes, then those of values.
    """

    node: tuple[int, ...]
    buffer: tuple[int, ...]
    value: tuple[int, ...]

    @staticmethod
    def of(rolled: Rolled, buffer: Sequence[int], value: Sequence[int]) -> Later:
        """buffer, value: of each class of the short e-graph."""

        def named(name: Sequence[int]) -> tuple[int, ...]:
            return tuple(name[d] if d >= 0 else -1 for d in rolled.images)

        return Later(rolled.node_images, named(buffer), named(value))

    def number(self, exclusive: int) -> int:
        """The exclusive number one block later."""
        first = len(self.node)
        if exclusive < first:
            return self.node[exclusive]
        image = self.value[exclusive - first]
        return first + image if image >= 0 else -1

    def key(self, members: Iterable[int], *buffers: Iterable[int]) -> Hashable:
        """The `own_key` of an option one block later."""
        sides = (frozenset(self.buffer[b] for b in side) for side in buffers)
        return (frozenset(self.node[m] for m in members), *sides)


def own_key(members: Iterable[int], *buffers: Iterable[int]) -> Hashable:
    """The key of an option: its members, and sets of buffers that it reads, keeps and writes."""
    return (frozenset(members), *map(frozenset, buffers))


# what it is in the whole program, its image there, and of what it is the image
_Sides = tuple[Sequence[int], Sequence[int], Mapping[int, int]]


def _earlier(image: Sequence[int]) -> dict[int, int]:
    return {j: i for i, j in enumerate(image) if 0 <= j != i}


def _images(
    numbers: Sequence[int], level: Sequence[int], image: Sequence[int], count: int
) -> tuple[int, ...]:
    number = {of: i for i, of in enumerate(numbers)}
    images = []
    for at, here in zip(numbers, level, strict=True):
        there = at
        for _ in range(count if here == ONE else 1):
            there = image[there] if there >= 0 else -1
        images.append(number.get(there, -1))
    return tuple(images)


def _in_order(
    keyed: Sequence[tuple[tuple[int, int, int], Group]], buffer: Sequence[int]
) -> tuple[Group, ...]:
    """Each behind all it reads from, else in the order in which they are given."""
    groups = [g for _, g in keyed]
    writer = {buffer[w]: i for i, g in enumerate(groups) for w in g.writes}
    needs = [{writer[b] for r in g.reads if (b := buffer[r]) in writer} for g in groups]
    return tuple(replace(groups[i], step=n) for n, i in enumerate(topological(needs)))


# ---- the short e-graph -----------------------------------------------------------------------
def rolled(whole: EGraph) -> Rolled | None:
    """The e-graph with four of its blocks; None if it has no five, or the inner ones differ."""
    for shift, program_level in _ways(whole):
        if shift.count <= KEPT:
            continue
        level = _levels(whole, shift, program_level)
        high = [max(level[c] for c in (n.eclass, *n.children)) for n in whole.nodes]
        if _is_near(whole, level) and _is_periodic(whole, shift, level, high):
            return _short(whole, shift, level, high)
    return None


def _ways(whole: EGraph) -> Iterator[tuple[Shift, dict[int, int]]]:
    """Ways to cut the program into blocks: which of its values are in which one.

    First with the values that a block leaves to the next one counted to that. So what adds to the
    sum of all blocks before, and what begins the next block, may be one dispatch of two blocks.
    Then the block in front is an inner one; where that differs it is left out.
    """
    shift = whole.shift
    if shift is None:
        return
    later = {c: at - 1 for c, at in shift.block.items() if at}
    fewer = replace(shift, block=later, count=shift.count - 1)
    for some, is_left in ((shift, True), (fewer, True), (shift, False)):
        yield some, _own_levels(whole, some, is_left)


def _levels(whole: EGraph, shift: Shift, program_level: Mapping[int, int]) -> list[int]:
    """Per class the first block in which it may be computed; `shift.count`: behind all of them."""
    level = dict(program_level)
    changed = True
    while changed:
        changed = False
        for n in whole.nodes:
            if n.eclass in program_level or not all(c in level for c in n.children):
                continue
            at = max([level[c] for c in n.children], default=NOWHERE)
            if at < level.get(n.eclass, shift.count + 1):
                level[n.eclass], changed = at, True
    return [level.get(c, NOWHERE) for c in range(len(whole.types))]


def _own_levels(whole: EGraph, shift: Shift, is_left: bool) -> dict[int, int]:
    """Of the program's values: where it computes them, or where alone it reads a leaf.

    is_left: what only the next block reads counts to that.
    """
    block_of: dict[int, int] = {}
    leaves = {n.eclass for n in whole.nodes if n.op in LEAVES}
    last = max((i for i, c in enumerate(whole.values) if c in shift.block), default=-1)
    for i, c in enumerate(whole.values):
        if shift.eclass[c] == c:
            block_of[c] = NOWHERE
        elif c not in leaves:
            block_of.setdefault(c, shift.block.get(c, shift.count if i > last else NOWHERE))
    readers: dict[int, set[int]] = {}
    for n in whole.nodes:
        if n.rule == -1 and n.eclass in block_of:  # what computes a leaf again is in no block
            for c in n.children:
                readers.setdefault(c, set()).add(n.eclass)
    level = dict(block_of)
    for c, at in shift.block.items() if is_left else ():
        if c in readers and all(block_of[r] > at for r in readers[c]):
            level[c] = at + 1
    images = set(shift.eclass)
    for c in leaves - block_of.keys():
        moves = shift.eclass[c] >= 0 or c in images
        blocks = {level[r] for r in readers.get(c, ())}
        level[c] = min(blocks) if moves and len(blocks) == 1 else NOWHERE
    return level


def _is_near(whole: EGraph, level: Sequence[int]) -> bool:
    """Whether no node touches more than two blocks, one behind the other."""
    for n in whole.nodes:
        touched = [at for c in (n.eclass, *n.children) if (at := level[c]) != NOWHERE]
        if touched and max(touched) - min(touched) > 1:
            return False
    return True


def _is_periodic(whole: EGraph, shift: Shift, level: Sequence[int], high: Sequence[int]) -> bool:
    """Whether blocks 1 to N - 2 are alike: the shift takes each to the next one, and to all of it.

    So it does with the nodes that end in one of them, with its classes, and with its results.
    """
    roots = frozenset(whole.roots)
    results = [at if c in roots else NOWHERE for c, at in enumerate(level)]
    return all(
        _takes_all(image, at, shift.count)
        for image, at in ((shift.node, high), (shift.eclass, level), (shift.eclass, results))
    )


def _takes_all(image: Sequence[int], level: Sequence[int], count: int) -> bool:
    sizes = Counter(level)
    if len({sizes[at] for at in range(1, count - 1)}) != 1:
        return False
    inner = (i for i, at in enumerate(level) if 1 <= at < count - 2)
    return all(image[i] >= 0 and level[image[i]] == level[i] + 1 for i in inner)


def _short(whole: EGraph, shift: Shift, level: Sequence[int], high: Sequence[int]) -> Rolled:
    """Without the nodes and classes of blocks 2 to N - 3."""
    count = shift.count
    is_out = range(2, count - 2)
    nodes = [i for i, at in enumerate(high) if at not in is_out]
    classes = [c for c, at in enumerate(level) if at not in is_out]
    number = {c: i for i, c in enumerate(classes)}
    earlier = _earlier(shift.eclass)
    for c in (c for c, at in enumerate(level) if at == count - 3):  # what block N - 2 reads
        first = c
        for _ in range(count - 4):
            first = earlier[first]
        number.setdefault(c, number[first])
    place = {i: k for k, i in enumerate(nodes)}
    short_nodes = []
    for i in nodes:
        n = whole.nodes[i]
        children = tuple(number[c] for c in n.children)
        source = place.get(n.source, -1)
        short_nodes.append(replace(n, children=children, eclass=number[n.eclass], source=source))
    there = [i for i, c in enumerate(whole.values) if level[c] not in is_out]
    short = replace(
        whole,
        nodes=tuple(short_nodes),
        types=tuple(whole.types[c] for c in classes),
        roots=tuple(number[r] for r in whole.roots if level[r] not in is_out),
        values=tuple(number[whole.values[i]] for i in there),
        names=tuple(whole.names[i] for i in there) if whole.names else (),
    )
    inner = {count - 2: TWO, count - 1: TWO + 1, count: KEPT}
    levels = tuple(inner.get(level[c], level[c]) for c in classes)
    return Rolled(whole, short, tuple(nodes), tuple(classes), levels, count - 3)
