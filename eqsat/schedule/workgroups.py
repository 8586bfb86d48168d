"""What a workgroup of a GPU computes of a contraction: "Scratch memory of a GPU" in targets.md."""

from __future__ import annotations

import math

from eqsat.model.affine import loops_of
from eqsat.model.generic import Generic
from eqsat.model.target import Workgroup
from eqsat.model.tensor import DTYPES, cdiv
from eqsat.ops.contraction import contraction_roles, inner_loops


def tile_bytes(extents: tuple[int, ...], dtype: str) -> int:
    return cdiv(math.prod(extents) * DTYPES[dtype][0], 8)


def operand_tile_bytes(g: Generic, operand: int, extents: list[int]) -> int:
    dims = []
    for e, size in zip(g.maps[operand], g.shapes[operand], strict=True):
        span = 1 + sum(abs(stride) * (extents[d] - 1) for d, stride in e.terms)
        dims.append(min(span, size))
    return tile_bytes(tuple(dims), g.dtypes[operand])


def _role(loop: int, lhs: set[int], rhs: set[int]) -> str:
    return {(True, False): "m", (False, True): "n"}.get((loop in lhs, loop in rhs), "batch")


def workgroup_tile(g: Generic, workgroup: Workgroup) -> tuple[list[int], bool]:
    """The extent of every loop in one workgroup; False if some role's loops are whole."""
    if contraction_roles(g) is None:
        return [1] * g.rank + list(g.sizes[g.rank :]), True
    if g.tile:
        inner = sorted(inner_loops(g))
        depths = [d for d in inner if d >= g.rank]  # two of them are one k tile, cut twice
        depth = g.tile[-1] if len(depths) == 1 else max(g.sizes)
        tile = {d: g.sizes[d] if d < g.rank else min(depth, g.sizes[d]) for d in inner}
        return [tile.get(d, 1) for d in range(len(g.sizes))], True
    used = [loops_of(m) for m in g.maps]
    role = ["k" if d >= g.rank else _role(d, *used) for d in range(len(g.sizes))]
    extents, aligned = [1] * len(g.sizes), True
    for name in "mnk":
        loops = [d for d, r in enumerate(role) if r == name and g.sizes[d] > 1]
        options = workgroup.extents(name)
        tile = next((t for t in options if loops and g.sizes[loops[-1]] % t == 0), None)
        if tile is None and workgroup.unaligned == "padded":
            tile = min(options)
        if loops and tile is not None:
            extents[loops[-1]] = tile
        elif loops:
            aligned = False
            for d in loops:
                extents[d] = g.sizes[d]
    return extents, aligned
