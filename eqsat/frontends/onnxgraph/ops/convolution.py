"""Convolution and its transpose, with any number of spatial axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall
from eqsat.frontends.onnxgraph.ops.windows import MOST, windows_of
from eqsat.frontends.onnxgraph.registry import operator

_LETTERS = "DHW"


def _numbers(rank: int) -> tuple[str, str, str]:
    letters = _LETTERS[-(rank - 2) :]
    return "NC" + letters, "OI" + letters, "NC" + letters


def _check_ranks(c: OnnxCall, x: Any, w: Any) -> None:
    if x.ndim != w.ndim or not 3 <= x.ndim <= 5:
        raise c.error("E368", f"convolves {list(x.shape)} with {list(w.shape)}")


@operator("Conv", newest=22)
def conv(c: OnnxCall) -> Any:
    found = windowed_product(c, c[0], c[1])
    return _biased(c, found)


def _biased(c: OnnxCall, found: Any) -> Any:
    if not c.has(2):
        return found
    return found + c[2].reshape(1, -1, *([1] * (found.ndim - 2)))


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
    strides, dilations, extra = (_spatial(c, n, d) for n, d in _DEFAULTS)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [s * (n - 1) + r for n, s, r in zip(spatial, strides, reach, strict=True)]
    pads = _transposed_pads(c, spatial, full, strides, extra)
    padding = [(r - 1 - a, r - 1 - b + e) for r, (a, b), e in zip(reach, pads, extra, strict=True)]
    found = c.lax.conv_general_dilated(
        x, _flipped(w, groups), (1,) * len(spatial), padding, lhs_dilation=strides,
        rhs_dilation=dilations, dimension_numbers=_numbers(x.ndim), feature_group_count=groups,
    )  # fmt: skip
    return _biased(c, found)


_DEFAULTS = (("strides", 1), ("dilations", 1), ("output_padding", 0))


def _spatial(c: OnnxCall, name: str, default: int) -> tuple[int, ...]:
    rank = c.rank(0) - 2
    found = tuple(int(v) for v in c.attribute(name, (default,) * rank))
    if len(found) != rank or any(not default <= v <= MOST for v in found):
        raise c.error("E368", f"has {name} {list(found)[:16]} over {rank} spatial axes")
    return found


def _transposed_pads(
    c: OnnxCall, spatial: Any, full: list[int], strides: tuple[int, ...], extra: tuple[int, ...]
) -> list[tuple[int, int]]:
    """How much of the full result is cut off at either end."""
    auto, rank = c.attribute("auto_pad", "NOTSET"), len(spatial)
    wanted = c.attribute("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(spatial, strides, strict=True)]
    if wanted is None:
        given = (0,) * (2 * rank) if auto == "VALID" else c.attribute("pads", (0,) * (2 * rank))
        if len(given) != 2 * rank or any(not 0 <= v <= MOST for v in given):
            raise c.error("E368", f"has pads {list(given)[:16]} over {rank} spatial axes")
        return [(int(given[d]), int(given[d + rank])) for d in range(rank)]
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
    found = c.xp.zeros((n, channels, *full), x.dtype)
    for at in np.ndindex(*block):
        place = tuple(
            slice(at[d] * dilations[d], at[d] * dilations[d] + counts[d] * strides[d], strides[d])
            for d in range(rank)
        )
        found = found.at[(slice(None), slice(None), *place)].add(x[(slice(None), slice(None), *at)])
    return found[(..., *(slice(pads[d], pads[d] + image[d]) for d in range(rank)))]
