"""Rules about slices and updates from places that are known at run time.

XLA clamps such places so that the slice fits; where the source leaves that out, the right side
says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from fuzz.pairs.catalogue import Sizes, real, whole

from .rule import Written

COUNT = 8  # rows of a slice


def rows(a: Any, i: Any, count: int = COUNT) -> Any:
    return lax.dynamic_slice_in_dim(a, i, count)


def put(a: Any, b: Any, i: Any) -> Any:
    return lax.dynamic_update_slice_in_dim(a, b, i, 0)


def dynamic_slice(n: Sizes) -> Sequence[Written]:
    a, row, m, at = real(n(512), n(512)), real(n(512)), n(512), whole(COUNT)

    def over(x: Any) -> Any:
        return lax.broadcast_in_dim(x, (m, m), (1,))

    return [
        ("DynamicSlice(A) ⇒ Slice(A)",
         lambda a: lax.dynamic_slice(a, (1, 2), (COUNT, COUNT)),
         lambda a: a[1 : COUNT + 1, 2 : COUNT + 2], (a,)),
        ("DynamicSlice(A) of A's shape ⇒ A",
         lambda a, i: rows(a, i, m), lambda a, i: a, (a, at)),
        ("DynamicSlice(Broadcast(A)) ⇒ Broadcast(DynamicSlice(A))",
         lambda a, i: lax.dynamic_slice(over(a), (i, i), (COUNT, COUNT)),
         lambda a, i: lax.broadcast_in_dim(rows(a, i), (COUNT, COUNT), (1,)), (row, at)),
        ("DynamicSlice(Transpose(A)) ⇒ Transpose(DynamicSlice(A))",
         lambda a, i: lax.dynamic_slice_in_dim(a, i, COUNT, 1).T, lambda a, i: rows(a.T, i),
         (a, at)),
        ("DynamicSlice(DynamicSlice(A)) ⇒ DynamicSlice(A)",
         lambda a, i, j: rows(rows(a, i, m // 2), j),
         lambda a, i, j: rows(
             a, jnp.clip(i, 0, m - m // 2) + jnp.clip(j, 0, m // 2 - COUNT)
         ), (a, at, at)),
        ("DynamicSlice(Iota) ⇒ index",
         lambda a, i: rows(lax.iota(jnp.int32, m), i, 1) + a,
         lambda a, i: jnp.clip(i, 0, m - 1)[None] + a, (whole(9, n(1024)), at)),
    ]  # fmt: skip


def dynamic_update(n: Sizes) -> Sequence[Written]:
    a, b, m, at = real(n(512), n(512)), real(COUNT, n(512)), n(512), whole(COUNT)
    small = real(COUNT // 2, n(512))
    return [
        ("Add(A, DynamicUpdateSlice(Broadcast(0), B)) ⇒ DynamicUpdateSlice(A, …)",
         lambda a, b, i: a + put(jnp.zeros_like(a), b, i),
         lambda a, b, i: put(a, b + rows(a, i), i), (a, b, at)),
        ("DynamicUpdateSlice(Broadcast(Const), A) ⇒ Pad(A)",
         lambda b: put(jnp.full((m, m), 2.0, b.dtype), b, 3),
         lambda b: lax.pad(
             b, jnp.asarray(2.0, b.dtype), [(3, m - COUNT - 3, 0), (0, 0, 0)]
         ), (b,)),
        ("DynamicUpdateSlice(A, B) of A's shape ⇒ B",
         put, lambda a, b, i: b, (a, a, at)),
        ("DynamicUpdateSlice(A, DynamicUpdateSlice(DynamicSlice(A), B)) ⇒ DynamicUpdateSlice(A, B)",
         lambda a, b, i, j: put(a, put(rows(a, i), b, j), i),
         lambda a, b, i, j: put(
             a, b, jnp.clip(i, 0, m - COUNT) + jnp.clip(j, 0, COUNT // 2)
         ), (a, small, at, at)),
    ]  # fmt: skip
