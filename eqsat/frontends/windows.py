"""Primitives with reduction loops → generics: dot_general, convolution, reductions, windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.frontends.values import Context, Value, dtype_name
from eqsat.model.affine import Affine, affine, dim
from eqsat.model.expr import Expr, arg, call, cast, literal
from eqsat.model.generic import Yield
from eqsat.model.movement import Move
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops import scalar

Operand = tuple[Value, Sequence[Affine]]


def _product(lhs: str, rhs: str, accumulator: str) -> Expr:
    factors = [
        arg(i) if dtype == accumulator else cast(arg(i), accumulator)
        for i, dtype in enumerate((lhs, rhs))
    ]
    return call("mul", *factors)


def _contract(
    ctx: Context, sizes: Sequence[int], rank: int, operands: Sequence[Operand], dtype: str
) -> list[Value] | None:
    """A sum of products; 16- and 8-bit floats are summed in f32 and cast at the end."""
    if any(v.dtype == "bool" for v, _ in operands):
        return None
    small = is_float(dtype) and DTYPES[dtype][0] < 32
    accumulator = "f32" if small else dtype
    solid = [(ctx.full(ctx.materialise(v)) if v.is_constant else v, m) for v, m in operands]
    body = _product(solid[0][0].dtype, solid[1][0].dtype, accumulator)
    combine = "add" if len(sizes) > rank else ""
    total = ctx.generic(sizes, range(rank), solid, Yield(body, accumulator, combine))
    if accumulator == dtype:
        return [total]
    return [ctx.elementwise(cast(arg(0), dtype), [total], total.shape, dtype)]


def dot_general(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    """Any batch and contracting dims; loops: batch, lhs free, rhs free, contracting."""
    (lhs_k, rhs_k), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    lhs, rhs = xs
    lhs_loop = {int(d): at for at, d in enumerate(lhs_batch)}
    rhs_loop = {int(d): at for at, d in enumerate(rhs_batch)}
    at = len(lhs_batch)
    for loops, taken, x in ((lhs_loop, lhs_k, lhs), (rhs_loop, rhs_k, rhs)):
        for d in range(len(x.shape)):
            if d not in loops and d not in taken:
                loops[d] = at
                at += 1
    for i, (a, b) in enumerate(zip(lhs_k, rhs_k, strict=True)):
        lhs_loop[int(a)] = rhs_loop[int(b)] = at + i
    sizes = [*shape, *(lhs.shape[d] for d in lhs_k)]
    operands = [
        (lhs, [dim(lhs_loop[d]) for d in range(len(lhs.shape))]),
        (rhs, [dim(rhs_loop[d]) for d in range(len(rhs.shape))]),
    ]
    dtype = dtype_name(eqn.outvars[0].aval.dtype)
    return _contract(ctx, sizes, len(shape), operands, dtype) if dtype else None


def conv_general_dilated(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
    """Any layout, stride, dilation and padding ≥ 0; also depthwise (one filter a channel)."""
    p = eqn.params
    spec, (x, kernel) = p["dimension_numbers"], xs
    padding = [(int(a), int(b)) for a, b in p["padding"]]
    channels = x.shape[spec.lhs_spec[1]]
    groups = p["feature_group_count"]
    depthwise = groups > 1 and groups == channels == kernel.shape[spec.rhs_spec[0]]
    if (
        p["batch_group_count"] != 1
        or set(p["lhs_dilation"]) - {1}
        or (groups > 1 and not depthwise)
    ):
        return None
    if any(v < 0 for pair in padding for v in pair):
        return None
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    low, high = [0] * len(shape), [0] * len(shape)
    for d, (a, b) in zip(spec.lhs_spec[2:], padding, strict=True):
        low[d], high[d] = a, b
    x = _padded(ctx, x, low, high, 0)
    sizes, lhs_map, rhs_map = _conv_maps(p, x, kernel, shape, depthwise)
    dtype = dtype_name(eqn.outvars[0].aval.dtype)
    operands = [(x, lhs_map), (kernel, rhs_map)]
    return _contract(ctx, sizes, len(shape), operands, dtype) if dtype else None


def _conv_maps(
    p: dict[str, Any], x: Value, kernel: Value, shape: tuple[int, ...], depthwise: bool
) -> tuple[list[int], list[Affine], list[Affine]]:
    """Loops: result dims, input channels, then one per window dim wider than 1."""
    spec = p["dimension_numbers"]
    sizes = list(shape)
    lhs: list[Affine] = [affine([])] * len(x.shape)
    rhs: list[Affine] = [affine([])] * len(kernel.shape)
    lhs[spec.lhs_spec[0]] = dim(spec.out_spec[0])
    feature = dim(spec.out_spec[1])
    rhs[spec.rhs_spec[0]] = feature
    if depthwise:
        lhs[spec.lhs_spec[1]] = feature
    else:
        lhs[spec.lhs_spec[1]] = rhs[spec.rhs_spec[1]] = dim(len(sizes))
        sizes.append(kernel.shape[spec.rhs_spec[1]])
    for j, (stride, dilation) in enumerate(
        zip(p["window_strides"], p["rhs_dilation"], strict=True)
    ):
        width = kernel.shape[spec.rhs_spec[2 + j]]
        terms = [(spec.out_spec[2 + j], int(stride))]
        if width > 1:
            rhs[spec.rhs_spec[2 + j]] = dim(len(sizes))
            terms.append((len(sizes), int(dilation)))
            sizes.append(width)
        lhs[spec.lhs_spec[2 + j]] = affine(terms)
    return sizes, lhs, rhs


def _padded(
    ctx: Context, x: Value, low: Sequence[int], high: Sequence[int], value: bool | int | float
) -> Value:
    if not any(low) and not any(high):
        return x
    shape = tuple(s + a + b for s, a, b in zip(x.shape, low, high, strict=True))
    fitting = float(value) if is_float(x.dtype) else value
    move = Move("pad", (x.shape,), (tuple(low), tuple(high), literal(fitting)), shape)
    return ctx.add("pad", (ctx.materialise(x),), move)


def reduction(combine: str) -> Callable[[Context, Any, Sequence[Value]], list[Value] | None]:
    """reduce_sum and its kin: kept dims are the result's loops, reduced dims follow."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
        (x,) = xs
        axes = [int(a) for a in eqn.params["axes"]]
        kept = [d for d in range(len(x.shape)) if d not in axes]
        if not axes:
            return [x]
        loop = {d: at for at, d in enumerate(kept + axes)}
        sizes = [x.shape[d] for d in kept + axes]
        operands = [(x, [dim(loop[d]) for d in range(len(x.shape))])]
        return [ctx.generic(sizes, range(len(kept)), operands, Yield(arg(0), x.dtype, combine))]

    return lower


def reduce_window(combine: str) -> Callable[[Context, Any, Sequence[Value]], list[Value] | None]:
    """Pooling: windows wider than 1 become reduction loops; padding holds the neutral element."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Value]) -> list[Value] | None:
        p, (x,) = eqn.params, xs
        padding = [(int(a), int(b)) for a, b in p["padding"]]
        if set(p["base_dilation"]) - {1} or any(v < 0 for pair in padding for v in pair):
            return None
        start = scalar.neutral(combine, x.dtype)
        x = _padded(ctx, x, [a for a, _ in padding], [b for _, b in padding], start)
        shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
        sizes, exprs = list(shape), []
        for d, width in enumerate(p["window_dimensions"]):
            terms = [(d, int(p["window_strides"][d]))]
            if width > 1:
                terms.append((len(sizes), int(p["window_dilation"][d])))
                sizes.append(int(width))
            exprs.append(affine(terms))
        result = Yield(arg(0), x.dtype, combine if len(sizes) > len(shape) else "")
        return [ctx.generic(sizes, range(len(shape)), [(x, exprs)], result)]

    return lower
