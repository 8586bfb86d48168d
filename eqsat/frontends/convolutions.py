"""Convolutions (`conv_general_dilated` in every form) → sums of products over windows.

Convolutions of an image spread with zeros are computed without the zeros, phase by phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.frontends.values import Context, Tensor, dtype_name
from eqsat.frontends.views import Edges, padded, reshaped
from eqsat.frontends.windows import contract
from eqsat.model.affine import Affine, affine, dim


# ---- phases --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Phases:
    """How a spatial dim is taken apart. skipped: positions in front of the first that is wanted."""

    every: int
    positions: int
    taps: int
    skipped: int
    image: Edges
    window: Edges

    def result_edges(self, extent: int) -> Edges:
        """What is cut off of all positions so that `extent` of them are left."""
        return -self.skipped, extent + self.skipped - self.every * self.positions, 0


def phases(
    p: Any, j: int, image_extent: int, window_extent: int, result_extent: int
) -> Phases | None:
    """Of spatial dim j of a `conv_general_dilated` with parameters p; None if it has no phases."""
    every, low = int(p["lhs_dilation"][j]), int(p["padding"][j][0])
    plain = int(p["window_strides"][j]) == int(p["rhs_dilation"][j]) == 1
    if every == 1 or not plain or 0 in (image_extent, window_extent, result_extent):
        return None
    # with so many positions skipped the window is divided into as few groups as can be
    aligned = (-1 - low) % every
    choices = [_phases(every, low, s, image_extent, window_extent, result_extent)
             for s in (0, aligned)]  # fmt: skip
    return min(choices, key=lambda f: f.taps)


def _phases(
    every: int, low: int, skipped: int, image_extent: int, window_extent: int, result_extent: int
) -> Phases:
    low += skipped
    positions = -(-(result_extent + skipped) // every)
    first = -(low // every)
    last = (window_extent - 1 + every - 1 - low) // every
    taps = last - first + 1
    before = every - 1 - (every * first + low)  # of the window, so that groups are whole
    after = every * taps - before - window_extent
    image = (-first, positions + last - image_extent, 0)
    return Phases(every, positions, taps, skipped, image, (before, after, 0))


def window_edges(per_dim: Sequence[Phases | None], dims: Sequence[int], rank: int) -> list[Edges]:
    """Zeros around a window of this rank whose spatial dims are `dims`."""
    edges: list[Edges] = [(0, 0, 0)] * rank
    for d, f in zip(dims, per_dim, strict=True):
        if f is not None:
            edges[d] = f.window
    return edges


# ---- convolutions --------------------------------------------------------------------------------
@dataclass
class _Loops:
    """Loops so far, the result dims' loops, and what indexes each operand dim.

    A split dim has two indices. phases: of the spatial dims, with the loop of the phase.
    """

    sizes: list[int] = field(default_factory=list)
    result: dict[int, Affine] = field(default_factory=dict)
    image: dict[int, list[Affine]] = field(default_factory=dict)
    kernel: dict[int, list[Affine]] = field(default_factory=dict)
    phases: dict[int, tuple[Phases, Affine]] = field(default_factory=dict)

    def loop(self, extent: int) -> Affine:
        """A further loop."""
        self.sizes.append(extent)
        return dim(len(self.sizes) - 1)

    def loop_above_one(self, extent: int) -> Affine:
        """A further loop; none, and index 0, for an extent of 1."""
        return affine([]) if extent == 1 else self.loop(extent)


def conv_general_dilated(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """Any layout, stride, dilation, padding and grouping."""
    p, dtype = eqn.params, dtype_name(eqn.outvars[0].aval.dtype)
    if dtype is None:
        return None
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    spec = p["dimension_numbers"]
    spatial = tuple(zip(spec.lhs_spec[2:], spec.rhs_spec[2:], spec.out_spec[2:], strict=True))
    per_dim = [
        phases(p, j, xs[0].shape[a], xs[1].shape[b], shape[c])
        for j, (a, b, c) in enumerate(spatial)
    ]
    x = padded(ctx, xs[0], _edges(p, per_dim), 0)
    kernel = padded(ctx, xs[1], window_edges(per_dim, spec.rhs_spec[2:], len(shape)), 0)
    nest = _Loops()
    split = {c: f for f, (_, _, c) in zip(per_dim, spatial, strict=True) if f is not None}
    group = _add_result(nest, p, shape, split)
    rank = len(nest.sizes)
    _add_channels(nest, p, kernel.shape, group)
    for j in range(len(shape) - 2):
        _add_window(nest, p, j, kernel.shape)
    taps = {d: f.taps for d, f in zip(spec.rhs_spec[2:], per_dim, strict=True) if f is not None}
    operands = [
        _operand(ctx, x, nest.image, _groups(p), {}),
        _operand(ctx, kernel, nest.kernel, _groups(p), taps),
    ]
    total = contract(ctx, nest.sizes, rank, operands, dtype, p["precision"])
    if total is None:
        return None
    whole = [split[d].every * split[d].positions if d in split else n for d, n in enumerate(shape)]
    edges = [split[d].result_edges(n) if d in split else (0, 0, 0) for d, n in enumerate(shape)]
    return [padded(ctx, reshaped(ctx, total[0], tuple(whole)), edges, 0)]


def _edges(p: Any, per_dim: Sequence[Phases | None]) -> list[Edges]:
    spec = p["dimension_numbers"].lhs_spec
    edges: list[Edges] = [(0, 0, 0)] * len(spec)
    pairs = zip(p["padding"], p["lhs_dilation"], per_dim, strict=True)
    for d, ((low, high), dilation, f) in zip(spec[2:], pairs, strict=True):
        edges[d] = f.image if f is not None else (int(low), int(high), int(dilation) - 1)
    return edges


def _groups(p: Any) -> int:
    return int(p["feature_group_count"]) * int(p["batch_group_count"])  # one of them is 1


def _add_result(
    nest: _Loops, p: Any, shape: tuple[int, ...], split: Mapping[int, Phases]
) -> Affine:
    """Loops of the result's dims, its channels as groups and channels of each.

    split: dims of positions and phases.

    Returns the index of the group.
    """
    groups, channels, group = _groups(p), p["dimension_numbers"].out_spec[1], affine([])
    for d, extent in enumerate(shape):
        if d == channels and groups > 1:
            group = nest.loop(groups)
            nest.result[d] = nest.loop_above_one(extent // groups)
        elif d in split:
            nest.result[d] = nest.loop(split[d].positions)
            nest.phases[d] = split[d], nest.loop(split[d].every)
        else:
            nest.result[d] = nest.loop(extent)
    return group


def _add_channels(nest: _Loops, p: Any, kernel: tuple[int, ...], group: Affine) -> None:
    """Everything that is no window: images, channels and filters."""
    spec, grouped = p["dimension_numbers"], _groups(p) > 1
    extent = kernel[spec.rhs_spec[1]]
    channel = nest.loop_above_one(extent) if grouped else nest.loop(extent)
    split = [group] if grouped else []
    images, channels = spec.lhs_spec[:2]
    nest.image[images] = [nest.result[spec.out_spec[0]]]
    nest.image[channels] = [channel]
    grouped_dim = channels if p["feature_group_count"] > 1 else images
    nest.image[grouped_dim] = split + nest.image[grouped_dim]
    nest.kernel[spec.rhs_spec[0]] = [*split, nest.result[spec.out_spec[1]]]
    nest.kernel[spec.rhs_spec[1]] = [channel]


def _add_window(nest: _Loops, p: Any, j: int, kernel: tuple[int, ...]) -> None:
    """Spatial dim j: stride * position + dilation * offset; no loop for a window of 1."""
    spec = p["dimension_numbers"]
    ((position, _),) = nest.result[spec.out_spec[2 + j]].terms
    if spec.out_spec[2 + j] in nest.phases:
        split, phase = nest.phases[spec.out_spec[2 + j]]
        tap = nest.loop_above_one(split.taps)
        nest.image[spec.lhs_spec[2 + j]] = [affine([(position, 1), *tap.terms])]
        within = affine([(d, -stride) for d, stride in phase.terms], split.every - 1)
        nest.kernel[spec.rhs_spec[2 + j]] = [tap, within]
        return
    offset = nest.loop_above_one(kernel[spec.rhs_spec[2 + j]])
    inside = [(d, int(p["rhs_dilation"][j])) for d, _ in offset.terms]
    nest.image[spec.lhs_spec[2 + j]] = [affine([(position, int(p["window_strides"][j])), *inside])]
    nest.kernel[spec.rhs_spec[2 + j]] = [offset]


def _operand(
    ctx: Context, x: Tensor, index: dict[int, list[Affine]], groups: int, taps: Mapping[int, int]
) -> tuple[Tensor, list[Affine]]:
    """The operand with its split dims as two, and what indexes each of its dims.

    taps: of the dims that are split into taps and phases; all others are split into groups.
    """
    shape, flat = [], []
    for d, extent in enumerate(x.shape):
        first = taps.get(d, groups)
        split = len(index[d]) == 2 and extent > first
        shape += [first, extent // first] if split else [extent]
        flat += index[d] if split else index[d][:1]
    return reshaped(ctx, x, tuple(shape)), flat
