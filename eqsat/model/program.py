"""Program: an immutable, hash-consed DAG of tensor ops; weights travel beside it by hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eqsat.model.attr import Attr, ShapeError
from eqsat.model.control import controls
from eqsat.model.extents import is_symbolic, names_of
from eqsat.model.files import as_plain, restored
from eqsat.model.generic import Generic, Result, factors_of
from eqsat.model.leaves import Custom, Leaf
from eqsat.model.ops import ATTR_CLASSES, LEAVES, SAME_BYTES, attr_from_json
from eqsat.model.printed import Printed
from eqsat.model.symbols import KEY, NO_ORIGIN, Origin, Symbol, extents_of, unique
from eqsat.model.tensor import TensorType
from eqsat.model.text import program_text


@dataclass(frozen=True)
class Node:
    """One op: its operands are earlier nodes; ops with several results are read by `result`.

    origin: the name and the source line of its value; it is no part of what the node computes.
    """

    op: str
    operands: tuple[int, ...]
    attr: Attr
    types: tuple[TensorType, ...]
    origin: Origin = field(default=NO_ORIGIN, compare=False)

    @property
    def type(self) -> TensorType:
        """The type of a single-result node."""
        return self.types[0]


@dataclass(frozen=True)
class Program(Printed):
    """Nodes in topological order and the numbers of the results.

    `symbols` are the dims that are not known: their extents stand in the shapes.
    """

    name: str
    nodes: tuple[Node, ...]
    results: tuple[int, ...]
    symbols: tuple[Symbol, ...] = ()

    def verify(self) -> None:
        """ShapeError if a node is out of order, ill-typed, or unknown, or a dim has no symbol."""
        for i, node in enumerate(self.nodes):
            if not isinstance(node.attr, ATTR_CLASSES.get(node.op, Custom)):
                raise ShapeError(f"%{i}: no op named `{node.op}`")
            if any(not 0 <= o < i for o in node.operands):
                raise ShapeError(f"%{i}: operands must come before their use")
            types = infer(node.op, node.attr, [self.nodes[o].types for o in node.operands])
            if types != node.types:
                raise ShapeError(f"%{i}: `{node.op}` gives {types}, not {node.types}")
        if any(not 0 <= r < len(self.nodes) for r in self.results):
            raise ShapeError("a result names a node that does not exist")
        names = {s.name for s in self.symbols}
        dims = {d for n in self.nodes for t in n.types for d in t.shape if is_symbolic(d)}
        used = frozenset().union(*map(names_of, dims))
        if len(names) < len(self.symbols) or not used <= names:
            raise ShapeError(f"the symbols are {sorted(names)}, the dims name {sorted(used)}")

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Input nodes by argument number."""
        nodes = [i for i, n in enumerate(self.nodes) if n.op == "input"]
        return tuple(sorted(nodes, key=lambda i: self.leaf(i).index))

    def behind_views(self, node: int) -> int:
        """The node whose buffer holds the value, found through reshapes and relaxed views."""
        while self.nodes[node].op in SAME_BYTES:
            (node,) = self.nodes[node].operands
        return node

    @cached_property
    def weights(self) -> tuple[int, ...]:
        return tuple(i for i, n in enumerate(self.nodes) if n.op == "weight")

    def leaf(self, i: int) -> Leaf:
        attr = self.nodes[i].attr
        assert isinstance(attr, Leaf)
        return attr

    def value_name(self, i: int) -> str:
        """The name of value i in the text: a leaf's own, otherwise `%` and a name or number."""
        n = self.nodes[i]
        return n.attr.name if isinstance(n.attr, Leaf) else f"%{n.origin.name or i}"

    @cached_property
    def value_names(self) -> tuple[str, ...]:
        """Names of all nodes without the `%`; "" for those that have none."""
        return tuple(n.attr.name if isinstance(n.attr, Leaf) else n.origin.name for n in self.nodes)

    def numbered(self) -> Program:
        """Where every value has a name: its number, if it had none."""
        if all(self.value_names):
            return self
        b = Builder(self.name)
        for i, n in enumerate(self.nodes):
            named = n.origin.name or isinstance(n.attr, Leaf)
            b.nodes.append(n if named else replace(n, origin=n.origin.called(str(i))))
        return b.build(self.results, self.symbols)

    @cached_property
    def uses(self) -> tuple[int, ...]:
        """How often each node is used, as an operand (each position once) or as a result."""
        count = Counter(o for n in self.nodes for o in n.operands)
        count.update(self.results)
        return tuple(count[i] for i in range(len(self.nodes)))

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """The nodes that results are computed from, ascending."""
        needed = set(self.results)
        for i in range(len(self.nodes) - 1, -1, -1):
            if i in needed:
                needed.update(self.nodes[i].operands)
        return tuple(sorted(needed))

    @property
    def op_count(self) -> int:
        """Ops that are not leaves; those of a loop's body count once."""
        inner = (p.op_count for _, a in controls(self) for p in a.bodies)
        return sum(n.op not in LEAVES for n in self.nodes) + sum(inner)

    @property
    def weight_bytes(self) -> int:
        return sum(self.nodes[i].type.nbytes for i in self.weights)

    def to_text(self) -> str:
        """The `.eqs` text of this program (see `lang.programs`, which reads it back)."""
        return program_text(self)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "format": 1,
            "name": self.name,
            "nodes": [_node_json(n) for n in self.nodes],
            "results": list(self.results),
        }
        if self.symbols:
            data["symbols"] = [s.to_json() for s in self.symbols]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Program:
        b = Builder(as_plain(str, data["name"]))
        symbols = tuple(restored(Symbol, s) for s in data.get("symbols", ()))
        extents = extents_of(symbols)
        for n in data["nodes"]:
            b.origin = Origin.from_json(n[KEY]) if KEY in n else NO_ORIGIN
            b.append(n["op"], tuple(n["operands"]), attr_from_json(n["attr"], extents))
        return b.build(data["results"], symbols)


def _node_json(n: Node) -> dict[str, Any]:
    data = {"op": n.op, "operands": list(n.operands), "attr": n.attr.to_json()}
    return data if n.origin == NO_ORIGIN else data | {KEY: n.origin.to_json()}


def infer(op: str, attr: Attr, operands: list[tuple[TensorType, ...]]) -> tuple[TensorType, ...]:
    """Result types of an op; ShapeError says what does not fit."""
    if op == "result":
        return attr.infer(op, operands[0])
    for t in operands:
        if len(t) != 1:
            raise ShapeError(f"`{op}` reads a value with several results; name one with `result`")
    return attr.infer(op, tuple([t[0] for t in operands]))


class Builder:
    """Builds a Program node by node; equal nodes become one.

    origin: that of the nodes that are added next.
    """

    def __init__(self, name: str):
        self.name = name
        self.origin = NO_ORIGIN
        self.nodes: list[Node] = []
        self._known: dict[tuple[str, tuple[int, ...], Attr], int] = {}

    def add(self, op: str, operands: tuple[int, ...], attr: Attr) -> int:
        """The number of this node, new or known; ShapeError if operands do not fit."""
        number = self._known.get((op, operands, attr))
        return self.append(op, operands, attr) if number is None else number

    def append(self, op: str, operands: tuple[int, ...], attr: Attr) -> int:
        """Like `add`, without looking for an equal node (numbers stay as in a file)."""
        types = infer(op, attr, [self.nodes[o].types for o in operands])
        return self._append(Node(op, operands, attr, types, self.origin))

    def move(self, node: Node, operands: tuple[int, ...]) -> int:
        """`add` a node of another program, whose operands have the same types here."""
        number = self._known.get((node.op, operands, node.attr))
        if number is not None:
            return number
        if operands != node.operands:
            node = Node(node.op, operands, node.attr, node.types, node.origin)
        return self._append(node)

    def following(self, program: Program, new: dict[int, int]) -> Iterator[tuple[int, Node]]:
        """The nodes of a program that is rewritten here; `new` is filled on the way.

        A value that replaces another one keeps its name and line; further values made for it are
        named after it and their op.
        """
        for i, n in enumerate(program.nodes):
            before, self.origin = len(self.nodes), n.origin
            yield i, n
            self.settle(before, new.get(i))
        self.origin = NO_ORIGIN

    def settle(self, before: int, value: int | None) -> None:
        """Name what was added since there were `before` nodes, to get this value of `origin`."""
        if value is not None and value < before:
            self._also(value, self.origin)
        for i in range(before, len(self.nodes)):
            origin = self.nodes[i].origin
            if i != value and origin.name and origin is self.origin:
                name = f"{origin.name}.{word(self.nodes[i].op, self.nodes[i].attr)}"
                self.rename(i, Origin(name, origin.at))

    def _also(self, i: int, origin: Origin) -> None:
        """Value i is another one of the program, too."""
        existing = self.nodes[i].origin
        is_free = not existing.name and not isinstance(self.nodes[i].attr, Leaf)
        self.rename(i, origin.joined(existing) if is_free else existing.joined(origin))

    def rename(self, i: int, origin: Origin) -> None:
        """Give a node another origin."""
        n = self.nodes[i]
        if origin != n.origin:
            self.nodes[i] = Node(n.op, n.operands, n.attr, n.types, origin)

    def _append(self, node: Node) -> int:
        number = len(self.nodes)
        self.nodes.append(node)
        self._known.setdefault((node.op, node.operands, node.attr), number)
        return number

    def type(self, i: int) -> TensorType:
        return self.nodes[i].type

    def build(
        self, results: list[int] | tuple[int, ...], symbols: tuple[Symbol, ...] = ()
    ) -> Program:
        self._tell_apart()
        return Program(self.name, tuple(self.nodes), tuple(results), symbols)

    def _tell_apart(self) -> None:
        """Give a name that is taken a number."""
        taken = {n.attr.name: 1 for n in self.nodes if isinstance(n.attr, Leaf)}
        for i, n in enumerate(self.nodes):
            name = n.origin.name
            if name and not isinstance(n.attr, Leaf):
                free = unique(name, taken)
                taken.setdefault(free, 1)
                if free != name:
                    self.rename(i, n.origin.called(free))


def word(op: str, attr: Attr) -> str:
    """An op as a short word: of a loop nest what it computes, of a result its number."""
    g = attr
    if isinstance(g, Result):
        return str(g.index)
    if not isinstance(g, Generic):
        return op
    y = g.yields[0]
    if y.combine == "add" and factors_of(y.body) is not None:
        return "matmul"
    if y.combine:
        return "sum" if y.combine == "add" else y.combine
    return "copy" if y.body.fn == "arg" else y.body.fn


def prune(program: Program) -> Program:
    """The program without nodes no result needs; inputs stay, as they are its signature."""
    needed = {*program.needed, *program.inputs}
    new: dict[int, int] = {}
    b = Builder(program.name)
    for i in sorted(needed):
        n = program.nodes[i]
        new[i] = b.move(n, tuple([new[o] for o in n.operands]))
    return b.build([new[r] for r in program.results], program.symbols)


def rewritten(
    program: Program, write: Callable[[Builder, int, Node, tuple[int, ...]], int | None]
) -> Program:
    """The program, node by node, with what `write` adds instead of a node; None: the node stays.

    write: asked with the builder, the number of the node, the node, and its operands there.
    """
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        value = write(b, i, n, operands)
        new[i] = b.move(n, operands) if value is None else value
    return prune(b.build([new[r] for r in program.results], program.symbols))


def is_same(a: Program, b: Program) -> bool:
    """Whether the results of both are the same ops on the same leaves, whatever their numbers."""
    number_of: dict[tuple[str, Attr, tuple[int, ...]], int] = {}
    return _numbered(a, number_of) == _numbered(b, number_of)


def _numbered(
    program: Program, number_of: dict[tuple[str, Attr, tuple[int, ...]], int]
) -> list[int]:
    """The results by number; equal computations have one, by `number_of`."""
    number: list[int] = []
    for n in program.nodes:
        key = (n.op, n.attr, tuple(number[o] for o in n.operands))
        number.append(number_of.setdefault(key, len(number_of)))
    return [number[r] for r in program.results]


def is_elementwise(attr: Attr) -> bool:
    """A generic without reduction loops."""
    return isinstance(attr, Generic) and attr.is_elementwise
