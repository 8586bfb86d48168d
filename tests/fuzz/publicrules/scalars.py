"""Rules about scalar functions: each element by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from fuzz.pairs.catalogue import Sizes, flags, real, whole

from .rule import Written

ORDER = 1000  # numbers of whole operands are below


def add(n: Sizes) -> Sequence[Written]:
    a = real(n(512), n(1024))
    return [
        ("Add(Add(A, c1), c2) ⇒ Add(A, Add(c1, c2))",
         lambda a: (a + 3.0) + 4.0, lambda a: a + 7.0, (a,)),
        ("Add(A, 0) ⇒ A", lambda a: lax.add(a, jnp.zeros_like(a)), lambda a: a, (a,)),
        ("Add(0, A) ⇒ A", lambda a: lax.add(jnp.zeros_like(a), a), lambda a: a, (a,)),
        ("Add(Const, A) ⇒ Add(A, Const)", lambda a: 3.0 + a, lambda a: a + 3.0, (a,)),
    ]  # fmt: skip


def sub(n: Sizes) -> Sequence[Written]:
    a, i = real(n(512), n(1024)), whole(ORDER, n(512), n(1024))
    return [
        ("Sub(A, 0) ⇒ A", lambda a: a - 0.0, lambda a: a, (a,)),
        ("Sub(A, Const) ⇒ Add(A, Neg(Const))", lambda a: a - 3.0, lambda a: a + -3.0, (a,)),
        ("Sub(A, A) ⇒ 0", lambda i: lax.sub(i, i) + i, lambda i: jnp.zeros_like(i) + i, (i,)),
    ]


def mul(n: Sizes) -> Sequence[Written]:
    a, i, row = real(n(512), n(1024)), whole(ORDER, n(512), n(1024)), real(n(1024))
    return [
        ("Mul(A, 1) ⇒ A", lambda a: a * 1.0, lambda a: a, (a,)),
        ("Mul(1, A) ⇒ A", lambda a: 1.0 * a, lambda a: a, (a,)),
        ("Mul(A, 0) ⇒ 0", lambda i: i * 0 + 1, jnp.ones_like, (i,)),
        ("Mul(0, A) ⇒ 0", lambda i: 0 * i + 1, jnp.ones_like, (i,)),
        ("Mul(Mul(A, c1), Mul(B, c2)) ⇒ Mul(Mul(A, B), Mul(c1, c2))",
         lambda a, b: (a * 3.0) * (b * 4.0), lambda a, b: (a * b) * 12.0, (a, a)),
        ("Mul(Mul(A, c1), c2) ⇒ Mul(A, Mul(c1, c2))",
         lambda a: (a * 3.0) * 4.0, lambda a: a * 12.0, (a,)),
        ("Mul(Mul(A, c), Broadcast(B)) ⇒ Mul(Broadcast(Mul(B, c)), A)",
         lambda a, b: (a * 3.0) * b, lambda a, b: (b * 3.0) * a, (a, row)),
        ("Add(Mul(A, C), Mul(B, C)) ⇒ Mul(Add(A, B), C)",
         lambda a, b, c: a * c + b * c, lambda a, b, c: (a + b) * c, (a, a, a)),
        ("Mul(Abs(A), Abs(A)) ⇒ Mul(A, A)",
         lambda a: jnp.abs(a) * jnp.abs(a), lambda a: a * a, (a,)),
        ("Mul(Exp(A), Exp(B)) ⇒ Exp(Add(A, B))",
         lambda a, b: jnp.exp(a) * jnp.exp(b), lambda a, b: jnp.exp(a + b), (a, a)),
    ]  # fmt: skip


def divmod_(n: Sizes) -> Sequence[Written]:
    a, i = real(n(512), n(1024)), whole(ORDER, n(512), n(1024))
    m = n(512)

    def counted() -> Any:
        return lax.broadcasted_iota(jnp.int32, (m, 2 * m), 0)

    return [
        ("Div(A, 1) ⇒ A", lambda a: a / 1.0, lambda a: a, (a,)),
        ("Div(A, Const) ⇒ Mul(A, 1/Const)", lambda a: a / 3.0, lambda a: a * (1 / 3.0), (a,)),
        ("Div(Div(A, B), Div(C, D)) ⇒ Div(Mul(A, D), Mul(B, C))",
         lambda a, b, c, d: (a / b) / (c / d), lambda a, b, c, d: (a * d) / (b * c), (a, a, a, a)),
        ("Div(A, Div(B, C)) ⇒ Div(Mul(A, C), B)",
         lambda a, b, c: a / (b / c), lambda a, b, c: (a * c) / b, (a, a, a)),
        ("Rem(Rem(A, B), B) ⇒ Rem(A, B)",
         lambda a, b: lax.rem(lax.rem(a, b + 1), b + 1), lambda a, b: lax.rem(a, b + 1), (i, i)),
        ("Rem(Iota, Const) ⇒ Iota",
         lambda a: lax.rem(counted(), jnp.full_like(a, m)) + a, lambda a: counted() + a, (i,)),
        ("Rem(Add(Iota, Const), Const) ⇒ Rem(Iota, Const)",
         lambda a: lax.rem(counted() + 100, jnp.full_like(a, 100)) + a,
         lambda a: lax.rem(counted(), jnp.full_like(a, 100)) + a, (i,)),
        ("Rem(Add(X, Const), Const) ⇒ Rem(X, Const)",  # for X >= 0
         lambda a: lax.rem(jnp.abs(a) + 100, jnp.full_like(a, 100)),
         lambda a: lax.rem(jnp.abs(a), jnp.full_like(a, 100)), (i,)),
    ]  # fmt: skip


def max_(n: Sizes) -> Sequence[Written]:
    a = real(n(512), n(1024))
    return [
        ("Max(A, -inf) ⇒ A", lambda a: jnp.maximum(a, -jnp.inf), lambda a: a, (a,)),
        ("Min(A, inf) ⇒ A", lambda a: jnp.minimum(a, jnp.inf), lambda a: a, (a,)),
    ]


def clamp(n: Sizes) -> Sequence[Written]:
    a = real(n(512), n(1024))
    return [
        ("Clamp(c1, Clamp(c1, A, c2), c2) ⇒ Clamp(c1, A, c2)",
         lambda a: lax.clamp(-1.0, lax.clamp(-1.0, a, 1.0), 1.0),
         lambda a: lax.clamp(-1.0, a, 1.0), (a,)),
        ("Max(Broadcast(c1), Min(A, Broadcast(c2))) ⇒ Clamp(c1, A, c2)",
         lambda a: jnp.maximum(jnp.minimum(a, 1.0), -1.0),
         lambda a: lax.clamp(-1.0, a, 1.0), (a,)),
        ("Min(Broadcast(c1), Max(A, Broadcast(c2))) ⇒ Clamp(c2, A, c1)",
         lambda a: jnp.minimum(1.0, jnp.maximum(a, -1.0)),
         lambda a: lax.clamp(-1.0, a, 1.0), (a,)),
    ]  # fmt: skip


def compare(n: Sizes) -> Sequence[Written]:
    i = whole(ORDER, n(512), n(1024))

    def rule(name: str, op: Any, value: bool) -> Written:
        def left(i: Any) -> Any:
            return lax.select(op(i, i), i, i + 1)

        return name, left, (lambda i: i) if value else (lambda i: i + 1), (i,)

    return [
        rule("Gt(A, A) ⇒ False", lax.gt, False),
        rule("Lt(A, A) ⇒ False", lax.lt, False),
        rule("Ne(A, A) ⇒ False", lax.ne, False),
        rule("Ge(A, A) ⇒ True", lax.ge, True),
        rule("Le(A, A) ⇒ True", lax.le, True),
        rule("Eqv(A, A) ⇒ True", lax.eq, True),
    ]


def logical(n: Sizes) -> Sequence[Written]:
    p, i = flags(n(512), n(1024)), whole(ORDER, n(512), n(1024))
    yes, no = jnp.ones_like, jnp.zeros_like
    return [
        ("Or(A, True) ⇒ True", lambda p: lax.bitwise_or(p, yes(p)), yes, (p,)),
        ("Or(True, A) ⇒ True", lambda p: lax.bitwise_or(yes(p), p), yes, (p,)),
        ("Or(A, False) ⇒ A", lambda p: lax.bitwise_or(p, no(p)), lambda p: p, (p,)),
        ("Or(False, A) ⇒ A", lambda p: lax.bitwise_or(no(p), p), lambda p: p, (p,)),
        ("And(A, 1) ⇒ A", lambda p: lax.bitwise_and(p, yes(p)), lambda p: p, (p,)),
        ("And(1, A) ⇒ A", lambda p: lax.bitwise_and(yes(p), p), lambda p: p, (p,)),
        ("And(A, 0) ⇒ 0", lambda p: lax.bitwise_and(p, no(p)), no, (p,)),
        ("And(0, A) ⇒ 0", lambda p: lax.bitwise_and(no(p), p), no, (p,)),
        ("And(A < c, c1 > A) ⇒ Lt(A, min(c, c1))",
         lambda i: (i < 300) & lax.gt(jnp.full_like(i, 200), i), lambda i: i < 200, (i,)),
        ("Gt(Max(A, B), B) ⇒ Gt(A, B)",
         lambda i, j: jnp.maximum(i, j) > j, lambda i, j: i > j, (i, i)),
        ("Gt(Max(A, B), A) ⇒ Gt(B, A)",
         lambda i, j: jnp.maximum(i, j) > i, lambda i, j: j > i, (i, i)),
    ]  # fmt: skip


def not_(n: Sizes) -> Sequence[Written]:
    p, a = flags(n(512), n(1024)), real(n(512), n(1024))
    return [
        ("Not(Not(A)) ⇒ A", lambda p: ~~p, lambda p: p, (p,)),
        ("Negate(Negate(A)) ⇒ A", lambda a: lax.neg(lax.neg(a)), lambda a: a, (a,)),
    ]


def select(n: Sizes) -> Sequence[Written]:
    p, a = flags(n(512), n(1024)), real(n(512), n(1024))
    return [
        ("Select(P, A, A) ⇒ A", lambda p, a: lax.select(p, a, a), lambda p, a: a, (p, a)),
        ("Select(True, A, B) ⇒ A",
         lambda a, b: lax.select(jnp.ones_like(a, bool), a, b), lambda a, b: a, (a, a)),
        ("Select(False, A, B) ⇒ B",
         lambda a, b: lax.select(jnp.zeros_like(a, bool), a, b), lambda a, b: b, (a, a)),
        ("Select(Not(P), A, B) ⇒ Select(P, B, A)",
         lambda p, a, b: lax.select(~p, a, b), lambda p, a, b: lax.select(p, b, a), (p, a, a)),
    ]  # fmt: skip
