"""Parts of scalar bodies whose value is known whatever the operands are, to the bit.

0 · x is 0 for whole numbers only, as 0.0 · NaN is NaN; x < x is false for every type, as it is for
NaN; x = x and x - x are known for whole numbers, as they are not for NaN and infinities.
"""

from __future__ import annotations

from collections.abc import Callable

from eqsat.model.expr import Expr, call, cast, const
from eqsat.model.generic import Generic
from eqsat.model.leaves import Fill
from eqsat.model.tensor import DTYPES, TensorType
from eqsat.ops.meaning.scalar import FUNCTIONS, constant_value, result_dtype

Types = Callable[[Expr], "str | None"]  # of every part of a body, over its operands
_OF_ITSELF = {"lt": False, "gt": False, "ne": False, "le": True, "ge": True, "eq": True}
_FOR_ALL_TYPES = ("lt", "gt")
_SAME_IS_ZERO = ("sub", "xor")


def decided(e: Expr, types: Types) -> Expr | None:
    """A function whose value is decided by its form: that value, or the part it is; else None.

    A value of numbers keeps its type by a cast, so that what reads it means the same.
    """
    if e.fn == "select" and e.args[0].fn == "const":
        return e.args[1 if e.args[0].value else 2]
    if not e.operands():
        return _folded(e, types(e))
    if len(e.args) != 2:
        return None
    a, b = e.args
    if a == b:
        return _of_itself(e.fn, types(a))
    plain = [_plain(x, y, types) for x, y in ((a, b), (b, a))]
    if plain != [a, b]:
        last = FUNCTIONS[e.fn].commutative and plain[0].fn == "const"
        return call(e.fn, *(reversed(plain) if last else plain))
    # constants stand last in a commutative body
    return _beside(e.fn, a, b, types(a)) if b.fn == "const" else None


def _folded(e: Expr, dtype: str | None) -> Expr | None:
    """A function of constants, of whole numbers; others round where they are computed."""
    if dtype is None or not _is_whole(dtype):
        return None
    return cast(const(int(constant_value(e, {}))), dtype)


def _of_itself(fn: str, dtype: str | None) -> Expr | None:
    """fn(x, x) for x of this type."""
    if dtype is None:
        return None
    if fn in _OF_ITSELF and (fn in _FOR_ALL_TYPES or _is_whole(dtype) or dtype == "bool"):
        return const(_OF_ITSELF[fn])
    return _zero(dtype) if fn in _SAME_IS_ZERO and _is_whole(dtype) else None


def _beside(fn: str, x: Expr, b: Expr, dtype: str | None) -> Expr | None:
    """fn(x, b) for x of this type and a constant b."""
    if dtype == "bool" and fn in ("and", "or"):
        return x if bool(b.value) == (fn == "and") else const(fn == "or")
    is_zero = dtype is not None and _is_whole(dtype) and b.value == 0
    return _zero(dtype) if is_zero and dtype and fn in ("mul", "and") else None


def _plain(x: Expr, other: Expr, types: Types) -> Expr:
    """A constant without its cast, where what stands beside it has that type anyway."""
    is_typed = x.fn == "cast" and x.args[0].fn == "const" and not isinstance(x.args[0].value, float)
    return x.args[0] if is_typed and other.operands() and types(other) == x.value else x


def _zero(dtype: str) -> Expr:
    return cast(const(0), dtype)


def _is_whole(dtype: str) -> bool:
    return DTYPES[dtype][1] in "iu"


# ---- generics ------------------------------------------------------------------------------------
def constant_fill(g: Generic) -> Fill | None:
    """The fill that an elementwise generic is whose body holds a constant; None if it is none."""
    if g.rank != len(g.sizes) or g.tile or len(g.yields) != 1:
        return None
    body, dtype = g.yields[0].body, g.yields[0].dtype
    value = body.args[0] if body.fn == "cast" and body.value == dtype else body
    if value.fn != "const" or result_dtype(body, g.dtypes) not in (None, dtype):
        return None
    return Fill(value.value, TensorType(dtype, g.result_shape))
