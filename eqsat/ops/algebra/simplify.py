"""Scalar bodies made smaller without changing a bit of any result.

NaN, infinities and the sign of zero included: `x + 0.0` stays, because -0.0 + 0.0 is 0.0, while
`x - 0.0` and `x + -0.0` are x; 0 · x is 0 for whole numbers only, as 0.0 · NaN is NaN; x < x is
false for every type, as it is for NaN; x = x and x - x are known for whole numbers, as they are not
for NaN and infinities. Integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eqsat.model.affine import dim
from eqsat.model.expr import BottomUp, Expr, arg, call, cast, const, rebuilt
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Fill
from eqsat.model.movement import Reshape
from eqsat.model.tensor import DTYPES, NONE, TensorType, is_float
from eqsat.ops.algebra.linear import MARK, replaced
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import (
    anywhere,
    canonical_body,
    canonical_generic,
    compose_maps,
    identity,
    without_operand,
)
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.scalar import FUNCTIONS as SCALARS
from eqsat.ops.meaning.scalar import constant_value, cost, result_dtype, typing

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
        last = scalar.FUNCTIONS[e.fn].commutative and plain[0].fn == "const"
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


# bits of the significand, and of the exponent, of the floating types
_FLOATS = {
    "f64": (53, 11), "f32": (24, 8), "bf16": (8, 8), "f16": (11, 5), "f8e5m2": (3, 5),
    "f8e4m3fn": (4, 4), "f8e8m0fnu": (1, 8), "f6e2m3fn": (4, 2), "f6e3m2fn": (3, 3),
    "f4e2m1fn": (2, 2),
}  # fmt: skip
_MOST = 2**60  # operations of a body written as a tree: a DAG's may double with every level
_ONCE = ("neg", "not")  # f(f(x)) = x
_IDEMPOTENT = ("abs", "floor", "ceil", "round_even", "round_away", "sign")  # f(f(x)) = f(x)
_SAME = ("max", "min", "and", "or")  # f(x, x) = x


def keeps_values(dtype: str, wide: str) -> bool:
    """Whether every value of `dtype` survives a cast to `wide` and back."""
    (bits, kind), (room, other) = DTYPES[dtype], DTYPES[wide]
    if dtype == wide or kind == "b":
        return True
    if kind == "f":
        are_floats = dtype in _FLOATS and wide in _FLOATS
        return are_floats and all(
            a <= b for a, b in zip(_FLOATS[dtype], _FLOATS[wide], strict=True)
        )
    if other == "f":
        return wide in _FLOATS and bits <= _FLOATS[wide][0] and bits <= 2 ** (_FLOATS[wide][1] - 1)
    return other != "b" and room >= bits  # integers wrap there and back


@lru_cache(maxsize=10_000)
def simplified(e: Expr, dtypes: tuple[str, ...]) -> Expr:
    """The body with what does nothing taken out, innermost first."""
    types = typing(dtypes)

    def step(e: Expr, args: Sequence[Expr]) -> Expr:
        simpler: Expr | None = rebuilt(e, args)
        while simpler is not None:
            e, simpler = simpler, _step(simpler, types) if simpler.args else None
        return e

    return BottomUp(step)(e)


def _step(e: Expr, types: Types) -> Expr | None:
    """One simplification at the outermost function of simplified parts, or None."""
    a = e.args[0]
    if e.fn == "cast":
        return _cast(e, a, types)
    if (value := decided(e, types)) is not None:
        return value
    if a.fn == e.fn and e.fn in _ONCE:
        return a.args[0]
    if a.fn == e.fn and e.fn in _IDEMPOTENT:
        return a
    if e.fn == "abs" and a.fn == "neg" and not _is_constant(a.args[0]):
        return Expr("abs", a.args)
    if e.fn == "select" and e.args[1] == e.args[2]:
        return e.args[1]
    return _pair(e, a, e.args[1], types) if len(e.args) == 2 else None


def _cast(e: Expr, a: Expr, types: Types) -> Expr | None:
    if types(a) == e.value:
        return a
    if a.fn != "cast" or types(a.args[0]) != e.value:
        return None
    return a.args[0] if keeps_values(e.value, a.value) else None


def _pair(e: Expr, a: Expr, b: Expr, types: Types) -> Expr | None:
    if a == b and e.fn in _SAME and not _is_constant(a):
        return a
    if e.fn in ("max", "min"):
        return next((y for x, y in ((a, b), (b, a)) if y.fn == e.fn and x in y.args), None)
    # constants stand last in a commutative body
    if b.fn != "const" or (dtype := types(a)) is None:
        return None
    return a if _does_nothing(e.fn, b, dtype) else None


def _does_nothing(fn: str, b: Expr, dtype: str) -> bool:
    """Whether x of this type is fn(x, b) for every x, to the bit."""
    if fn in ("mul", "div"):
        return b.value == 1 and dtype != "bool"
    if fn in ("add", "sub"):
        is_negative = math.copysign(1, b.value) < 0
        return b.value == 0 and (not is_float(dtype) or is_negative == (fn == "add"))
    return fn in ("or", "xor") and b.value == 0


def _is_constant(e: Expr) -> bool:
    return not e.operands()


# ---- generics ------------------------------------------------------------------------------------
def simplify(g: Generic) -> Generic | None:
    """The generic with smaller bodies; None if nothing is to be taken out."""
    bodies = [canonical_body(simplified(y.body, g.dtypes)) for y in g.yields]
    if all(b == y.body for b, y in zip(bodies, g.yields, strict=True)):
        return None
    yields = tuple(replace(y, body=b) for y, b in zip(g.yields, bodies, strict=True))
    return replace(g, yields=yields)


def shorter_chain(g: Generic, e: Generic) -> Generic | None:
    """g reads nothing but e, which reads one operand: both in one, if less is computed then."""
    if any(len(x.maps) != 1 or len(x.yields) != 1 or x.tile for x in (g, e)):
        return None
    inner = e.yields[0]
    if e.rank != len(e.sizes) or result_dtype(e.body, e.dtypes) != inner.dtype:
        return None
    body = simplified(g.body.substitute({0: e.body}), e.dtypes)
    if cost(body) >= cost(g.body) + cost(e.body) or 0 not in body.operands():
        return None
    maps = [compose_maps(e.maps[0], g.maps[0])]
    yields = [replace(g.yields[0], body=body)]
    return canonical_generic(
        g.sizes, range(g.rank), maps, e.shapes, yields, (), e.dtypes, precision=NONE
    )


def read_before_cast(g: Generic, i: int, t: Generic) -> Generic | None:
    """g with the cast t of its operand i inside, if t does nothing else and makes it narrower.

    A cast to a wider type is merged with its reader before the search (ops/spelling/chains.py).
    """
    if g.rank != len(g.sizes) or g.tile or len(t.maps) != 1 or t.maps[0] != identity(t.rank):
        return None
    cast = t.yields[0].body
    is_cast = len(t.yields) == 1 and cast.fn == "cast" and cast.args == (arg(0),)
    if not is_cast or t.shapes[0] != t.result_shape or t.rank != len(t.sizes):
        return None
    if DTYPES[t.yields[0].dtype][0] >= DTYPES[t.dtypes[0]][0]:
        return None
    dtypes = tuple(t.dtypes[0] if j == i else d for j, d in enumerate(g.dtypes))
    yields = tuple(
        replace(y, body=canonical_body(y.body.substitute({i: cast.substitute({0: arg(i)})})))
        for y in g.yields
    )
    return replace(g, dtypes=dtypes, yields=yields)


def without_unread(g: Generic, i: int) -> Generic | None:
    """g without operand i, if that is the last one that no body reads; one operand stays."""
    used = {o for y in g.yields for o in y.body.operands()}
    unread = [j for j in range(len(g.maps)) if j not in used]
    if len(g.maps) < 2 or unread[-1:] != [i]:
        return None
    return without_operand(g, i, [y.body for y in g.yields], g.precision)


def permuted_copy(g: Generic) -> tuple[int, ...] | None:
    """The permutation by which the result is the operand transposed, if it is that."""
    is_moved = [(y.body, y.dtype) for y in g.yields] == [(arg(0), g.dtypes[0])]
    if len(g.maps) != 1 or g.rank != len(g.sizes) or g.tile or not is_moved:
        return None
    loops = [e.dim for e in g.maps[0]]
    if None in loops or sorted(d for d in loops if d is not None) != list(range(g.rank)):
        return None
    perm = tuple(map(loops.index, range(g.rank)))
    return perm if tuple(g.shapes[0][p] for p in perm) == g.result_shape else None


@dataclass(frozen=True)
class MovedCopy:
    """x without its dims of extent 1, transposed, with those of the result; None: not needed."""

    inner: Reshape | None
    perm: tuple[int, ...] | None
    outer: Reshape | None


def moved_copy(g: Generic) -> MovedCopy | None:
    """How the result is all of the operand, if dims of extent 1 come or go in between."""
    is_moved = [(y.body, y.dtype) for y in g.yields] == [(arg(0), g.dtypes[0])]
    if len(g.maps) != 1 or g.rank != len(g.sizes) or g.tile or not is_moved:
        return None
    if g.result_shape == g.shapes[0] and g.maps[0] == identity(g.rank):
        return None
    long = [d for d, n in enumerate(g.sizes) if n != 1]
    read = [e for e, n in zip(g.maps[0], g.shapes[0], strict=True) if n != 1]
    small = tuple(n for n in g.shapes[0] if n != 1)
    if sorted(e.dim if e.dim is not None else -1 for e in read) != long:
        return None
    loops = [e.dim for e in read]
    perm = tuple(map(loops.index, long))
    moved = tuple(small[p] for p in perm)
    if moved != tuple(g.sizes[d] for d in long) or small == g.shapes[0] == g.result_shape:
        return None
    return MovedCopy(
        None if small == g.shapes[0] else Reshape(g.shapes[0], small),
        None if perm == tuple(range(len(perm))) else perm,
        None if moved == g.result_shape else Reshape(moved, g.result_shape),
    )


@dataclass(frozen=True)
class HoistedPart:
    """A part of a body as a generic of its own, over the loops it needs, and what reads it."""

    part: Generic
    rest: Generic


def hoist_part(g: Generic, i: int) -> HoistedPart | None:
    """The largest part of a body that reads two operands or more and needs fewer loops than g.

    It takes the place of operand i, the first that nothing else reads, so arities stay; both
    generics list all operands, read or not.
    """
    if len(g.yields) != 1 or g.rank != len(g.sizes) or g.tile or not all(map(math.prod, g.shapes)):
        return None
    parts = (e for e in g.body.walk() if len(e.operands()) > 1 and len(_needs(g, e)) < g.rank)
    part = max(parts, key=_operations(), default=None)
    dtype = None if part is None else result_dtype(part, g.dtypes)
    if part is None or dtype is None:
        return None
    body = replaced(g.body, part, MARK)
    exclusive = [j for j in sorted(part.operands()) if j not in body.operands()]
    if exclusive[:1] != [i]:
        return None
    loops = sorted(_needs(g, part))
    inner = {d: n for n, d in enumerate(loops)}
    sizes = tuple(g.sizes[d] for d in loops)
    maps = [
        tuple(e.rename(inner) for e in m) if j in part.operands() else anywhere(m)
        for j, m in enumerate(g.maps)
    ]
    small = canonical_generic(
        sizes, range(len(sizes)), maps, g.shapes, [Yield(part, dtype)], (), g.dtypes,
        precision=NONE,
    )  # fmt: skip
    body = replaced(body, MARK, arg(i))
    maps = [m if j in body.operands() else anywhere(m) for j, m in enumerate(g.maps)]
    maps[i] = tuple(map(dim, loops))
    shapes = [sizes if j == i else s for j, s in enumerate(g.shapes)]
    dtypes = [dtype if j == i else t for j, t in enumerate(g.dtypes)]
    yields = [replace(g.yields[0], body=body)]
    rest = canonical_generic(
        g.sizes, range(g.rank), maps, shapes, yields, (), dtypes, precision=NONE
    )
    return HoistedPart(small, rest)


def _operations() -> BottomUp[Expr, int]:
    """Scalar operations of an expression written out: more than those of any part of it.

    Up to a largest number, as what is used again and again doubles them each time.
    """

    def step(e: Expr, inner: Sequence[int]) -> int:
        return min(sum(inner) + (e.fn in SCALARS), _MOST)

    return BottomUp(step)


def _needs(g: Generic, e: Expr) -> set[int]:
    """Loops an expression depends on."""
    return {d for j in e.operands() for a in g.maps[j] for d, _ in a.terms}


FUNCTIONS = attr_functions(
    simplify, shorter_chain, read_before_cast, without_unread, hoist_part, permuted_copy, moved_copy
)
