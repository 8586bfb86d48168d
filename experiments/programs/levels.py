"""Products and ops without a product, whose weights may be laid out by levels or for their accesses."""

import jax
import jax.numpy as jnp


def _shapes(*shapes: tuple[int, ...]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(s, "float32") for s in shapes)


# ---- products, of rows x k by k x columns --------------------------------------------------------
def square(x, w):
    return x @ w


def square_example():
    return _shapes((1024, 1024), (1024, 1024))


def long(x, w):
    return x @ w


def long_example():
    return _shapes((384, 6000), (6000, 4096))


def skinny(x, w):
    return x @ w


def skinny_example():
    return _shapes((8, 4096), (4096, 4096))


# ---- no products ---------------------------------------------------------------------------------
def columns(x, w):
    """Rows and columns added."""
    return x + w.T


def columns_example():
    return _shapes((512, 512), (512, 512))


def orders(x, v, w):
    """Three orders of three dims."""
    return x * v.transpose(1, 2, 0) + w.transpose(2, 0, 1)


def orders_example():
    return _shapes((64, 96, 80), (80, 64, 96), (96, 80, 64))


def largest(x, w):
    """The largest sum, along dims of which one operand has them outermost."""
    return jnp.max(x + w.transpose(2, 0, 1), axis=(1, 2))


def largest_example():
    return _shapes((512, 64, 64), (64, 64, 512))


square_weights = long_weights = skinny_weights = columns_weights = largest_weights = ("w",)
orders_weights = ("v", "w")
