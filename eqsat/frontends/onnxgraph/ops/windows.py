"""Operators over windows: convolution, its transpose and pools, with any number of spatial axes.

Windows have strides, dilations, pads, and the sizes they come to; pools are max, average, Lp and
global ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import STATIC_ELEMENTS, OnnxCall, operator

# ---- windows -------------------------------------------------------------------------------------
MOST = 2**20  # of a kernel, stride, dilation or pad; far beyond any model


@dataclass(frozen=True)
class Windows:
    """Per spatial axis: kernel, stride, dilation, and the pad before and after."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def reach(self, d: int) -> int:
        """Elements of the axis between the first and last one of a window, both counted."""
        return (self.kernel[d] - 1) * self.dilations[d] + 1

    def count(self, size: int, d: int) -> int:
        """Windows along an axis."""
        return (size + sum(self.pads[d]) - self.reach(d)) // self.strides[d] + 1


def windows_of(c: OnnxCall, spatial: Sequence[int], kernel: Sequence[int]) -> Windows:
    """The windows of a node over an image of this size; E368 if an attribute makes no sense."""
    rank = len(spatial)
    sizes = _several(c, "kernel_shape", kernel, rank, 1)
    strides = _several(c, "strides", (1,) * rank, rank, 1)
    dilations = _several(c, "dilations", (1,) * rank, rank, 1)
    plain = Windows(sizes, strides, dilations, ((0, 0),) * rank)
    pads = _pads(c, plain, spatial)
    windows = Windows(sizes, strides, dilations, pads)
    for d, size in enumerate(spatial):
        if windows.count(size, d) < 1:
            reach = windows.reach(d)
            raise c.error("E368", f"has a window of {reach} over {size} elements: nothing is left")
    return windows


def _several(
    c: OnnxCall, name: str, default: Sequence[int], rank: int, least: int
) -> tuple[int, ...]:
    values = tuple(int(v) for v in c.attribute(name, tuple(default)))
    if len(values) != rank or any(not least <= v <= MOST for v in values):
        raise c.error("E368", f"has {name} {list(values)[:16]} over {rank} spatial axes")
    return values


def _pads(c: OnnxCall, w: Windows, spatial: Sequence[int]) -> tuple[tuple[int, int], ...]:
    auto, rank = c.attribute("auto_pad", "NOTSET"), len(spatial)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(_same(w, size, d, auto == "SAME_UPPER") for d, size in enumerate(spatial))
    if auto not in ("NOTSET", "VALID", ""):
        raise c.error("E362", f"has the unknown auto_pad `{auto}`")
    return _given_pads(c, auto, rank)


def _given_pads(c: OnnxCall, auto: str, rank: int) -> tuple[tuple[int, int], ...]:
    given = (0,) * (2 * rank) if auto == "VALID" else c.attribute("pads", (0,) * (2 * rank))
    if len(given) != 2 * rank or any(not 0 <= v <= MOST for v in given):
        raise c.error("E368", f"has pads {list(given)[:16]} over {rank} spatial axes")
    return tuple((int(given[d]), int(given[d + rank])) for d in range(rank))


def _same(w: Windows, size: int, d: int, upper: bool) -> tuple[int, int]:
    """Pads that give ceil(size / stride) windows; the odd one behind, or before."""
    count = -(-size // w.strides[d])
    missing = max((count - 1) * w.strides[d] + w.reach(d) - size, 0)
    small, large = missing // 2, missing - missing // 2
    return (small, large) if upper else (large, small)


# ---- convolutions --------------------------------------------------------------------------------
_LETTERS = "DHW"


def _numbers(rank: int) -> tuple[str, str, str]:
    letters = _LETTERS[-(rank - 2) :]
    return "NC" + letters, "OI" + letters, "NC" + letters


def _check_ranks(c: OnnxCall, x: Any, w: Any) -> None:
    if x.ndim != w.ndim or not 3 <= x.ndim <= 5:
        raise c.error("E368", f"convolves {list(x.shape)} with {list(w.shape)}")


@operator("Conv", newest=22)
def conv(c: OnnxCall) -> Any:
    product = windowed_product(c, c[0], c[1])
    return _biased(c, product)


def _biased(c: OnnxCall, product: Any) -> Any:
    if not c.has(2):
        return product
    return product + c[2].reshape(1, -1, *([1] * (product.ndim - 2)))


def windowed_product(c: OnnxCall, x: Any, w: Any) -> Any:
    """x [n, c, …] with w [k, c / groups, …]; strides, dilations, pads and groups of the node."""
    _check_ranks(c, x, w)
    groups = int(c.attribute("group", 1))
    if groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise c.error("E368", f"has {groups} groups of {list(w.shape)} over {list(x.shape)}")
    at = windows_of(c, x.shape[2:], w.shape[2:])
    if at.kernel != tuple(w.shape[2:]):
        raise c.error("E368", f"has kernel_shape {list(at.kernel)} and weights {list(w.shape)}")
    return c.lax.conv_general_dilated(
        x, w, at.strides, at.pads, rhs_dilation=at.dilations,
        dimension_numbers=_numbers(x.ndim), feature_group_count=groups,
    )  # fmt: skip


@operator("ConvTranspose", newest=22)
def conv_transpose(c: OnnxCall) -> Any:
    """The gradient of a convolution by its input: strides become holes, the kernel is flipped."""
    x, w = c[0], c[1]
    _check_ranks(c, x, w)
    groups, spatial = int(c.attribute("group", 1)), x.shape[2:]
    if groups < 1 or x.shape[1] != w.shape[0] or x.shape[1] % groups:
        raise c.error("E368", f"has {groups} groups of {list(w.shape)} over {list(x.shape)}")
    rank = len(spatial)
    strides, dilations, extra = (_several(c, n, (d,) * rank, rank, d) for n, d in _DEFAULTS)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [s * (n - 1) + r for n, s, r in zip(spatial, strides, reach, strict=True)]
    pads = _transposed_pads(c, spatial, full, strides, extra)
    padding = [(r - 1 - a, r - 1 - b + e) for r, (a, b), e in zip(reach, pads, extra, strict=True)]
    product = c.lax.conv_general_dilated(
        x, _flipped(w, groups), (1,) * len(spatial), padding, lhs_dilation=strides,
        rhs_dilation=dilations, dimension_numbers=_numbers(x.ndim), feature_group_count=groups,
    )  # fmt: skip
    return _biased(c, product)


_DEFAULTS = (("strides", 1), ("dilations", 1), ("output_padding", 0))


def _transposed_pads(
    c: OnnxCall, spatial: Any, full: list[int], strides: tuple[int, ...], extra: tuple[int, ...]
) -> Sequence[tuple[int, int]]:
    """How much of the full result is cut off at either end."""
    auto, rank = c.attribute("auto_pad", "NOTSET"), len(spatial)
    wanted = c.attribute("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(spatial, strides, strict=True)]
    if wanted is None:
        return _given_pads(c, auto, rank)
    cut = [f + e - int(w) for f, e, w in zip(full, extra, list(wanted)[-rank:], strict=True)]
    halves = [(t // 2, t - t // 2) for t in cut]
    return halves if auto == "SAME_UPPER" else [(b, a) for a, b in halves]


def _flipped(w: Any, groups: int) -> Any:
    """[c, k / groups, …] → [k, c / groups, …] with the spatial axes reversed."""
    c_in, k, *rest = w.shape
    w = w.reshape(groups, c_in // groups, k, *rest).swapaxes(1, 2)
    w = w.reshape(groups * k, c_in // groups, *rest)
    return w[(slice(None), slice(None), *(slice(None, None, -1),) * len(rest))]


@operator("Col2Im", newest=18)
def col2im(c: OnnxCall) -> Any:
    """Columns of blocks summed back into an image: a transposed convolution with unit kernels."""
    image, block = c.whole(1, "image shape"), c.whole(2, "block shape")
    rank, (n, rows) = len(image), c.shape(0)[:2]
    strides = c.attribute("strides", (1,) * rank)
    dilations = c.attribute("dilations", (1,) * rank)
    pads = c.attribute("pads", (0,) * (2 * rank))
    channels = rows // math.prod(block)
    full = [s + pads[d] + pads[d + rank] for d, s in enumerate(image)]
    counts = [(full[d] - (block[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in range(rank)]
    if math.prod(counts) != c.shape(0)[2] or channels * math.prod(block) != rows:
        raise c.error("E368", f"has columns {list(c.shape(0))} for blocks {block} of {image}")
    x = c[0].reshape(n, channels, *block, *counts)
    sums = c.xp.zeros((n, channels, *full), x.dtype)
    for at in np.ndindex(*block):
        place = tuple(
            slice(at[d] * dilations[d], at[d] * dilations[d] + counts[d] * strides[d], strides[d])
            for d in range(rank)
        )
        sums = sums.at[(slice(None), slice(None), *place)].add(x[(slice(None), slice(None), *at)])
    return sums[(..., *(slice(pads[d], pads[d] + image[d]) for d in range(rank)))]


# ---- pools ---------------------------------------------------------------------------------------
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
    maxima = _reduced(c, c[0], least, c.lax.max, w, pads)
    return (maxima, _places(c, w, pads, maxima)) if c.wants(1) else maxima


def _places(c: OnnxCall, w: Windows, pads: Any, maxima: Any) -> Any:
    """The flat index of each window's first maximum."""
    if math.prod(w.kernel) > MOST_PLACES:
        raise c.unsupported(f"indices for windows of {math.prod(w.kernel)} elements")
    spatial, counts = c.shape(0)[2:], maxima.shape[2:]
    order = range(len(spatial))
    if c.attribute("storage_order", 0):
        steps = [math.prod(spatial[:d]) for d in order]
    else:
        steps = [math.prod(spatial[d + 1 :]) for d in order]
    images = np.arange(math.prod(c.shape(0)[:2])) * math.prod(spatial)
    best = c.xp.full(maxima.shape, -1, np.int64)
    x = c[0]
    for at in reversed(list(np.ndindex(*w.kernel))):
        lines = [
            np.arange(counts[d]) * w.strides[d] + at[d] * w.dilations[d] - pads[d][0] for d in order
        ]
        inside = [(i >= 0) & (i < s) for i, s in zip(lines, spatial, strict=True)]
        clipped = [np.clip(i, 0, s - 1) for i, s in zip(lines, spatial, strict=True)]
        values = x[(slice(None), slice(None), *np.ix_(*clipped))]
        flat = sum(g * s for g, s in zip(np.ix_(*clipped), steps, strict=True))
        flat = images.reshape(*c.shape(0)[:2], *([1] * len(spatial))) + flat
        best = c.xp.where((values == maxima) & _everywhere(inside), flat, best)
    return best.astype(np.int64)


def _everywhere(lines: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Where all the axes' conditions hold."""
    product = np.ones((), bool)
    for line in lines:
        product = np.logical_and.outer(product, line)
    return product


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
