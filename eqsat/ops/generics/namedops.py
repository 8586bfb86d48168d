"""Attribute functions for ops by their names in programs: `matmul`, or a body as `max(x0, 0.0)`.

A rule that writes `relu(x)` or `matmul(a, b)` is a rule over `generic` whose signature has such a
name (`eqsat.lang.namedops`). All values of it have one element type, as wide as what is added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from eqsat.model.affine import dim
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, const, rebuilt
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import DEFAULT, DTYPES, NONE, is_float
from eqsat.ops.algebra.laws import read_body
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, identity
from eqsat.ops.meaning.scalar import FUNCTIONS as SCALARS
from eqsat.ops.meaning.scalar import INTEGER_ONLY, result_dtype

MATMUL = "matmul"
Ints = tuple[int, ...]
# functions whose result has the element type of their operands, and any number type
ELEMENTWISE = frozenset(
    f.name for f in SCALARS.values() if f.result == "same" and f.name not in INTEGER_ONLY
) - {"select"}


def is_op(name: str, g: Generic, like: Generic | None = None) -> bool:
    """Whether g is `matmul`, or an elementwise body such as `add(x0, x1)`, of one element type.

    like: another generic, whose element type and precision it has, too.
    """
    dtype = g.yields[0].dtype
    if like is not None and like.yields[0].dtype != dtype:
        return False
    if like is not None and like.has_precision and g.has_precision:
        return like.precision == g.precision and is_op(name, g)
    return g == named_generic(name, dtype, g.precision, g.shapes)


def op_loops(name: str, like: Generic, a: Ints, b: Ints = (), c: Ints = ()) -> Generic | None:
    """The loops of `matmul` or an elementwise body on operands of these shapes.

    Its element type and precision are those of another generic.
    """
    count = 2 if name == MATMUL else len(_body(name).operands())
    precision = like.precision if like.has_precision else DEFAULT
    return named_generic(name, like.yields[0].dtype, precision, (a, b, c)[:count])


def matmul_shape(a: Ints, b: Ints) -> Ints | None:
    """The shape of `matmul(a, b)` of operands of these shapes."""
    fits = len(a) == len(b) >= 2 and a[:-2] == b[:-2] and a[-1] == b[-2]
    return (*a[:-1], b[-1]) if fits else None


def named_generic(name: str, dtype: str, precision: str, shapes: Sequence[Shape]) -> Generic | None:
    """The generic of this name on operands of one element type; None if they do not fit."""
    if name == MATMUL:
        return _matmul(dtype, precision, *shapes) if len(shapes) == 2 else None
    body = _typed(_body(name), dtype)
    count = 0 if body is None else len(body.operands())
    if body is None or len(shapes) != count or len(set(shapes)) != 1:
        return None
    if dtype == "bool" or result_dtype(body, [dtype] * count) != dtype:
        return None
    shape = shapes[0]
    loops, maps = range(len(shape)), [identity(len(shape))] * count
    yields, dtypes = [Yield(body, dtype)], [dtype] * count
    return canonical_generic(shape, loops, maps, shapes, yields, dtypes=dtypes, precision=NONE)


def _matmul(dtype: str, precision: str, a: Shape, b: Shape) -> Generic | None:
    """Leading dims are batch dims. None for types that are summed in a wider one."""
    shape = matmul_shape(a, b)
    if shape is None or DTYPES[dtype][0] < 32:
        return None
    *batch, m, n, k = range(len(a) + 1)
    maps = [tuple(map(dim, (*batch, m, k))), tuple(map(dim, (*batch, k, n)))]
    product = Yield(Expr("mul", (arg(0), arg(1))), dtype, "add")
    return canonical_generic(
        (*shape, a[-1]), (*batch, m, n), maps, (a, b), [product], dtypes=[dtype] * 2,
        precision=precision,
    )  # fmt: skip


@lru_cache(maxsize=1_000)
def _body(text: str) -> Expr:
    return read_body(text)


def _typed(body: Expr, dtype: str) -> Expr | None:
    """The body with its numbers as those of an element type; None if it does not have them."""
    if is_float(dtype):
        return body
    numbers = {e for e in body.walk() if e.fn == "const"}
    if any(e.value != int(e.value) for e in numbers):
        return None
    return _with_integers(body)


def _with_integers(e: Expr) -> Expr:
    if e.fn == "const":
        return const(int(e.value))
    return rebuilt(e, [_with_integers(a) for a in e.args]) if e.args else e


def op_problem(text: str) -> str:
    """The fault of the name of an op, "" if there is none."""
    if text == MATMUL:
        return ""
    try:
        read = _body(text)
    except (SyntaxError, ValueError):
        return f"`{text}` is neither `matmul` nor a body such as `max(x0, 0.0)`"
    wrong = next((e.fn for e in read.walk() if e.fn not in (*ELEMENTWISE, "arg", "const")), "")
    return f"`{wrong}` does not keep the element type" if wrong else ""


FUNCTIONS = attr_functions(is_op, op_loops, matmul_shape)
for _name in ("is_op", "op_loops"):
    FUNCTIONS[_name] = replace(FUNCTIONS[_name], refuses=op_problem)
