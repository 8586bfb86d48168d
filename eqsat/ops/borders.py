"""Layouts across a border of devices: what one side packs, the other may pack."""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.devices import Transfer
from eqsat.model.layout import Layout
from eqsat.ops.declare import attr_functions
from eqsat.ops.lists import inverse


def border_of_pack(border: Transfer, layout: Layout) -> Transfer:
    """b' with pack(transfer(x, b), l) = transfer(pack(x, l), b')."""
    return replace(border, source=layout.packed_shape)


def border_of_unpack(border: Transfer, layout: Layout) -> Transfer:
    """b' with unpack(transfer(y, b), l) = transfer(unpack(y, l), b')."""
    return replace(border, source=layout.source)


def border_of_transpose(border: Transfer, perm: tuple[int, ...]) -> Transfer:
    """b' with transpose(transfer(x, b), p) = transfer(transpose(x, p), b')."""
    return replace(border, source=tuple(border.source[p] for p in perm))


def border_before_transpose(border: Transfer, perm: tuple[int, ...]) -> Transfer:
    """b' with transfer(transpose(x, p), b) = transpose(transfer(x, b'), p)."""
    return border_of_transpose(border, inverse(perm))


FUNCTIONS = attr_functions(
    border_of_pack, border_of_unpack, border_of_transpose, border_before_transpose,
)  # fmt: skip
