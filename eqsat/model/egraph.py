"""EGraph: the saturated e-graph as plain data; every node names the rule that made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eqsat.model.attr import Attr
from eqsat.model.classnames import ClassNames
from eqsat.model.extents import NO_SYMBOLS, Symbols
from eqsat.model.ops import attr_from_json
from eqsat.model.program import Program, infer
from eqsat.model.restore import as_plain, restored
from eqsat.model.shift import Shift, find_shift
from eqsat.model.tensor import TensorType


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
    """What one rule did: its place in a file, matches, nodes it was the first to make, seconds."""

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
class EGraph:
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
        """What every class is called; each name occurs once (`model.classnames` says how)."""
        return ClassNames(self).names

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Node numbers per class."""
        found: list[list[int]] = [[] for _ in self.types]
        for i, n in enumerate(self.nodes):
            found[n.eclass].append(i)
        return tuple(tuple(c) for c in found)

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
        found: set[int] = set()
        waiting = [eclass]
        while waiting:
            for i in self.classes[waiting.pop()]:
                below = self.nodes[i].children
                if self.nodes[i].op == "relax" and found.isdisjoint(below):
                    found.update(below)
                    waiting += below
        return frozenset(found - {eclass})

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

    __str__ = to_text
