"""Primitives with reduction loops → generics: dot_general, reductions and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.frontends.precision import precision_of
from eqsat.frontends.values import Context, Tensor, dtype_name
from eqsat.frontends.views import padded
from eqsat.model.affine import Affine, affine, dim
from eqsat.model.expr import Expr, arg, call, cast
from eqsat.model.generic import Yield
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning import scalar

Operand = tuple[Tensor, Sequence[Affine]]
Lower = Callable[[Context, Any, Sequence[Tensor]], "list[Tensor] | None"]


def _product(lhs: str, rhs: str, accumulator: str) -> Expr:
    factors = [
        arg(i) if dtype == accumulator else cast(arg(i), accumulator)
        for i, dtype in enumerate((lhs, rhs))
    ]
    return call("mul", *factors)


def contract(
    ctx: Context,
    sizes: Sequence[int],
    rank: int,
    operands: Sequence[Operand],
    dtype: str,
    given: Any,
) -> list[Tensor] | None:
    """A sum of products of the precision given; None for bools, and for one without a name.

    16- and 8-bit floats are summed in f32 and cast at the end.
    """
    precision = precision_of(given)
    if precision is None or any(v.dtype == "bool" for v, _ in operands):
        return None
    small = is_float(dtype) and DTYPES[dtype][0] < 32
    accumulator = "f32" if small else dtype
    solid = [(ctx.full(ctx.materialise(v)) if v.is_constant else v, m) for v, m in operands]
    body = _product(solid[0][0].dtype, solid[1][0].dtype, accumulator)
    combine = "add" if len(sizes) > rank else ""
    total = ctx.generic(sizes, range(rank), solid, Yield(body, accumulator, combine), precision)
    if accumulator == dtype:
        return [total]
    return [ctx.elementwise(cast(arg(0), dtype), [total], total.shape, dtype)]


def dot_general(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
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
    if dtype is None:
        return None
    return contract(ctx, sizes, len(shape), operands, dtype, eqn.params["precision"])


def reduction(combine: str) -> Lower:
    """reduce_sum and its kin: kept dims are the result's loops, reduced dims follow."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        return [reduced(ctx, xs[0], [int(a) for a in eqn.params["axes"]], combine)]

    return lower


def reduced(ctx: Context, x: Tensor, axes: list[int], combine: str) -> Tensor:
    """x without these axes."""
    if not axes:
        return x
    kept = [d for d in range(len(x.shape)) if d not in axes]
    loop = {d: at for at, d in enumerate(kept + axes)}
    sizes = [x.shape[d] for d in kept + axes]
    operands = [(x, [dim(loop[d]) for d in range(len(x.shape))])]
    return ctx.generic(sizes, range(len(kept)), operands, Yield(arg(0), x.dtype, combine))


def reduce_window(combine: str) -> Lower:
    """Pooling: windows wider than 1 become reduction loops; padding holds the neutral element."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        return [_pooled(ctx, eqn, xs[0], combine)]

    return lower


def _pooled(ctx: Context, eqn: Any, x: Tensor, combine: str) -> Tensor:
    p = eqn.params
    spread = [int(d) - 1 for d in p["base_dilation"]]
    edges = [(int(a), int(b), k) for (a, b), k in zip(p["padding"], spread, strict=True)]
    x = padded(ctx, x, edges, scalar.neutral(combine, x.dtype))
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    sizes, exprs = list(shape), []
    for d, width in enumerate(p["window_dimensions"]):
        terms = [(d, int(p["window_strides"][d]))]
        if width > 1:
            terms.append((len(sizes), int(p["window_dilation"][d])))
            sizes.append(int(width))
        exprs.append(affine(terms))
    result = Yield(arg(0), x.dtype, combine if len(sizes) > len(shape) else "")
    return ctx.generic(sizes, range(len(shape)), [(x, exprs)], result)


def general_reduce_window(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """`reduce_window` of one operand whose function is one of ours, from any start."""
    combine = _combiner(eqn.params["jaxpr"])
    if len(xs) != 2 or combine is None:
        return None
    return [_from_start(ctx, _pooled(ctx, eqn, xs[0], combine), xs[1], combine)]


def general_reduce(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """`reduce` of one operand whose function is one of ours, from any start."""
    combine = _combiner(eqn.params["jaxpr"])
    if len(xs) != 2 or combine is None:
        return None
    x, axes = xs[0], [int(d) for d in eqn.params["dimensions"]]
    return [_from_start(ctx, reduced(ctx, x, axes, combine), xs[1], combine)]


def _combiner(jaxpr: Any) -> str | None:
    """The combine function a jaxpr of two scalars is, None if it is another or several."""
    inner = jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr
    known = {"add", "mul", "max", "min", "and", "or"}
    if len(inner.eqns) != 1 or inner.eqns[0].primitive.name not in known:
        return None
    eqn = inner.eqns[0]
    direct = list(eqn.outvars) == list(inner.outvars) and set(eqn.invars) == set(inner.invars)
    return eqn.primitive.name if direct and len(inner.invars) == 2 else None


def _from_start(ctx: Context, x: Tensor, start: Tensor, combine: str) -> Tensor:
    """The start is one more element; nothing to do if it is the neutral one."""
    if start.is_constant and start.constant == scalar.neutral(combine, x.dtype):
        return x
    return ctx.elementwise(call(combine, arg(0), arg(1)), [x, start], x.shape, x.dtype)
