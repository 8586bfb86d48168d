"""`scan`, `while` and `cond` of a jaxpr → one op whose bodies are Programs.

A body is read like a function of its own. What it reads from outside and never changes becomes one
of the op's `consts`; constants go into the body, arrays it closes over become weights outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from eqsat.frontends.values import Context, Tensor
from eqsat.model.control import COND, MOST_NESTED, SCAN, WHILE, Control
from eqsat.model.diag import EqsatError, fail
from eqsat.model.generic import Result
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program, prune
from eqsat.model.tensor import TensorType


class Reader(Protocol):
    """Walks a jaxpr (`frontends.jaxpr` has it); `depth` counts the bodies around it."""

    ctx: Context
    captured: list[Any]
    depth: int

    def child(self, title: str) -> Reader:
        """A reader for a body."""
        ...

    def input(self, t: TensorType, path: str) -> Tensor: ...
    def constant(self, c: Any, aval: Any = None) -> Tensor: ...
    def run(self, jaxpr: Any, consts: Sequence[Tensor], args: Sequence[Tensor]) -> list[Tensor]: ...


Lower = Callable[[Reader, Any, Sequence[Tensor]], "list[Tensor] | None"]


def read_control(reader: Reader, eqn: Any, args: Sequence[Tensor]) -> list[Tensor] | None:
    """The results of a loop or branch; None if it cannot be a program and is kept whole.

    EqsatError E332 if bodies are nested more than `MOST_NESTED` deep.
    """
    if eqn.effects or not eqn.outvars:
        return None
    if reader.depth >= MOST_NESTED:
        raise fail(
            "E332",
            f"`{eqn.primitive.name}` stands inside of {reader.depth} other loops or branches",
            help="join some of them",
        )
    try:
        return CONTROL[eqn.primitive.name](reader, eqn, args)
    except _NotReadable:
        return None


class _NotReadable(Exception):
    """A body touches what programs cannot hold."""


@dataclass
class _Consts:
    """The values a loop reads and never changes: each an operand once, constants left out."""

    reader: Reader
    nodes: list[int] = field(default_factory=list)

    def places(self, values: Sequence[Tensor]) -> list[Tensor | int]:
        """Per value: itself if it is a constant, else the number of its operand."""
        return [v if v.is_constant else self._place(self.reader.ctx.materialise(v)) for v in values]

    def _place(self, node: int) -> int:
        if node not in self.nodes:
            self.nodes.append(node)
        return self.nodes.index(node)

    def types(self) -> list[TensorType]:
        return [self.reader.ctx.builder.type(n) for n in self.nodes]


def _scan(reader: Reader, eqn: Any, args: Sequence[Tensor]) -> list[Tensor]:
    p = eqn.params
    first, count = p["num_consts"], p["num_carry"]
    consts = _Consts(reader)
    fixed = consts.places(args[:first])
    rest = [reader.ctx.materialise(v) for v in args[first:]]
    types = [reader.ctx.builder.type(n) for n in rest]
    slices = [t.with_shape(t.shape[1:]) for t in types[count:]]
    body = _body(reader, p["jaxpr"], fixed, consts.types(), [*types[:count], *slices])
    make = ControlMaker(SCAN, count, int(p["length"]), bool(p["reverse"]))
    return make.node(reader.ctx, consts.nodes, rest, [body])


def _while(reader: Reader, eqn: Any, args: Sequence[Tensor]) -> list[Tensor]:
    p = eqn.params
    conditional, both = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    consts = _Consts(reader)
    fixed = consts.places(args[:both])
    rest = [reader.ctx.materialise(v) for v in args[both:]]
    types = [reader.ctx.builder.type(n) for n in rest]
    bodies = [
        _body(reader, p["cond_jaxpr"], fixed[:conditional], consts.types(), types),
        _body(reader, p["body_jaxpr"], fixed[conditional:], consts.types(), types),
    ]
    return ControlMaker(WHILE, len(rest)).node(reader.ctx, consts.nodes, rest, bodies)


def _cond(reader: Reader, eqn: Any, args: Sequence[Tensor]) -> list[Tensor]:
    branches = eqn.params["branches"]
    platforms = eqn.params.get("branches_platforms")
    if platforms is not None and _everywhere(platforms) is None:
        raise _NotReadable
    if args[0].is_constant or platforms is not None:  # known already: no branch is left
        at = _everywhere(platforms or ())
        if at is None:
            at = min(max(int(args[0].constant), 0), len(branches) - 1)
        constants = [reader.constant(c) for c in branches[at].consts]
        return reader.run(branches[at].jaxpr, constants, args[1:])
    consts = _Consts(reader)
    fixed = consts.places(args[1:])
    bodies = [_body(reader, b, fixed, consts.types(), []) for b in branches]
    index = reader.ctx.materialise(args[0])
    return ControlMaker(COND).node(reader.ctx, consts.nodes, [], bodies, (index,))


def _everywhere(platforms: Sequence[Any]) -> int | None:
    """The branch that every platform takes but kernels of Pallas, whose bodies no program holds."""
    elsewhere = [i for i, names in enumerate(platforms) if names != ("mosaic",)]
    return elsewhere[0] if len(elsewhere) == 1 and platforms[elsewhere[0]] is None else None


CONTROL: dict[str, Lower] = {"scan": _scan, "while": _while, "cond": _cond}


def _body(
    reader: Reader,
    closed: Any,
    fixed: Sequence[Tensor | int],
    consts: Sequence[TensorType],
    rest: Sequence[TensorType],
) -> BodyRead:
    """A body of a jaxpr; `_NotReadable` if no program can hold it."""
    child = reader.child("body")
    inputs = [child.input(t, f"const{i}") for i, t in enumerate(consts)]
    changing = [child.input(t, f"state{i}") for i, t in enumerate(rest)]
    given = [v if isinstance(v, Tensor) else inputs[v] for v in fixed]
    try:
        held = [child.constant(c) for c in closed.consts]
        outputs = child.run(closed.jaxpr, held, [*given, *changing])
        results = [child.ctx.materialise(v) for v in outputs]
    except EqsatError as error:
        if error.diagnostics[0].code in ("E302", "E323"):
            raise _NotReadable from error
        raise
    if child.captured:
        raise _NotReadable
    return BodyRead(child.ctx, len(consts), prune(child.ctx.builder.build(results)))


@dataclass(frozen=True)
class BodyRead:
    """One body, read; `program` has its consts first, and may still hold weights."""

    ctx: Context
    consts: int
    program: Program

    @property
    def leaves(self) -> dict[str, Leaf]:
        """The weights it holds, by key."""
        leaves = map(self.program.leaf, self.program.weights)
        return {leaf.key: leaf for leaf in leaves}

    def closed(self, types: dict[str, TensorType]) -> Program:
        """The body with these weights (content key → type) as consts behind its own."""
        b = Builder(self.program.name)
        number = {key: self.consts + i for i, key in enumerate(types)}
        new: dict[int, int] = {}
        held = {
            key: b.append("input", (), Leaf(f"weight{number[key]}", t, index=number[key]))
            for key, t in types.items()
        }
        for i, n in b.following(self.program, new):
            if isinstance(n.attr, Leaf) and n.op == "weight":
                new[i] = held[n.attr.key]
            elif isinstance(n.attr, Leaf):
                behind = len(types) if n.attr.index >= self.consts else 0
                new[i] = b.append(n.op, (), replace(n.attr, index=n.attr.index + behind))
            else:
                new[i] = b.add(n.op, tuple(new[o] for o in n.operands), n.attr)
        return b.build([new[r] for r in self.program.results])


def leaf_outside(ctx: Context, body: BodyRead, leaf: Leaf) -> int:
    """The weight of a body, outside of it; one of which only the name is known has no array."""
    if leaf.key in body.ctx.weights:
        return ctx.weight(body.ctx.weights[leaf.key], f"const{len(ctx.weights)}").node
    nodes = (i for i, n in enumerate(ctx.builder.nodes) if getattr(n.attr, "key", "") == leaf.key)
    node = next(nodes, None)
    return ctx.weight_leaf(leaf.type, leaf.key, leaf.name).node if node is None else node


@dataclass(frozen=True)
class ControlMaker:
    """The op of a loop or branch, beside its bodies and operands."""

    op: str
    carries: int = 0
    length: int = 0
    reverse: bool = False

    def node(
        self,
        ctx: Context,
        consts: Sequence[int],
        rest: Sequence[int],
        bodies: Sequence[BodyRead],
        index: tuple[int, ...] = (),
    ) -> list[Tensor]:
        """Add the op, and give its results."""
        weights = {k: leaf_outside(ctx, b, leaf) for b in bodies for k, leaf in b.leaves.items()}
        types = {key: ctx.builder.type(n) for key, n in weights.items()}
        programs = tuple(b.closed(types) for b in bodies)
        for b in bodies:
            ctx.opaque |= b.ctx.opaque
            ctx.custom_derivatives |= b.ctx.custom_derivatives
        count = len(consts) + len(weights)
        attr = Control(self.op, programs, count, self.carries, self.length, self.reverse)
        node = ctx.builder.add(self.op, (*index, *consts, *weights.values(), *rest), attr)
        if len(attr.result_types) == 1:
            return [ctx.full(node)]
        return [ctx.add("result", (node,), Result(i)) for i in range(len(attr.result_types))]
