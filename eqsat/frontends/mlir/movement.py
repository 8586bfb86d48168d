"""`tensor` ops and `linalg.pack` / `linalg.unpack` → movement, views and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eqsat.frontends.mlir.expressions import BodyReader
from eqsat.frontends.mlir.items import (
    DYNAMIC,
    Environment,
    Handler,
    Item,
    Undefined,
    numbers,
    segments,
)
from eqsat.frontends.mlir.structured import generic
from eqsat.frontends.values import Tensor, concatenated, padded, reshaped, sliced, view
from eqsat.model.affine import affine, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import arg, call, literal
from eqsat.model.generic import Yield
from eqsat.model.layout import Layout
from eqsat.model.tensor import is_float
from eqsat.ops.generics.canonical import identity


def empty(scope: Environment, op: Any) -> list[Item]:
    dims, dtype = scope.type(op.results[0], op)
    sizes = scope.mixed([DYNAMIC if d is None else d for d in dims], list(op.operands), op)
    if any(s < 0 for s in sizes):
        raise scope.fail("E376", f"`{op.name}` of a negative size", op)
    return [Undefined(tuple(sizes), dtype)]


def splat(scope: Environment, op: Any) -> list[Item]:
    dims, _ = scope.type(op.results[0], op)
    first, *dynamic = op.operands
    shape = tuple(scope.mixed([DYNAMIC if d is None else d for d in dims], dynamic, op))
    return [view(scope.tensor(first, op), shape, [])]


def from_elements(scope: Environment, op: Any) -> list[Item]:
    """Scalars in row-major order."""
    dims, dtype = scope.type(op.results[0], op)
    shape = tuple(d for d in dims if d is not None)
    values = [scope.tensor(v, op) for v in op.operands]
    if len({(v.node, v.map, repr(v.constant)) for v in values}) == 1:
        return [view(values[0], shape, [])]
    if all(v.is_constant for v in values):
        return [scope.ctx.weight(_listed(values, dtype).reshape(shape), "elements")]
    pieces = [view(v, (1,), []) for v in values]
    return [reshaped(scope.ctx, concatenated(scope.ctx, pieces, 0), shape)]


def _listed(values: Sequence[Tensor], dtype: str) -> Any:
    import numpy as np

    from eqsat.ops.meaning.programs import element_dtype

    return np.array([v.constant for v in values]).astype(element_dtype(dtype))


def size_of(scope: Environment, op: Any) -> list[Item]:
    """`tensor.dim`."""
    source, where = op.operands
    shape, at = scope.shaped(source, op).shape, scope.index(where, op)
    if not 0 <= at < len(shape):
        raise scope.fail("E376", f"`tensor.dim` {at} of a tensor of rank {len(shape)}", op)
    return [shape[at]]


def handed_on(scope: Environment, op: Any) -> list[Item]:
    """Ops that only say something of their operand: casts of the type, transfers, barriers."""
    item = scope.item(op.operands[0], op)
    if isinstance(item, Tensor | Undefined):
        dims, dtype = scope.type(op.results[0], op)
        _check_shape(scope, op, item.shape, dims)
        if item.dtype != dtype:
            raise scope.fail("E375", f"`{op.name}` from {item.dtype} to {dtype}", op)
    return [item]


def _check_shape(scope: Environment, op: Any, shape: Shape, dims: Sequence[int | None]) -> None:
    fits = len(shape) == len(dims) and all(
        d is None or d == s or type(s) is not int for s, d in zip(shape, dims, strict=True)
    )
    if not fits:
        wanted = [d if d is not None else "?" for d in dims]
        raise scope.fail("E376", f"`{op.name}` of shape {list(shape)}, its type is {wanted}", op)


def reshape(scope: Environment, op: Any) -> list[Item]:
    """Collapse and expand: the elements in order; at most one size follows from the others."""
    x = scope.shaped(op.operands[0], op)
    dims, _ = scope.type(op.results[0], op)
    shape = _resolved(scope, op, x.shape, dims)
    if math.prod(shape) != math.prod(x.shape):
        raise scope.fail("E376", f"`{op.name}` of {list(x.shape)} to {list(shape)}", op)
    if isinstance(x, Undefined):
        return [Undefined(shape, x.dtype)]
    return [reshaped(scope.ctx, x, shape)]


def _resolved(scope: Environment, op: Any, source: Shape, dims: Sequence[int | None]) -> Shape:
    """The result's shape: written sizes, sizes of operands, and per group what is left."""
    if "static_output_shape" in op.attributes:
        return tuple(scope.mixed(numbers(op, "static_output_shape"), list(op.operands)[1:], op))
    if "reassociation" in op.attributes and len(dims) <= len(source):
        groups = [[int(i.value) for i in g] for g in op.attributes["reassociation"]]
        return tuple(math.prod(source[i] for i in g) for g in groups)
    product = math.prod(d for d in dims if d is not None)
    if sum(d is None for d in dims) > 1 or not product:
        raise scope.fail("E376", f"the result shape of `{op.name}` is not known", op)
    rest = math.prod(source) // product
    return tuple(rest if d is None else d for d in dims)


def concat(scope: Environment, op: Any) -> list[Item]:
    pieces = [scope.tensor(v, op) for v in op.operands]
    return [concatenated(scope.ctx, pieces, int(op.attributes["dim"].value))]


# ---- slices --------------------------------------------------------------------------------------
def _window(scope: Environment, op: Any, lists: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Offsets, sizes and strides."""
    names = ("static_offsets", "static_sizes", "static_strides")
    return [
        scope.mixed(numbers(op, n), dynamic, op) for n, dynamic in zip(names, lists, strict=True)
    ]


def extract_slice(scope: Environment, op: Any) -> list[Item]:
    (source,), *lists = segments(op)
    x = scope.shaped(source, op)
    offsets, sizes, strides = _window(scope, op, lists[-3:])
    dims, _ = scope.type(op.results[0], op)
    shape = _reduced(scope, op, tuple(sizes), dims)
    if isinstance(x, Undefined):
        return [Undefined(shape, x.dtype)]
    return [reshaped(scope.ctx, window_of(scope, op, x, offsets, sizes, strides), shape)]


def _reduced(scope: Environment, op: Any, sizes: Shape, dims: Sequence[int | None]) -> Shape:
    """The sizes without the dims of extent 1 that a rank-reducing slice drops."""
    if len(dims) == len(sizes):
        return sizes
    reduced: list[int] = []
    for at, s in enumerate(sizes):
        left, room = len(sizes) - at - 1, len(dims) - len(reduced)
        fits = room > 0 and dims[len(reduced)] in (None, s)
        if fits and (s != 1 or left < room or dims[len(reduced)] == 1):
            reduced.append(s)
        elif s != 1:
            raise scope.fail("E376", f"`{op.name}` drops a dim of size {s}", op)
    if len(reduced) != len(dims):
        raise scope.fail("E376", f"`{op.name}` of {list(sizes)} has another rank", op)
    return tuple(reduced)


def window_of(
    scope: Environment, op: Any, x: Tensor, offsets: Sequence[int], sizes: Sequence[int],
    strides: Sequence[int],
) -> Tensor:  # fmt: skip
    """x at offset + stride · i; E376 if that is outside it."""
    for s, o, n, k in zip(x.shape, offsets, sizes, strides, strict=True):
        last = o + (n - 1) * k
        if o < 0 or n < 0 or k < 1 or (n and last >= s):
            raise scope.fail("E376", f"`{op.name}` reads {o} … {last} of a dim of size {s}", op)
    limits = tuple(
        o + (n - 1) * k + 1 if n else o for o, n, k in zip(offsets, sizes, strides, strict=True)
    )
    return sliced(scope.ctx, x, tuple(offsets), limits, tuple(strides))


def insert_slice(scope: Environment, op: Any) -> list[Item]:
    """A tensor in the middle of another: padded if the rest is one value, else pieced together."""
    (source,), (into,), *lists = segments(op)
    x, dest = scope.tensor(source, op), scope.shaped(into, op)
    offsets, sizes, strides = _window(scope, op, lists)
    if any(s != 1 for s in strides):
        raise scope.fail("E375", f"`{op.name}` with strides is not expressible", op)
    for s, o, n in zip(dest.shape, offsets, sizes, strict=True):
        if o < 0 or o + n > s:
            raise scope.fail("E376", f"`{op.name}` writes {o} … {o + n - 1} of {s}", op)
    x = reshaped(scope.ctx, x, tuple(sizes))
    if tuple(sizes) == dest.shape:
        return [x]
    # what nobody has written may hold anything: zeros
    whole = Tensor(dest.shape, dest.dtype, constant=_zero(dest)) if isinstance(
        dest, Undefined
    ) else dest  # fmt: skip
    high = [s - o - n for s, o, n in zip(whole.shape, offsets, sizes, strict=True)]
    if whole.is_constant:
        return [_around(scope, x, offsets, high, whole.constant)]
    return [_pieced(scope, op, x, whole, offsets, high)]


def _zero(x: Undefined | Tensor) -> bool | int | float:
    return 0.0 if is_float(x.dtype) else False if x.dtype == "bool" else 0


def _pieced(
    scope: Environment, op: Any, x: Tensor, whole: Tensor, low: Sequence[int], high: Sequence[int]
) -> Tensor:
    """Dim by dim: what is before, the tensor, what is after."""
    for axis in reversed(range(len(whole.shape))):
        if not low[axis] and not high[axis]:
            continue
        offsets = [low[d] if d < axis else 0 for d in range(len(low))]
        sizes = [*x.shape[:axis], *whole.shape[axis:]]
        ones = [1] * len(sizes)
        sizes[axis] = low[axis]
        before = window_of(scope, op, whole, offsets, sizes, ones)
        offsets[axis], sizes[axis] = whole.shape[axis] - high[axis], high[axis]
        after = window_of(scope, op, whole, offsets, sizes, ones)
        x = concatenated(scope.ctx, [before, x, after], axis)
    return x


# ---- padding -------------------------------------------------------------------------------------
def pad(scope: Environment, op: Any) -> list[Item]:
    (source,), lows, highs = segments(op)
    x = scope.tensor(source, op)
    low = scope.mixed(numbers(op, "static_low"), lows, op)
    high = scope.mixed(numbers(op, "static_high"), highs, op)
    if any(v < 0 for v in (*low, *high)):
        raise scope.fail("E376", f"`{op.name}` by a negative amount", op)
    block = op.regions[0].blocks[0]
    body = BodyReader(scope, [], [])
    (value,) = body.read(block)
    if value.fn == "const":
        return [_around(scope, x, low, high, value.value)]
    if value.fn != "arg" or body.operands[value.value][0].shape:
        raise scope.fail("E375", f"`{op.name}` by values that differ is not expressible", op)
    return [_padded_by(scope, x, low, high, body.operands[value.value][0])]


def _around(
    scope: Environment,
    x: Tensor,
    low: Sequence[int],
    high: Sequence[int],
    value: bool | int | float,
) -> Tensor:
    """x with this constant around it."""
    if x.is_constant and x.constant == value:
        shape = tuple(s + a + b for s, a, b in zip(x.shape, low, high, strict=True))
        return Tensor(shape, x.dtype, constant=x.constant)
    edges = [(a, b, 0) for a, b in zip(low, high, strict=True)]
    return padded(scope.ctx, x, edges, value)


def _padded_by(
    scope: Environment, x: Tensor, low: Sequence[int], high: Sequence[int], value: Tensor
) -> Tensor:
    """x with a computed scalar around it: chosen by a mask that is padded as x is."""
    wide = _around(scope, x, low, high, _zero(x))
    inside = scope.ctx.full(scope.ctx.materialise(Tensor(x.shape, "bool", constant=True)))
    mask = _around(scope, inside, low, high, False)
    operands = [
        (mask, identity(len(wide.shape))), (wide, identity(len(wide.shape))), (value, []),
    ]  # fmt: skip
    chosen = Yield(call("select", arg(0), arg(1), arg(2)), x.dtype)
    return scope.ctx.generic(wide.shape, range(len(wide.shape)), operands, chosen)


# ---- packs ---------------------------------------------------------------------------------------
def _layout(
    scope: Environment, op: Any, source: Shape, dynamic: Sequence[Any], padding: str
) -> Layout:
    pos = tuple(numbers(op, "inner_dims_pos"))
    tiles = tuple(scope.mixed(numbers(op, "static_inner_tiles"), dynamic, op))
    outer = tuple(numbers(op, "outer_dims_perm")) or tuple(range(len(source)))
    if any(not 0 <= p < len(source) for p in pos) or any(t < 1 for t in tiles):
        raise scope.fail("E376", f"`{op.name}` tiles a dim that is not there", op)
    pads = tuple("-" if source[p] % t == 0 else padding for p, t in zip(pos, tiles, strict=True))
    return Layout(source, pos, tiles, outer, pads)


def pack(scope: Environment, op: Any) -> list[Item]:
    """MLIR pads with a scalar; without one, tiles that do not divide hold anything."""
    (source,), _, values, tiles = segments(op)
    x = scope.tensor(source, op)
    padding = "?"
    if values:
        held = scope.tensor(values[0], op)
        if not held.is_constant:
            raise scope.fail("E375", f"`{op.name}` pads by a value that is not constant", op)
        padding = "0" if held.constant == 0 else literal(held.constant)
    layout = _layout(scope, op, x.shape, tiles, padding)
    return [scope.ctx.add("pack", (scope.ctx.materialise(x),), layout)]


def unpack(scope: Environment, op: Any) -> list[Item]:
    """The shape is that of `into`; the layout is the pack's own where its operand is one."""
    source, into, *tiles = op.operands
    x, shape = scope.tensor(source, op), scope.shaped(into, op).shape
    layout = _layout(scope, op, shape, tiles, "?")
    node = scope.ctx.materialise(x)
    attr = scope.ctx.builder.nodes[node].attr
    if isinstance(attr, Layout) and _same_place(attr, layout):
        layout = attr
    return [scope.ctx.add("unpack", (node,), layout)]


def _same_place(a: Layout, b: Layout) -> bool:
    return (a.source, a.pos, a.tiles, a.outer) == (b.source, b.pos, b.tiles, b.outer)


# ---- elements ------------------------------------------------------------------------------------
def extract(scope: Environment, op: Any) -> list[Item]:
    """One element: a scalar seen through a constant map."""
    source, *places = op.operands
    x = scope.tensor(source, op)
    at = [scope.index(p, op) for p in places]
    if any(not 0 <= a < s for a, s in zip(at, x.shape, strict=True)):
        raise scope.fail("E376", f"`{op.name}` at {at} of a tensor of shape {list(x.shape)}", op)
    return [view(x, (), [affine([], a) for a in at])]


def generate(scope: Environment, op: Any) -> list[Item]:
    """`tensor.generate`: every element from its position."""
    dims, dtype = scope.type(op.results[0], op)
    shape = tuple(scope.mixed([DYNAMIC if d is None else d for d in dims], list(op.operands), op))
    block = op.regions[0].blocks[0]
    body = BodyReader(scope, shape, [])
    for i, argument in enumerate(block.arguments):
        body.terms[argument] = dim(i)
    (value,) = body.read(block)
    if value.fn == "const":
        return [Tensor(shape, dtype, constant=value.value)]
    return [scope.ctx.generic(shape, range(len(shape)), body.operands, Yield(value, dtype))]


TENSORS: dict[str, Handler] = {
    "tensor.empty": empty,
    "bufferization.alloc_tensor": empty,
    "tensor.splat": splat,
    "tensor.from_elements": from_elements,
    "tensor.dim": size_of,
    "tensor.cast": handed_on,
    "tensor.collapse_shape": reshape,
    "tensor.expand_shape": reshape,
    "tensor.reshape": reshape,
    "tensor.concat": concat,
    "tensor.extract_slice": extract_slice,
    "iree_tensor_ext.dispatch.tensor.load": extract_slice,
    "tensor.insert_slice": insert_slice,
    "tensor.pad": pad,
    "tensor.extract": extract,
    "tensor.generate": generate,
    "linalg.pack": pack,
    "linalg.unpack": unpack,
    "linalg.generic": generic,
}
