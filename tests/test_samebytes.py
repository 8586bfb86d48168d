"""Layouts that are the same bytes, by whatever conversions, are one buffer; no others are."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from fuzz.classes import as_graph, evaluate_classes
from seeds import seeds

from eqsat.extract.candidates.space import Space
from eqsat.model.attr import Attr
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType
from eqsat.saturate.run import with_same_bytes

SHAPE = (4, 8, 2, 1)


def some_conversion(rng: random.Random, shape: tuple[int, ...]) -> tuple[str, Attr]:
    """Of a tensor of this shape, whose extents are powers of two."""
    op, rank = rng.choice(("transpose", "pack", "reshape", "unpack")), len(shape)
    if op == "transpose":
        return op, Transpose(shape, tuple(rng.sample(range(rank), rank)))
    if op == "reshape" or rank == 1:
        cut = rng.choice((1, 2, 4, 8))
        return "reshape", Reshape(shape, (math.prod(shape) // cut, cut))
    if op == "pack":
        d = rng.randrange(rank)
        tile = rng.choice([t for t in (1, 2, 4, 8) if shape[d] % t == 0])
        return op, Layout(shape, (d,), (tile,), tuple(rng.sample(range(rank), rank)), ("-",))
    *blocks, tile = shape
    outer, d = tuple(rng.sample(range(rank - 1), rank - 1)), rng.randrange(rank - 1)
    sizes = [blocks[outer.index(i)] * (tile if i == d else 1) for i in range(rank - 1)]
    return op, Layout(tuple(sizes), (d,), (tile,), outer, ("-",))


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_equal_bytes_are_one_buffer_and_others_are_not(seed: int):
    rng, b = random.Random(seed), Builder("random")
    leaf = Leaf("x", TensorType("f32", SHAPE), 0)
    found = [b.add("input", (), leaf)]
    for _ in range(15):
        at = rng.choice(found)
        shape = b.nodes[at].types[0].shape
        if len(shape) < 6:
            op, attr = some_conversion(rng, shape)
            found.append(b.add(op, (at,), attr))
    graph = with_same_bytes(as_graph(b.build(tuple(found))))
    graph.verify()
    place = np.arange(math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    values = evaluate_classes(graph, {leaf: place})
    assert values.disagreement is None
    flat = [c[0].value.ravel() for c in values.classes if c is not None]
    buffer = Space(graph, None).buffer
    for c in found:
        for d in found:
            assert np.array_equal(flat[c], flat[d]) == (buffer[c] == buffer[d])
