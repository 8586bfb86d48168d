"""Sums of products with windows → `lax.conv_general_dilated`, packed forms included.

Input channels, output channels and images may each be several loops (a packed convolution has an
outer and an inner channel loop); they are brought together by transposes and reshapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.model.affine import Map
from eqsat.model.generic import Generic
from eqsat.ops.meaning import element_dtype


@dataclass(frozen=True)
class Window:
    """One spatial dim: input = stride * position + dilation * offset."""

    axis: int  # of the image
    position: int  # loops
    offset: int
    stride: int
    dilation: int


@dataclass(frozen=True)
class Roles:
    """Loops of a convolution; image and kernel name the operands."""

    image: int
    kernel: int
    batch: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    windows: tuple[Window, ...]


def roles(g: Generic) -> Roles | None:
    """The roles if this is one ungrouped convolution, else None."""
    for image in (0, 1):
        kernel = 1 - image
        if all(e.dim is not None for e in g.maps[kernel]):
            return _roles(g, image, kernel)
    return None


def _roles(g: Generic, image: int, kernel: int) -> Roles | None:
    filters = [e.dim for e in g.maps[kernel] if e.dim is not None]
    windows = _windows(g, g.maps[image])
    bare = [e.dim for e in g.maps[image] if e.dim is not None]
    if not windows or len(set(filters)) != len(filters) or len(set(bare)) != len(bare):
        return None
    positions = [w.position for w in windows]
    offsets = [w.offset for w in windows]
    inputs = [d for d in bare if d in filters]
    batch = [d for d in bare if d not in filters]
    outputs = [d for d in filters if d not in bare and d not in offsets]
    fits = (
        set(offsets) <= set(filters)
        and sorted(inputs + offsets) == list(g.reductions)
        and sorted(batch + outputs + positions) == list(range(g.rank))
        and len(inputs) + len(batch) + len(windows) == len(g.maps[image])
    )
    if not fits:
        return None
    return Roles(image, kernel, tuple(batch), tuple(inputs), tuple(outputs), windows)


def _windows(g: Generic, m: Map) -> tuple[Window, ...]:
    """Every sum of one result loop and one reduction loop with positive strides; () if others."""
    found = []
    for axis, e in enumerate(m):
        if e.dim is not None:
            continue
        if len(e.terms) != 2 or e.constant or any(s <= 0 for _, s in e.terms):
            return ()
        (p, stride), (w, dilation) = sorted(e.terms)
        if p >= g.rank or w < g.rank:
            return ()
        found.append(Window(axis, p, w, stride, dilation))
    return tuple(found)


def convolve(g: Generic, arrays: Sequence[Any]) -> Any | None:
    """The result over all loops of `g.result_shape`, or None if this is no convolution."""
    from jax import lax

    from eqsat.execute.loops import operand_types, to_loops

    r = roles(g)
    if r is None:
        return None
    typed = operand_types(g, arrays)
    at = [e.dim for e in g.maps[r.image]]
    axes = [at.index(d) for d in (*r.batch, *r.inputs)] + [w.axis for w in r.windows]
    image = lax.transpose(typed[r.image], axes)
    spatial = image.shape[len(r.batch) + len(r.inputs) :]
    image = image.reshape(_extent(g, r.batch), _extent(g, r.inputs), *spatial)
    filters = [e.dim for e in g.maps[r.kernel]]
    offsets = [w.offset for w in r.windows]
    kernel = lax.transpose(
        typed[r.kernel], [filters.index(d) for d in (*r.outputs, *r.inputs, *offsets)]
    )
    kernel = kernel.reshape(
        _extent(g, r.outputs), _extent(g, r.inputs), *(g.sizes[d] for d in offsets)
    )
    found = lax.conv_general_dilated(
        image,
        kernel,
        [w.stride for w in r.windows],
        "VALID",
        rhs_dilation=[w.dilation for w in r.windows],
        precision=lax.Precision.HIGHEST,
        preferred_element_type=element_dtype(g.yields[0].dtype),
    )
    order = [*r.batch, *r.outputs, *(w.position for w in r.windows)]
    return to_loops(found.reshape([g.sizes[d] for d in order]), order, g.result_shape)


def _extent(g: Generic, loops: Sequence[int]) -> int:
    return math.prod(g.sizes[d] for d in loops)
