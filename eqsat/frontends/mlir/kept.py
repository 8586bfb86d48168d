"""Running sums and the k largest, which no loop nest says: kept whole, as JAX computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.frontends.mlir.items import Environment, Handler, Item
from eqsat.frontends.values import Tensor

_RUNNING = {
    "arith.addf": "cumsum", "arith.addi": "cumsum",
    "arith.mulf": "cumprod", "arith.muli": "cumprod",
    "arith.maximumf": "cummax", "arith.maxsi": "cummax",
    "arith.minimumf": "cummin", "arith.minsi": "cummin",
}  # fmt: skip


def kept(
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


def _known(scope: Environment, op: Any, x: Tensor) -> Tensor:
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
    x = _known(scope, op, scope.tensor(op.operands[0], op))
    running = getattr(jax.lax, name)
    (found,) = kept(scope, name, lambda a: running(a, axis=axis), [x])
    return [found, _last(scope, found, axis)]


def _is_read(scope: Environment, op: Any) -> bool:
    """Whether what was in the accumulator before counts: only a neutral constant does not."""
    from eqsat.ops.meaning.scalar import neutral

    first = scope.tensor(op.operands[2], op)
    name = _RUNNING[_region(op)[0].name]
    combine = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[name]
    return not (first.is_constant and first.constant == neutral(combine, first.dtype))


def _last(scope: Environment, x: Tensor, axis: int) -> Tensor:
    from eqsat.frontends.views import reshaped, sliced_along

    size = x.shape[axis]
    end = sliced_along(scope.ctx, x, axis, size - 1, size)
    return reshaped(scope.ctx, end, tuple(s for d, s in enumerate(x.shape) if d != axis))


def topk(scope: Environment, op: Any) -> list[Item]:
    """The k largest of every row with their places, the first of equals first."""
    import jax

    inner = _region(op)
    x = _known(scope, op, scope.tensor(op.operands[0], op))
    axis, k = int(op.attributes["dimension"].value), scope.shaped(op.operands[-1], op).shape
    largest = len(inner) == 1 and inner[0].name in ("arith.cmpf", "arith.cmpi")
    falling = largest and int(inner[0].attributes["predicate"].value) in _GREATER[inner[0].name]
    if not falling or axis != len(x.shape) - 1 or len(op.operands) != 3:
        raise scope.fail("E375", f"this form of `{op.name}` is not expressible", op)
    count = k[axis]
    found = kept(scope, "top_k", lambda a: tuple(jax.lax.top_k(a, count)), [x])
    return list(found)


_GREATER = {"arith.cmpf": (2, 3, 9, 10), "arith.cmpi": (4, 5)}
KEPT: dict[str, Handler] = {"iree_linalg_ext.scan": scan, "iree_linalg_ext.topk": topk}
