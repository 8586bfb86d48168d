"""Reads at computed places: gather and dynamic_slice.

Index arrays may be known while tracing: constants, and integer arithmetic on constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.frontends.values import Context, Tensor, reshaped, sliced, sliced_along, transposed, view
from eqsat.model.affine import affine, dim
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.program import Node
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.programs import element_dtype, evaluate_node
from eqsat.ops.meaning.scalar import held_dtype, integer_range
from eqsat.ops.movement.moves import gather_of

# ---- known index arrays --------------------------------------------------------------------------
LARGEST = 2**20  # elements of one array
DEEPEST = 32  # nodes between a constant and its use

Array = np.ndarray[Any, Any]
_FOLDED = frozenset({"generic", "transpose", "reshape", "pad", "slice", "concat", "gather", "fill"})


def constant_array(ctx: Context, value: Tensor) -> Array | None:
    """The array of an integer or bool value, None if it depends on an argument or is large."""
    if value.is_constant:
        return np.full(value.shape, value.constant, held_dtype(value.dtype))
    if math.prod(value.shape) > LARGEST or _evaluate(ctx, value.node, DEEPEST, {}) is None:
        return None
    return _evaluate(ctx, ctx.materialise(value), DEEPEST + 1, {})


def _evaluate(ctx: Context, node: int, depth: int, arrays: dict[int, Array | None]) -> Array | None:
    if node not in arrays:
        arrays[node] = _compute(ctx, node, depth, arrays) if depth else None
    return arrays[node]


def _compute(ctx: Context, node: int, depth: int, arrays: dict[int, Array | None]) -> Array | None:
    n = ctx.builder.nodes[node]
    if len(n.types) != 1 or is_float(n.type.dtype) or _work(n) > LARGEST:
        return None
    if n.op == "weight" and isinstance(n.attr, Leaf):
        array = ctx.weights.get(n.attr.key)
        return None if array is None else array.astype(held_dtype(n.type.dtype))
    if n.op not in _FOLDED:
        return None
    operands = []
    for o in n.operands:
        array = _evaluate(ctx, o, depth - 1, arrays)
        if array is None:
            return None
        operands.append(array)
    return evaluate_node(n.op, n.attr, operands)[0]


def _work(n: Node) -> int:
    """Elements that evaluating a node touches."""
    return max(n.type.size, math.prod(n.attr.sizes) if isinstance(n.attr, Generic) else 0)


def progression(line: Array) -> tuple[int, int] | None:
    """(first, step > 0) if these are equally spaced ascending numbers, else None."""
    if line.ndim != 1 or not line.size:
        return None
    steps = np.unique(np.diff(line.astype(np.int64)))
    if steps.size > 1 or (steps.size and steps[0] <= 0):
        return None
    return int(line[0]), int(steps[0]) if steps.size else 1


# ---- reads ---------------------------------------------------------------------------------------
MOST = 2**31 - 1  # elements that a merged index can count
Results = list[Tensor] | None


def line(ctx: Context, extent: int, dtype: str = "i32") -> Tensor:
    """0, 1, … extent - 1."""
    return ctx.weight(np.arange(extent).astype(element_dtype(dtype)), "iota")


def clamped(ctx: Context, index: Tensor, high: int) -> Tensor:
    """The index as i32 within 0 … high."""
    top = min(high, integer_range(index.dtype)[1])
    body = cast(call("clamp", const(0), arg(0), const(top)), "i32")
    return ctx.elementwise(body, [index], index.shape, "i32")


def taken(ctx: Context, x: Tensor, index: Tensor, axis: int) -> Tensor:
    """x with dim `axis` replaced by the dims of the index, which is clipped into range.

    Indices that are known and equally spaced make a slice.
    """
    size, rank = x.shape[axis], len(index.shape)
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    if x.is_constant:
        return Tensor(shape, x.dtype, constant=x.constant)
    indices = constant_array(ctx, index)
    if indices is None:
        move = gather_of(x.shape, index.shape, axis)
        return ctx.add("gather", (ctx.materialise(x), ctx.materialise(index)), move)
    at = np.clip(indices, 0, size - 1).astype(np.int32)
    spaced = progression(at.ravel()) if max(index.shape, default=1) == at.size else None
    if spaced is not None:
        return reshaped(ctx, _spaced(ctx, x, axis, at.size, *spaced), shape)
    if at.size and (at == at.flat[0]).all():
        one = sliced_along(ctx, x, axis, int(at.flat[0]), int(at.flat[0]) + 1)
        dims = range(len(shape))
        outer = [dim(d) for d in dims if not axis <= d < axis + rank]
        return view(one, shape, [*outer[:axis], affine([]), *outer[axis:]])
    move = gather_of(x.shape, index.shape, axis)
    return ctx.add("gather", (ctx.materialise(x), ctx.materialise(ctx.weight(at, "index"))), move)


def _spaced(ctx: Context, x: Tensor, axis: int, count: int, first: int, step: int) -> Tensor:
    start, limit, stride = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    start[axis], limit[axis], stride[axis] = first, first + (count - 1) * step + 1, step
    return sliced(ctx, x, tuple(start), tuple(limit), tuple(stride))


# ---- dynamic slices ----------------------------------------------------------------------------


def dynamic_slice(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> Results:
    """Starts are clamped so that the slice fits; known ones are plain slices and come first."""
    x, *starts = xs
    sizes = [int(v) for v in eqn.params["slice_sizes"]]
    room = [s - n for s, n in zip(x.shape, sizes, strict=True)]
    low, high, moving = [0] * len(sizes), list(x.shape), []
    for d, start in enumerate(starts):
        if start.is_constant:
            low[d] = min(max(int(start.constant), 0), room[d])
            high[d] = low[d] + sizes[d]
        elif room[d]:
            moving.append(d)
    x = sliced(ctx, x, tuple(low), tuple(high))
    for d in moving:
        x = taken(ctx, x, _places(ctx, starts[d], sizes[d], room[d]), d)
    return [x]


def _places(ctx: Context, start: Tensor, width: int, room: int) -> Tensor:
    """start, start + 1, … as a line of `width` indices, the start clamped to 0 … room."""
    if width == 1:
        return view(start, (1,), [])
    begin = view(clamped(ctx, start, room), (width,), [])
    body = call("add", arg(0), arg(1))
    return ctx.elementwise(body, [begin, line(ctx, width)], (width,), "i32")


def all_of(conditions: Sequence[Expr]) -> Expr:
    """Whether every condition holds."""
    conjunction, *rest = conditions
    for c in rest:
        conjunction = call("and", conjunction, c)
    return conjunction


# ---- gather ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Indexed:
    """One operand dim that is indexed: by which indices, and how many elements from there on."""

    dim: int
    index: Tensor  # of the shape of the batch dims
    width: int
    checked: bool  # the index is the caller's, so it may be out of range


def gather(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> Results:
    """Any `lax.gather` but one-hot mode; out of range reads as its mode says."""
    (x, indices), p = xs, eqn.params
    mode, widths = p["mode"].name, [int(w) for w in p["slice_sizes"]]
    dims = _indexed(ctx, p["dimension_numbers"], x, indices, widths)
    extents = [x.shape[i.dim] for i in dims]
    if mode == "ONE_HOT" or not dims or 0 in x.shape or math.prod(extents) > MOST:
        return None
    for d, width in enumerate(widths):
        if all(d != i.dim for i in dims):
            x = sliced_along(ctx, x, d, 0, width)
    batch = tuple(indices.shape[:-1])
    result = _arranged(ctx, p["dimension_numbers"], _read(ctx, x, dims, batch), dims, widths, batch)
    if mode == "FILL_OR_DROP":
        result = _filled(ctx, p, result, dims, extents)
    return [result]


def _indexed(
    ctx: Context, dn: Any, x: Tensor, indices: Tensor, widths: list[int]
) -> list[_Indexed]:
    """The indexed dims of x, ascending."""
    batch = tuple(indices.shape[:-1])
    around = [dim(b) for b in range(len(batch))]
    indexed = []
    for k, d in enumerate(dn.start_index_map):
        column = view(indices, batch, [*around, affine([], k)])
        indexed.append(_Indexed(int(d), column, widths[d], True))
    pairs = zip(dn.operand_batching_dims, dn.start_indices_batching_dims, strict=True)
    for d, b in pairs:
        rows = view(line(ctx, x.shape[d]), batch, [dim(int(b))])
        indexed.append(_Indexed(int(d), rows, 1, False))
    return sorted(indexed, key=lambda i: i.dim)


def _read(ctx: Context, x: Tensor, dims: list[_Indexed], batch: tuple[int, ...]) -> Tensor:
    """The indexed dims brought together as one, and that one replaced by batch and window dims."""
    at = [i.dim for i in dims]
    if at != list(range(at[0], at[0] + len(at))):
        x = transposed(ctx, x, [*at, *(d for d in range(len(x.shape)) if d not in at)])
        at = list(range(len(at)))
    extents = [x.shape[d] for d in at]
    merged = (*x.shape[: at[0]], math.prod(extents), *x.shape[at[-1] + 1 :])
    return taken(ctx, reshaped(ctx, x, merged), _flat_index(ctx, dims, extents, batch), at[0])


def _flat_index(
    ctx: Context, dims: list[_Indexed], extents: list[int], batch: tuple[int, ...]
) -> Tensor:
    """One index into the merged dim per batch and window position."""
    if len(dims) == 1 and dims[0].width == 1:
        return dims[0].index
    windows = [i.width for i in dims if i.width > 1]
    shape = (*batch, *windows)
    values, terms, w = [], [], len(batch)
    for n, i in enumerate(dims):
        stride = math.prod(extents[n + 1 :])
        start = clamped(ctx, i.index, extents[n] - i.width)
        values.append(view(start, shape, [dim(b) for b in range(len(batch))]))
        terms.append(_times(arg(len(values) - 1), stride))
        if i.width > 1:
            values.append(view(line(ctx, i.width), shape, [dim(w)]))
            terms.append(_times(arg(len(values) - 1), stride))
            w += 1
    body, *rest = terms
    for t in rest:
        body = call("add", body, t)
    return ctx.elementwise(body, values, shape, "i32")


def _times(e: Expr, stride: int) -> Expr:
    return e if stride == 1 else call("mul", e, const(stride))


def _arranged(
    ctx: Context,
    dn: Any,
    x: Tensor,
    dims: list[_Indexed],
    widths: list[int],
    batch: tuple[int, ...],
) -> Tensor:
    """The dims that `taken` left, in the order in which the result has them."""
    at = [i.dim for i in dims]
    gone = {*dn.collapsed_slice_dims, *dn.operand_batching_dims}
    together = at == list(range(at[0], at[0] + len(at)))
    begin = at[0] if together else 0
    rest = [d for d in range(len(widths)) if d not in at]
    read: list[tuple[str, int]] = [("batch", b) for b in range(len(batch))]
    read += [("own", i.dim) for i in dims if i.width > 1]
    there = [*(("own", d) for d in rest[:begin]), *read, *(("own", d) for d in rest[begin:])]
    wanted = _result_dims(dn, [d for d in range(len(widths)) if d not in gone], len(batch))
    order = [*(w for w in wanted if w in there), *(w for w in there if w not in wanted)]
    x = transposed(ctx, x, [there.index(w) for w in order])
    shape = tuple(batch[d] if kind == "batch" else widths[d] for kind, d in wanted)
    return reshaped(ctx, x, shape)


def _result_dims(dn: Any, window_dims: list[int], batch: int) -> list[tuple[str, int]]:
    windows, images = iter(window_dims), iter(range(batch))
    offsets = set(dn.offset_dims)
    return [
        ("own", next(windows)) if d in offsets else ("batch", next(images))
        for d in range(len(window_dims) + batch)
    ]


def _filled(
    ctx: Context, p: Any, gathered: Tensor, dims: list[_Indexed], extents: list[int]
) -> Tensor:
    """`found` where all indices were in range, else the fill value."""
    offsets = set(p["dimension_numbers"].offset_dims)
    images = [dim(d) for d in range(len(gathered.shape)) if d not in offsets]
    values, inside = [gathered], []
    for i, extent in zip(dims, extents, strict=True):
        if i.checked and not _surely_inside(ctx, i, extent):
            index = arg(len(values))
            values.append(view(i.index, gathered.shape, images))
            inside += in_range(index, extent - i.width, i.index.dtype)
    if not inside:
        return gathered
    fill = const(_fill_value(p["fill_value"], gathered.dtype))
    body = call("select", all_of(inside), arg(0), fill)
    return ctx.elementwise(body, values, gathered.shape, gathered.dtype)


def in_range(index: Expr, high: int, dtype: str) -> list[Expr]:
    """Whether an index of this type is 0 … high: what of that is not certain."""
    conditions = [] if DTYPES[dtype][1] == "u" else [call("ge", index, const(0))]
    if high < integer_range(dtype)[1]:
        conditions.append(call("le", index, const(high)))
    return conditions


def _surely_inside(ctx: Context, i: _Indexed, extent: int) -> bool:
    at = constant_array(ctx, i.index)
    return at is not None and bool(((at >= 0) & (at <= extent - i.width)).all())


def _fill_value(given: Any, dtype: str) -> bool | int | float:
    """JAX's own choice unless one is given: NaN, or the most negative or largest integer."""
    if given is not None:
        kind = DTYPES[dtype][1]
        return bool(given) if kind == "b" else float(given) if is_float(dtype) else int(given)
    if is_float(dtype):
        return math.nan
    if dtype == "bool":
        return True
    low, high = integer_range(dtype)
    return high if DTYPES[dtype][1] == "u" else low
