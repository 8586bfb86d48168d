"""An op on every slice of a stack at once: attributes with one more dim in front.

What a loop computes from one slice of stacked weights per step can so be computed before the loop
from the whole stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape, Transpose


class NotStackable(Exception):
    """This op has no form with one more dim in front."""


def stacked_attr(op: str, attr: Attr, length: int, stacks: Sequence[bool]) -> Attr:
    """The attribute for operands of which those in `stacks` have one more dim in front.

    NotStackable if there is none.
    """
    match attr:
        case Generic() if not attr.tile and len(attr.yields) == 1:
            return _generic(attr, length, stacks)
        case Layout():
            source = (length, *attr.source)
            outer = (0, *_behind(attr.outer))
            return replace(attr, source=source, pos=_behind(attr.pos), outer=outer)
        case Transpose():
            return Transpose((length, *attr.source), (0, *_behind(attr.perm)))
        case Reshape():
            return Reshape((length, *attr.source), (length, *attr.shape))
        case Move() if all(stacks):
            return _move(op, attr, length)
    raise NotStackable(op)


def _behind(dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(d + 1 for d in dims)


def _generic(g: Generic, length: int, stacks: Sequence[bool]) -> Generic:
    loops = list(range(1, len(g.sizes) + 1))
    maps: list[Map] = []
    shapes: list[Shape] = []
    for m, shape, is_stack in zip(g.maps, g.shapes, stacks, strict=True):
        moved = tuple(e.rename(loops) for e in m)
        maps.append((dim(0), *moved) if is_stack else moved)
        shapes.append((length, *shape) if is_stack else shape)
    sizes = (length, *g.sizes)
    return replace(g, sizes=sizes, rank=g.rank + 1, maps=tuple(maps), shapes=tuple(shapes))


def _move(op: str, attr: Move, length: int) -> Move:
    match op:
        case "pad":
            low, high, value = attr.args
            args = ((0, *low), (0, *high), value)
        case "slice":
            start, limit, stride = attr.args
            args = ((0, *start), (length, *limit), (1, *stride))
        case "concat":
            args = (attr.args[0] + 1,)
        case _:
            raise NotStackable(op)
    sources = tuple((length, *s) for s in attr.sources)
    return replace(attr, sources=sources, args=args, shape=(length, *attr.shape))
