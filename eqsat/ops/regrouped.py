"""A concat of all slices of one value is that value, reshaped and transposed.

`stack(split(x, 4, axis=1))` of f32[64, 128] is `transpose(reshape(x, [64, 4, 32]), [1, 0, 2])`, and
heads that are put side by side again are its inverse.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.attr import Shape
from eqsat.model.movement import Move
from eqsat.model.program import Builder

Regrouped = tuple[int, Shape, tuple[int, ...], Shape]


def regrouped_concat(b: Builder, operands: Sequence[int], axis: int) -> Regrouped | None:
    """(value, its shape with the cut dim in two and no dim of extent 1, the permutation, the shape
    of the result).

    None unless the operands are slices of one value, dims of extent 1 aside, in order, of one
    width, and all of it.
    """
    slices = [_slice_of(b, o) for o in operands]
    found = [s for s in slices if s is not None]
    if len(found) < len(slices) or len({x for x, _ in found}) != 1 or len(found) < 2:
        return None
    x, first = found[0]
    cut = _cut_dim([m for _, m in found])
    shapes = [b.type(o).shape for o in operands]
    if cut is None or len(set(shapes)) != 1:
        return None
    source, shape = b.type(x).shape, shapes[0]
    before = _place(first.shape, shape, axis)
    if before is None:
        return None
    count, width = len(operands), first.shape[cut]
    split = (*source[:cut], count, width, *source[cut + 1 :])
    dims = [d + (d >= cut) for d in range(len(source))]  # of the source, in `split`
    dims.insert(before, cut)
    result = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    large = [d for d, s in enumerate(split) if s != 1]
    perm = tuple(large.index(d) for d in dims if d in large)
    return x, tuple(split[d] for d in large), perm, result


def _slice_of(b: Builder, node: int) -> tuple[int, Move] | None:
    """The value of which this is a slice, dims of extent 1 aside, and the slice."""
    n = b.nodes[node]
    if n.op == "reshape":
        (below,) = n.operands
        if _large(b.type(below).shape) != _large(n.type.shape):
            return None
        n = b.nodes[below]
    return (n.operands[0], n.attr) if n.op == "slice" and isinstance(n.attr, Move) else None


def _large(shape: Shape) -> list[int]:
    return [s for s in shape if s != 1]


def _cut_dim(moves: Sequence[Move]) -> int | None:
    """The one dim that the slices cut, into all its parts of one width, in order."""
    source = moves[0].sources[0]
    dims = [d for d, s in enumerate(source) if moves[0].shape[d] != s]
    if len(dims) != 1:
        return None
    (cut,) = dims
    width = source[cut] // len(moves)
    for i, m in enumerate(moves):
        start = tuple(i * width if d == cut else 0 for d in range(len(source)))
        shape = tuple(width if d == cut else s for d, s in enumerate(source))
        if m.args[0] != start or m.shape != shape or set(m.args[2]) - {1}:
            return None
    return cut if width * len(moves) == source[cut] else None


def _place(cut: Shape, shape: Shape, axis: int) -> int | None:
    """The dim of a slice before which the parts are counted, if they are put together at `axis`.

    shape: that of the slice with other dims of extent 1.
    """
    before = sum(s != 1 for s in shape[:axis])
    large = [d for d, s in enumerate(cut) if s != 1]
    return large[before] if before < len(large) else len(cut)
