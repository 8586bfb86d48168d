"""Traced JAX values: each a scalar, or a node seen through an indexing map.

Movement of values is a view where a map can say it, and a node where it cannot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from eqsat.model.affine import Affine, Map, affine, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.diag import fail
from eqsat.model.expr import Expr, arg, call, const, literal
from eqsat.model.generic import Yield
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Builder
from eqsat.model.tensor import NONE, TensorType, is_float
from eqsat.ops.generics.canonical import (
    PlannedNest,
    compose_maps,
    generic_node,
    identity,
    order_of,
    planned_nest,
)
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.elements import DTYPE_NAMES, element_dtype
from eqsat.ops.meaning.programs import weight_key
from eqsat.ops.registry import op_record


@dataclass(frozen=True)
class Tensor:
    """A tensor of `shape`: element i is node[map(i)], or `constant` everywhere if node is -1.

    Broadcasts, squeezes and reversals stay maps; a consumer composes them into its own.
    """

    shape: Shape
    dtype: str
    node: int = -1
    map: Map = ()
    constant: bool | int | float = 0

    @property
    def is_constant(self) -> bool:
        return self.node < 0


@dataclass
class Context:
    """The program being built, and the arrays and kept calls that travel beside it."""

    builder: Builder
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    opaque: dict[str, Any] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    custom_derivatives: bool = False

    def full(self, node: int) -> Tensor:
        """A node as it is."""
        t = self.builder.type(node)
        return Tensor(t.shape, t.dtype, node, identity(t.rank))

    def add(self, op: str, operands: Sequence[int], attr: Attr) -> Tensor:
        return self.full(self.builder.add(op, tuple(operands), attr))

    def name(self, wanted: str) -> str:
        """An identifier no leaf has yet."""
        plain = re.sub(r"\W+", "_", wanted).strip("_") or "x"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        unique, n = plain, 1
        while unique in self.names:
            n += 1
            unique = f"{plain}_{n}"
        self.names.add(unique)
        return unique

    def weight(self, array: Any, name: str) -> Tensor:
        """A weight leaf for a concrete array; equal arrays are one leaf."""
        value = np.asarray(array)
        key = weight_key(value)
        if key not in self.weights:
            self.weights[key] = value
            return self.weight_leaf(tensor_type(value, name), key, name)
        node = next(
            i
            for i, n in enumerate(self.builder.nodes)
            if isinstance(n.attr, Leaf) and n.attr.key == key
        )
        return self.full(node)

    def weight_leaf(self, t: TensorType, key: str, name: str) -> Tensor:
        return self.add("weight", (), Leaf(self.name(name), t, key=key))

    def materialise(self, value: Tensor) -> int:
        """The node that holds this value as a tensor of its own."""
        if value.is_constant:
            t = TensorType(value.dtype, value.shape)
            return self.builder.add("fill", (), Fill(value.constant, t))
        source = self.builder.type(value.node).shape
        if value.map == identity(len(value.shape)) and source == value.shape:
            return value.node
        if _only_unit_dims_differ(value, source):
            return self.builder.add("reshape", (value.node,), Reshape(source, value.shape))
        loops = range(len(value.shape))
        copy = Yield(arg(0), value.dtype)
        return self.generic(value.shape, loops, [(value, identity(len(loops)))], copy).node

    def generic(
        self,
        sizes: Sequence[int],
        result_loops: Sequence[int],
        operands: Sequence[tuple[Tensor, Sequence[Affine]]],
        result: Yield,
        precision: str = NONE,
    ) -> Tensor:
        """A loop nest over values; operand i's dims are indexed by the expressions beside it.

        precision: what the source says of this op, if it is a contraction there.
        """
        consts = {i: const(v.constant) for i, (v, _) in enumerate(operands) if v.is_constant}
        if len(consts) == len(operands) and result.combine:
            # a reduction needs something to read: the loops of a constant have no operand
            operands = [(self.full(self.materialise(v)), m) for v, m in operands]
            consts = {}
        operand_numbers = [i for i in range(len(operands)) if i not in consts]
        number = {i: arg(j) for j, i in enumerate(operand_numbers)}
        used = [
            (operands[i][0].node, compose_maps(operands[i][0].map, operands[i][1]))
            for i in operand_numbers
        ]
        yields = [replace(result, body=result.body.substitute(consts | number))]
        return self.full(
            generic_node(self.builder, sizes, result_loops, used, yields, precision=precision)
        )

    def elementwise(self, body: Expr, values: Sequence[Tensor], shape: Shape, dtype: str) -> Tensor:
        """One body over values of one shape; scalars and dims of extent 1 broadcast."""
        nodes = [v.node for v in values if v.node >= 0]
        if not nodes:
            return Tensor(shape, dtype, constant=fold(body, values, dtype))
        same = _chosen(body, values)
        if same is not None and same.shape == shape and same.dtype == dtype:
            return same
        type_of = self.builder.type
        reads = tuple(
            [const(v.constant) if v.node < 0 else (v.shape, v.map, type_of(v.node)) for v in values]
        )
        nest = _elementwise(body, shape, dtype, reads, order_of(nodes))
        return self.full(nest.node(self.builder, nodes))


_Read = tuple[Shape, Map, TensorType]  # of a value: its shape, its map, the type of its node


@lru_cache(maxsize=5_000)  # most equations of a program repeat another on other nodes
def _elementwise(
    body: Expr, shape: Shape, dtype: str, reads: tuple[Expr | _Read, ...], order: tuple[int, ...]
) -> PlannedNest:
    """The generic that `Context.elementwise` makes of constants and reads in this order."""
    new: dict[int, Expr] = {}
    maps, types = [], []
    for i, read in enumerate(reads):
        if isinstance(read, Expr):
            new[i] = read
            continue
        seen, inner, of = read
        new[i] = arg(len(maps))
        outer = [dim(d) if s == shape[d] else affine([]) for d, s in enumerate(seen)]
        maps.append(compose_maps(inner, outer))
        types.append(of)
    result = Yield(body.substitute(new), dtype)
    loops = tuple(range(len(shape)))
    return planned_nest(shape, loops, tuple(maps), tuple(types), order, (result,), NONE)


def _chosen(body: Expr, values: Sequence[Tensor]) -> Tensor | None:
    """The operand this body only hands on: `select` by a constant, `max` with -inf, `min` with inf.

    JAX's own variance and softmax are full of them.
    """
    if body.fn not in ("select", "max", "min"):
        return None
    consts = [v.constant if v.is_constant else None for v in values]
    if body == call("select", arg(0), arg(2), arg(1)) and consts[0] is not None:
        return values[2 if consts[0] else 1]
    bound = {"max": -math.inf, "min": math.inf}.get(body.fn)
    if bound is None or body != call(body.fn, arg(0), arg(1)) or bound not in consts:
        return None
    return values[1 - consts.index(bound)]


def _only_unit_dims_differ(value: Tensor, source: Shape) -> bool:
    """Whether the view keeps every element in its place, extent-1 dims aside."""
    dims = [e.dim for e in value.map if e.terms]
    if any(e.constant for e in value.map) or None in dims:
        return False
    sources = [d for d in dims if d is not None]
    return sources == sorted(set(sources)) and math.prod(source) == math.prod(value.shape)


def fold(body: Expr, values: Sequence[Tensor], dtype: str) -> bool | int | float:
    """The body of constants, rounded to the element type as JAX would."""
    held = [np.asarray(v.constant, scalar.held_dtype(v.dtype)) for v in values]
    return round_to(scalar.evaluate_body(body, held), dtype)


def round_to(value: Any, dtype: str) -> bool | int | float:
    """A Python scalar that this element type can hold."""
    with np.errstate(all="ignore"):
        if is_float(dtype):
            return float(np.asarray(value, np.float64).astype(element_dtype(dtype)))
        return scalar.hold(value, dtype).item()


@cache
def dtype_name(dtype: Any) -> str | None:
    """Our name of a NumPy or JAX dtype, None if we have none (complex, PRNG keys, tokens)."""
    return DTYPE_NAMES.get(str(dtype))


def tensor_type(aval: Any, what: str) -> TensorType:
    """The type of anything with shape and dtype; EqsatError E302 for a type without a name."""
    name = dtype_name(aval.dtype)
    if name is None:
        raise fail(
            "E302",
            f"`{what}` has element type {aval.dtype}, which programs cannot hold",
            help="pass real numbers, integers or bools; make PRNG keys inside the function or "
            "pass them as arguments, and return `jax.random.key_data(key)`",
        )
    return TensorType(name, tuple(int(d) for d in aval.shape))


Edges = tuple[int, int, int]  # low, high, interior, as `lax.pad` has them


def view(value: Tensor, shape: Shape, outer: Sequence[Affine]) -> Tensor:
    """Element i of the result is `value[outer(i)]`."""
    if value.is_constant:
        return Tensor(shape, value.dtype, constant=value.constant)
    return Tensor(shape, value.dtype, value.node, compose_maps(value.map, outer))


def reshaped(ctx: Context, x: Tensor, shape: Shape) -> Tensor:
    """Row-major collapse and expand; only a view if extent-1 dims come and go."""
    if shape == x.shape:
        return x
    wide = [i for i, s in enumerate(x.shape) if s != 1]
    places = [i for i, s in enumerate(shape) if s != 1]
    if x.is_constant or [x.shape[i] for i in wide] == [shape[i] for i in places]:
        at = dict(zip(wide, places, strict=False))
        outer = [dim(at[i]) if i in at else affine([]) for i in range(len(x.shape))]
        return view(x, shape, outer)
    node = ctx.materialise(x)
    return ctx.add("reshape", (node,), Reshape(x.shape, shape))


def recorded(ctx: Context, op: str, *xs: Tensor, **values: object) -> Tensor:
    """An op whose attribute is what its record makes of these values."""
    attr = op_record(op).attribute([x.shape for x in xs], values)
    return ctx.add(op, [ctx.materialise(x) for x in xs], attr)


def transposed(ctx: Context, x: Tensor, perm: Sequence[int]) -> Tensor:
    """Result dim i is dim perm[i] of x."""
    perm = tuple(perm)
    if perm == tuple(range(len(perm))):
        return x
    shape = tuple(x.shape[p] for p in perm)
    moved = [p for p in perm if x.shape[p] != 1]
    if x.is_constant or moved == sorted(moved):  # only extent-1 dims move
        return view(x, shape, [dim(perm.index(i)) for i in range(len(perm))])
    return ctx.add("transpose", (ctx.materialise(x),), Transpose(x.shape, perm))


def sliced(
    ctx: Context, x: Tensor, start: Shape, limit: Shape, stride: Shape | None = None
) -> Tensor:
    """x[start:limit:stride] in every dim."""
    steps = stride or (1,) * len(start)
    shape = tuple(-(-(b - a) // k) for a, b, k in zip(start, limit, steps, strict=True))
    if x.is_constant:
        return Tensor(shape, x.dtype, constant=x.constant)
    if shape == x.shape:
        return x
    move = Move("slice", (x.shape,), (tuple(start), tuple(limit), tuple(steps)), shape)
    return ctx.add("slice", (ctx.materialise(x),), move)


def sliced_along(ctx: Context, x: Tensor, axis: int, start: int, limit: int) -> Tensor:
    """x[start:limit] in one dim."""
    low = tuple(start if d == axis else 0 for d in range(len(x.shape)))
    high = tuple(limit if d == axis else s for d, s in enumerate(x.shape))
    return sliced(ctx, x, low, high)


def concatenated(ctx: Context, xs: Sequence[Tensor], axis: int) -> Tensor:
    """Values side by side in one dim; empty ones are left out."""
    some = [x for x in xs if x.shape[axis]] or [xs[0]]
    if len(some) == 1:
        return some[0]
    first = some[0].shape
    shape = (*first[:axis], sum(x.shape[axis] for x in some), *first[axis + 1 :])
    nodes = [ctx.materialise(x) for x in some]
    return ctx.add("concat", nodes, Move("concat", tuple(x.shape for x in some), (axis,), shape))


def padded(ctx: Context, x: Tensor, edges: Sequence[Edges], value: bool | int | float) -> Tensor:
    """`lax.pad` with a constant: edges per dim, negative ones cut off, interior ones spread out."""
    x, around = _spread(ctx, x, edges, value)
    start = tuple(max(-low, 0) for low, _ in around)
    limit = tuple(s - max(-high, 0) for s, (_, high) in zip(x.shape, around, strict=True))
    if all(0 <= a <= b for a, b in zip(start, limit, strict=True)):
        return _grown(ctx, sliced(ctx, x, start, limit), around, value)
    # more is cut off on one side than there is: what the other side adds comes first
    grown = _grown(ctx, x, around, value)
    ends = [s - max(-high, 0) for s, (_, high) in zip(grown.shape, around, strict=True)]
    return sliced(ctx, grown, start, tuple(max(a, b) for a, b in zip(start, ends, strict=True)))


def _grown(
    ctx: Context, x: Tensor, around: Sequence[tuple[int, int]], value: bool | int | float
) -> Tensor:
    low, high = (tuple(max(e[i], 0) for e in around) for i in (0, 1))
    if not any(low) and not any(high):
        return x
    shape = tuple(s + a + b for s, a, b in zip(x.shape, low, high, strict=True))
    fitting = float(value) if is_float(x.dtype) else value
    move = Move("pad", (x.shape,), (low, high, literal(fitting)), shape)
    return ctx.add("pad", (ctx.materialise(x),), move)


def _spread(
    ctx: Context, x: Tensor, edges: Sequence[Edges], value: bool | int | float
) -> tuple[Tensor, list[tuple[int, int]]]:
    """x with its elements apart, and the edges that remain.

    A dim of extent s becomes s x 1, is padded to s x (1 + interior) and collapsed, which leaves
    `interior` elements too many at the end.
    """
    inner = [k if s else 0 for s, (_, _, k) in zip(x.shape, edges, strict=True)]
    around = [(low, high - k) for (low, high, _), k in zip(edges, inner, strict=True)]
    if not any(inner):
        return x, around
    split: list[int] = []
    ends: list[tuple[int, int]] = []
    for s, k in zip(x.shape, inner, strict=True):
        split += [s, 1] if k else [s]
        ends += [(0, 0), (0, k)] if k else [(0, 0)]
    apart = _grown(ctx, reshaped(ctx, x, tuple(split)), ends, value)
    whole = tuple(s * (k + 1) for s, k in zip(x.shape, inner, strict=True))
    return reshaped(ctx, apart, whole), around
