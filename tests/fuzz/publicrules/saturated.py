"""Rules of the equality saturation of StableHLO in Enzyme-JAX.

Two of its rules are false and left out: an elementwise product, or quotient, of two dots with one
operand in common is not the dot with the product, or quotient, of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from fuzz.pairs.catalogue import Input, Sizes, real

from .rule import Written


def single(n: Sizes) -> Sequence[Written]:
    """`converted.txt`: one pattern each."""
    a, x, w = real(n(512), n(512)), real(n(256), n(512)), real(n(512), n(256))
    return [
        ("Add(X, Add(Y, Z)) ⇒ Add(Add(X, Y), Z)",
         lambda x, y, z: x + (y + z), lambda x, y, z: (x + y) + z, (a, a, a)),
        ("Mul(Add(X, Y), Z) ⇒ Add(Mul(X, Z), Mul(Y, Z))",
         lambda x, y, z: (x + y) * z, lambda x, y, z: x * z + y * z, (a, a, a)),
        ("Transpose(Add(X, Y)) ⇒ Add(Transpose(X), Transpose(Y))",
         lambda x, y: (x + y).T, lambda x, y: x.T + y.T, (a, a)),
        ("Transpose(Subtract(X, Y)) ⇒ Subtract(Transpose(X), Transpose(Y))",
         lambda x, y: (x - y).T, lambda x, y: x.T - y.T, (a, a)),
        ("Transpose(Mul(X, Y)) ⇒ Mul(Transpose(X), Transpose(Y))",
         lambda x, y: (x * y).T, lambda x, y: x.T * y.T, (a, a)),
        ("Dot(Dot(X, Y), Z) ⇒ Dot(X, Dot(Y, Z))",
         lambda x, y, z: (x @ y) @ z, lambda x, y, z: x @ (y @ z), (x, w, real(n(256), 8))),
        ("Add(Dot(X, Y), Dot(X, Z)) ⇒ Dot(X, Add(Y, Z))",
         lambda x, y, z: x @ y + x @ z, lambda x, y, z: x @ (y + z), (x, w, w)),
        ("Subtract(Dot(X, Y), Dot(X, Z)) ⇒ Dot(X, Subtract(Y, Z))",
         lambda x, y, z: x @ y - x @ z, lambda x, y, z: x @ (y - z), (x, w, w)),
        ("Min(X, X) ⇒ X", lambda x: lax.min(x, x), lambda x: x, (a,)),
        ("Max(X, X) ⇒ X", lambda x: lax.max(x, x), lambda x: x, (a,)),
        ("Subtract(X, Y) ⇒ Add(X, Neg(Y))", lambda x, y: x - y, lambda x, y: x + -y, (a, a)),
        ("Neg(Add(X, Y)) ⇒ Add(Neg(X), Neg(Y))",
         lambda x, y: -(x + y), lambda x, y: -x + -y, (a, a)),
        ("Neg(Mul(X, Y)) ⇒ Mul(Neg(X), Y)", lambda x, y: -(x * y), lambda x, y: -x * y, (a, a)),
        ("Neg(Mul(X, Y)) ⇒ Mul(X, Neg(Y))", lambda x, y: -(x * y), lambda x, y: x * -y, (a, a)),
        *(_of_concat(name, op, a) for name, op in
          (("Add", lax.add), ("Subtract", lax.sub), ("Mul", lax.mul))),
        ("Concat₀(Concat₁(X, Y), Concat₁(Z, W)) ⇒ Concat₁(Concat₀(X, Z), Concat₀(Y, W))",
         lambda x, y, z, w: jnp.concatenate(
             [jnp.concatenate([x, y], 1), jnp.concatenate([z, w], 1)], 0),
         lambda x, y, z, w: jnp.concatenate(
             [jnp.concatenate([x, z], 0), jnp.concatenate([y, w], 0)], 1), (a, a, a, a)),
    ]  # fmt: skip


def _of_concat(name: str, op: Any, a: Input) -> Written:
    def left(x: Any, y: Any, z: Any, w: Any) -> Any:
        return jnp.concatenate([op(x, y), op(z, w)])

    def right(x: Any, y: Any, z: Any, w: Any) -> Any:
        return op(jnp.concatenate([x, z]), jnp.concatenate([y, w]))

    text = f"Concat({name}(X, Y), {name}(Z, W)) ⇒ {name}(Concat(X, Z), Concat(Y, W))"
    return text, left, right, (a, a, a, a)


def several(n: Sizes) -> Sequence[Written]:
    """`converted_multi.txt`: two dots at once."""
    x, w, k = real(n(64), n(512)), real(n(512), n(128)), n(128)
    m = n(64)
    return [
        ("Dot(X, Y), Dot(X, Z) ⇒ Split(Dot(X, Concat(Y, Z)))",
         lambda x, y, z: (x @ y, x @ z),
         lambda x, y, z: ((p := x @ jnp.concatenate([y, z], 1))[:, :k], p[:, k:]), (x, w, w)),
        ("Dot(X, Z), Dot(Y, Z) ⇒ Split(Dot(Concat(X, Y), Z))",
         lambda x, y, z: (x @ z, y @ z),
         lambda x, y, z: ((p := jnp.concatenate([x, y], 0) @ z)[:m], p[m:]), (x, x, w)),
    ]  # fmt: skip


def first(n: Sizes) -> Sequence[Written]:
    """`converted.txt` of the project it grew out of (smjleo/tensat), as far as not above."""
    a = real(n(512), n(512))
    return [
        ("Mul(X, Mul(Y, Z)) ⇒ Mul(Mul(X, Y), Z)",
         lambda x, y, z: x * (y * z), lambda x, y, z: (x * y) * z, (a, a, a)),
        ("Mul(X, Div(Y, Z)) ⇒ Div(Mul(X, Y), Z)",
         lambda x, y, z: x * (y / z), lambda x, y, z: (x * y) / z, (a, a, a)),
        ("Add(Div(X, Z), Div(Y, Z)) ⇒ Div(Add(X, Y), Z)",
         lambda x, y, z: x / z + y / z, lambda x, y, z: (x + y) / z, (a, a, a)),
    ]  # fmt: skip
