"""What a traced JAX value is here: a scalar, or a node seen through an indexing map."""

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
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.generic import Yield
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.movement import Reshape
from eqsat.model.precision import NONE
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType, is_float
from eqsat.ops.generics.canonical import (
    PlannedNest,
    compose_maps,
    generic_node,
    identity,
    order_of,
    planned_nest,
)
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.iotas import weight_key
from eqsat.ops.meaning.programs import DTYPE_NAMES, element_dtype


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
    """What `Context.elementwise` makes of constants and of reads of nodes in this order."""
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
