"""`pack` and its family: tensors in blocks, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.model.attr import Shape, ShapeError
from eqsat.model.expr import read_literal
from eqsat.model.layout import Layout
from eqsat.ops.movement.layout import make_layout
from eqsat.ops.movement.regions import read_by_view
from eqsat.ops.op import Array, Op, Values


class NeedsPadding(ShapeError):
    """A pack made from fields would need a padding value and has none."""


def pack(layout: Layout, x: Array, garbage: Any = None) -> Array:
    """Strip-mine, pad the high side, outer dims first, tile dims last (MLIR `linalg.pack`).

    "?" padding is `garbage`: if not given NaN, or the largest integer, so that a leak into a valid
    lane shows. A lane beyond several dims holds what `layout.padded_dims` comes to last.
    """
    for d, tile, text in layout.padded_dims:
        missing = -layout.source[d] % tile
        if missing:
            open_lane = text == "?" and garbage is not None
            x = _pad_high(x, d, missing, garbage if open_lane else lane_padding(text, x.dtype))
    shape, order = layout.blocked(x.shape)
    return x.reshape(shape).transpose(order)


def _pad_high(x: Array, axis: int, count: int, value: Any) -> Array:
    widths = [(0, count if d == axis else 0) for d in range(x.ndim)]
    return np.pad(x, widths, constant_values=value)


def lane_padding(text: str, held: np.dtype[Any]) -> Any:
    """Value of lanes of this padding: of "?" NaN, or the largest integer."""
    if text != "?":
        return held.type(read_literal(text))
    if held.kind == "f":
        return np.nan
    return True if held.kind == "b" else np.iinfo(held).max


def unpack(layout: Layout, x: Array) -> Array:
    """Undo `pack` and cut the padding off (MLIR `linalg.unpack`)."""
    slots, padded = layout.unblocked(x.shape)
    whole = x.transpose(slots).reshape(padded)
    return whole[tuple(slice(0, s) for s in layout.source)]


def _make(sources: Sequence[Shape], given: Values) -> Layout:
    (shape,) = sources
    pads = given.get("pad") or ("-",) * len(given["tiles"])
    outer = given.get("outer", tuple(range(len(shape))))
    try:
        layout = make_layout(shape, given["pos"], given["tiles"], outer, pads)
    except (IndexError, ValueError, ZeroDivisionError) as e:
        raise ShapeError(f"`pos` and `tiles` do not fit a tensor of shape {list(shape)}") from e
    divisible = all(shape[d] % t == 0 for d, t in zip(layout.pos, layout.tiles, strict=True))
    if not divisible and "-" in pads:
        raise NeedsPadding(f"{list(shape)} needs a padding value")
    return layout


def _record(name: str, doc: str, numpy: Callable[..., Array]) -> Op:
    fields = {"pos": "ints", "tiles": "ints", "outer": "ints", "pad": "pads"}
    return Op(
        name, doc, 1, fields, numpy=numpy, attr=Layout, make=_make, whole="layout",
        optional=("outer", "pad"), reads=read_by_view,
    )  # fmt: skip


OPS = (
    _record("pack", "In blocks, with padding.", pack),
    _record("unpack", "Out of its blocks, padding cut off.", unpack),
    _record("retype", "The same blocks with other padding.", lambda a, x: pack(a, unpack(a, x))),
    _record("relax", "As it is; what the padding holds is forgotten.", lambda a, x: x),
)
