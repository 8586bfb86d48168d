"""Pools: max, average, Lp, global."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import STATIC_ELEMENTS, OnnxCall
from eqsat.frontends.onnxgraph.ops.windows import Windows, windows_of
from eqsat.frontends.onnxgraph.registry import operator

MOST_PLACES = 4096  # in a window whose positions are compared one by one


def _windows(c: OnnxCall) -> tuple[Windows, tuple[tuple[int, int], ...]]:
    """The windows, and their pads with what `ceil_mode` adds behind."""
    kernel = c.needed("kernel_shape")
    if c.rank(0) != len(kernel) + 2:
        raise c.error("E368", f"has a window of {len(kernel)} axes over {list(c.shape(0))}")
    w = windows_of(c, c.shape(0)[2:], kernel)
    if not c.attribute("ceil_mode", 0) or c.attribute("auto_pad", "NOTSET").startswith("SAME"):
        return w, w.pads
    return w, tuple(_ceiled(w, size, d) for d, size in enumerate(c.shape(0)[2:]))


def _ceiled(w: Windows, size: int, d: int) -> tuple[int, int]:
    """Pads for one window more where the last would be cut, unless it lay in the padding alone."""
    low, high = w.pads[d]
    count = -(-(size + low + high - w.reach(d)) // w.strides[d]) + 1
    if (count - 1) * w.strides[d] >= size + low:
        count -= 1
    return low, max((count - 1) * w.strides[d] + w.reach(d) - size - low, 0)


def _reduced(c: OnnxCall, x: Any, start: Any, run: Any, w: Windows, pads: Any) -> Any:
    return c.lax.reduce_window(
        x, np.asarray(start, x.dtype), run, (1, 1, *w.kernel), (1, 1, *w.strides),
        ((0, 0), (0, 0), *pads), window_dilation=(1, 1, *w.dilations),
    )  # fmt: skip


@operator("MaxPool", newest=22)
def max_pool(c: OnnxCall) -> Any:
    w, pads = _windows(c)
    least = -np.inf if c.dtype(0).kind not in "iu" else np.iinfo(c.dtype(0)).min
    found = _reduced(c, c[0], least, c.lax.max, w, pads)
    return (found, _places(c, w, pads, found)) if c.wants(1) else found


def _places(c: OnnxCall, w: Windows, pads: Any, found: Any) -> Any:
    """The flat index of each window's first maximum."""
    if math.prod(w.kernel) > MOST_PLACES:
        raise c.unsupported(f"indices for windows of {math.prod(w.kernel)} elements")
    spatial, counts = c.shape(0)[2:], found.shape[2:]
    order = range(len(spatial))
    if c.attribute("storage_order", 0):
        steps = [math.prod(spatial[:d]) for d in order]
    else:
        steps = [math.prod(spatial[d + 1 :]) for d in order]
    images = np.arange(math.prod(c.shape(0)[:2])) * math.prod(spatial)
    best = c.xp.full(found.shape, -1, np.int64)
    x = c[0]
    for at in reversed(list(np.ndindex(*w.kernel))):
        lines = [
            np.arange(counts[d]) * w.strides[d] + at[d] * w.dilations[d] - pads[d][0] for d in order
        ]
        inside = [(i >= 0) & (i < s) for i, s in zip(lines, spatial, strict=True)]
        kept = [np.clip(i, 0, s - 1) for i, s in zip(lines, spatial, strict=True)]
        values = x[(slice(None), slice(None), *np.ix_(*kept))]
        flat = sum(g * s for g, s in zip(np.ix_(*kept), steps, strict=True))
        flat = images.reshape(*c.shape(0)[:2], *([1] * len(spatial))) + flat
        best = c.xp.where((values == found) & _everywhere(inside), flat, best)
    return best.astype(np.int64)


def _everywhere(lines: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Where all the axes' conditions hold."""
    found = np.ones((), bool)
    for line in lines:
        found = np.logical_and.outer(found, line)
    return found


@operator("AveragePool", newest=22)
def average_pool(c: OnnxCall) -> Any:
    """Divided by the window, or by its elements that lie in the image (or in the given pads)."""
    w, pads = _windows(c)
    total = _reduced(c, c[0], 0, c.lax.add, w, pads)
    if not any(map(any, pads)):
        return total / math.prod(w.kernel)
    if math.prod(total.shape[2:]) > STATIC_ELEMENTS:
        raise c.error("E368", f"gives an image of {list(total.shape[2:])}, which is too large")
    count = np.ones((), np.int64)
    for d, size in enumerate(c.shape(0)[2:]):
        count = np.multiply.outer(count, _counted(c, w, pads, size, d))
    if (count == count.flat[0]).all():
        return total / int(count.flat[0])
    return total / c.xp.asarray(count, total.dtype)


def _counted(c: OnnxCall, w: Windows, pads: Any, size: int, d: int) -> np.ndarray[Any, Any]:
    """How many elements of each window along one axis count; those `ceil_mode` adds never do."""
    low, high = w.pads[d] if c.attribute("count_include_pad", 0) else (0, 0)
    count = (size + sum(pads[d]) - w.reach(d)) // w.strides[d] + 1
    if count > STATIC_ELEMENTS:
        raise c.error("E368", f"has {count} windows along an axis, which are too many")
    begin, step = np.arange(count) * w.strides[d] - pads[d][0], w.dilations[d]
    first = np.maximum(-((low + begin) // step), 0)
    last = np.minimum((size + high - 1 - begin) // step, w.kernel[d] - 1)
    return np.maximum(last - first + 1, 0)


@operator("LpPool", newest=22)
def lp_pool(c: OnnxCall) -> Any:
    w, pads = _windows(c)
    p = int(c.attribute("p", 2))
    return _root(c, _reduced(c, _powered(c, c[0], p), 0, c.lax.add, w, pads), p)


def _powered(c: OnnxCall, x: Any, p: int) -> Any:
    if p == 1:
        return c.xp.abs(x)
    return x * x if p == 2 else c.xp.abs(x) ** p


def _root(c: OnnxCall, x: Any, p: int) -> Any:
    if p == 1:
        return x
    return c.xp.sqrt(x) if p == 2 else x ** (1 / p)


def _globally(c: OnnxCall, reduce: Callable[..., Any], x: Any) -> Any:
    return reduce(x, axis=tuple(range(2, c.rank(0))), keepdims=True)


operator("GlobalAveragePool", newest=22)(lambda c: _globally(c, c.xp.mean, c[0]))
operator("GlobalMaxPool", newest=22)(lambda c: _globally(c, c.xp.max, c[0]))


@operator("GlobalLpPool", newest=22)
def global_lp_pool(c: OnnxCall) -> Any:
    p = int(c.attribute("p", 2))
    return _root(c, _globally(c, c.xp.sum, _powered(c, c[0], p)), p)
