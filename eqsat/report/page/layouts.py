"""In which blocks the values of a scheduled program lie, told from its packs and what reads them.

A schedule knows shapes only. A dim of a packed value is a dim of the plain value, or its blocks, or
the place inside of a block; that is followed from packs on through every op. What is not known is
taken to be row-major.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.generic import Generic
from eqsat.model.layout import ROW_MAJOR, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Node, Program


@dataclass(frozen=True)
class Dim:
    """A dim as it lies in memory: which dim of the plain value, and whether inside of a block."""

    plain: int
    is_inner: bool = False


Dims = tuple[Dim, ...]


def layout_names(program: Program) -> tuple[str, ...]:
    """Per node `row-major`, or the extents of its blocks in the order of memory: `16x16`."""
    known: list[Dims] = []
    for node in program.nodes:
        known.append(_dims(node, [known[o] for o in node.operands]))
    return tuple(_name(n.types[0].shape, d) for n, d in zip(program.nodes, known, strict=True))


def _dims(node: Node, operands: list[Dims]) -> Dims:
    attr, shape = node.attr, node.types[0].shape
    plain = tuple(Dim(i) for i in range(len(shape)))
    found = plain
    if isinstance(attr, Leaf):
        found = _packed(attr.layout) if isinstance(attr.layout, Layout) else plain
    elif isinstance(attr, Layout):
        found = plain if node.op == "unpack" else _packed(attr)
    elif isinstance(attr, Transpose):
        found = _renumbered([operands[0][p] for p in attr.perm])
    elif isinstance(attr, Reshape):
        found = _reshaped(attr, operands[0])
    elif isinstance(attr, Generic):
        found = _computed(attr, operands)
    elif operands and len(operands[0]) == len(shape):  # moves, transfers, encodings
        found = operands[0]
    return found if len(found) == len(shape) else plain


def _packed(layout: Layout) -> Dims:
    return (*(Dim(d) for d in layout.outer), *(Dim(d, True) for d in layout.pos))


def _renumbered(dims: list[Dim]) -> Dims:
    """With the plain dims numbered as they come, so that an order of plain dims is row-major."""
    number: dict[int, int] = {}
    return tuple(Dim(number.setdefault(d.plain, len(number)), d.is_inner) for d in dims)


def _reshaped(attr: Reshape, operand: Dims) -> Dims:
    """Dims that a reshape leaves alone stay what they are.

    Of dims that are split or joined the last one is what varies quickest: it stays the dim over the
    blocks, the others are dims of their own.
    """
    old, new = attr.source, attr.shape
    found: list[Dim] = []
    i = j = 0
    fresh = 1 + max((d.plain for d in operand), default=0)
    while j < len(new):
        if i < len(old) and old[i] == new[j]:
            found.append(operand[i])
            i, j = i + 1, j + 1
            continue
        begin = i
        i, end = _cut(old, new, i, j)
        found += [Dim(fresh + n) for n in range(j, end)]
        joined = operand[begin:i]
        if joined and (not joined[-1].is_inner or Dim(joined[-1].plain) in joined):
            found[-1] = Dim(joined[-1].plain)
        j = end
    return _renumbered(found)


def _cut(old: tuple[int, ...], new: tuple[int, ...], i: int, j: int) -> tuple[int, int]:
    """The next dims, behind i and j, at which both shapes have run over as many elements."""
    a = b = 1
    while (a, b) == (1, 1) or a != b:
        if (a <= b and i < len(old)) or j >= len(new):
            if i >= len(old):
                break
            a, i = a * old[i], i + 1
        else:
            b, j = b * new[j], j + 1
    return i, max(j, 1)


def _computed(attr: Generic, operands: list[Dims]) -> Dims:
    """A loop that runs inside of an operand's blocks does so in the result, beside its blocks."""
    pairs: dict[int, int] = {}  # loop inside of blocks -> the loop over these blocks
    for dims, m in zip(operands, attr.maps, strict=True):
        loops = [e.dim for e in m]
        outer = {d.plain: n for d, n in zip(dims, loops, strict=True) if not d.is_inner}
        for d, loop in zip(dims, loops, strict=True):
            block = outer.get(d.plain)
            if d.is_inner and loop is not None and block is not None and block != loop:
                pairs.setdefault(loop, block)
    rank = attr.rank
    return _renumbered(
        [Dim(pairs[n], True) if n in pairs and pairs[n] < rank else Dim(n) for n in range(rank)]
    )


def _name(shape: tuple[int, ...], dims: Dims) -> str:
    """Blocks that follow their own dim at once move no data, so they are no layout."""
    sizes = [
        str(shape[i])
        for i, d in enumerate(dims)
        if d.is_inner and (i == 0 or dims[i - 1] != Dim(d.plain))
    ]
    return "x".join(sizes) or ROW_MAJOR
