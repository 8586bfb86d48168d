"""A concat of all slices of one value is that value, reshaped and transposed.

`stack(split(x, 4, axis=1))` of f32[64, 128] is `transpose(reshape(x, [64, 4, 32]), [1, 0, 2])`, and
heads that are put side by side again are its inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.limits import MOST_OPERANDS
from eqsat.model.movement import Move, Transpose
from eqsat.model.program import Builder
from eqsat.ops.movement.moves import concat_of, join_slices


@dataclass(frozen=True)
class Whole:
    """A value with its parts in another place: reshaped, transposed, reshaped."""

    split: Shape  # the dim that was cut in two, no dims of extent 1
    transpose: Transpose
    shape: Shape


def put_together(
    b: Builder, operands: Sequence[int], axis: int
) -> tuple[tuple[int, ...], Whole | None]:
    """What is left of a concat, where parts of one value that lie side by side are one.

    If all of it is one value with its parts in another place, that value, and where they go.
    """
    parts = _joined(b, _flat(b, operands, axis), axis)
    found = _whole(b, parts, axis) if len(parts) > 1 else None
    return (tuple(parts), None) if found is None else ((found[0],), found[1])


def _flat(b: Builder, operands: Sequence[int], axis: int) -> list[int]:
    """The operands, and those of concats among them: as many as rules are made for, at most."""
    found: list[int] = []
    for k, o in enumerate(operands):
        below = b.nodes[o].attr
        is_same = isinstance(below, Move) and below.op == "concat" and below.args == (axis,)
        inner = list(b.nodes[o].operands) if is_same else [o]
        rest = len(operands) - k - 1
        found += inner if len(found) + len(inner) + rest <= MOST_OPERANDS else [o]
    return found


def _joined(b: Builder, operands: Sequence[int], axis: int) -> list[int]:
    """The operands without what is empty; slices of one value that lie side by side are one."""
    kept = [o for o in operands if b.type(o).shape[axis]] or list(operands[:1])
    found: list[int] = []
    for o in kept:
        both = _side_by_side(b, found[-1], o, axis) if found else None
        found = [*found, o] if both is None else [*found[:-1], both]
    return found


def _side_by_side(b: Builder, left: int, right: int, axis: int) -> int | None:
    one, two = b.nodes[left], b.nodes[right]
    if one.op != "slice" or two.op != "slice" or one.operands != two.operands:
        return None
    assert isinstance(one.attr, Move) and isinstance(two.attr, Move)
    concat = concat_of([one.type.shape, two.type.shape], axis)
    found = join_slices(concat, one.attr, two.attr)
    if found is None:
        return None
    return one.operands[0] if found.slice is None else b.add("slice", one.operands, found.slice)


def _whole(b: Builder, operands: Sequence[int], axis: int) -> tuple[int, Whole] | None:
    """The value that the operands are slices of, in order, of one width, and all of it.

    Dims of extent 1 aside, which operands may have gained or lost.
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
    shape = tuple(split[d] for d in large)
    return x, Whole(shape, Transpose(shape, perm), result)


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
