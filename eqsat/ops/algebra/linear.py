"""Scalar bodies as linear forms: what is a factor, what is added, what drops out.

Expressions in, expressions out; the exact arithmetic of real numbers, so results that move
factors over sums are equal only up to rounding (rules built on them are tagged `inexact`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.model.expr import BottomUp, Expr, arg, call, cast, const, rebuilt
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.scalar import typing

ONE = const(1.0)
MINUS_ONE = call("neg", ONE)
REALS = frozenset({"f64", "f32", "f16", "bf16"})  # f8 is too coarse to round a product into
_PRIME = 2**61 - 1  # ways to a shared part are counted modulo it: exact counts grow exponentially
MARK = Expr("arg", (), -1)  # stands for a value that is put in later
Test = Callable[[int], bool]  # of an operand number


@dataclass(frozen=True)
class LinearForm:
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


def quotient(a: Expr, b: Expr) -> Expr:
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


def as_dtype(e: Expr, source: str | None, dtype: str) -> Expr:
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
    types = typing(dtypes)
    while e.fn == "cast" and e.value in REALS and types(e.args[0]) in REALS:
        e = e.args[0]
    return e


def replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """`e` with every occurrence of `old` replaced."""

    def parts(e: Expr) -> tuple[Expr, ...]:
        return () if e is old else e.args

    def step(e: Expr, args: Sequence[Expr]) -> Expr:
        return new if e is old else rebuilt(e, args)

    return BottomUp(step, parts)(e)


# ---- a body that is affine in one operand --------------------------------------------------------
def affine_in(e: Expr, i: int) -> LinearForm | None:
    """`e` as scale · x_i + shift over add, sub, mul, div, neg and float casts, or None."""
    return affine_parts(i)(e)


def affine_parts(i: int) -> BottomUp[Expr, LinearForm | None]:
    """`affine_in` for many parts of a body, each computed once."""

    def parts(e: Expr) -> tuple[Expr, ...]:
        return e.args if i in e.operands() else ()  # the others are shifts as they stand

    def step(e: Expr, forms: Sequence[LinearForm | None]) -> LinearForm | None:
        if i not in e.operands():
            return LinearForm(None, e)
        if e.fn == "arg":
            return LinearForm(ONE, None)
        if e.fn == "cast" and not is_float(e.value):
            return None
        if e.fn not in ("add", "sub", "mul", "div", "neg", "cast"):
            return None
        linear = [f for f in forms if f is not None]
        return _combined(e, linear) if len(linear) == len(forms) else None

    return BottomUp(step, parts)


def _combined(e: Expr, parts: list[LinearForm]) -> LinearForm | None:
    a = parts[0]
    if len(parts) == 1:
        if e.fn == "neg":
            return LinearForm(_map(a.scale, lambda s: call("neg", s)), minus(None, a.shift))
        return LinearForm(*(_map(s, lambda s: _cast(s, e.value)) for s in (a.scale, a.shift)))
    b = parts[1]
    if e.fn == "add":
        return LinearForm(plus(a.scale, b.scale), plus(a.shift, b.shift))
    if e.fn == "sub":
        return LinearForm(minus(a.scale, b.scale), minus(a.shift, b.shift))
    if e.fn == "div":
        return None if b.scale else _scaled(a, lambda s: quotient(s, b.shift or ONE))
    if a.scale and b.scale:
        return None
    form, factor = (a, b.shift) if a.scale else (b, a.shift)
    return _scaled(form, lambda s: times(s, factor or ONE))


def _scaled(form: LinearForm, by: Callable[[Expr], Expr]) -> LinearForm:
    return LinearForm(_map(form.scale, by), _map(form.shift, by))


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
    types, forms = typing(dtypes), affine_parts(i)
    for part in _around(body, i):
        form = forms(part)
        if form is None or form.scale is None or form.scale == ONE:
            continue
        if not _is_of(form.scale, allowed):
            continue
        marked = replaced(body, part, MARK)
        if i in marked.operands():
            continue
        unscaled = as_dtype(arg(i), dtypes[i], types(part) or dtypes[i])
        new = unscaled if form.shift is None else call("add", unscaled, form.shift)
        return Folded(form.scale, replaced(marked, MARK, new))
    return None


def _around(body: Expr, i: int) -> list[Expr]:
    """The parts of a body that every way from it to x_i leads through, the largest first.

    They lie inside of each other. (The ways through a part are those to it times those from it;
    counting modulo a prime may let a part too many through, which `fold_scale` finds out.)
    """

    def below(e: Expr, inner: Sequence[int]) -> int:
        return sum(inner) % _PRIME if e.args else int(e == arg(i))

    ways = BottomUp(below)
    total = ways(body)
    order = list(ways.memo)  # parts first
    to = Counter({body: 1})
    for e in reversed(order):
        for a in e.args:
            to[a] = (to[a] + to[e]) % _PRIME
    return [e for e in reversed(order) if total and to[e] * ways(e) % _PRIME == total]


# ---- factors and terms of a body -----------------------------------------------------------------
def factors(e: Expr, allowed: Test) -> tuple[Expr, Expr]:
    """(a, b) with e = a · b and only allowed operands in a; a is one if there is no such factor."""

    def parts(e: Expr) -> tuple[Expr, ...]:
        is_product = e.fn in ("mul", "div", "neg") or (e.fn == "cast" and is_float(e.value))
        return e.args if is_product and not _is_of(e, allowed) else ()

    def step(e: Expr, inner: Sequence[tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
        if not inner:
            return (e, ONE) if _is_of(e, allowed) else (ONE, e)
        (a, x) = inner[0]
        if e.fn == "neg":
            return a, call("neg", x)
        if e.fn == "cast":
            return _cast(a, e.value), x if x.fn == "const" else cast(x, e.value)
        (b, y) = inner[1]
        combine = times if e.fn == "mul" else quotient
        return combine(a, b), combine(x, y)

    return BottomUp(step, parts)(e)


Sum = tuple["Expr | None", "Expr | None"]


def terms(e: Expr, allowed: Test) -> Sum:
    """(p, b) with e = p + b and only allowed operands in b; None is nothing."""

    def parts(e: Expr) -> tuple[Expr, ...]:
        if _is_of(e, allowed):
            return ()
        if e.fn in ("mul", "div"):
            return _distributed(e, allowed)[:1]
        is_sum = e.fn in ("add", "sub", "neg") or (e.fn == "cast" and is_float(e.value))
        return e.args if is_sum else ()

    def step(e: Expr, inner: Sequence[Sum]) -> Sum:
        if not inner:
            return (None, e) if _is_of(e, allowed) else (e, None)
        p, b = inner[0]
        if e.fn in ("add", "sub"):
            join = plus if e.fn == "add" else minus
            q, c = inner[1]
            return join(p, q), join(b, c)
        if e.fn in ("neg", "cast"):
            by = (lambda x: call("neg", x)) if e.fn == "neg" else (lambda x: _cast(x, e.value))
            return _map(p, by), _map(b, by)
        s = _distributed(e, allowed)[1]
        scaled = (lambda y: times(y, s)) if e.fn == "mul" else (lambda y: quotient(y, s))
        return (e, None) if b is None else (_map(p, scaled), _map(b, scaled))

    return BottomUp(step, parts)(e)


def _is_of(e: Expr, allowed: Test) -> bool:
    """Whether only allowed operands are read."""
    return all(map(allowed, e.operands()))


def _distributed(e: Expr, allowed: Test) -> tuple[Expr, ...]:
    """(x, s) with e = x · s or x / s for an allowed s; empty if there is none."""
    x, s = e.args
    if e.fn == "mul" and not _is_of(s, allowed):
        x, s = s, x
    return (x, s) if _is_of(s, allowed) else ()
