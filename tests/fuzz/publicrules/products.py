"""Rules about dots, reductions and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from fuzz.pairs.catalogue import Sizes, real

from .rule import Written

FORM = ("NHWC", "HWIO", "NHWC")


def dot(n: Sizes) -> Sequence[Written]:
    m, k = n(256), n(512)
    x, w, batch = real(m, k), real(k, m), real(4, m, k)

    def stacked(x: Any, y: Any, c: Any, d: Any) -> Any:
        return lax.concatenate([x @ c, y @ d], 0).reshape(2, m, m).sum(0)

    return [
        ("Dot(Concat(X, Y), Concat(C, D)) ⇒ Reduce(Concat(Dot(X, C), Dot(Y, D)))",
         lambda x, y, c, d: lax.concatenate([x, y], 1) @ lax.concatenate([c, d], 0),
         stacked, (x, x, w, w)),
        ("Dot(A, B) ⇒ Dot(B, A)",
         lambda a, b: jnp.einsum("gmk,gnk->gmn", a, b),
         lambda a, b: jnp.einsum("gnk,gmk->gnm", b, a).transpose(0, 2, 1), (batch, batch)),
        ("Dot(A, Dot(B, C)) ⇒ Dot(Dot(A, B), C)",
         lambda a, b, c: a @ (b @ c), lambda a, b, c: (a @ b) @ c, (x, w, x)),
        ("Dot(A, B) ⇒ Mul(Broadcast(A), Broadcast(B)) without a contraction",
         lambda a, b: jnp.einsum("gm,gn->gmn", a, b),
         lambda a, b: a[:, :, None] * b[:, None, :], (real(8, m), real(8, k))),
        ("Dot(A, B) ⇒ 0 when a dim is 0",
         lambda a, b: a @ b, lambda a, b: jnp.zeros((m, m), a.dtype), (real(m, 0), real(0, m))),
        ("Dot(A, B) ⇒ Reduce(Mul(A, Broadcast(B))) when B has contracted and batch dims only",
         lambda a, b: jnp.einsum("gmk,gk->gm", a, b),
         lambda a, b: (a * b[:, None, :]).sum(2), (batch, real(4, k))),
    ]  # fmt: skip


def reduce(n: Sizes) -> Sequence[Written]:
    m, k = n(512), n(1024)
    x, cube = real(m, k), real(n(64), n(128), n(64))

    def apart(x: Any, y: Any) -> Any:
        return lax.concatenate([x.sum(0, keepdims=True), y.sum(0, keepdims=True)], 0).sum(0)

    return [
        ("Mul(Reduce(X), Reduce(Y)) ⇒ Reduce(Mul(Broadcast(X), Broadcast(Y)))",
         lambda x, y: x.sum() * y.sum(), lambda x, y: (x[:, None] * y[None, :]).sum(),
         (real(m), real(k))),
        ("Reduce(Concat(Reduce(X), Reduce(Y))) ⇒ Reduce(Concat(X, Y))",
         apart, lambda x, y: lax.concatenate([x, y], 0).sum(0), (x, x)),
        ("Const * Reduce(X) ⇒ Reduce(Const * X)",
         lambda x: 3.0 * x.sum(1), lambda x: (3.0 * x).sum(1), (x,)),
        ("Reduce(Transpose(X)) ⇒ Transpose(Reduce(X))",
         lambda x: x.transpose(2, 1, 0).sum(1), lambda x: x.sum(1).T, (cube,)),
        ("Reduce(Reduce(X)) ⇒ Reduce(X)", lambda x: x.sum(1).sum(1), lambda x: x.sum((1, 2)),
         (cube,)),
        ("Reduce(Dot(X, Y)) ⇒ Dot(X, Y)",
         lambda x, y: jnp.einsum("gmk,gnk->gmn", x, y).sum(0),
         lambda x, y: jnp.einsum("gmk,gnk->mn", x, y), (real(4, n(256), m), real(4, n(256), m))),
        ("Reduce(X) of dims of 1 ⇒ Reshape(X)", lambda x: x.sum(1), lambda x: x.reshape(m, k),
         (real(m, 1, k),)),
        ("Reduce(Transpose(X)) of dims of 1 ⇒ Reshape(X)",
         lambda x: x.transpose(1, 0, 2).sum(0), lambda x: x.reshape(m, k), (real(m, 1, k),)),
    ]  # fmt: skip


def conv(n: Sizes) -> Sequence[Written]:
    c = n(64)
    x, w, point = real(1, 28, 28, c), real(3, 3, c, c), real(1, 1, c, c)

    def run(x: Any, w: Any, pad: int = 0, **more: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), [(pad, pad)] * 2, dimension_numbers=FORM, **more
        )

    def padded(x: Any, *dims: tuple[int, int, int]) -> Any:
        return lax.pad(x, jnp.asarray(0, x.dtype), dims)

    whole = (0, 0, 0)
    return [
        ("Conv(Pad(A), W, low, high) ⇒ Conv(A, W, low + inner, interior, high + inner)",
         lambda x, w: run(padded(x, whole, (1, 1, 1), (1, 1, 1), whole), w, 1),
         lambda x, w: run(x, w, 2, lhs_dilation=(2, 2)), (x, w)),
        ("Conv(A, Pad(W, interior)) ⇒ Conv(A, W, rhs_dilation)",
         lambda x, w: run(x, padded(w, (0, 0, 1), (0, 0, 1), whole, whole)),
         lambda x, w: run(x, w, rhs_dilation=(2, 2)), (x, w)),
        ("Conv(A, B) ⇒ Dot(A, B)", run, lambda x, w: x @ w[0, 0], (x, point)),
    ]  # fmt: skip
