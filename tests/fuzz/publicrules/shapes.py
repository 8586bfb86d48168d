"""Rules about movement: broadcasts, concats, pads, slices, reverses, transposes, iotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from fuzz.pairs.catalogue import Sizes, real, whole

from .rule import Written


def padded(a: Any, *dims: tuple[int, int, int], value: float = 2.0) -> Any:
    """`lax.pad`: low, high and interior per dim."""
    return lax.pad(a, jnp.asarray(value, a.dtype), dims)


def broadcast(n: Sizes) -> Sequence[Written]:
    row, m, k = real(n(1024)), n(512), n(1024)

    def over(x: Any) -> Any:
        return lax.broadcast_in_dim(x, (m, k), (1,))

    return [
        ("Add(Broadcast(A), Broadcast(B)) ⇒ Broadcast(Add(A, B))",
         lambda a, b: over(a) + over(b), lambda a, b: over(a + b), (row, row)),
        ("Mul(Broadcast(A), Broadcast(B)) ⇒ Broadcast(Mul(A, B))",
         lambda a, b: over(a) * over(b), lambda a, b: over(a * b), (row, row)),
        ("Transpose(Broadcast(Scalar)) ⇒ Broadcast(Scalar)",
         lambda s: jnp.full((m, k), s).T, lambda s: jnp.full((k, m), s), (real(),)),
        ("Reverse(Broadcast(Scalar)) ⇒ Broadcast(Scalar)",
         lambda s: lax.rev(jnp.full((m, k), s), (0, 1)), lambda s: jnp.full((m, k), s), (real(),)),
        ("Slice(Broadcast(Scalar)) ⇒ Broadcast(Scalar)",
         lambda s: jnp.full((m, k), s)[1:-1:2], lambda s: jnp.full(((m - 1) // 2, k), s),
         (real(),)),
        ("DynamicSlice(Broadcast(Scalar)) ⇒ Broadcast(Scalar)",
         lambda s, i: lax.dynamic_slice_in_dim(jnp.full((m, k), s), i, 8),
         lambda s, i: jnp.full((8, k), s), (real(), whole(8))),
        ("Broadcast(Iota) ⇒ Iota",
         lambda a: lax.broadcast_in_dim(lax.iota(jnp.int32, m), (m, k), (0,)) + a,
         lambda a: lax.broadcasted_iota(jnp.int32, (m, k), 0) + a, (whole(9, m, k),)),
        ("Broadcast(Broadcast(A)) ⇒ Broadcast(A)",
         lambda a: lax.broadcast_in_dim(over(a), (4, m, k), (1, 2)),
         lambda a: lax.broadcast_in_dim(a, (4, m, k), (2,)), (row,)),
    ]  # fmt: skip


def concat(n: Sizes) -> Sequence[Written]:
    a, m = real(n(512), n(512)), n(512)

    def join(*xs: Any) -> Any:
        return lax.concatenate(xs, 0)

    return [
        ("ConcatList(A, B) ⇒ Concat(A, B)",
         lambda a, b: jnp.concatenate([a, b]), join, (a, a)),
        ("Concat(A, Concat(B, C)) ⇒ Concat(Concat(A, B), C)",
         lambda a, b, c: join(a, join(b, c)), lambda a, b, c: join(join(a, b), c), (a, a, a)),
        ("ConcatList(A, B, C) ⇒ Concat(A, Concat(B, C))",
         join, lambda a, b, c: join(a, join(b, c)), (a, a, a)),
        ("Concat(Slice(A), Slice(A)) ⇒ Slice(A)",
         lambda a: join(a[1 : m // 2], a[m // 2 : -1]), lambda a: a[1:-1], (a,)),
        ("Concat(Broadcast(Scalar), B) ⇒ Pad(B, scalar, low)",
         lambda b: join(jnp.full_like(b, 2.0), b), lambda b: padded(b, (m, 0, 0), (0, 0, 0)), (a,)),
        ("Concat(A, Broadcast(Scalar)) ⇒ Pad(A, scalar, high)",
         lambda a: join(a, jnp.full_like(a, 2.0)), lambda a: padded(a, (0, m, 0), (0, 0, 0)), (a,)),
        ("Concat(A, Concat(B, C)) ⇒ ConcatList(A, B, C)",
         lambda a, b, c: join(a, join(b, c)), join, (a, a, a)),
    ]  # fmt: skip


def pad(n: Sizes) -> Sequence[Written]:
    a, one, row, m = real(n(512), n(512)), real(n(512), 1), real(n(512)), n(512)
    return [
        ("Pad(A, val, 0_0_0) ⇒ A", lambda a: padded(a, (0, 0, 0), (0, 0, 0)), lambda a: a, (a,)),
        ("Pad(A, val, low_int_high) ⇒ Pad(A, val, low_0_high)",
         lambda a: padded(a, (1, 2, 0), (3, 4, 5)), lambda a: padded(a, (1, 2, 0), (3, 4, 0)),
         (one,)),
        ("Pad(Broadcast(A), v) ⇒ Broadcast(Pad(Broadcast(A), v))",
         lambda a: padded(lax.broadcast_in_dim(a, (m, m), (1,)), (0, 0, 0), (3, 5, 0)),
         lambda a: lax.broadcast_in_dim(padded(a, (3, 5, 0)), (m, m + 8), (1,)), (row,)),
        ("Pad(A, val, negative) ⇒ Slice(Pad(A, val, 0))",
         lambda a: padded(a, (-2, -3, 0), (1, 2, 0)),
         lambda a: padded(a, (0, 0, 0), (1, 2, 0))[2:-3], (a,)),
    ]  # fmt: skip


def reverse(n: Sizes) -> Sequence[Written]:
    a, cube = real(n(512), n(512)), real(n(64), n(64), n(128))
    return [
        ("Reverse(A, dims of 1) ⇒ A", lambda a: lax.rev(a, (1,)), lambda a: a, (real(n(512), 1),)),
        ("Reverse(Reverse(A, dims), dims) ⇒ A",
         lambda a: lax.rev(lax.rev(a, (0,)), (0,)), lambda a: a, (a,)),
        ("Reverse(Reverse(A, dims1), dims2) ⇒ Reverse(A, symmetric difference)",
         lambda a: lax.rev(lax.rev(a, (0, 1)), (1, 2)), lambda a: lax.rev(a, (0, 2)), (cube,)),
        ("Reverse(Binary(A, Const)) ⇒ Binary(Reverse(A), Const)",
         lambda a: lax.rev(a + 3.0, (0,)), lambda a: lax.rev(a, (0,)) + 3.0, (a,)),
    ]  # fmt: skip


def relabel(n: Sizes) -> Sequence[Written]:
    cube = real(n(64), n(128), n(64))
    return [
        ("Transpose(Transpose(A)) ⇒ Transpose(A)",
         lambda a: a.transpose(1, 0, 2).transpose(0, 2, 1), lambda a: a.transpose(1, 2, 0),
         (cube,)),
        ("Transpose(A) ⇒ A", lambda a: lax.transpose(a, (0, 1, 2)), lambda a: a, (cube,)),
    ]  # fmt: skip


def iota(n: Sizes) -> Sequence[Written]:
    k = n(1024)
    return [
        ("Iota of extent 1 ⇒ Zero",
         lambda a: lax.broadcasted_iota(jnp.int32, (1, k), 0) + a,
         lambda a: jnp.zeros((1, k), jnp.int32) + a, (whole(9, 1, k),)),
    ]  # fmt: skip


def slice_(n: Sizes) -> Sequence[Written]:
    a, row, m = real(n(512), n(512)), real(n(512)), n(512)

    def over(x: Any, count: int = m) -> Any:
        return lax.broadcast_in_dim(x, (count, m), (1,))

    def both(a: Any, b: Any) -> Any:
        return lax.concatenate([a, b], 0)

    return [
        ("Slice(A) ⇒ A", lambda a: lax.slice(a, (0, 0), (m, m)), lambda a: a, (a,)),
        ("Slice(Const) ⇒ Const",
         lambda a: jnp.full((m, m), 2.0, a.dtype)[: m // 2] + a[: m // 2],
         lambda a: jnp.full((m // 2, m), 2.0, a.dtype) + a[: m // 2], (a,)),
        ("Slice(Broadcast(A)) ⇒ Broadcast(Slice(A))",
         lambda a: over(a)[1:-1, 2::2],
         lambda a: lax.broadcast_in_dim(a[2::2], (m - 2, m // 2 - 1), (1,)), (row,)),
        ("Slice(Pad(A)) ⇒ A",
         lambda a: padded(a, (3, 4, 1), (2, 0, 0))[3 : 3 + 2 * m - 1 : 2, 2:], lambda a: a, (a,)),
        ("Slice(Pad(A, v)) ⇒ Broadcast(v)",
         lambda a: padded(a, (m, 0, 0), (0, 0, 0))[: m // 2] + a[: m // 2],
         lambda a: jnp.full((m // 2, m), 2.0, a.dtype) + a[: m // 2], (a,)),
        ("Slice(Pad(A, v)) ⇒ Slice(A)",
         lambda a: padded(a, (3, 3, 0), (0, 0, 0))[4:-5], lambda a: a[1:-2], (a,)),
        ("Slice(Slice(A)) ⇒ Slice(A)", lambda a: a[1:-1][2:-2], lambda a: a[3:-3], (a,)),
        ("Slice(Concat(A, B), A.size, A.size + B.size) ⇒ B",
         lambda a, b: both(a, b)[m:], lambda a, b: b, (a, a)),
        ("Slice(Broadcast(A)) ⇒ Broadcast(A)",
         lambda a: over(a)[: m // 2], lambda a: over(a, m // 2), (row,)),
        ("Slice(Concat(A, B)) ⇒ Slice(A)",
         lambda a, b: both(a, b)[1 : m // 2], lambda a, b: a[1 : m // 2], (a, a)),
        ("Slice(Concat(A, B)) ⇒ Slice(B)",
         lambda a, b: both(a, b)[m + 1 : m + m // 2], lambda a, b: b[1 : m // 2], (a, a)),
        ("Slice(Concat(A, B, C)) ⇒ Slice(Concat(B, C))",
         lambda a, b, c: lax.concatenate([a, b, c], 0)[m + 1 : -1],
         lambda a, b, c: both(b, c)[1:-1], (a, a, a)),
        ("Slice(Reverse(A)) ⇒ Reverse(Slice(A))",
         lambda a: lax.rev(a, (0,))[1:-3], lambda a: lax.rev(a[3:-1], (0,)), (a,)),
    ]  # fmt: skip
