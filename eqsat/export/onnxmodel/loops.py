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
from eqsat.model.affine import Map, map_loops
from eqsat.model.generic import Generic
from eqsat.ops.generics.windows import bare_loops, indices, read_part

GATHER_LIMIT = 2**22  # elements of a constant table of indices


def project_all(graph: Graph, g: Generic, operands: Sequence[Value]) -> tuple[Generic, list[Value]]:
    """The same generic whose maps hold bare dims and window sums only, and its operands."""
    found = [project(graph, x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]
    values = [v for v, _ in found]
    maps = tuple(m for _, m in found)
    return replace(g, maps=maps, shapes=tuple(v.shape for v in values)), values


def project(graph: Graph, x: Value, m: Map, sizes: Sequence[int]) -> tuple[Value, Map]:
    """Slice x to what its map reaches; dims that are read at one place go."""
    part = read_part(m, sizes)
    ranges = [r if r[2] > 0 else (r[1] - 1, r[0] - 1, r[2]) for r in part.ranges]
    starts, stops, steps = ([r[i] for r in ranges] for i in range(3))
    x = graph.slice(x, starts, stops, steps)
    return graph.reshape(x, [x.shape[axis] for axis in part.axes]), part.map


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
    shape = [sizes[d] for d in sorted(map_loops(m))]
    if extent(shape) > GATHER_LIMIT:
        raise Inexpressible(f"its windows read {extent(shape)} elements one by one")
    used, at = indices(m, sizes)
    flat = np.ravel_multi_index(at, x.shape) if at else np.zeros((), np.int64)
    line = graph.reshape(x, [extent(x.shape)])
    return graph.gather(line, graph.constant(flat, "i64"), 0), used
