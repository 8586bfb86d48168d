"""Which elements of a program's values may hold anything: padding `?`, and what reads it.

It follows from the program alone. Verification leaves these elements out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.model.control import Control
from eqsat.model.foreign import Custom
from eqsat.model.generic import Generic, Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.program import Node, Program
from eqsat.ops.builtin.layouts import pack, unpack
from eqsat.ops.custom import dependent_lanes
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import evaluate_node
from eqsat.ops.meaning.structured import strided_view

Array = np.ndarray[Any, Any]
Mask = Array | None  # true where an element may hold anything; None: nowhere


def open_elements(program: Program) -> dict[int, Array]:
    """Node → its open elements, a bool each; nodes without any are not there.

    Of an op with several results it is one array for all of them.
    """
    masks: dict[int, Array] = {}
    for i, n in enumerate(program.nodes):
        mask = _of(program, n, [masks.get(o) for o in n.operands])
        if mask is not None and mask.any():
            masks[i] = mask
    return masks


def _of(program: Program, n: Node, masks: Sequence[Mask]) -> Mask:
    attr = n.attr
    if isinstance(attr, Leaf):
        return _padding(attr.layout) if isinstance(attr.layout, Layout) else None
    if isinstance(attr, Layout):
        return _of_layout(n, attr, masks[0])
    if isinstance(attr, Result):
        maker = program.nodes[n.operands[0]].attr
        if isinstance(maker, Control) and attr.index >= len(maker.result_types):
            return np.ones(n.type.shape, bool)  # bytes for temporaries
    if all(m is None for m in masks):
        return None
    if isinstance(attr, Result):
        assert masks[0] is not None
        return np.broadcast_to(masks[0], n.type.shape)
    if isinstance(attr, Generic):
        return _of_generic(attr, masks)
    return _of_other(program, n, masks)


def _padding(layout: Layout) -> Mask:
    """The lanes of padding `?` of a packed tensor."""
    return pack(_marked(layout), np.zeros(layout.source, bool)) if "?" in layout.pads else None


def _marked(layout: Layout) -> Layout:
    """The layout that pads with true where it was open, else with false."""
    marks = {"-": "-", "?": "1"}
    return replace(layout, pads=tuple(marks.get(p, "0") for p in layout.pads))


def _of_layout(n: Node, layout: Layout, mask: Mask) -> Mask:
    if n.op == "unpack":
        return None if mask is None else unpack(layout, mask)
    padding = _padding(layout)
    if mask is None:
        return padding
    if n.op == "relax":
        return mask if padding is None else mask | padding
    return pack(_marked(layout), unpack(layout, mask) if n.op == "retype" else mask)


def _of_generic(g: Generic, masks: Sequence[Mask]) -> Mask:
    """Where a loop nest reads an open element in any of its iterations."""
    if 0 in g.sizes:
        return None
    is_open = np.zeros(g.result_shape, bool)
    read = {o for y in g.yields for o in y.body.operands()}
    for at, mask in enumerate(masks):
        if mask is not None and at in read:
            is_open |= strided_view(mask, g.maps[at], g.sizes).any(axis=tuple(g.reductions))
    return is_open


def _of_other(program: Program, n: Node, masks: Sequence[Mask]) -> Mask:
    types = [program.nodes[o].type for o in n.operands]
    full = [np.zeros(t.shape, bool) if m is None else m for m, t in zip(masks, types, strict=True)]
    attr = n.attr
    if isinstance(attr, Custom):
        held = [np.zeros(t.shape, scalar.held_dtype(t.dtype)) for t in types]
        return dependent_lanes(attr, held, full)
    if n.op == "gather" and isinstance(attr, Move):
        return _of_gather(attr, *full)
    if n.op == "pad" and isinstance(attr, Move):
        attr = replace(attr, args=(*attr.args[:2], "0"))
    if isinstance(attr, Move) or (len(types) == 1 and n.op != "opaque"):
        return evaluate_node(n.op, attr, full)[0]
    return np.ones((), bool)  # of a loop, or of an op nobody modelled: all of its results


def _of_gather(attr: Move, table: Array, indices: Array) -> Array:
    """Any slice may be taken."""
    (axis,) = attr.args
    rows = table.any(axis=axis)
    ends = rows.shape[:axis], rows.shape[axis:]
    around = rows.reshape(*ends[0], *[1] * indices.ndim, *ends[1])
    return around | indices.reshape(*indices.shape, *[1] * len(ends[1]))
