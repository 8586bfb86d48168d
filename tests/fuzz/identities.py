"""Respellings that insert what does nothing where a value is read: an identity on one edge."""

from __future__ import annotations

import random
from collections.abc import Callable

from eqsat.model.expr import arg, call, const
from eqsat.model.program import Builder, Program
from eqsat.ops.movement.layout import make_layout
from fuzz.edit import (
    edges,
    inverse,
    moved,
    on_edge,
    plain,
    reshaped,
    shuffled,
    transposed,
)

TILES = ((8, 4), (16, 1), (16, 16), (4, 8), (8, 1))


def transposes(p: Program, rng: random.Random) -> Program | None:
    """A value is transposed and transposed back where it is read."""

    def insert(b: Builder, x: int) -> int:
        perm = shuffled(rng, b.type(x).rank)
        return transposed(b, transposed(b, x, perm), inverse(perm))

    return _on_some_edge(p, rng, insert, rank=2)


def reshapes(p: Program, rng: random.Random) -> Program | None:
    """A value is reshaped and reshaped back: two dims become one, or all."""

    def insert(b: Builder, x: int) -> int:
        s = b.type(x).shape
        at = rng.randrange(len(s) - 1)
        flat = (b.type(x).size,)
        shape = rng.choice([flat, (*s[:at], s[at] * s[at + 1], *s[at + 2 :]), (1, *s)])
        return reshaped(b, reshaped(b, x, shape), s)

    return _on_some_edge(p, rng, insert, rank=2)


def slices_and_concat(p: Program, rng: random.Random) -> Program | None:
    """A value is cut into two or four parts, and these are put together again."""

    def insert(b: Builder, x: int) -> int:
        s = b.type(x).shape
        axis = rng.randrange(len(s))
        count = min(rng.choice((2, 2, 4)), s[axis])
        cuts = [s[axis] * n // count for n in range(count + 1)]
        parts = tuple(_part(b, x, axis, cuts[n], cuts[n + 1]) for n in range(count))
        return moved(b, "concat", parts, axis)

    return _on_some_edge(p, rng, insert)


def _part(b: Builder, x: int, axis: int, start: int, limit: int) -> int:
    s = b.type(x).shape
    starts, limits = [0] * len(s), list(s)
    starts[axis], limits[axis] = start, limit
    return moved(b, "slice", (x,), tuple(starts), tuple(limits), (1,) * len(s))


def pad_and_slice(p: Program, rng: random.Random) -> Program | None:
    """A value is padded by zeros, and they are cut off."""

    def insert(b: Builder, x: int) -> int:
        s = b.type(x).shape
        low, high = [0] * len(s), [0] * len(s)
        axis = rng.randrange(len(s))
        low[axis], high[axis] = rng.choice(((0, 8), (8, 0), (3, 5), (0, 1)))
        padded = moved(b, "pad", (x,), tuple(low), tuple(high), "0.0")
        limit = tuple(a + d for a, d in zip(low, s, strict=True))
        return moved(b, "slice", (padded,), tuple(low), limit, (1,) * len(s))

    return _on_some_edge(p, rng, insert)


def neutral_ops(p: Program, rng: random.Random) -> Program | None:
    """A copy, a product with one, or two negations."""
    x = arg(0)
    product = call("mul", x, const(1.0))
    bodies = rng.choice(
        [(x,), (product,), (call("neg", call("neg", x)),), (call("neg", x),) * 2,
         (call("sub", x, const(0.0)),)]
    )  # fmt: skip

    def insert(b: Builder, x: int) -> int:
        for body in bodies:
            x = plain(b, x, body)
        return x

    return _on_some_edge(p, rng, insert)


def packs(p: Program, rng: random.Random) -> Program | None:
    """A value is packed and unpacked, with zeros where tiles do not divide its last two dims."""
    tiles = rng.choice(TILES)

    def insert(b: Builder, x: int) -> int:
        s = b.type(x).shape
        layout = make_layout(s, (len(s) - 2, len(s) - 1), tiles, range(len(s)), "00")
        return b.append("unpack", (b.append("pack", (x,), layout),), layout)

    return _on_some_edge(p, rng, insert, rank=2)


def _on_some_edge(
    p: Program, rng: random.Random, insert: Callable[[Builder, int], int], rank: int = 1
) -> Program | None:
    found = edges(p, rank)
    return on_edge(p, rng.choice(found), insert) if found else None
