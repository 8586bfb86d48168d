"""Random contractions and convolutions with their values, for tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.model.affine import Affine, Map, dim
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.movement import Reshape
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.meaning.programs import evaluate_node

Array = np.ndarray[Any, Any]
EXTENTS = (1, 1, 2, 3, 4, 5, 6, 7, 8, 12)
PRODUCT = Yield(call("mul", arg(0), arg(1)), "f32", "add")


def contraction(rng: random.Random) -> Generic:
    """Any number of batch, m, n and k loops (k at least one), operands and result in any order."""
    counts = [rng.choice((0, 0, 1)), rng.choice((0, 1, 1, 2)), rng.choice((0, 1, 1, 2))]
    roles: list[list[int]] = []
    sizes: list[int] = []
    for n in (*counts, rng.choice((1, 1, 2))):
        roles.append(list(range(len(sizes), len(sizes) + n)))
        sizes += [rng.choice(EXTENTS) for _ in range(n)]
    batch, m, n, k = roles
    maps = [shuffled(rng, batch + m + k), shuffled(rng, batch + n + k)]
    result = shuffled(rng, batch + m + n)
    shapes = [tuple(sizes[d] for d in loops) for loops in maps]
    exprs = [tuple(dim(d) for d in loops) for loops in maps]
    return canonical_generic(
        sizes, result, exprs, shapes, [PRODUCT], (), ("f32", "f32"), precision="default"
    )


def convolution(rng: random.Random, spatial: int = 2, order: str = "") -> Generic:
    """images, places, filters; channels, window; "NHWC", "NCHW" or any order of dims.

    Window, stride and dilation may be 1, and the image may be either operand.
    """
    n, filters, channels = (rng.choice((1, 2, 3, 4, 5, 8)) for _ in range(3))
    places = [rng.choice((1, 2, 4, 5)) for _ in range(spatial)]
    windows = [rng.choice((1, 1, 2, 3)) for _ in range(spatial)]
    strides = [rng.choice((1, 1, 2)) for _ in range(spatial)]
    dilations = [rng.choice((1, 1, 2)) for _ in range(spatial)]
    sizes = [n, filters, *places, channels, *windows]
    p, c, r = 2, 2 + spatial, 3 + spatial
    reads = [Affine(((p + i, strides[i]), (r + i, dilations[i]))) for i in range(spatial)]
    extents = [
        (places[i] - 1) * strides[i] + (windows[i] - 1) * dilations[i] + 1 for i in range(spatial)
    ]
    image: list[tuple[Any, int]] = [(dim(0), n), *zip(reads, extents, strict=True)]
    kernel: list[tuple[Any, int]] = [(dim(r + i), windows[i]) for i in range(spatial)]
    result = [0, *range(p, p + spatial)]
    if order == "NCHW":
        image.insert(1, (dim(c), channels))
        kernel = [(dim(1), filters), (dim(c), channels), *kernel]
        result.insert(1, 1)
    else:
        image.append((dim(c), channels))
        kernel += [(dim(c), channels), (dim(1), filters)]
        result.append(1)
    if not order:
        image, kernel, result = (shuffled(rng, x) for x in (image, kernel, result))
    operands = [image, kernel] if order or rng.random() < 0.7 else [kernel, image]
    maps = [tuple(e for e, _ in o) for o in operands]
    shapes = [tuple(s for _, s in o) for o in operands]
    return canonical_generic(
        sizes, result, maps, shapes, [PRODUCT], (), ("f32", "f32"), precision="default"
    )


def elementwise(rng: random.Random) -> Generic:
    """Two operands over some of the loops, in order or not."""
    rank = rng.randint(1, 4)
    sizes = [rng.choice((1, 1, 2, 3, 4)) for _ in range(rank)]
    maps: list[Map] = []
    for _ in range(2):
        kept = [d for d in range(rank) if rng.random() < 0.75]
        maps.append(tuple(dim(d) for d in (kept if rng.random() < 0.7 else shuffled(rng, kept))))
    shapes = [tuple(sizes[e.dim or 0] for e in m) for m in maps]
    body = Yield(call("sub", arg(0), arg(1)), "f32", "")
    return canonical_generic(
        sizes, range(rank), maps, shapes, [body], (), ("f32", "f32"), precision="default"
    )


def shuffled(rng: random.Random, values: list[Any]) -> list[Any]:
    return rng.sample(values, len(values))


def operands(g: Generic, rng: random.Random) -> list[Array]:
    """Whole numbers, so that sums are exact in any order."""
    made = np.random.default_rng(rng.randrange(2**32))
    return [made.integers(-4, 5, s).astype(np.float64) for s in g.shapes]


def value(op: str, attr: Any, *xs: Array) -> Array:
    """The result of one op; an attribute that is None leaves the operand alone."""
    return xs[0] if attr is None else evaluate_node(op, attr, xs)[0]


def packed(layout: Layout | None, x: Array) -> Array:
    return value("pack", layout, x)


def reshaped(groups: Reshape | None, x: Array) -> Array:
    return value("reshape", groups, x)


def until_applies(draw: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The first draw whose first part is not None, so that every case of a test tests something."""
    for _ in range(200):
        drawn = draw()
        if drawn[0] is not None:
            return drawn
    raise AssertionError("it never applies")
