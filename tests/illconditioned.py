"""Functions that are right and lose digits: cancellation, growth, jumps, overflow, narrow types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, "float32")


def of(dtype: str, *shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def array(seed: int, *shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def norm(h: Any, epsilon: float = 1e-5) -> Any:
    m = h.mean(-1, keepdims=True)
    s = ((h - m) ** 2).mean(-1, keepdims=True)
    return (h - m) * jax.lax.rsqrt(s + epsilon)


def attention(n: int, width: int, constant: bool) -> Case:
    """Attention and layer norm; with constant weights every column of what is normed is equal."""
    ones = np.ones((width, width), np.float32)
    w = [ones * (i + 1) if constant else array(i, width, width) for i in range(4)]

    def f(x: Any) -> Any:
        q, k, v = x @ w[0], x @ w[1], x @ w[2]
        h = jax.nn.softmax(q @ k.T / 8.0) @ v
        return norm(h @ w[3] + x)

    return f"attention {n} {width} constant={constant}", f, (f32(n, width),)


def cancelled(by: float) -> Case:
    w, a = array(0, 24, 24), array(1, 16, 24) + by
    return f"cancelled {by:g}", lambda x: norm(jnp.tanh(x @ w) + a - by) @ w, (f32(16, 24),)


def variance(shift: float) -> Case:
    def f(x: Any) -> Any:
        y = x + shift
        return (y * y).mean(-1) - y.mean(-1) ** 2

    return f"variance {shift:g}", f, (f32(20, 33),)


def logits(scale: float) -> Case:
    w = array(1, 32, 32)
    return f"softmax {scale:g}", lambda x: jax.nn.softmax((x @ w) * scale) @ w, (f32(17, 32),)


def log_softmax(scale: float) -> Case:
    w = array(1, 32, 20)
    return f"log softmax {scale:g}", lambda x: jax.nn.log_softmax(x @ w * scale), (f32(17, 32),)


def quotient(gap: float) -> Case:
    w = array(2, 16, 16)

    def f(x: Any) -> Any:
        y = x @ w
        return (y * 2.0) / (jnp.sin(y + gap) - jnp.sin(y))

    return f"quotient {gap:g}", f, (f32(12, 16),)


def deep(layers: int, scale: float) -> Case:
    ws = [array(i, 24, 24, scale=scale) for i in range(layers)]

    def f(x: Any) -> Any:
        for w in ws:
            x = jnp.maximum(x @ w, 0.0) + x
        return x

    return f"deep {layers} {scale:g}", f, (f32(10, 24),)


def narrow(dtype: str, layers: int) -> Case:
    ws = [array(i, 32, 32, scale=0.2).astype(dtype) for i in range(layers)]

    def f(x: Any) -> Any:
        for w in ws:
            x = jax.nn.gelu(x @ w) + x
        return norm(x, 1e-3)

    return f"{dtype} {layers}", f, (of(dtype, 12, 32),)


def mixed(dtype: str, n: int) -> Case:
    w = array(3, n, 16).astype(dtype)

    def f(x: Any) -> Any:
        y = jnp.matmul(x.astype(dtype), w, preferred_element_type=jnp.float32)
        return (y - y.mean(0)).astype(dtype)

    return f"mixed {dtype} {n}", f, (f32(9, n),)


def long_sum(n: int, shift: float) -> Case:
    return f"sum {n} {shift:g}", lambda x: ((x + shift) * 0.1).sum(), (f32(n),)


def chaos(steps: int) -> Case:
    def f(x: Any) -> Any:
        step = lambda _, y: 3.9 * y * (1.0 - y)  # noqa: E731
        return jax.lax.fori_loop(0, steps, step, jax.nn.sigmoid(x))

    return f"chaos {steps}", f, (f32(64),)


def waves(by: float) -> Case:
    w = array(4, 16, 16)
    return f"waves {by:g}", lambda x: jnp.sin((x @ w) * by), (f32(8, 16),)


def growth(top: float) -> Case:
    return f"growth {top:g}", lambda x: jnp.exp(x * 2 + top) * 1e-3, (f32(40),)


def overflow(dtype: str, by: float) -> Case:
    """Beyond the type's range in places, within float64's."""
    w = array(5, 16, 16).astype(dtype)
    return f"overflow {dtype} {by:g}", lambda x: ((x @ w) * by) * by, (of(dtype, 8, 16),)


def root(power: int) -> Case:
    """A polynomial near its root, written out."""
    from math import comb

    def f(x: Any) -> Any:
        y = 1.0 + x * 0.05
        return sum(comb(power, i) * (-1.0) ** (power - i) * y**i for i in range(power + 1))

    return f"root {power}", f, (f32(50),)


def hilbert(n: int) -> Case:
    h = 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1.0)
    a, b = h.astype(np.float32), np.linalg.inv(h + 1e-7 * np.eye(n)).astype(np.float32)
    return f"hilbert {n}", lambda x: (x @ b) @ a, (f32(7, n),)


def difference(h: float) -> Case:
    w = array(6, 12, 12)

    def f(x: Any) -> Any:
        g = lambda v: jnp.tanh(v @ w).sum(-1)  # noqa: E731
        return (g(x + h) - g(x)) / h

    return f"difference {h:g}", f, (f32(9, 12),)


def flat_norm(epsilon: float, spread: float) -> Case:
    """Layer norm of rows that are almost constant."""
    w = array(7, 32, 32)
    return (
        f"flat norm {epsilon:g} {spread:g}",
        lambda x: norm(3.0 + spread * x, epsilon) @ w,
        (f32(8, 32),),
    )


def quantised(scale: float) -> Case:
    w = array(8, 16, 16)

    def f(x: Any) -> Any:
        q = jnp.clip(jnp.round((x @ w) * scale), -127, 127).astype(jnp.int8)
        return (q.astype(jnp.float32) / scale) @ w

    return f"quantised {scale:g}", f, (f32(24, 16),)


def jumps(scale: float) -> Case:
    w = array(9, 24, 24)

    def f(x: Any) -> Any:
        y = x @ w
        return jnp.where(y * scale > jnp.floor(y * scale) + 0.5, y, -y), jnp.argmax(y @ w, -1)

    return f"jumps {scale:g}", f, (f32(20, 24),)


def power_iteration(steps: int) -> Case:
    a = array(10, 16, 16)
    a = a @ a.T

    def f(v: Any) -> Any:
        def step(v: Any, _: Any) -> Any:
            u = a @ v
            return u / jnp.linalg.norm(u), None

        return jax.lax.scan(step, v, None, length=steps)[0]

    return f"power iteration {steps}", f, (f32(16),)


def gram_schmidt(n: int) -> Case:
    near = np.ones((n, 12), np.float32) + array(11, n, 12, scale=1e-3)

    def f(x: Any) -> Any:
        basis: list[Any] = []
        for i in range(n):
            v = near[i] + 1e-3 * x[i]
            for u in basis:
                v = v - (u * v).sum() * u
            basis.append(v / jnp.sqrt((v * v).sum()))
        return jnp.stack(basis)

    return f"gram schmidt {n}", f, (f32(n, 12),)


def tiny(scale: float) -> Case:
    return (
        f"tiny {scale:g}",
        lambda x: (x * scale) / jnp.sqrt(((x * scale) ** 2).sum(-1, keepdims=True) + 1e-30),
        (f32(6, 20),),
    )


def cases() -> Iterator[Case]:
    """A hundred of them."""
    for n, width, constant in ((128, 64, True), (32, 32, True), (48, 16, False), (16, 64, False)):
        yield attention(n, width, constant)
    yield from map(cancelled, (1e2, 1e3, 1e4, 1e5, 1e6, -3e4))
    yield from map(variance, (10.0, 100.0, 1e3, 1e4, 3e4))
    yield from map(logits, (1.0, 10.0, 100.0, 1e3, 1e4))
    yield from map(log_softmax, (1.0, 100.0, 1e4))
    yield from map(quotient, (1e-2, 1e-4, 1e-5, 1e-6, 3e-7))
    for layers, scale in ((8, 0.3), (16, 0.3), (30, 0.2), (30, 0.3), (50, 0.1)):
        yield deep(layers, scale)
    for dtype in ("bfloat16", "float16"):
        for layers in (1, 2, 4, 8, 12):
            yield narrow(dtype, layers)
        for n in (16, 256, 3000):
            yield mixed(dtype, n)
    for n, shift in ((1000, 0.0), (10**5, 0.0), (10**6, 0.0), (10**5, 1.0), (10**6, 3.0)):
        yield long_sum(n, shift)
    yield from map(chaos, (5, 10, 20, 30))
    yield from map(waves, (10.0, 1e3, 1e5))
    yield from map(growth, (20.0, 60.0, 85.0, 90.0))
    yield from (overflow("float16", by) for by in (10.0, 60.0, 100.0, 1000.0))
    yield from (overflow("bfloat16", by) for by in (1e10, 1e18))
    yield from map(root, (3, 5, 7, 9))
    yield from map(hilbert, (3, 5, 8, 12))
    yield from map(difference, (1e-1, 1e-2, 1e-3, 1e-4, 1e-6))
    for epsilon, spread in ((1e-5, 1e-1), (1e-5, 1e-3), (1e-12, 1e-3), (1e-12, 1e-5)):
        yield flat_norm(epsilon, spread)
    yield from map(quantised, (2.0, 4.0, 16.0, 50.0))
    yield from map(jumps, (1.0, 10.0, 1000.0))
    yield from map(power_iteration, (2, 10, 40))
    yield from map(gram_schmidt, (3, 6, 10))
    yield from map(tiny, (1e-5, 1e-12, 1e-19, 1e-25))
