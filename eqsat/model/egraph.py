"""EGraph: the saturated e-graph as plain data; every node names the rule that made it.

A value of the program has its name. The same data in another layout or shape is `name@…`: `@16x16`
in tiles of 16 by 16 (of the last dims, `.p1.0` of others, `.o1.0` if the blocks lie in another
order, `.pad0` or `.padany` with lanes beyond the end), `@t1.0` transposed, `@r4x64` reshaped. A new
value is called after the nearest value that needs it, and its own op: `h.sum.matmul`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eqsat.model.attr import Attr
from eqsat.model.control import Control
from eqsat.model.extents import NO_SYMBOLS, Symbols
from eqsat.model.files import as_plain, restored
from eqsat.model.generic import Generic
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.ops import CONVERSIONS, VIEWS, attr_from_json
from eqsat.model.printed import Printed
from eqsat.model.program import Program, infer, word
from eqsat.model.shift import Shift, find_shift
from eqsat.model.symbols import spoken, unique
from eqsat.model.tensor import TensorType

# ---- names of classes ----------------------------------------------------------------------------
MOVED = CONVERSIONS | VIEWS - {"result"}  # the same data, laid out or seen otherwise
_SPEAKABLE = re.compile(r"\w[\w.@~-]*")
AT = "@"  # between a name and a layout
AGAIN = "~"  # between a name and a number, where the same value is computed once more


class ClassNames:
    """Names every class once, without the `%` that the text of a program puts in front."""

    def __init__(self, egraph: EGraph):
        self.egraph = egraph
        self.name_of: dict[int, str] = {}
        self.of: dict[int, str] = {}  # class → the value of the program it is called after
        self.taken: dict[str, int] = {}
        self._values()
        self._layouts(self.name_of)
        self._loops()
        self._new()

    @property
    def names(self) -> tuple[str, ...]:
        """Per class; one that leads to no value of the program is `new`."""
        for c in range(len(self.egraph.types)):
            if c not in self.name_of:
                self._give(c, "new", "new")
        return tuple(self.name_of[c] for c in range(len(self.egraph.types)))

    def _give(self, c: int, name: str, of: str, mark: str = "_") -> None:
        self.name_of[c] = free = unique(name, self.taken, mark)
        self.taken.setdefault(free, 1)
        self.of[c] = of

    def _values(self) -> None:
        for i, c in enumerate(self.egraph.values):
            if c not in self.name_of:
                name = self.egraph.value_name(i)
                self._give(c, name, name if _SPEAKABLE.fullmatch(name) else spoken(name) or "new")

    # ---- the same data -------------------------------------------------------------------------
    @cached_property
    def _moves(self) -> dict[int, list[tuple[int, str]]]:
        """Per class the classes that hold its data in another way, and how."""
        moves: dict[int, list[tuple[int, str]]] = {}
        for n in self.egraph.nodes:
            if n.op in MOVED and len(n.children) == 1:
                (c,) = n.children
                moves.setdefault(c, []).append((n.eclass, layout_name(n.op, n.attr)))
                moves.setdefault(n.eclass, []).append((c, layout_name(n.op, n.attr, back=True)))
        return moves

    def _layouts(self, seeds: Iterable[int]) -> list[int]:
        """Name what is one of these in another layout; all that now have names.

        By as few steps as there are, then by the shortest name.
        """
        named, last = list(seeds), list(seeds)
        while last:
            names: dict[int, tuple[int, str, str]] = {}
            for c in last:
                for other, how in self._moves.get(c, ()):
                    name = f"{self._plain(c)}{AT}{how}"
                    best = (len(name), name, self.of[c])
                    if other not in self.name_of and best < names.get(other, (1 << 30, "", "")):
                        names[other] = best
            last = sorted(names)
            for c in last:
                self._give(c, *names[c][1:])
            named += last
        return named

    def _plain(self, c: int) -> str:
        """The name of a class, as one that may stand in a text behind `%`."""
        name = self.name_of[c]
        return name if _SPEAKABLE.fullmatch(name) else self.of[c]

    # ---- new values ----------------------------------------------------------------------------
    def _loops(self) -> None:
        """A loop with other bodies is one more form of the loop it stands for."""
        nodes = self.egraph.nodes
        for n in nodes:
            if isinstance(n.attr, Control) and n.source >= 0 and n.eclass not in self.name_of:
                loop = nodes[n.source].eclass
                if loop in self.name_of:
                    self._give(n.eclass, self.name_of[loop], self.of[loop], AGAIN)

    def _new(self) -> None:
        """Name what values are made of, from them down, and the layouts of that."""
        waiting = deque(sorted(self.name_of))
        while waiting:
            c = waiting.popleft()
            for i in self.egraph.classes[c]:
                for child in self.egraph.nodes[i].children:
                    if child not in self.name_of:
                        self._give(child, f"{self.of[c]}.{self._word(child)}", self.of[c])
                        waiting += self._layouts([child])

    def _word(self, c: int) -> str:
        """Word for the first op of a class, or for how it moves data if none does."""
        nodes = [self.egraph.nodes[i] for i in self.egraph.classes[c]]
        computing = [n for n in nodes if n.op not in MOVED]
        return _op(next(iter(computing or nodes)))


def _op(n: ENode) -> str:
    return spoken(n.attr.name) or n.op if isinstance(n.attr, Leaf) else word(n.op, n.attr)


def layout_name(op: str, attr: Attr, back: bool = False) -> str:
    """The layout that a movement op makes, in a word; back: the layout before it."""
    if isinstance(attr, Layout):
        lies_plain = (op == "unpack") != back
        return "plain" if lies_plain else _tiled(attr) + (".open" if op == "relax" else "")
    if isinstance(attr, Transpose):
        perm = attr.perm
        if back:
            perm = tuple(sorted(range(len(perm)), key=lambda d: perm[d]))
        return f"t{_numbers(perm)}"
    if isinstance(attr, Reshape):
        return f"r{'x'.join(map(str, attr.source if back else attr.shape))}".replace(" ", "")
    if isinstance(attr, Encoding):
        is_asked = (op == "set_encoding") != back
        return f"{attr.role}-of-{attr.contraction}" if is_asked else "plain"
    return op


def _tiled(layout: Layout) -> str:
    rank = len(layout.source)
    last = tuple(range(rank - len(layout.pos), rank))
    parts = ["x".join(map(str, layout.tiles))]
    parts += [] if layout.pos == last else [f"p{_numbers(layout.pos)}"]
    parts += [] if layout.is_outer_identity else [f"o{_numbers(layout.outer)}"]
    if layout.is_padded:
        pads = dict.fromkeys({"?": "any", "-": "none"}.get(p, p) for p in layout.pads)
        one = [p for p in pads if p != "none"]
        parts += [f"pad{p}" for p in (one if len(one) == 1 else pads)]
    return ".".join(p for p in parts if p)


def _numbers(some: Sequence[int]) -> str:
    return ".".join(map(str, some))


@dataclass(frozen=True)
class ENode:
    """One e-node. `rule` is an index into `EGraph.rules`, -1 for the input program.

    `source` is the node the rule matched (its left side's outermost node), -1 if none. `subsumed`:
    a rule with `apply: replace` removed it from the search. `extra`: the contained rule set
    (`RuleSet.start`) does not reach it by itself.
    """

    op: str
    attr: Attr
    children: tuple[int, ...]
    eclass: int
    rule: int = -1
    source: int = -1
    subsumed: bool = False
    extra: bool = False


@dataclass(frozen=True)
class RuleStat:
    """Effect of one rule: its place in a file, matches, nodes it was the first to make, seconds."""

    name: str
    at: str
    doc: str
    matches: int
    nodes: int
    seconds: float


@dataclass(frozen=True)
class BlockReuse:
    """Equal blocks of the program: how many there are, how many were searched, why not fewer.

    If fewer were searched than there are, `RuleStat.matches` and `seconds` are those of the search.
    """

    count: int
    searched: int
    why: str


@dataclass(frozen=True)
class EGraph(Printed):
    """Classes are 0 … n-1; `values[i]` is the class of node i of the input program."""

    nodes: tuple[ENode, ...]
    types: tuple[tuple[TensorType, ...], ...]  # per class
    roots: tuple[int, ...]  # per result of the program
    values: tuple[int, ...]
    rules: tuple[RuleStat, ...]
    rounds: int
    stop: str  # saturated | nodes | rounds | matches | seconds | wall
    seconds: float
    blocks: BlockReuse | None = None  # None: nothing repeats often enough to look
    left_out: tuple[str, ...] = ()  # rules that match the program itself too often
    names: tuple[str, ...] = field(default=(), compare=False)  # of `values`; "" for a number alone

    def value_name(self, i: int) -> str:
        """The name of value i of the program, its number if it has none."""
        return (self.names[i] if self.names else "") or str(i)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """Name of every class; each occurs once (`model.egraph` says how)."""
        return ClassNames(self).names

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Node numbers per class."""
        members: list[list[int]] = [[] for _ in self.types]
        for i, n in enumerate(self.nodes):
            members[n.eclass].append(i)
        return tuple(tuple(c) for c in members)

    @cached_property
    def reduced(self) -> frozenset[int]:
        """Classes that the input program itself computes by reductions or contractions."""
        return frozenset(
            n.eclass
            for n in self.nodes
            if n.rule < 0 and isinstance(n.attr, Generic) and n.attr.reductions
        )

    @cached_property
    def _index(self) -> dict[tuple[str, Attr, tuple[int, ...]], int]:
        numbered = reversed(list(enumerate(self.nodes)))  # of copies in several classes, the first
        return {(n.op, n.attr, n.children): i for i, n in numbered}

    def find(self, op: str, attr: Attr, children: tuple[int, ...]) -> int | None:
        """The number of this node, if the e-graph holds it."""
        return self._index.get((op, attr, children))

    @cached_property
    def shift(self) -> Shift | None:
        """The image of each class and node one block later; None if nothing repeats."""
        return find_shift(self)

    def locate(self, program: Program) -> tuple[int, ...] | None:
        """The class of every node of a program, or None if the e-graph does not hold it all."""
        at: list[int] = []
        for n in program.nodes:
            i = self.find(n.op, n.attr, tuple(at[o] for o in n.operands))
            if i is None:
                return None
            at.append(self.nodes[i].eclass)
        return tuple(at)

    def holds(self, program: Program) -> bool:
        """Whether this program is one of those the e-graph says are equal to its input."""
        at = self.locate(program)
        if at is None or len(program.results) != len(self.roots):
            return False
        pairs = zip((at[r] for r in program.results), self.roots, strict=True)
        return all(c == root or c in self.serving(root) for c, root in pairs)

    def serving(self, eclass: int) -> frozenset[int]:
        """Classes that serve in place of a class, which is a `relax` of them, directly or not."""
        substitutes: set[int] = set()
        waiting = [eclass]
        while waiting:
            for i in self.classes[waiting.pop()]:
                below = self.nodes[i].children
                if self.nodes[i].op == "relax" and substitutes.isdisjoint(below):
                    substitutes.update(below)
                    waiting += below
        return frozenset(substitutes - {eclass})

    def verify(self) -> None:
        """ValueError if a number names nothing or the nodes of a class differ in type."""
        classes, nodes, rules = len(self.types), len(self.nodes), len(self.rules)
        if not all(0 <= c < classes for c in (*self.roots, *self.values)):
            raise ValueError("a result or a value has a class that does not exist")
        if self.names and len(self.names) != len(self.values):
            raise ValueError(f"{len(self.names)} names for {len(self.values)} values")
        for i, n in enumerate(self.nodes):
            if not all(0 <= c < classes for c in (*n.children, n.eclass)):
                raise ValueError(f"node {i}: a child class does not exist")
            if not (-1 <= n.rule < rules and -1 <= n.source < nodes):
                raise ValueError(f"node {i}: its rule or its source does not exist")
            types = infer(n.op, n.attr, [self.types[c] for c in n.children])
            if types != self.types[n.eclass]:
                raise ValueError(
                    f"node {i} `{n.op}` gives {types}, its class is {self.types[n.eclass]}"
                )

    def to_json(self) -> dict[str, Any]:
        attrs: dict[Attr, int] = {}
        nodes = [
            [n.op, attrs.setdefault(n.attr, len(attrs)), list(n.children), n.eclass, n.rule,
             n.source, n.subsumed + 2 * n.extra]
            for n in self.nodes
        ]  # fmt: skip
        return {
            "format": 1,
            "attrs": [a.to_json() for a in attrs],
            "nodes": nodes,
            "types": [[str(t) for t in c] for c in self.types],
            "roots": list(self.roots),
            "values": list(self.values),
            "rules": [list(vars(r).values()) for r in self.rules],
            "rounds": self.rounds,
            "stop": self.stop,
            "seconds": self.seconds,
            "blocks": list(vars(self.blocks).values()) if self.blocks else None,
            "left_out": list(self.left_out),
            "names": list(self.names),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], symbols: Symbols = NO_SYMBOLS) -> EGraph:
        """Undo `to_json`; symbols: extents by name."""
        attrs = [attr_from_json(a, symbols) for a in data["attrs"]]
        nodes = tuple(
            ENode(op, attrs[a], tuple(ch), c, rule, source, bool(marks & 1), marks > 1)
            for op, a, ch, c, rule, source, marks in data["nodes"]
        )
        types = tuple(tuple(TensorType.parse(t, symbols) for t in c) for c in data["types"])
        rules = tuple(restored(RuleStat, r) for r in data["rules"])
        return cls(
            nodes, types, tuple(data["roots"]), tuple(data["values"]), rules,
            as_plain(int, data["rounds"]), as_plain(str, data["stop"]),
            as_plain(float, data["seconds"]),
            restored(BlockReuse, data["blocks"]) if data.get("blocks") else None,
            tuple(as_plain(str, n) for n in data.get("left_out", ())),
            tuple(as_plain(str, n) for n in data.get("names", ())),
        )  # fmt: skip

    def to_text(self) -> str:
        """One line per class: its type and its nodes."""
        lines = []
        for c, members in enumerate(self.classes):
            ops = ", ".join(
                f"{self.nodes[i].op}({', '.join(f'c{x}' for x in self.nodes[i].children)})"
                for i in members
            )
            lines.append(f"c{c}: {', '.join(map(str, self.types[c]))} = {ops}")
        return "\n".join(lines) + "\n"
