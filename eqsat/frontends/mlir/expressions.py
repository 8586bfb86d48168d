"""Scalar arithmetic of MLIR → expressions: regions of structured ops, and arith outside of them.

Outside, arith and math stand on tensors, on scalars, and on sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.frontends.indexing import taken
from eqsat.frontends.mlir.items import Environment, Item, array, is_index, scalar_value, splat_value
from eqsat.frontends.mlir.scalars import SCALARS, Scalar, expanded
from eqsat.frontends.values import Tensor, reshaped
from eqsat.model.affine import Affine, affine, dim
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.extents import is_symbolic, is_whole
from eqsat.model.generic import Yield

# ---- regions of structured ops -------------------------------------------------------------------
_LARGEST_INDEX = 2**31 - 1  # positions in bodies are i32

Operand = tuple[Tensor, Sequence[Affine]]
Term = Affine | Expr  # what an SSA value of a body is: a position in the loops, or a number


@dataclass
class BodyReader:
    """Operands of a loop nest and what its scalars come to; reading may add operands."""

    scope: Environment
    sizes: Sequence[int]
    operands: list[Operand]
    terms: dict[Any, Term] = field(default_factory=dict)

    def read(self, block: Any) -> list[Expr]:
        """The values that the block yields, in order."""
        *ops, last = list(block.operations)
        for o in ops:
            op = o.operation
            self.terms[op.results[0]] = self._op(op)
        op = last.operation
        return [self.number(v, op) for v in op.operands]

    def _op(self, op: Any) -> Term:
        if op.name == "linalg.index":
            return dim(int(op.attributes["dim"].value))
        if op.name == "arith.constant":
            return self._constant(op)
        if op.name == "tensor.extract":
            return self._extract(op)
        if op.name == "affine.apply":
            return self._apply(op)
        moved = self._position(op)
        return moved if moved is not None else self._scalar(op)

    def _constant(self, op: Any) -> Term:
        value = op.attributes["value"]
        if is_index(op.results[0].type):
            return affine([], int(value.value))
        return const(scalar_value(value, self.scope.type(op.results[0], op)[1]))

    def term(self, value: Any, op: Any) -> Term:
        """A value of the body, or one from around it."""
        if value in self.terms:
            return self.terms[value]
        item = self.scope.item(value, op)
        if is_whole(item):
            return affine([], item)
        tensor = self.scope.tensor(value, op)
        if tensor.shape:
            raise self.scope.fail("E375", f"`{op.name}` reads a whole tensor in a body", op)
        return const(tensor.constant) if tensor.is_constant else self.operand(tensor, [])

    def operand(self, x: Tensor, maps: Sequence[Affine]) -> Expr:
        """One more operand of the loop nest."""
        self.operands.append((x, list(maps)))
        return arg(len(self.operands) - 1)

    def number(self, value: Any, op: Any) -> Expr:
        term = self.term(value, op)
        if isinstance(term, Expr):
            return term
        expr, dtype = self.counted(term, op), self.scope.type(value, op)[1]
        return expr if expr.fn == "const" or dtype == "i32" else cast(expr, dtype)

    def counted(self, at: Affine, op: Any) -> Expr:
        """A position as a number: loops are read from arrays that count."""
        if is_symbolic(at.constant):
            raise self.scope.unknown_number(op)
        total: Expr | None = None
        for loop, stride in at.terms:
            step = self._counter(loop, op)
            step = step if stride == 1 else call("mul", step, const(stride))
            total = step if total is None else call("add", total, step)
        if total is None:
            return const(at.constant)
        return call("add", total, const(at.constant)) if at.constant else total

    def _counter(self, loop: int, op: Any) -> Expr:
        size = self.sizes[loop]
        if type(size) is not int or size > _LARGEST_INDEX:
            why = "the position in a dimension of unknown size is used as a number"
            raise self.scope.fail("E375", why, op)
        line = self.scope.ctx.weight(np.arange(size, dtype=np.int32), "iota")
        return self.operand(line, [dim(loop)])

    # ---- positions -------------------------------------------------------------------------------
    def _position(self, op: Any) -> Affine | None:
        """Sums and multiples of loops stay affine; None if this op is something else."""
        if op.name not in ("arith.addi", "arith.subi", "arith.muli", "arith.index_cast"):
            return None
        terms = [self.term(v, op) for v in op.operands]
        if not all(isinstance(t, Affine) for t in terms):
            return None
        if op.name == "arith.index_cast":
            return terms[0]  # type: ignore[return-value]
        a, b = terms
        assert isinstance(a, Affine) and isinstance(b, Affine)
        if op.name == "arith.muli":
            if a.terms and b.terms:
                return None
            a, b = (a, b) if not b.terms else (b, a)
            return _scaled(a, b.constant)
        return _sum(a, b if op.name == "arith.addi" else _scaled(b, -1))

    def _apply(self, op: Any) -> Term:
        amap = op.attributes["map"].value
        inner = [self.term(v, op) for v in op.operands]
        if not all(isinstance(t, Affine) for t in inner) or len(amap.results) != 1:
            raise self.scope.fail("E375", "`affine.apply` of numbers the data decide", op)
        index = affine_of(amap.results[0], inner)  # type: ignore[arg-type]
        if index is None:
            raise self.scope.fail("E375", f"`{amap}` is no sum of multiples", op)
        return index

    # ---- numbers ---------------------------------------------------------------------------------
    def _scalar(self, op: Any) -> Expr:
        meaning = SCALARS.get(op.name)
        if meaning is None or len(op.results) != 1:
            raise self.scope.fail("E374", f"`{op.name}` in a body has no meaning here yet", op)
        args = tuple(self.number(v, op) for v in op.operands)
        types = tuple(self.scope.type(v, op)[1] for v in op.operands)
        result = self.scope.type(op.results[0], op)[1]
        predicate = op.attributes["predicate"].value if "predicate" in op.attributes else 0
        expr = meaning(Scalar(args, types, result, int(predicate)))
        if expr is None:
            raise self.scope.fail("E375", f"this form of `{op.name}` is not expressible", op)
        return expr

    # ---- reads at computed places ----------------------------------------------------------------
    def _extract(self, op: Any) -> Expr:
        """`tensor.extract`: an operand through a map, or a gather where the data say where."""
        source, *places = op.operands
        x = self.scope.tensor(source, op)
        terms = [self.term(p, op) for p in places]
        data = [d for d, t in enumerate(terms) if isinstance(t, Expr)]
        if not data:
            return self.operand(x, [t for t in terms if isinstance(t, Affine)])
        if len(data) > 1:
            x, terms, data = self._joined(x, terms, data, op)
        return self._gather(x, terms, data[0], op)

    def _joined(
        self, x: Tensor, terms: list[Term], data: list[int], op: Any
    ) -> tuple[Tensor, list[Term], list[int]]:
        """Neighbouring dims that the data index, as one dim."""
        first, last = data[0], data[-1]
        position: Expr | None = None
        for d in range(first, last + 1):
            t = terms[d]
            here = t if isinstance(t, Expr) else self.counted(t, op)
            if position is None:
                position = here
            else:
                position = call("add", call("mul", position, const(x.shape[d])), here)
        size = 1
        for d in range(first, last + 1):
            size *= x.shape[d]
        assert position is not None
        shape = (*x.shape[:first], size, *x.shape[last + 1 :])
        flat = reshaped(self.scope.ctx, x, shape)
        return flat, [*terms[:first], position, *terms[last + 1 :]], [first]

    def _gather(self, x: Tensor, terms: list[Term], axis: int, op: Any) -> Expr:
        place = terms[axis]
        assert isinstance(place, Expr)
        reads = sorted(set(place.operands()))
        loops = sorted({d for o in reads for e in self.operands[o][1] for d, _ in e.terms})
        order = {d: i for i, d in enumerate(loops)}
        used = [
            (self.operands[o][0], [e.rename(order) for e in self.operands[o][1]]) for o in reads
        ]
        body = cast(place.substitute({o: arg(i) for i, o in enumerate(reads)}), "i32")
        sizes = [self.sizes[d] for d in loops]
        at = self.scope.ctx.generic(sizes, range(len(sizes)), used, Yield(body, "i32"))
        around = [t for t in terms if isinstance(t, Affine)]
        rows = taken(self.scope.ctx, x, at, axis)
        return self.operand(rows, [*around[:axis], *(dim(d) for d in loops), *around[axis:]])


def _scaled(a: Affine, factor: int) -> Affine:
    return affine([(d, s * factor) for d, s in a.terms], a.constant * factor)


def _sum(a: Affine, b: Affine) -> Affine:
    return affine([*a.terms, *b.terms], a.constant + b.constant)


def affine_of(e: Any, dims: Sequence[Affine]) -> Affine | None:
    """An affine expression of MLIR over `dims` (symbols follow them); None if it divides."""
    kind = type(e).__name__
    if kind == "AffineDimExpr":
        return dims[e.position]
    if kind == "AffineConstantExpr":
        return affine([], e.value)
    if kind not in ("AffineAddExpr", "AffineMulExpr"):
        return None
    a, b = affine_of(e.lhs, dims), affine_of(e.rhs, dims)
    if a is None or b is None:
        return None
    if kind == "AffineAddExpr":
        return _sum(a, b)
    if a.terms and b.terms:
        return None
    return _scaled(a, b.constant) if not b.terms else _scaled(b, a.constant)


# ---- outside structured ops ----------------------------------------------------------------------
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
    from eqsat.frontends.mlir.items import ranked_type

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
        result = _whole_number(op, [i for i in items if is_whole(i)])
        if result is not None:
            return [result]
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
    from eqsat.frontends.values import view

    return [x if x.shape == shape else view(x, shape, []) for x in xs]


def _whole_number(op: Any, values: list[int]) -> Item | None:
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
    results = [_value(scope, op, e, values) for e in op.attributes["map"].value.results]
    choose = {"affine.min": min, "affine.max": max}.get(op.name, lambda v: v[0])
    return [choose(results)]


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
    meanings = {
        "AffineAddExpr": operator.add,
        "AffineMulExpr": operator.mul,
        "AffineFloorDivExpr": operator.floordiv,
        "AffineCeilDivExpr": _SIZES["arith.ceildivsi"],
        "AffineModExpr": operator.mod,
    }
    return meanings[kind](a, b)


ARITHMETIC = {name: scalar_or_tensor for name in SCALARS} | {
    "arith.constant": constant,
    "affine.apply": apply,
    "affine.min": apply,
    "affine.max": apply,
}
