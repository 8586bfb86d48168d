"""An op that reads overlapping slices of one value reads that value at its neighbours.

A stencil is written as slices of a padded value that are added up. As maps of one op they are no
values that could be left in memory, and no op of which the search would compute slices in turn:
ten steps over an image would be slices of slices of each. Exact to the bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from eqsat.model.affine import Affine, Map
from eqsat.model.generic import Generic
from eqsat.model.movement import Move
from eqsat.model.program import Builder, Node, Program, prune
from eqsat.ops.generics.canonical import Operand, compose_maps, generic_node
from eqsat.ops.movement.moves import slice_of

Box = tuple[range, ...]  # the indices of every dim that a slice takes; no range is empty


def as_stencils(program: Program) -> Program:
    """The program in which pointwise ops read neighbours, where they read overlapping slices."""
    if program.symbols or not any(n.op == "slice" for n in program.nodes):
        return program
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        found = _stencil(b, n, operands)
        new[i] = b.move(n, operands) if found is None else found
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _stencil(b: Builder, n: Node, operands: tuple[int, ...]) -> int | None:
    g = n.attr
    if not isinstance(g, Generic) or not g.is_elementwise or len(g.yields) != 1 or g.order:
        return None
    own = _windows(b, operands)
    if not own:
        return None
    reads: list[Operand] = []
    for o, m in zip(operands, g.maps, strict=True):
        at = own.get(o)
        reads.append((o, m) if at is None else (at[0], compose_maps(at[1], m)))
    return generic_node(b, g.sizes, range(g.rank), reads, g.yields, precision=g.precision)


def _windows(b: Builder, operands: Sequence[int]) -> dict[int, Operand]:
    """Operands that are slices of what others are overlapping slices of: that, and where."""
    slices: dict[int, dict[int, Box]] = defaultdict(dict)
    for o in operands:
        n = b.nodes[o]
        if isinstance(n.attr, Move) and n.op == "slice" and 0 not in n.type.shape:
            slices[n.operands[0]][o] = tuple(map(range, *n.attr.args))
    found: dict[int, Operand] = {}
    for x, boxes in slices.items():
        if any(_overlap(p, q) for p, q in combinations(boxes.values(), 2)):
            hull = [range(min(r[0] for r in d), max(r[-1] for r in d) + 1)
                    for d in zip(*boxes.values(), strict=True)]  # fmt: skip
            below = _part(b, x, hull)
            found |= {o: (below, _map(box, hull)) for o, box in boxes.items()}
    return found


def _overlap(a: Box, b: Box) -> bool:
    """Whether two slices share elements."""
    return all(_shared(p, q) for p, q in zip(a, b, strict=True))


def _shared(p: range, q: range) -> bool:
    few, many = sorted((p, q), key=len)
    return any(i in many for i in few)


def _part(b: Builder, x: int, hull: Sequence[range]) -> int:
    shape = b.type(x).shape
    if [len(r) for r in hull] == list(shape):
        return x
    start, limit = tuple(r.start for r in hull), tuple(r.stop for r in hull)
    return b.add("slice", (x,), slice_of(shape, start, limit, (1,) * len(hull)))


def _map(box: Box, hull: Sequence[range]) -> Map:
    """The indices within the hull of an element of a slice."""
    return tuple(
        Affine(((d, r.step),) if len(r) > 1 else (), r.start - h.start)
        for d, (r, h) in enumerate(zip(box, hull, strict=True))
    )
