"""Scalar bodies as linear forms: what is a factor, what is added, what drops out.

Expressions in, expressions out; the exact arithmetic of real numbers, so results that move
factors over sums are equal only up to rounding (rules built on them are tagged `inexact`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.scalar import result_dtype

ONE = const(1.0)
MINUS_ONE = call("neg", ONE)
REALS = frozenset({"f64", "f32", "f16", "bf16"})  # f8 is too coarse to round a product into
MARK = Expr("arg", (), -1)  # stands for a value that is put in later
Test = Callable[[int], bool]  # of an operand number


@dataclass(frozen=True)
class Form:
    """`scale · x + shift`; scale None: no x in it, shift None: nothing added."""

    scale: Expr | None
    shift: Expr | None


# ---- building ------------------------------------------------------------------------------------
def times(a: Expr, b: Expr) -> Expr:
    """a · b, without factors of one and with one division instead of a reciprocal."""
    if a == ONE:
        return b
    if b == ONE:
        return a
    for x, y in ((a, b), (b, a)):
        if x.fn == "div" and x.args[0] == ONE:
            return call("div", y, x.args[1])
        if x == MINUS_ONE:
            return call("neg", y)
    return call("mul", a, b)


def over(a: Expr, b: Expr) -> Expr:
    """a / b."""
    return a if b == ONE else call("div", a, b)


def plus(a: Expr | None, b: Expr | None) -> Expr | None:
    """a + b, either of which may be nothing."""
    if a is None or b is None:
        return a if b is None else b
    return call("add", a, b)


def minus(a: Expr | None, b: Expr | None) -> Expr | None:
    """a - b, either of which may be nothing."""
    if a is None or b is None:
        return a if b is None else call("neg", b)
    return call("sub", a, b)


def converted(e: Expr, source: str | None, dtype: str) -> Expr:
    """`e` of type `source` as `dtype`; a constant (None) takes the type of what is beside it."""
    return e if source in (None, dtype) else cast(e, dtype)


def wider(a: str, b: str) -> str:
    """The element type that holds both without loss; f32 for f16 beside bf16."""
    if a == b or DTYPES[a][0] != DTYPES[b][0]:
        return a if DTYPES[a][0] >= DTYPES[b][0] else b
    return "f32"


def _cast(e: Expr, dtype: str) -> Expr:
    return e if e.fn == "const" else cast(e, dtype)


def uncast(e: Expr, dtypes: tuple[str, ...]) -> Expr:
    """A factor in the type it was computed in.

    What a scale is cast to on its way depends on where it stood: one that moves into a weight and
    out again must be the same scale, or it would move forever, with two casts more each time.
    """
    if e.fn == "cast" and e.value in REALS and result_dtype(e.args[0], dtypes) in REALS:
        return uncast(e.args[0], dtypes)
    return e


def replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """`e` with every occurrence of `old` replaced."""
    if e == old:
        return new
    return Expr(e.fn, tuple(replaced(a, old, new) for a in e.args), e.value) if e.args else e


# ---- a body that is affine in one operand --------------------------------------------------------
@lru_cache(maxsize=100_000)
def affine_in(e: Expr, i: int) -> Form | None:
    """`e` as scale · x_i + shift over add, sub, mul, div, neg and float casts, or None."""
    if i not in e.operands():
        return Form(None, e)
    if e.fn == "arg":
        return Form(ONE, None)
    if e.fn == "cast" and not is_float(e.value):
        return None
    if e.fn not in ("add", "sub", "mul", "div", "neg", "cast"):
        return None
    parts = [affine_in(a, i) for a in e.args]
    if None in parts:
        return None
    return _combined(e, [p for p in parts if p is not None])


def _combined(e: Expr, parts: list[Form]) -> Form | None:
    a = parts[0]
    if len(parts) == 1:
        if e.fn == "neg":
            return Form(_map(a.scale, lambda s: call("neg", s)), minus(None, a.shift))
        return Form(*(_map(s, lambda s: _cast(s, e.value)) for s in (a.scale, a.shift)))
    b = parts[1]
    if e.fn == "add":
        return Form(plus(a.scale, b.scale), plus(a.shift, b.shift))
    if e.fn == "sub":
        return Form(minus(a.scale, b.scale), minus(a.shift, b.shift))
    if e.fn == "div":
        return None if b.scale else _scaled(a, lambda s: over(s, b.shift or ONE))
    if a.scale and b.scale:
        return None
    form, factor = (a, b.shift) if a.scale else (b, a.shift)
    return _scaled(form, lambda s: times(s, factor or ONE))


def _scaled(form: Form, by: Callable[[Expr], Expr]) -> Form:
    return Form(_map(form.scale, by), _map(form.shift, by))


def _map(e: Expr | None, by: Callable[[Expr], Expr]) -> Expr | None:
    return None if e is None else by(e)


@dataclass(frozen=True)
class Folded:
    """A body in which x_i · scale is the new x_i."""

    scale: Expr
    body: Expr


def fold_scale(body: Expr, i: int, dtypes: tuple[str, ...], allowed: Test) -> Folded | None:
    """The largest part of `body` that is affine in x_i with a scale of allowed operands only.

    Every use of x_i must be inside of equal parts, so that none needs the unscaled value.
    """
    for part in sorted(dict.fromkeys(body.walk()), key=lambda e: (-_size(e), str(e))):
        form = affine_in(part, i) if i in part.operands() else None
        if form is None or form.scale is None or form.scale == ONE:
            continue
        marked = replaced(body, part, MARK)
        if i in marked.operands() or not all(map(allowed, form.scale.operands())):
            continue
        unscaled = converted(arg(i), dtypes[i], result_dtype(part, dtypes) or dtypes[i])
        new = unscaled if form.shift is None else call("add", unscaled, form.shift)
        return Folded(form.scale, replaced(marked, MARK, new))
    return None


def _size(e: Expr) -> int:
    return sum(1 for _ in e.walk())


# ---- factors and terms of a body -----------------------------------------------------------------
def factors(e: Expr, allowed: Test) -> tuple[Expr, Expr]:
    """(a, b) with e = a · b and only allowed operands in a; a is one if there is no such factor."""
    if all(map(allowed, e.operands())):
        return e, ONE
    if e.fn not in ("mul", "div", "neg", "cast") or (e.fn == "cast" and not is_float(e.value)):
        return ONE, e
    parts = [factors(a, allowed) for a in e.args]
    (a, x) = parts[0]
    if e.fn == "neg":
        return a, call("neg", x)
    if e.fn == "cast":
        return _cast(a, e.value), x if x.fn == "const" else cast(x, e.value)
    (b, y) = parts[1]
    combine = times if e.fn == "mul" else over
    return combine(a, b), combine(x, y)


def terms(e: Expr, allowed: Test) -> tuple[Expr | None, Expr | None]:
    """(p, b) with e = p + b and only allowed operands in b; None is nothing."""
    if all(map(allowed, e.operands())):
        return None, e
    if e.fn in ("add", "sub"):
        (p, a), (q, b) = (terms(x, allowed) for x in e.args)
        join = plus if e.fn == "add" else minus
        return join(p, q), join(a, b)
    if e.fn == "neg" or (e.fn == "cast" and is_float(e.value)):
        p, b = terms(e.args[0], allowed)
        by = (lambda x: call("neg", x)) if e.fn == "neg" else (lambda x: _cast(x, e.value))
        return _map(p, by), _map(b, by)
    if e.fn in ("mul", "div"):
        return _distributed(e, allowed)
    return e, None


def _distributed(e: Expr, allowed: Test) -> tuple[Expr | None, Expr | None]:
    """(p + b) · s = p · s + b · s for an allowed s."""
    x, s = e.args
    if e.fn == "mul" and not all(map(allowed, s.operands())):
        x, s = s, x
    if not all(map(allowed, s.operands())):
        return e, None
    p, b = terms(x, allowed)
    if b is None:
        return e, None
    by = (lambda y: times(y, s)) if e.fn == "mul" else (lambda y: over(y, s))
    return _map(p, by), _map(b, by)
