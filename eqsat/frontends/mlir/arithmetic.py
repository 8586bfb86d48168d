"""arith and math outside structured ops: on tensors, on scalars, and on sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from eqsat.frontends.mlir.elements import array, is_index, scalar_value, splat_value
from eqsat.frontends.mlir.expressions import affine_of
from eqsat.frontends.mlir.items import Environment, Item
from eqsat.frontends.mlir.scalars import SCALARS, Scalar, expanded
from eqsat.frontends.values import Tensor
from eqsat.model.affine import affine
from eqsat.model.expr import arg
from eqsat.model.extents import is_whole

_SIZES: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divsi": operator.floordiv,
    "arith.divui": operator.floordiv,
    "arith.floordivsi": operator.floordiv,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.remsi": operator.mod,
    "arith.remui": operator.mod,
    "arith.maxsi": max,
    "arith.maxui": max,
    "arith.minsi": min,
    "arith.minui": min,
}
_COMPARISONS: tuple[Callable[[int, int], bool], ...] = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip


def constant(scope: Environment, op: Any) -> list[Item]:
    """A scalar, one value everywhere, or elements: a weight named after nothing but its content."""
    attribute = op.attributes["value"]
    if is_index(op.results[0].type):
        return [int(attribute.value)]
    return [held(scope, op, attribute, op.results[0].type, "const")]


def held(scope: Environment, op: Any, attribute: Any, type_: Any, name: str) -> Tensor:
    """The value of a constant attribute."""
    from eqsat.frontends.mlir.elements import ranked_type

    where = scope.where(op)
    dims, dtype = ranked_type(type_, where)
    shape = tuple(d for d in dims if d is not None)
    if len(shape) != len(dims):
        raise scope.fail("E376", f"`{op.name}` of unknown size", op)
    if "tensor<" not in str(type_):
        return Tensor((), dtype, constant=scalar_value(attribute, dtype))
    single = splat_value(attribute, dtype)
    if single is not None:
        return Tensor(shape, dtype, constant=single)
    return scope.ctx.weight(array(attribute, shape, dtype, scope.source, where), name)


def scalar_or_tensor(scope: Environment, op: Any) -> list[Item]:
    """Elementwise, or arithmetic of sizes where all operands are."""
    items = [scope.item(v, op) for v in op.operands]
    if all(is_whole(i) for i in items):
        known = _known(op, [i for i in items if is_whole(i)])
        if known is not None:
            return [known]
    xs = [scope.tensor(v, op) for v in op.operands]
    dtype = scope.type(op.results[0], op)[1]
    shape = next((x.shape for x in xs if x.shape), ())
    predicate = int(op.attributes["predicate"].value) if "predicate" in op.attributes else 0
    types = tuple(scope.type(v, op)[1] for v in op.operands)
    args = tuple(arg(i) for i in range(len(xs)))
    body = SCALARS[op.name](Scalar(args, types, dtype, predicate))
    if body is None or any(x.shape not in (shape, ()) for x in xs):
        raise scope.fail("E375", f"this form of `{op.name}` is not expressible", op)
    return [scope.ctx.elementwise(expanded(body), _spread(xs, shape), shape, dtype)]


def _spread(xs: list[Tensor], shape: tuple[int, ...]) -> list[Tensor]:
    """A scalar condition chooses between whole tensors."""
    from eqsat.frontends.views import view

    return [x if x.shape == shape else view(x, shape, []) for x in xs]


def _known(op: Any, values: list[int]) -> Item | None:
    if op.name in ("arith.index_cast", "arith.index_castui"):
        return values[0] if is_index(op.results[0].type) else None
    if op.name == "arith.select":
        return values[1] if values[0] else values[2]
    if op.name == "arith.cmpi":
        return int(_COMPARISONS[int(op.attributes["predicate"].value)](*values))
    if op.name not in _SIZES or not is_index(op.results[0].type):
        return None
    if "div" in op.name or "rem" in op.name:
        return _SIZES[op.name](*values) if values[1] > 0 else None
    return _SIZES[op.name](*values)


def apply(scope: Environment, op: Any) -> list[Item]:
    """`affine.apply`, `affine.min` and `affine.max` of known sizes."""
    values = [scope.index(v, op) for v in op.operands]
    found = [_value(scope, op, e, values) for e in op.attributes["map"].value.results]
    choose = {"affine.min": min, "affine.max": max}.get(op.name, lambda v: v[0])
    return [choose(found)]


def _value(scope: Environment, op: Any, e: Any, values: list[int]) -> int:
    kind = type(e).__name__
    dims = op.attributes["map"].value.n_dims
    if kind == "AffineSymbolExpr":
        return values[dims + e.position]
    linear = affine_of(e, [affine([], v) for v in values[:dims]])
    if linear is not None:
        return linear.constant
    a, b = (_value(scope, op, side, values) for side in (e.lhs, e.rhs))
    if kind not in ("AffineAddExpr", "AffineMulExpr") and b <= 0:
        raise scope.fail("E376", f"`{op.name}` divides by {b}", op)
    known = {
        "AffineAddExpr": operator.add,
        "AffineMulExpr": operator.mul,
        "AffineFloorDivExpr": operator.floordiv,
        "AffineCeilDivExpr": _SIZES["arith.ceildivsi"],
        "AffineModExpr": operator.mod,
    }
    return known[kind](a, b)


ARITHMETIC = {name: scalar_or_tensor for name in SCALARS} | {
    "arith.constant": constant,
    "affine.apply": apply,
    "affine.min": apply,
    "affine.max": apply,
}
