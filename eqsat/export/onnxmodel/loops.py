"""Operands of a generic as tensors over its loops.

Constants, strides and reversals of an indexing map become slices, so that every dim that is left
is one loop or a window sum such as `2*d0 + d4`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eqsat.export.onnxmodel.graph import Graph, Value, extent
from eqsat.export.plan import Inexpressible
from eqsat.model.affine import Affine, Map, dim, map_loops
from eqsat.model.generic import Generic

GATHER_LIMIT = 2**22  # elements of a constant table of indices


def project_all(graph: Graph, g: Generic, operands: Sequence[Value]) -> tuple[Generic, list[Value]]:
    """The same generic whose maps hold bare dims and window sums only, and its operands."""
    found = [project(graph, x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]
    values = [v for v, _ in found]
    maps = tuple(m for _, m in found)
    return replace(g, maps=maps, shapes=tuple(v.shape for v in values)), values


def project(graph: Graph, x: Value, m: Map, sizes: Sequence[int]) -> tuple[Value, Map]:
    """Slice x to what its map reaches; dims that are read at one place go."""
    ranges = [_range(e, sizes) for e in m]
    starts, stops, steps = ([r[i] for r in ranges] for i in range(3))
    x = graph.slice(x, starts, stops, steps)
    kept = [axis for axis, e in enumerate(m) if e.terms]
    x = graph.reshape(x, [x.shape[axis] for axis in kept])
    return x, tuple(_plain(m[axis], sizes) for axis in kept)


def _range(e: Affine, sizes: Sequence[int]) -> tuple[int, int, int]:
    low, high = _reach(e, sizes)
    if len(e.terms) != 1:
        return low, high + 1, 1
    step = e.terms[0][1]
    return (low, high + 1, step) if step > 0 else (high, low - 1, step)


def _reach(e: Affine, sizes: Sequence[int]) -> tuple[int, int]:
    ends = [s * (sizes[d] - 1) for d, s in e.terms]
    low = e.constant + sum(min(v, 0) for v in ends)
    return low, e.constant + sum(max(v, 0) for v in ends)


def _plain(e: Affine, sizes: Sequence[int]) -> Affine:
    if len(e.terms) == 1:
        return dim(e.terms[0][0])
    return e._replace(constant=e.constant - _reach(e, sizes)[0])


def bare_loops(m: Map) -> list[int] | None:
    """The loop of every dim, if each is a loop of its own; else None."""
    loops = [e.dim for e in m]
    bare = [d for d in loops if d is not None]
    return bare if len(set(bare)) == len(m) else None


def over_loops(graph: Graph, x: Value, m: Map, sizes: Sequence[int]) -> Value:
    """x with one dim per loop, extent 1 where it does not use the loop; leading ones are left out.

    Inexpressible if that needs too large a table of indices.
    """
    loops = bare_loops(m)
    if loops is None:
        x, loops = _gathered(graph, x, m, sizes)
    x = graph.transpose(x, sorted(range(len(loops)), key=lambda axis: loops[axis]))
    shape = [sizes[d] if d in loops else 1 for d in range(len(sizes))]
    first = min(loops, default=len(sizes))
    return graph.reshape(x, shape[first:])


def to_loops(graph: Graph, x: Value, loops: Sequence[int], shape: Sequence[int]) -> Value:
    """A value whose dims are these loops → all loops of `shape`, missing ones repeated."""
    x = graph.transpose(x, sorted(range(len(loops)), key=lambda axis: loops[axis]))
    wide = [shape[d] if d in loops else 1 for d in range(len(shape))]
    return graph.expand(graph.reshape(x, wide), shape)


def _gathered(graph: Graph, x: Value, m: Map, sizes: Sequence[int]) -> tuple[Value, list[int]]:
    """Diagonals and windows without a product: read through a constant table of indices."""
    used = sorted(map_loops(m))
    shape = [sizes[d] for d in used]
    if extent(shape) > GATHER_LIMIT:
        raise Inexpressible(f"its windows read {extent(shape)} elements one by one")
    grid = np.indices(shape)
    flat = np.zeros(shape, np.int64)
    for e, size in zip(m, x.shape, strict=True):
        at = sum((s * grid[used.index(d)] for d, s in e.terms), np.asarray(e.constant))
        flat = flat * size + at
    line = graph.reshape(x, [extent(x.shape)])
    return graph.gather(line, graph.constant(flat, "i64"), 0), used
