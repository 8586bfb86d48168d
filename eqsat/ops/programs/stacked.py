"""An op on every slice of a stack at once: attributes with one more dim in front.

What a loop computes from one slice of stacked weights per step can so be computed before the loop
from the whole stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.precision import NONE
from eqsat.model.program import Builder, Node
from eqsat.ops.generics.canonical import generic_node
from eqsat.ops.movement.moves import gather_of


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
        case Move() if op == "gather" and attr.args == (0,) and not stacks[0]:
            table, rows = attr.sources
            return gather_of(table, (length, *rows), 0)
    raise NotStackable(op)


def stacked_node(
    b: Builder, n: Node, operands: tuple[int, ...], stacks: Sequence[bool], length: int
) -> int:
    """The op of another program on these operands, some of them stacks; NotStackable as above."""
    if n.op == "concat" and any(stacks):
        pairs = zip(operands, stacks, strict=True)
        operands = tuple([o if is_stack else along_steps(b, o, length) for o, is_stack in pairs])
        stacks = [True] * len(operands)
    attr = stacked_attr(n.op, n.attr, length, stacks) if any(stacks) else n.attr
    return b.add(n.op, operands, attr)


def has_stacked_form(n: Node, stacks: Sequence[bool], length: int) -> bool:
    """Whether `stacked_node` can write it."""
    try:
        whole = [True] * len(stacks) if n.op == "concat" else stacks
        stacked_attr(n.op, n.attr, length, whole)
    except NotStackable:
        return False
    return True


def along_steps(b: Builder, x: int, length: int) -> int:
    """A stack of which every slice is the value x."""
    t = b.type(x)
    loops = range(1, len(t.shape) + 1)
    reads = [(x, tuple(dim(d) for d in loops))]
    sizes = (length, *t.shape)
    return generic_node(
        b, sizes, range(len(sizes)), reads, [Yield(arg(0), t.dtype)], precision=NONE
    )


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
