"""Program → Program: while loops that count from a constant to a constant know how often they run.

JAX's `fori_loop` under a trip count of its own, ONNX `Loop` with a constant one, and loops written
so by hand are all a counter in the state, a condition that compares it, and a body that adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.model.control import WHILE, Control
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.program import Node, Program
from eqsat.model.tensor import TensorType

LONGEST = 64  # operations of a scalar that is followed
RANGES = {"i8": 7, "u8": 8, "i16": 15, "u16": 16, "i32": 31, "u32": 32, "i64": 63, "u64": 64}
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True)
class _Linear:
    """Carry `of` plus `offset`; a constant if `of` is None."""

    of: int | None
    offset: int


@dataclass(frozen=True)
class _All:
    """A condition: all of these comparisons `carry op bound` hold, and so do these flags."""

    comparisons: tuple[tuple[int, str, int], ...] = ()
    flags: frozenset[int] = frozenset()
    holds: bool = True


_KnownScalar = _Linear | _All


def with_trips(program: Program) -> Program:
    """The program with `Control.trips` set on the while loops whose count is known."""
    nodes = tuple(_counted(program, n) for n in program.nodes)
    if all(a is b for a, b in zip(nodes, program.nodes, strict=True)):
        return program
    return replace(program, nodes=nodes)


def _counted(program: Program, n: Node) -> Node:
    attr = n.attr
    if not isinstance(attr, Control) or attr.op != WHILE or not attr.programs:
        return n
    if attr.trips is not None:
        return n
    constants = [_constant(program.nodes[o]) for o in n.operands]
    trips = _trips(attr, constants)
    return n if trips is None else replace(n, attr=replace(attr, trips=trips))


def _constant(n: Node) -> bool | int | None:
    """The value of a scalar constant; None for everything else."""
    fill = n.attr
    if isinstance(fill, Fill) and not fill.type.shape and isinstance(fill.value, bool | int):
        return fill.value
    return None


def _trips(attr: Control, constants: Sequence[bool | int | None]) -> int | None:
    """How often the body runs: the first comparison that fails ends it."""
    condition, body = attr.programs
    asked = _Scalars(condition, attr, constants).value(condition.results[0])
    if not isinstance(asked, _All):
        return None
    if not asked.holds:
        return 0
    step = _Scalars(body, attr, constants)
    start = constants[attr.consts :]
    if not all(start[k] is True and _stays(step, body, k) for k in asked.flags):
        return None
    counts = [
        _steps(start[k], op, bound, step.value(body.results[k]), k, body.nodes[body.results[k]])
        for k, op, bound in asked.comparisons
    ]
    if not counts or None in counts:
        return None
    return min(f for f in counts if f is not None)


def _stays(step: _Scalars, body: Program, k: int) -> bool:
    """Whether a flag that holds still holds after a step."""
    after = step.value(body.results[k])
    return isinstance(after, _All) and after.holds and not after.comparisons and after.flags <= {k}


def _steps(
    start: bool | int | None, op: str, bound: int, after: _KnownScalar | None, k: int, node: Node
) -> int | None:
    """Steps of `for (i = start; i op bound; i += step)`; None if it ends otherwise or never."""
    if start is None or isinstance(start, bool) or not isinstance(after, _Linear) or after.of != k:
        return None
    sign = {"lt": 1, "le": 1, "gt": -1, "ge": -1}.get(op)
    if sign is None:
        return None
    distance = sign * (bound - start) + (op in ("le", "ge"))
    step = sign * after.offset
    if distance <= 0:
        return 0
    if step <= 0:
        return None
    steps = -(-distance // step)
    # a counter that wraps round ends otherwise
    return steps if start + steps * after.offset in _range(node.type.dtype) else None


def _range(dtype: str) -> range:
    """The values of an integer type."""
    bits = RANGES.get(dtype, 0)
    return range(0 if dtype.startswith("u") else -(1 << bits), 1 << bits)


class _Scalars:
    """Scalars of a condition or body in terms of the loop's state."""

    def __init__(self, program: Program, attr: Control, constants: Sequence[bool | int | None]):
        self.program, self.attr, self.constants = program, attr, constants
        self.values: dict[int, _KnownScalar | None] = {}

    def value(self, node: int, depth: int = 0) -> _KnownScalar | None:
        """The value of a node; None if it is nothing that is followed here."""
        if depth > LONGEST:
            return None
        if node not in self.values:
            self.values[node] = self._value(node, depth)
        return self.values[node]

    def _value(self, node: int, depth: int) -> _KnownScalar | None:
        n = self.program.nodes[node]
        if len(n.types) != 1 or n.type.shape:
            return None
        if isinstance(n.attr, Leaf) and n.op == "input":
            return self._input(n.attr.index, n.type)
        if isinstance(n.attr, Fill):
            return _literal(n.attr.value)
        if isinstance(n.attr, Generic) and len(n.attr.yields) == 1 and not n.attr.combine:
            y = n.attr.yields[0]
            if y.body.count() > LONGEST:
                return None
            read = {i: self.value(o, depth + 1) for i, o in enumerate(n.operands)}
            return _followed(y.body, read, n.type, {})
        return None

    def _input(self, index: int, t: TensorType) -> _KnownScalar | None:
        k = index - self.attr.consts
        if k < 0:
            return _literal(self.constants[index])
        if t.dtype == "bool":
            return _All(flags=frozenset({k}))
        return _Linear(k, 0) if t.dtype in RANGES else None


def _literal(value: object) -> _KnownScalar | None:
    if isinstance(value, bool):
        return _All(holds=value)
    return _Linear(None, value) if isinstance(value, int) else None


def _followed(
    e: Expr,
    read: Mapping[int, _KnownScalar | None],
    t: TensorType,
    memo: dict[Expr, _KnownScalar | None],
) -> _KnownScalar | None:
    """The value of a scalar expression over known operands; each part once, in `memo`."""
    if e not in memo:
        memo[e] = _followed_once(e, read, t, memo)
    return memo[e]


def _followed_once(
    e: Expr,
    read: Mapping[int, _KnownScalar | None],
    t: TensorType,
    memo: dict[Expr, _KnownScalar | None],
) -> _KnownScalar | None:
    if e.fn == "arg":
        return read.get(e.value)
    if e.fn == "const":
        value = e.value
        whole = isinstance(value, float) and value.is_integer() and t.dtype in RANGES
        return _literal(int(value) if whole else value)
    args = [_followed(a, read, t, memo) for a in e.args]
    if e.fn == "cast" and e.value in ("i32", "i64"):
        return args[0] if isinstance(args[0], _Linear) and args[0].of is None else None
    if len(args) != 2:
        return None
    a, b = args
    if isinstance(a, _Linear) and isinstance(b, _Linear):
        return _arithmetic(e.fn, a, b)
    if isinstance(a, _All) and isinstance(b, _All) and e.fn in ("and", "mul", "min"):
        together = _All(a.comparisons + b.comparisons, a.flags | b.flags)
        return together if a.holds and b.holds else _All(holds=False)
    return None


def _arithmetic(fn: str, a: _Linear, b: _Linear) -> _KnownScalar | None:
    if fn == "add" and (a.of is None or b.of is None):
        return _Linear(a.of if b.of is None else b.of, a.offset + b.offset)
    if fn == "sub" and b.of is None:
        return _Linear(a.of, a.offset - b.offset)
    if fn not in MIRRORED or (a.of is None) == (b.of is None):
        return None
    if a.of is None:
        a, b, fn = b, a, MIRRORED[fn]
    assert a.of is not None
    return _All(((a.of, fn, b.offset - a.offset),))
