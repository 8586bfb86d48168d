"""Resize: one axis after another, by picked elements or by a matrix of interpolation weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall, operator

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
