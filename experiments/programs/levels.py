"""Products of rows of 1,024, 6,000, 4,096 and 768 by weights, which may be packed by levels."""

import jax


def _shapes(rows: int, depth: int, columns: int) -> tuple[jax.ShapeDtypeStruct, ...]:
    shapes = (rows, depth), (depth, columns)
    return tuple(jax.ShapeDtypeStruct(s, "float32") for s in shapes)


def square(x, w):
    return x @ w


def square_example():
    return _shapes(1024, 1024, 1024)


def long(x, w):
    return x @ w


def long_example():
    return _shapes(384, 6000, 4096)


def eight(x, w):
    return x @ w


def eight_example():
    return _shapes(8, 768, 3072)


def skinny(x, w):
    return x @ w


def skinny_example():
    return _shapes(8, 4096, 4096)


square_weights = long_weights = eight_weights = skinny_weights = ("w",)
