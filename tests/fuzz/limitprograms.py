"""Ten programs that a short limit cuts, of ten kinds: each is a JAX function and its example.

`limits --cut` asks what is proven of them when the time is over.
"""

import jax
import jax.numpy as jnp
import numpy as np

ITEMS = jax.ShapeDtypeStruct
WIDTH, LAYERS = 96, 300

deep_weights = convolutions_weights = attention_weights = mlp_weights = ("weights",)


def deep(x, weights):
    """A chain of products with an activation behind each."""
    for w in weights:
        x = jax.nn.relu(x @ w)
    return x


def deep_example():
    return ITEMS((64, WIDTH), "float32"), [ITEMS((WIDTH, WIDTH), "float32")] * LAYERS


def wide(x, weights):
    """One argument, read by 150 products, and their sum."""
    return sum(jnp.tanh(x @ w) for w in weights)


def wide_example():
    return ITEMS((128, 64), "float32"), [ITEMS((64, 48), "float32")] * 150


def concat(parts):
    """400 parts side by side."""
    return jnp.concatenate([jnp.tanh(p) for p in parts], axis=1)


def concat_example():
    return ([ITEMS((256, 8), "float32")] * 400,)


def tiny(xs):
    """500 small ops that share what they read, a third of which are sums."""
    found = list(xs)
    for i in range(500):
        a, b = found[-1 - i % 7], found[-2 - i % 5]
        kind = i % 3
        found.append(a * b + a if kind else jnp.tanh(a - a.sum(axis=i % 2, keepdims=True)))
    return found[-1], found[-2]


def tiny_example():
    return ([ITEMS((8, 16), "float32")] * 12,)


def reductions(x):
    """150 sums, most of which read the one before them."""
    found = []
    for i in range(75):
        x = x - jnp.mean(x, axis=i % 2, keepdims=True)
        found.append(jnp.max(x, axis=1 - i % 2))
    return x, *found


def reductions_example():
    return (ITEMS((200, 120), "float32"),)


def mixed(x, y, weights):
    """250 ops that a fixed sequence of numbers chooses."""
    draw, found = np.random.default_rng(0), [x, y]
    for w in weights:
        a, b = (found[int(i)] for i in draw.integers(max(0, len(found) - 6), len(found), 2))
        kind = int(draw.integers(5))
        if kind == 0:
            found.append(a @ w)
        elif kind == 1:
            found.append(jnp.exp(-a) + b.T)
        elif kind == 2:
            found.append(jax.nn.softmax(a, axis=-1) * b)
        elif kind == 3:
            found.append(jnp.concatenate([a[:40], b[40:]], axis=0))
        else:
            found.append(jnp.pad(a[1:-1], ((1, 1), (0, 0))) - b)
    return sum(found[2:])


def mixed_example():
    side = ITEMS((80, 80), "float32")
    return side, side, [side] * 100


def convolutions(x, weights):
    """40 convolutions in blocks of two with a residual."""
    for first, second in zip(weights[::2], weights[1::2], strict=True):
        x = x + _convolved(jax.nn.relu(_convolved(x, first)), second)
    return x


def _convolved(x, w):
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dims)


def convolutions_example():
    return ITEMS((1, 28, 28, 32), "float32"), [ITEMS((3, 3, 32, 32), "float32")] * 40


def attention(x, weights):
    """12 layers of attention with four heads."""
    for q, k, v, o in weights:
        sides = [(x @ w).reshape(64, 4, 32).transpose(1, 0, 2) for w in (q, k, v)]
        scores = jax.nn.softmax(sides[0] @ sides[1].transpose(0, 2, 1) / 5.6, axis=-1)
        x = x + (scores @ sides[2]).transpose(1, 0, 2).reshape(64, 128) @ o
    return x


def attention_example():
    return ITEMS((64, 128), "float32"), [[ITEMS((128, 128), "float32")] * 4] * 12


def loops(x, w):
    """Loops in loops, between products."""

    def inner(_, y):
        return jnp.tanh(y @ w)

    def outer(i, y):
        return jax.lax.fori_loop(0, 8, inner, y) + i

    for _ in range(6):
        x = jax.nn.softmax(jax.lax.fori_loop(0, 10, outer, x) @ w, axis=-1)
    return x


def loops_example():
    return ITEMS((32, 64), "float32"), ITEMS((64, 64), "float32")


def mlp(x, weights):
    """60 gated layers, each normalised."""
    for gate, up, down in weights:
        y = x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
        x = x + (jax.nn.silu(y @ gate) * (y @ up)) @ down
    return x


def mlp_example():
    sides = [ITEMS((128, 200), "float32")] * 2 + [ITEMS((200, 128), "float32")]
    return ITEMS((48, 128), "float32"), [sides] * 60
