"""Gather, scatter and their kin, and Resize, which gathers along one axis after another.

A resized axis is read at picked elements or multiplied by a matrix of interpolation weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import STATIC_ELEMENTS, OnnxCall, operator


def _wrapped(c: OnnxCall, i: int, size: int) -> Any:
    """Indices counted from 0; those known now are checked to lie in the axis."""
    held = c.held(i)
    if held.is_constant:
        index = held.array
        if index.size and (index.min() < -size or index.max() >= size):
            raise c.error("E368", f"reads beyond an axis of {size} elements")
        return np.where(index < 0, index + size, index) if index.dtype.kind == "i" else index
    index = c[i]
    return c.xp.where(index < 0, index + size, index) if index.dtype.kind == "i" else index


@operator("Gather", newest=13, fold=True)
def gather(c: OnnxCall) -> Any:
    """Known indices that step evenly are a slice."""
    axis = c.along("axis", 0)
    index = _wrapped(c, 1, c.shape(0)[axis])
    if c.xp is np:
        return np.take(c[0], index, axis=axis)
    steps = _even_steps(index) if isinstance(index, np.ndarray) else None
    if steps is None:
        return c.xp.take(c[0], index, axis=axis, mode="clip")
    at = (slice(None),) * axis
    rows = c[0][(*at, steps)]
    return rows.reshape(c.shape(0)[:axis] + index.shape + c.shape(0)[axis + 1 :])


def _even_steps(index: np.ndarray[Any, Any]) -> slice | None:
    flat = index.reshape(-1).astype(np.int64)
    if flat.size == 0:
        return None
    step = int(flat[1] - flat[0]) if flat.size > 1 else 1
    if step < 1 or not (np.diff(flat) == step).all():
        return None
    return slice(int(flat[0]), int(flat[-1]) + 1, step)


@operator("GatherElements", newest=13, fold=True)
def gather_elements(c: OnnxCall) -> Any:
    axis = c.along("axis", 0)
    if c.rank(0) != c.rank(1):
        raise c.error("E368", f"has data of rank {c.rank(0)} and indices of rank {c.rank(1)}")
    index = _wrapped(c, 1, c.shape(0)[axis])
    cut = tuple(slice(None) if d == axis else slice(0, s) for d, s in enumerate(c.shape(1)))
    return c.xp.take_along_axis(c[0][cut], c.xp.asarray(index), axis=axis)


@operator("GatherND", newest=13, fold=True)
def gather_nd(c: OnnxCall) -> Any:
    batch = int(c.attribute("batch_dims", 0))
    depth, lead = c.shape(1)[-1], c.shape(1)[:-1]
    if not 0 <= batch < min(c.rank(0), c.rank(1)) or not 1 <= depth <= c.rank(0) - batch:
        raise c.error("E368", f"indexes {depth} of {c.rank(0)} dims below {batch} batch dims")
    grid = [_batch_index(c, lead, b) for b in range(batch)]
    index = c[1]
    for d in range(depth):
        size = c.shape(0)[batch + d]
        part = index[..., d]
        grid.append(c.xp.where(part < 0, part + size, part))
    return c[0][tuple(grid)]


def _batch_index(c: OnnxCall, lead: tuple[int, ...], b: int) -> Any:
    shape = [lead[b] if d == b else 1 for d in range(len(lead))]
    return c.xp.asarray(np.arange(lead[b]).reshape(shape))


@operator("ScatterND", newest=18, fold=True)
def scatter_nd(c: OnnxCall) -> Any:
    depth = c.shape(1)[-1]
    if depth > c.rank(0):
        raise c.error("E368", f"indexes {depth} dims of a tensor of rank {c.rank(0)}")
    index = c[1]
    at = tuple(_positive(c, index[..., d], c.shape(0)[d]) for d in range(depth))
    return _updated(c, c[0], at, c[2])


def _positive(c: OnnxCall, index: Any, size: int) -> Any:
    return c.xp.where(index < 0, index + size, index)


@operator("ScatterElements", newest=18, fold=True)
def scatter_elements(c: OnnxCall) -> Any:
    axis = c.along("axis", 0)
    shape = c.shape(1)
    at = [_batch_index(c, shape, d) for d in range(len(shape))]
    at[axis] = _positive(c, c[1], c.shape(0)[axis])
    return _updated(c, c[0], tuple(at), c[2])


_NUMPY_UPDATES = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _updated(c: OnnxCall, x: Any, at: tuple[Any, ...], updates: Any) -> Any:
    how = c.attribute("reduction", "none")
    if how not in ("none", *_NUMPY_UPDATES):
        raise c.unsupported(f"the reduction `{how}`")
    if c.xp is np:
        updated = np.array(x)
        if how == "none":
            updated[at] = updates
        else:
            _NUMPY_UPDATES[how].at(updated, at, updates)
        return updated
    place = x.at[at]
    return place.set(updates) if how == "none" else getattr(place, how)(updates)


@operator("OneHot", newest=28)
def one_hot(c: OnnxCall) -> Any:
    depth = int(c.static(1, "depth").reshape(-1)[0])
    if not 0 <= depth <= STATIC_ELEMENTS:
        raise c.error("E368", f"has depth {depth}")
    rank = c.rank(0) + 1
    axis = c.axis(int(c.attribute("axis", -1)), rank)
    index = c[0].astype(np.int64)
    index = c.xp.expand_dims(c.xp.where(index < 0, index + depth, index), axis)
    shape = tuple(depth if d == axis else 1 for d in range(rank))
    line = c.xp.asarray(np.arange(depth).reshape(shape), index.dtype)
    values = c[2]
    return c.xp.where(index == line, values[1], values[0])


@operator("TopK", newest=24)
def top_k(c: OnnxCall) -> Any:
    """Ties: the lower index first, as the standard wants it."""
    k = int(c.static(1, "k").reshape(-1)[0])
    axis = c.along("axis", -1)
    if not 0 <= k <= c.shape(0)[axis]:
        raise c.error("E368", f"wants {k} of {c.shape(0)[axis]} elements")
    x, largest = c[0], bool(c.attribute("largest", 1))
    if x.dtype.kind == "u" and largest:
        x = ~x
    key = x if not largest or c.dtype(0).kind == "u" else ~x if x.dtype.kind in "ib" else -x
    order = c.xp.argsort(key, axis=axis, stable=True)
    first = order[tuple(slice(0, k) if d == axis else slice(None) for d in range(x.ndim))]
    return c.xp.take_along_axis(c[0], first, axis=axis), first.astype(np.int64)


@operator("NonZero", newest=13, fold=True)
def non_zero(c: OnnxCall) -> Any:
    indices = np.nonzero(c.static(0, "operand (how many are not zero decides a shape)"))
    return np.stack(indices).astype(np.int64) if indices else np.zeros((0, 1), np.int64)


@operator("Compress", newest=28, fold=True)
def compress(c: OnnxCall) -> Any:
    indices = np.flatnonzero(c.static(1, "condition")).astype(np.int64)
    if "axis" not in c.node.attributes:
        return c.xp.take(c[0].reshape(-1), indices)
    return c.xp.take(c[0], indices, axis=c.axis(int(c.needed("axis")), c.rank(0)))


@operator("ReverseSequence", newest=28)
def reverse_sequence(c: OnnxCall) -> Any:
    batch, time = int(c.attribute("batch_axis", 1)), int(c.attribute("time_axis", 0))
    if {batch, time} != {0, 1}:
        raise c.error("E368", "reverses along other axes than the first two")
    x = c[0] if time == 0 else c.xp.swapaxes(c[0], 0, 1)
    index = reversal(c, x.shape[0], c[1])
    reversed_ = c.xp.take_along_axis(x, index.reshape(*index.shape, *([1] * (x.ndim - 2))), axis=0)
    return reversed_ if time == 0 else c.xp.swapaxes(reversed_, 0, 1)


def reversal(c: OnnxCall, steps: int, lengths: Any) -> Any:
    """[steps, batch]: which step stands at a place after each sequence is reversed."""
    line = c.xp.arange(steps, dtype=lengths.dtype)[:, None]
    return c.xp.where(line < lengths[None], lengths[None] - 1 - line, line)


@operator("Einsum", newest=28)
def einsum(c: OnnxCall) -> Any:
    text = c.needed("equation").replace(" ", "")
    if len(text) > 500:
        raise c.error("E368", "has an equation of more than 500 letters")
    return c.xp.einsum(text, *c.all)


@operator("Unique", newest=28)
def unique(c: OnnxCall) -> Any:
    """Known operands only: the result's shape depends on the values."""
    x = c.static(0, "operand (how many differ decides a shape)")
    axis = c.attribute("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not c.attribute("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return values, *(np.asarray(v, np.int64).reshape(-1) for v in (first, inverse, counts))


Array = np.ndarray[Any, Any]
MOST_WEIGHTS = 2**24  # of one axis: sizes before and after, multiplied
MODES = ("nearest", "linear", "cubic")


@dataclass(frozen=True)
class Axis:
    """One axis: sizes before and after, the scale, and the region of `tf_crop_and_resize`."""

    before: int
    after: int
    scale: float
    begin: float = 0.0
    end: float = 1.0

    @property
    def trivial(self) -> bool:
        return self.before == self.after and self.scale == 1 and (self.begin, self.end) == (0, 1)


@operator("Resize", newest=19)
def resize(c: OnnxCall) -> Any:
    mode = c.attribute("mode", "nearest")
    if mode not in MODES:
        raise c.unsupported(f"the mode `{mode}`")
    x = c[0]
    for d, axis in enumerate(_axes(c)):
        if axis.before * axis.after > MOST_WEIGHTS or axis.after < 1 or axis.before < 1:
            raise c.error("E368", f"resizes an axis from {axis.before} to {axis.after}")
        if axis.trivial:
            continue
        x = _picked(c, x, d, axis) if mode == "nearest" else _mixed(c, x, d, axis, mode)
    return x


def _axes(c: OnnxCall) -> list[Axis]:
    """Every axis of operand 0, resized or not."""
    shape, rank = c.shape(0), c.rank(0)
    axes = c.axes(c.attribute("axes", tuple(range(rank))), rank)
    resized = [Axis(s, s, 1.0) for s in shape]
    region = _region(c, axes, rank)
    for at, d in enumerate(axes):
        resized[d] = Axis(shape[d], *_sizes(c, at, d, axes), *region[d])
    return resized


def _region(c: OnnxCall, axes: tuple[int, ...], rank: int) -> list[tuple[float, float]]:
    region = [(0.0, 1.0)] * rank
    if c.attribute("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return region
    roi = [float(v) for v in c.static(1, "region").reshape(-1)]
    for at, d in enumerate(axes):
        region[d] = (roi[at], roi[at + len(axes)])
    return region


def _sizes(c: OnnxCall, at: int, d: int, axes: tuple[int, ...]) -> tuple[int, float]:
    """(size after, scale) of an axis."""
    before = c.shape(0)[d]
    if c.has(2) and c.shape(2) != (0,):
        scale = float(_listed(c, 2, "scales", axes)[at])
        if not 0 < scale < 2**20:
            raise c.error("E368", f"has the scale {scale}")
        return math.floor(before * scale), scale
    sizes = _listed(c, 3, "sizes", axes)
    policy = c.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return int(sizes[at]), int(sizes[at]) / max(before, 1)
    ratios = [int(s) / max(c.shape(0)[k], 1) for s, k in zip(sizes, axes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return math.floor(scale * before + 0.5), scale


def _listed(c: OnnxCall, i: int, what: str, axes: tuple[int, ...]) -> Array:
    values = c.static(i, what).reshape(-1)
    if len(values) != len(axes):
        raise c.error("E368", f"has {len(values)} {what} for {len(axes)} axes")
    return values


def _coordinates(c: OnnxCall, a: Axis) -> Array:
    """Where each element after stands in the axis before."""
    mode = c.attribute("coordinate_transformation_mode", "half_pixel")
    x = np.arange(a.after, dtype=np.float64)
    length = a.before * a.scale  # not rounded
    if mode == "half_pixel":
        return (x + 0.5) / a.scale - 0.5
    if mode == "half_pixel_symmetric":
        centre = a.before / 2 * (1 - a.after / length)
        return centre + (x + 0.5) / a.scale - 0.5
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / a.scale - 0.5 if length > 1 else x * 0
    if mode == "align_corners":
        return x * (a.before - 1) / (length - 1) if length != 1 else x * 0
    if mode == "asymmetric":
        return x / a.scale
    if mode == "tf_crop_and_resize":
        if a.after > 1:
            step = (a.end - a.begin) * (a.before - 1) / (length - 1)
            return a.begin * (a.before - 1) + x * step
        return x * 0 + 0.5 * (a.begin + a.end) * (a.before - 1)
    raise c.unsupported(f"the coordinate mode `{mode}`")


# ---- nearest -------------------------------------------------------------------------------------
def _picked(c: OnnxCall, x: Any, d: int, a: Axis) -> Any:
    at = _coordinates(c, a)
    mode = c.attribute("nearest_mode", "round_prefer_floor")
    rounds = {
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if mode not in rounds:
        raise c.unsupported(f"the rounding `{mode}`")
    index = np.clip(rounds[mode](at), 0, a.before - 1).astype(np.int64)
    return _outside(c, _repeated(c, x, d, a, index), d, a, at)


def _repeated(c: OnnxCall, x: Any, d: int, a: Axis, index: Array) -> Any:
    """Elements of one axis by number; whole multiples are a broadcast and a reshape."""
    times = a.after // a.before
    if a.after == a.before * times and (index == np.arange(a.after) // times).all():
        return c.xp.repeat(x, times, axis=d)
    steps = np.diff(index)
    if a.after > 1 and steps[0] > 0 and (steps == steps[0]).all():
        cut = slice(int(index[0]), int(index[-1]) + 1, int(steps[0]))
        return x[(*(slice(None),) * d, cut)]
    return c.xp.take(x, index, axis=d, mode="clip")


def _outside(c: OnnxCall, x: Any, d: int, a: Axis, at: Array) -> Any:
    """`tf_crop_and_resize` puts a constant where the region leaves the image."""
    if c.attribute("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return x
    out = (at < 0) | (at > a.before - 1)
    if not out.any():
        return x
    out = out.reshape([-1 if k == d else 1 for k in range(x.ndim)])
    value = np.asarray(c.attribute("extrapolation_value", 0.0), x.dtype)
    return c.xp.where(out, value, x)


# ---- linear and cubic ----------------------------------------------------------------------------
def _mixed(c: OnnxCall, x: Any, d: int, a: Axis, mode: str) -> Any:
    at = _coordinates(c, a)
    weights = _weights(c, at, a, mode)
    line = x.astype(np.float32) if x.dtype.kind in "iu" else x
    mixed = c.xp.tensordot(line, c.xp.asarray(weights, line.dtype), axes=[[d], [1]])
    moved = c.xp.moveaxis(mixed, -1, d)
    if x.dtype.kind in "iu":
        moved = c.xp.clip(c.xp.round(moved), np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    return _outside(c, moved.astype(x.dtype), d, a, at)


def _weights(c: OnnxCall, at: Array, a: Axis, mode: str) -> Array:
    """[after, before]: each row sums to one; reads beyond the edges go to the edge elements."""
    shrink = min(a.scale, 1.0) if c.attribute("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) / shrink
    width = min(math.ceil(reach), 2 * a.before + 2)
    first = np.floor(at).astype(np.int64) - width + 1
    places = first[:, None] + np.arange(2 * width)
    kernel = _triangle if mode == "linear" else _cubic(c.attribute("cubic_coeff_a", -0.75))
    share = kernel((places - at[:, None]) * shrink)
    if c.attribute("exclude_outside", 0):
        share = np.where((places >= 0) & (places < a.before), share, 0.0)
    share = share / share.sum(axis=1, keepdims=True)
    matrix = np.zeros((a.after, a.before))
    rows = np.broadcast_to(np.arange(a.after)[:, None], places.shape)
    np.add.at(matrix, (rows, np.clip(places, 0, a.before - 1)), share)
    return matrix


def _triangle(x: Array) -> Array:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(a: float) -> Any:
    def kernel(x: Array) -> Array:
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return kernel
