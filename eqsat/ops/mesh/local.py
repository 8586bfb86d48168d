"""An op as one device runs it: the same op over the blocks that the device holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.model.attr import Attr, Shape
from eqsat.model.generic import Generic
from eqsat.model.leaves import Fill
from eqsat.model.mesh import Mesh
from eqsat.model.movement import Move, Reshape, Transpose, move_of
from eqsat.ops.mesh.strategies import local_loops


def local_attr(
    attr: Attr,
    operands: Sequence[Shape],
    result: Shape,
    cuts: Sequence[str],
    mesh: Mesh,
    panels: int = 1,
) -> Attr:
    """The attribute for operands and a result of these shapes; cuts: per axis what it divides.

    panels: of so many it computes one.
    """
    if isinstance(attr, Generic):
        loops = local_loops(attr, cuts, mesh, panels)
        return replace(attr, sizes=loops, shapes=tuple(operands))
    if isinstance(attr, Reshape):
        return Reshape(operands[0], result)
    if isinstance(attr, Transpose):
        return replace(attr, source=operands[0])
    if isinstance(attr, Fill):
        return replace(attr, type=attr.type.with_shape(result))
    if isinstance(attr, Move):
        return _local_move(attr, operands)
    return attr


def _local_move(move: Move, operands: Sequence[Shape]) -> Move:
    """The same movement; a slice takes all of a dim that is cut."""
    args = move.args
    if move.op == "slice":
        start, limit, stride = args
        ends = zip(limit, move.sources[0], operands[0], strict=True)
        args = start, tuple(b if s == n else n for b, s, n in ends), stride
    return move_of(move.op, operands, *args)
