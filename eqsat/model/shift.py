"""The shift of an e-graph: the image of every class and node one block later.

It is read off the finished e-graph, however that was made: ops of the program that come again a
period later give the first images, and nodes over classes with images give the others. It is a hint
and no proof: code that copies anything along the shift has to check that both ends look alike. So a
block that differs costs copies and nothing else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eqsat.model.ops import LEAVES

if TYPE_CHECKING:
    from eqsat.model.egraph import EGraph

LOOKED_AT = 12  # periods that are tried, the likeliest first
REACH = 8  # occurrences of an op that vote for a period
OWNED = frozenset({"input", "weight"})  # leaves a block may have of its own


@dataclass(frozen=True)
class Shift:
    """Images one block later, -1 where there is none; no two have the same image.

    What belongs to no block, such as a constant that all of them read, is its own image.
    """

    node: tuple[int, ...]
    eclass: tuple[int, ...]
    # classes that an op of the longest run of blocks computes, and its block; how many blocks
    block: Mapping[int, int] = field(default_factory=dict)
    count: int = 0


def periods(ops: Sequence[Hashable], fewest: int) -> list[int]:
    """Distances at which equal ops stand, those that most ops agree on first.

    Only those of which a run of all ops holds `fewest` blocks.
    """
    at: dict[Hashable, list[int]] = defaultdict(list)
    for i, op in enumerate(ops):
        at[op].append(i)
    votes: Counter[int] = Counter()
    for places in at.values():
        for k in range(1, min(REACH, len(places) - 1) + 1):
            votes.update(b - a for a, b in zip(places, places[k:], strict=False))
    likely = sorted(votes, key=lambda p: (-votes[p], p))
    return [p for p in likely if p * fewest <= len(ops)][:LOOKED_AT]


def find_shift(egraph: EGraph) -> Shift | None:
    """The shift by one block; None if no two blocks of the program are alike."""
    program = _Program(egraph)
    best: _Runs | None = None
    for period in periods(program.keys, 2):
        runs = _Runs(program, period)
        if runs.has_blocks and (best is None or runs.repeated > best.repeated):
            best = runs
    return None if best is None else _Follower(egraph, best).shift()


class _Program:
    """The input program as the e-graph holds it: its own nodes, in the program's order."""

    def __init__(self, egraph: EGraph):
        self.egraph = egraph
        self.ops = [i for i in self._order() if egraph.nodes[i].op not in LEAVES]
        number: dict[Hashable, int] = {}
        self.keys = [number.setdefault(self._key(i), len(number)) for i in self.ops]
        self.place: dict[int, int] = {}  # class -> place of the first op that computes it
        for at, i in enumerate(self.ops):
            self.place.setdefault(egraph.nodes[i].eclass, at)
        self.owned = {n.eclass: n.op for n in egraph.nodes if n.op in OWNED}

    def _order(self) -> Iterator[int]:
        """Its nodes; in a class of several, each as soon as all it reads has come."""
        nodes = self.egraph.nodes
        left: dict[int, list[int]] = defaultdict(list)
        for i, n in enumerate(nodes):
            if n.rule == -1:
                left[n.eclass].append(i)
        come: set[int] = set()
        for c in self.egraph.values:
            ready = [i for i in left[c] if come.issuperset(nodes[i].children)]
            if ready:
                left[c].remove(ready[0])
                come.add(c)
                yield ready[0]

    def _key(self, node: int) -> Hashable:
        """Key that is equal for ops that may be one op of two blocks."""
        n, types = self.egraph.nodes[node], self.egraph.types
        return n.op, n.attr, types[n.eclass], len(n.children)

    def operands(self, one: int, two: int) -> Iterator[tuple[int, int]]:
        """The classes that two ops read, by operand."""
        nodes = self.egraph.nodes
        return zip(nodes[one].children, nodes[two].children, strict=True)

    def is_owned(self, one: int, two: int) -> bool:
        """Whether two classes are leaves of one type, which blocks may have of their own."""
        types, owned = self.egraph.types, self.owned
        return one in owned and owned[one] == owned.get(two) and types[one] == types[two]


class _Runs:
    """Ops that come again `period` ops later, with operands that do so too or are the same."""

    def __init__(self, program: _Program, period: int):
        self.program, self.period = program, period
        self.repeats = [self._repeats(at) for at in range(len(program.ops) - period)]
        self.runs = [r for r in self._found() if 2 * (r[1] - r[0]) >= period]
        self.repeated = sum(end - begin for begin, end in self.runs)
        self.has_blocks = any(end - begin >= period for begin, end in self.runs)

    def _repeats(self, at: int) -> bool:
        return self._is_alike(at) and all(
            one == two or self._moves(one, two) for one, two in self._operands(at)
        )

    def _is_alike(self, at: int) -> bool:
        keys = self.program.keys
        return keys[at] == keys[at + self.period]

    def _operands(self, at: int) -> Iterator[tuple[int, int]]:
        ops = self.program.ops
        return self.program.operands(ops[at], ops[at + self.period])

    def _moves(self, one: int, two: int) -> bool:
        place = self.program.place
        if one in place and two in place:
            return place[two] - place[one] == self.period
        return self.program.is_owned(one, two)

    def _found(self) -> Iterator[tuple[int, int]]:
        """[begin, end) of every run of ops that repeat."""
        begin = 0
        for at, repeats in enumerate([*self.repeats, False]):
            if not repeats:
                if at > begin:
                    yield begin, at
                begin = at + 1

    @property
    def longest(self) -> tuple[dict[int, int], int]:
        """Per class that an op of the longest run computes its block; and how many there are."""
        begin, end = max(self.runs, key=lambda r: (r[1] - r[0], -r[0]))
        count = (end - begin) // self.period + 1
        ops, nodes = self.program.ops, self.program.egraph.nodes
        block_of: dict[int, int] = {}
        for at in range(begin, begin + count * self.period):
            block_of.setdefault(nodes[ops[at]].eclass, (at - begin) // self.period)
        return block_of, count

    def moved(self) -> Iterator[tuple[int, int]]:
        """(class, the class one block later) of the ops of runs, and of leaves that they own."""
        program = self.program
        for at in (at for begin, end in self.runs for at in range(begin, end)):
            one, two = program.ops[at], program.ops[at + self.period]
            nodes = program.egraph.nodes
            yield nodes[one].eclass, nodes[two].eclass
            yield from ((o, p) for o, p in program.operands(one, two) if o != p)

    def shared(self) -> Iterator[int]:
        """Classes that ops of two blocks read both."""
        for begin, end in self.runs:
            for at in range(begin, end):
                yield from (o for o, p in self._operands(at) if o == p)

    def carried(self) -> Iterator[tuple[int, int]]:
        """As `moved`, of ops in front of a run that are like those of its first block.

        What they read may be from in front of all blocks: it stands where a later block reads a
        value of the block before.
        """
        nodes, ops = self.program.egraph.nodes, self.program.ops
        for begin, _ in self.runs:
            for at in range(begin - 1, max(-1, begin - 1 - self.period), -1):
                if not self._is_alike(at):
                    break
                yield nodes[ops[at]].eclass, nodes[ops[at + self.period]].eclass
                yield from ((o, p) for o, p in self._operands(at) if o != p)


class _Follower:
    """Follows the shift from the program's values through all nodes of the e-graph."""

    def __init__(self, egraph: EGraph, runs: _Runs):
        self.egraph, self.runs = egraph, runs
        self.images: dict[int, int] = {}
        self.image_of: dict[int, int] = {}  # node -> image
        self.fresh: list[int] = []

    def shift(self) -> Shift:
        self._seed()
        self._follow()
        self._add_leaves()
        self._separate()
        classes = tuple(self.images.get(c, -1) for c in range(len(self.egraph.types)))
        nodes = tuple(self._node(i, classes) for i in range(len(self.egraph.nodes)))
        return Shift(nodes, classes, *self.runs.longest)

    # ---- the program's values -------------------------------------------------------------------
    def _seed(self) -> None:
        moved: dict[int, set[int]] = defaultdict(set)
        for one, two in self.runs.moved():
            moved[one].add(two)
        shared = set(self.runs.shared())
        # what is in several places at once, such as a weight of two layers, has no image
        unclear = {c for c, images in moved.items() if len(images) > 1 or c in shared}
        for one, images in moved.items():
            if one not in unclear:
                self._map(one, min(images))
        for c in self._behind(shared - unclear):
            self._map(c, c)
        for one, two in self.runs.carried():
            if one not in unclear:
                self._map(one, two)
        for n in self.egraph.nodes:
            if n.op == "fill" and n.eclass not in unclear:
                self._map(n.eclass, n.eclass)

    def _behind(self, shared: set[int]) -> list[int]:
        """Shared classes and what the program computes them from."""
        operands: dict[int, list[int]] = defaultdict(list)
        for n in self.egraph.nodes:
            if n.rule == -1:
                operands[n.eclass] += n.children
        behind, waiting = dict.fromkeys(sorted(shared)), sorted(shared)
        while waiting:
            news = [c for c in operands[waiting.pop()] if c not in behind and c not in self.images]
            behind |= dict.fromkeys(news)
            waiting += news
        return list(behind)

    def _map(self, one: int, two: int) -> None:
        if one not in self.images and self.egraph.types[one] == self.egraph.types[two]:
            self.images[one] = two
            self.fresh.append(one)

    # ---- all nodes -------------------------------------------------------------------------------
    def _follow(self) -> None:
        """From operands to nodes, and from nodes to the classes they are in."""
        nodes = self.egraph.nodes
        readers: dict[int, list[int]] = defaultdict(list)
        missing = [len(set(n.children)) for n in nodes]
        for i, n in enumerate(nodes):
            for c in set(n.children):
                readers[c].append(i)
        at = 0
        while at < len(self.fresh):
            for i in readers[self.fresh[at]]:
                missing[i] -= 1
                if not missing[i]:
                    self._look(i)
            at += 1

    def _look(self, node: int) -> None:
        n, images = self.egraph.nodes[node], self.images
        j = self.egraph.find(n.op, n.attr, tuple([images[c] for c in n.children]))
        if j is not None:
            self.image_of[node] = j
            self._map(n.eclass, self.egraph.nodes[j].eclass)

    def _add_leaves(self) -> None:
        """A leaf becomes the leaf of its class' image, if that has one of its kind."""
        nodes, classes = self.egraph.nodes, self.egraph.classes
        for i, n in enumerate(nodes):
            if not n.children and n.eclass in self.images:
                there = classes[self.images[n.eclass]]
                alike = [j for j in there if nodes[j].op == n.op and not nodes[j].children]
                if len(alike) == 1:
                    self.image_of[i] = alike[0]

    # ---- what is left ----------------------------------------------------------------------------
    def _separate(self) -> None:
        """No two classes have the same image, and none is its own image blocks later.

        What is shared stays, also where a first block has something of its own in its place.
        """
        fixed = {c for c, d in self.images.items() if c == d}
        images = {c: d for c, d in self.images.items() if c in fixed or d not in fixed}
        count = Counter(images.values())
        self.images = {c: d for c, d in images.items() if count[d] == 1}
        later = {d for c, d in self.images.items() if c != d}
        separate = {c: d for c, d in self.images.items() if c == d}
        for head in self.images.keys() - later:
            at = head
            while at in self.images and at not in separate:
                separate[at] = self.images[at]
                at = separate[at]
        self.images = separate

    def _node(self, node: int, classes: tuple[int, ...]) -> int:
        """The image of a node if it is a node over images, made alike; else -1."""
        nodes, j = self.egraph.nodes, self.image_of.get(node, -1)
        if j < 0:
            return -1
        one, two = nodes[node], nodes[j]
        alike = (
            classes[one.eclass] == two.eclass
            and tuple([classes[c] for c in one.children]) == two.children
            and (one.rule == -1) == (two.rule == -1)
            and one.subsumed == two.subsumed
        )
        return j if alike else -1
