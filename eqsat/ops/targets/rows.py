"""Operands whose rows are longer in memory than what is read of them, on targets that ask for it.

A tensor in longer rows is a pack by one open block (`Layout.row_padding`). An op reads it as it
lies: its loops stay where they were and never reach what is behind a row.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.affine import affine
from eqsat.model.attr import Shape
from eqsat.model.extents import is_symbolic
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout, padded_layout
from eqsat.model.leaves import Leaf
from eqsat.model.pipelines import RowPadding
from eqsat.model.program import Node, Program
from eqsat.model.target import Target
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic

PADDED_ROWS = "layout/padding"  # the set of rules for such operands
SIDES = ("lhs", "rhs")


def read_padded(g: Generic, i: int, layout: Layout) -> Generic | None:
    """The generic that reads operand i in longer rows, and nothing of what is behind them."""
    if not layout.row_padding or g.tile:
        return None
    first = len(layout.source) - len(layout.pos)
    read = (*g.maps[i][:first], *(affine([]) for _ in layout.pos), *g.maps[i][first:])
    maps, shapes = list(g.maps), list(g.shapes)
    maps[i], shapes[i] = read, layout.packed_shape
    return canonical_generic(
        g.sizes, range(g.rank), maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )


def longer_rows(rows: RowPadding | None, shape: Shape, dtype: str) -> Layout | None:
    """The layout of a tensor in the rows that are asked for; None if it lies so, or need not."""
    has_rows = rows is not None and len(shape) > 1 and not is_symbolic(shape[-1])
    more = rows.elements(shape[-1], dtype) if rows and has_rows else 0
    return padded_layout(shape, (*(0 for _ in shape[1:]), more)) if more else None


def rows_asked(target: Target, g: Generic, i: int) -> Layout | None:
    """The longer rows in which an unpacked contraction has to read operand i; None: as it lies."""
    if i >= len(SIDES) or not _reads_rows(g):
        return None
    asked = (p for p in _askings(target) if SIDES[i] in p.operands)
    found = (longer_rows(p, g.shapes[i], g.dtypes[i]) for p in asked)
    return next((layout for layout in found if layout is not None), None)


def has_its_rows(target: Target, g: Generic) -> bool:
    """Whether no operand has to lie in longer rows than it does."""
    sides = range(len(g.maps)) if any(_askings(target)) else ()
    return all(rows_asked(target, g, i) is None for i in sides)


def longer_rows_of(n: Node) -> Layout | None:
    """The longer rows in which an argument arrives, or in which a node lays its operand out."""
    layout = n.attr.layout if isinstance(n.attr, Leaf) else n.attr
    is_made = isinstance(n.attr, Leaf) or n.op in ("pack", "relax")
    return layout if is_made and isinstance(layout, Layout) and layout.row_padding else None


def concerns_rows(program: Program, target: Target) -> bool:
    """Whether a target asks for longer rows, or something in the program lies in such."""
    return any(_askings(target)) or any(longer_rows_of(n) for n in program.nodes)


def _askings(target: Target) -> Iterator[RowPadding]:
    """What the target asks for, and each of its devices."""
    for t in (target, *dict(target.devices).values()):
        if t.row_padding is not None:
            yield t.row_padding


def _reads_rows(g: Generic) -> bool:
    """A contraction without tiles and windows."""
    roles = None if g.tile else contraction_roles(g)
    return roles is not None and bool(roles.k) and not roles.other


def _any_rows(g: Generic, i: int) -> Layout | None:
    """The longer rows in which a contraction has to read an operand."""
    return longer_rows(_EXAMPLE, g.shapes[i], g.dtypes[i]) if _reads_rows(g) else None


_EXAMPLE = RowPadding(8, 1, SIDES)
FUNCTIONS = attr_functions(read_padded, ("target.rows_asked", _any_rows))
