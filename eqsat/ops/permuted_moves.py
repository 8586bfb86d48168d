"""Transposes through pads, slices, concats, gathers and reshapes.

Pure functions on attributes; None means that the condition behind the function does not hold. A
column that is None means that this transpose is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.movement import Move, Reshape
from eqsat.ops.declare import attr_functions
from eqsat.ops.layout import reassociation
from eqsat.ops.lists import inverse
from eqsat.ops.moves import concat_of, gather_of, pad_of, slice_of

Perm = tuple[int, ...]


@dataclass(frozen=True)
class PermutedGather:
    """A gather with its operands transposed (None: not), or its result."""

    source: Perm | None
    indices: Perm | None
    move: Move
    result: Perm | None


@dataclass(frozen=True)
class PermutedReshape:
    """A reshape and the transpose on its other side."""

    groups: Reshape
    perm: Perm


# ---- transposes through moves ------------------------------------------------------------------
def permute_move(move: Move, perm: Perm) -> Move | None:
    """The move M' with M'(transpose(xs, perm)) = transpose(M(xs), perm); not for gathers."""
    sources = [tuple(s[p] for p in perm) for s in move.sources]
    if move.op == "concat":
        return concat_of(sources, perm.index(move.args[0]))
    if move.op == "pad":
        low, high, value = move.args
        return pad_of(sources[0], [low[p] for p in perm], [high[p] for p in perm], value)
    if move.op == "slice":
        return slice_of(sources[0], *([a[p] for p in perm] for a in move.args))
    return None


def _unless_sorted(perm: Sequence[int]) -> Perm | None:
    return None if list(perm) == sorted(perm) else tuple(perm)


def gather_above(gather: Move, perm: Perm) -> PermutedGather | None:
    """transpose(gather(x, i), perm) = gather(transpose(x), transpose(i)).

    The index dims have to stay side by side.
    """
    (axis,) = gather.args
    source, indices = gather.sources
    block = range(axis, axis + len(indices))
    at = [slot for slot, p in enumerate(perm) if p in block]
    if at and at != list(range(at[0], at[0] + len(at))):
        return None
    begin = at[0] if at else axis  # a scalar index leaves no dim: the axis may stand anywhere
    outside = [p if p < axis else p - len(indices) + 1 for p in perm if p not in block]
    order = (*outside[:begin], axis, *outside[begin:])
    inside = [perm[slot] - axis for slot in at]
    move = gather_of(tuple(source[p] for p in order), tuple(indices[p] for p in inside), begin)
    return PermutedGather(_unless_sorted(order), _unless_sorted(inside), move, None)


def gather_below_source(gather: Move, perm: Perm) -> PermutedGather:
    """gather(transpose(x, perm), i) = transpose(gather(x, i))."""
    (axis,) = gather.args
    permuted, indices = gather.sources
    source = tuple(permuted[p] for p in inverse(perm))
    along, count = perm[axis], len(indices)
    result: list[int] = []
    for slot, p in enumerate(perm):
        if slot == axis:
            result += range(along, along + count)
        else:
            result.append(p if p < along else p + count - 1)
    return PermutedGather(None, None, gather_of(source, indices, along), _unless_sorted(result))


def gather_below_indices(gather: Move, perm: Perm) -> PermutedGather:
    """gather(x, transpose(i, perm)) = transpose(gather(x, i))."""
    (axis,) = gather.args
    source, permuted = gather.sources
    indices = tuple(permuted[p] for p in inverse(perm))
    behind = range(axis + len(perm), len(gather.shape))
    result = (*range(axis), *(axis + p for p in perm), *behind)
    return PermutedGather(None, None, gather_of(source, indices, axis), _unless_sorted(result))


def moves_units_only(shape: Shape, perm: Perm) -> bool:
    """Whether the dims larger than 1 stay in order."""
    large = [p for p in perm if shape[p] != 1]
    return large == sorted(large)


# ---- transposes through reshapes ---------------------------------------------------------------
def transpose_above_reshape(groups: Reshape, perm: Perm) -> PermutedReshape | None:
    """transpose(reshape(x), perm) = reshape(transpose(x)) if perm moves whole groups.

    Dims of size 1 belong to no group, and stay where they are in x: put anywhere, they would give
    equal transposes ever new names. None for a transpose of such dims only: it is a reshape.
    """
    if moves_units_only(groups.shape, perm) or 0 in groups.shape:
        return None
    source, target = ([d for d, s in enumerate(v) if s != 1] for v in (groups.source, groups.shape))
    found = reassociation(
        tuple(groups.source[d] for d in source), tuple(groups.shape[d] for d in target)
    )
    large = [target.index(p) for p in perm if p in target]
    order = None if found is None else _whole_groups([right for _, right in found], large)
    if found is None or order is None:
        return None
    moved = list(range(len(groups.source)))
    for slot, at in zip(source, (at for g in order for at in found[g][0]), strict=True):
        moved[slot] = source[at]
    shape = tuple(groups.source[d] for d in moved)
    return PermutedReshape(Reshape(shape, tuple(groups.shape[p] for p in perm)), tuple(moved))


def transpose_below_reshape(perm: Perm, groups: Reshape) -> PermutedReshape | None:
    """reshape(transpose(x, perm)) = transpose(reshape(x)) if the reshape keeps perm's blocks."""
    back = transpose_above_reshape(Reshape(groups.shape, groups.source), inverse(perm))
    if back is None:
        return None
    return PermutedReshape(Reshape(back.groups.shape, back.groups.source), inverse(back.perm))


def _whole_groups(groups: list[list[int]], order: list[int]) -> list[int] | None:
    """The sequence in which the groups are visited; None if one of them is taken apart."""
    of = {d: i for i, dims in enumerate(groups) for d in dims}
    visited = list(dict.fromkeys(of[d] for d in order))
    return visited if [d for i in visited for d in groups[i]] == order else None


FUNCTIONS = attr_functions(
    permute_move, gather_above, gather_below_source, gather_below_indices, transpose_above_reshape,
    transpose_below_reshape,
)  # fmt: skip
