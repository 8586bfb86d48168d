"""Ops of IREE's own dialects and of linalg that no generalisation writes out.

Running sums and the k largest, which no loop nest says, are kept whole, as JAX computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.frontends.mlir.items import Environment, Handler, Item
from eqsat.frontends.mlir.movement import handed_on
from eqsat.frontends.mlir.structured import indexing_maps, loop_sizes
from eqsat.frontends.values import Tensor
from eqsat.frontends.windows import reduced
from eqsat.model.affine import Map, dim
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Yield
from eqsat.ops.meaning.scalar import integer_range


# ---- dialects ------------------------------------------------------------------------------------
def softmax(scope: Environment, op: Any) -> list[Item]:
    """exp(x - max) / Σ exp(x - max) along one dim."""
    x = scope.tensor(op.operands[0], op)
    axis = int(op.attributes["dimension"].value)
    if not 0 <= axis < len(x.shape):
        raise scope.fail("E376", f"`{op.name}` along dim {axis}", op)
    top = reduced(scope.ctx, x, [axis], "max")
    shifted = _with(scope, x, top, axis, call("exp", call("sub", arg(0), arg(1))))
    total = reduced(scope.ctx, shifted, [axis], "add")
    return [_with(scope, shifted, total, axis, call("div", arg(0), arg(1)))]


def _with(scope: Environment, x: Tensor, other: Tensor, axis: int, body: Expr) -> Tensor:
    """A body of x and of a value without one of its dims."""
    rank = len(x.shape)
    whole = [dim(d) for d in range(rank)]
    part = [dim(d) for d in range(rank) if d != axis]
    return scope.ctx.generic(
        x.shape, range(rank), [(x, whole), (other, part)], Yield(body, x.dtype)
    )


# ---- quantisation --------------------------------------------------------------------------------
def _quantised(
    scope: Environment, op: Any
) -> tuple[list[Tensor], list[Map], list[int], list[int], str]:
    """Operands with their maps, the loops' extents, the range, and the result's element type."""
    *inputs, output = op.operands
    values = [scope.shaped(v, op) for v in (*inputs, output)]
    maps = indexing_maps(scope, op, len(values))
    sizes = loop_sizes(scope, op, maps, values)
    limits = [int(op.attributes[k].value) for k in ("quant_min", "quant_max")]
    xs = [scope.tensor(v, op) for v in inputs]
    if tuple(e.dim for e in maps[-1]) != tuple(range(len(sizes))):
        raise scope.fail("E375", f"`{op.name}` writes its result through `{maps[-1]}`", op)
    return xs, maps, sizes, limits, scope.type(op.results[0], op)[1]


def quantize(scope: Environment, op: Any) -> list[Item]:
    """clamp(round_even(x / scale) + zero point) as an integer."""
    xs, maps, sizes, (low, high), dtype = _quantised(scope, op)
    scaled = call("round_even", call("div", arg(0), arg(1)))
    if len(xs) > 2:
        scaled = call("add", scaled, cast(arg(2), xs[0].dtype))
    body = cast(call("clamp", const(float(low)), scaled, const(float(high))), _stored(dtype, low))
    body = body if body.value == dtype else cast(body, dtype)
    return [_elementwise(scope, xs, maps, sizes, Yield(body, dtype))]


def dequantize(scope: Environment, op: Any) -> list[Item]:
    """(x - zero point) · scale."""
    xs, maps, sizes, (low, _), dtype = _quantised(scope, op)
    whole = cast(arg(0), _stored(xs[0].dtype, low))
    number = cast(whole if whole.value != xs[0].dtype else arg(0), dtype)
    if len(xs) > 2:
        number = call("sub", number, cast(arg(2), dtype))
    return [_elementwise(scope, xs, maps, sizes, Yield(call("mul", number, arg(1)), dtype))]


def _stored(dtype: str, low: int) -> str:
    """Integers of MLIR have no sign; a range that starts at 0 or above says there is none."""
    return dtype if low < 0 or integer_range(dtype)[0] == 0 else f"u{dtype[1:]}"


def _elementwise(
    scope: Environment, xs: list[Tensor], maps: list[Map], sizes: list[int], result: Yield
) -> Tensor:
    operands = list(zip(xs, maps, strict=False))
    return scope.ctx.generic(sizes, range(len(sizes)), operands, result)


def exported(scope: Environment, op: Any) -> list[Item]:
    """`hal.tensor.export`: a tensor becomes a result."""
    return [scope.item(op.operands[0], op)]


def barrier(scope: Environment, op: Any) -> list[Item]:
    """`hal.tensor.barrier`: the tensors as they are, once a fence was reached."""
    return [scope.item(v, op) for v in list(op.operands)[: len(op.results)]]


EXTENSIONS: dict[str, Handler] = {
    "linalg.softmax": softmax,
    "iree_linalg_ext.quantize_affine": quantize,
    "iree_linalg_ext.dequantize_affine": dequantize,
    "flow.tensor.transfer": handed_on,
    "flow.tensor.tie_shape": handed_on,
    "flow.tensor.barrier": handed_on,
    "hal.tensor.barrier": barrier,
    "hal.tensor.export": exported,
    "iree_tensor_ext.compute_barrier.start": handed_on,
    "iree_tensor_ext.compute_barrier.end": handed_on,
    "util.optimization_barrier": handed_on,
    "util.unfoldable_constant": handed_on,
}


# ---- running sums and the k largest --------------------------------------------------------------
_RUNNING = {
    "arith.addf": "cumsum", "arith.addi": "cumsum",
    "arith.mulf": "cumprod", "arith.muli": "cumprod",
    "arith.maximumf": "cummax", "arith.maxsi": "cummax",
    "arith.minimumf": "cummin", "arith.minsi": "cummin",
}  # fmt: skip


def opaque(
    scope: Environment, title: str, function: Callable[..., Any], operands: Sequence[Tensor]
) -> list[Tensor]:
    """The results of a JAX function of these operands, as one opaque op."""
    import jax

    from eqsat.frontends.opaque import kept_call
    from eqsat.ops.meaning.programs import element_dtype

    ctx = scope.ctx
    nodes = [ctx.materialise(x) for x in operands]
    types = [ctx.builder.type(n) for n in nodes]
    given = [jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype)) for t in types]
    return kept_call(ctx, title, jax.make_jaxpr(function)(*given), nodes)


def _of_fixed_shape(scope: Environment, op: Any, x: Tensor) -> Tensor:
    if any(type(s) is not int for s in x.shape):
        raise scope.fail("E376", f"`{op.name}` of unknown size is not kept", op)
    return x


def _region(op: Any) -> list[Any]:
    """The operations of a region but its last, which only yields."""
    return [o.operation for o in op.regions[0].blocks[0].operations][:-1]


def scan(scope: Environment, op: Any) -> list[Item]:
    """Inclusive running sums, products, maxima and minima that start from nothing."""
    import jax

    inner = _region(op)
    name = _RUNNING.get(inner[0].name) if len(inner) == 1 else None
    if name is None or not op.attributes["inclusive"].value or _is_read(scope, op):
        raise scope.fail("E375", f"this form of `{op.name}` is not expressible", op)
    axis = int(op.attributes["dimension"].value)
    x = _of_fixed_shape(scope, op, scope.tensor(op.operands[0], op))
    running = getattr(jax.lax, name)
    (sums,) = opaque(scope, name, lambda a: running(a, axis=axis), [x])
    return [sums, _last(scope, sums, axis)]


def _is_read(scope: Environment, op: Any) -> bool:
    """Whether what was in the accumulator before counts: only a neutral constant does not."""
    from eqsat.ops.meaning.scalar import neutral

    first = scope.tensor(op.operands[2], op)
    name = _RUNNING[_region(op)[0].name]
    combine = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[name]
    return not (first.is_constant and first.constant == neutral(combine, first.dtype))


def _last(scope: Environment, x: Tensor, axis: int) -> Tensor:
    from eqsat.frontends.values import reshaped, sliced_along

    size = x.shape[axis]
    end = sliced_along(scope.ctx, x, axis, size - 1, size)
    return reshaped(scope.ctx, end, tuple(s for d, s in enumerate(x.shape) if d != axis))


def topk(scope: Environment, op: Any) -> list[Item]:
    """The k largest of every row with their places, the first of equals first."""
    import jax

    inner = _region(op)
    x = _of_fixed_shape(scope, op, scope.tensor(op.operands[0], op))
    axis, k = int(op.attributes["dimension"].value), scope.shaped(op.operands[-1], op).shape
    largest = len(inner) == 1 and inner[0].name in ("arith.cmpf", "arith.cmpi")
    falling = largest and int(inner[0].attributes["predicate"].value) in _GREATER[inner[0].name]
    if not falling or axis != len(x.shape) - 1 or len(op.operands) != 3:
        raise scope.fail("E375", f"this form of `{op.name}` is not expressible", op)
    count = k[axis]
    results = opaque(scope, "top_k", lambda a: tuple(jax.lax.top_k(a, count)), [x])
    return list(results)


_GREATER = {"arith.cmpf": (2, 3, 9, 10), "arith.cmpi": (4, 5)}
KEPT: dict[str, Handler] = {"iree_linalg_ext.scan": scan, "iree_linalg_ext.topk": topk}
