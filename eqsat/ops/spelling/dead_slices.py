"""Parts that are not read are not computed: values are cut to what is read of them, once.

`algebra/demand` does so slice by slice, in the search; here it is done before it, so that every
answer has it. A value of which nine tenths are read stays whole. Exact to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.model.generic import Generic
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Builder, Node, Program, prune
from eqsat.model.region import region_of, some_of
from eqsat.ops.generics.windows import LoopRange, Restricted, restricted
from eqsat.ops.movement.moves import concat_of, gather_of, moves_nothing, pad_of, slice_of
from eqsat.ops.movement.regions import read_by_concat, read_by_view

Box = tuple[range, ...]  # the indices of every dim; no range is empty


def without_waste(program: Program) -> Program:
    """The program in which no op computes what no result needs, where the op can be cut."""
    if program.symbols or not any(n.op in ("slice", "concat", "pad") for n in program.nodes):
        return program
    boxes = _boxes(program)
    if boxes == [_whole(n) for n in program.nodes]:
        return program
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        box = boxes[i]
        operands = [
            None if w is None else _part(b, new[o], boxes[o], w)
            for o, w in zip(n.operands, _wanted(n, box, _wholes(program, n)), strict=True)
        ]
        new[i] = _written(b, n, box, operands)
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _whole(n: Node) -> Box:
    return tuple(map(range, n.types[0].shape))


def _wholes(program: Program, n: Node) -> list[Box]:
    return [_whole(program.nodes[o]) for o in n.operands]


def _elements(box: Box) -> int:
    return math.prod(map(len, box))


# ---- what is computed of every value -------------------------------------------------------------
def _boxes(program: Program) -> list[Box]:
    boxes: list[Box | None] = [None] * len(program.nodes)
    for r in program.results:
        boxes[r] = _whole(program.nodes[r])
    for i in range(len(program.nodes) - 1, -1, -1):
        n, box = program.nodes[i], boxes[i]
        if box is None or 0 in n.types[0].shape:
            box = _whole(n)
        boxes[i] = box = _kept(n, box)
        for o, wanted in zip(n.operands, _wanted(n, box, _wholes(program, n)), strict=True):
            if wanted is not None:
                boxes[o] = wanted if boxes[o] is None else _joined(boxes[o] or (), wanted)
    return [box or _whole(n) for n, box in zip(program.nodes, boxes, strict=True)]


def _joined(a: Box, b: Box) -> Box:
    if not all(map(len, (*a, *b))):
        return a  # an empty value is not cut
    both = region_of(map(some_of, a)).join(region_of(map(some_of, b)))
    return tuple(d.within for d in both.dims)


def _kept(n: Node, box: Box) -> Box:
    """Box that the op computes where so much is read: all of it if it cannot be cut, or hardly."""
    whole = _whole(n)
    cut = _as_cut(n, box)
    return cut if 10 * _elements(cut) < 9 * _elements(whole) else whole


def _as_cut(n: Node, box: Box) -> Box:
    """The least box around this one that the op can be cut to."""
    a = n.attr
    if isinstance(a, Generic):
        return _whole(n) if a.tile or len(a.yields) > 1 or 0 in a.sizes else box
    if isinstance(a, Transpose):
        return box
    if isinstance(a, Reshape):
        region = read_by_view(n.op, a, 0, region_of(map(some_of, box)))
        is_one = region is not None and math.prod(len(d.within) for d in region.dims)
        return box if is_one == _elements(box) else _whole(n)
    if not isinstance(a, Move):
        return _whole(n)
    if n.op == "concat":
        return tuple(range(r[0], r[-1] + 1) if d == a.args[0] else r for d, r in enumerate(box))
    if n.op == "pad":
        dense = tuple(range(r[0], r[-1] + 1) for r in box)
        return dense if all(_inside(a, dense)) else _whole(n)
    return box


def _inside(pad: Move, box: Box) -> Box:
    """The part of a padded box that lies in the value itself."""
    pairs = zip(box, pad.args[0], pad.sources[0], strict=True)
    return tuple(range(max(0, r[0] - low), min(size, r[-1] + 1 - low)) for r, low, size in pairs)


def _wanted(n: Node, box: Box, wholes: Sequence[Box]) -> Sequence[Box | None]:
    """Boxes of operands that the op reads to compute a box; None: nothing.

    wholes: all of every operand.
    """
    a = n.attr
    is_whole = box == _whole(n)
    if isinstance(a, Move) and n.op == "slice" and all(map(len, box)):
        return [_by_view(n, box)]
    if is_whole or not all(map(len, box)):
        return wholes
    if isinstance(a, Generic):
        return [_range(m) for m in _restricted(a, box).operands]
    if isinstance(a, Transpose | Reshape):
        return [_by_view(n, box)]
    assert isinstance(a, Move)
    if n.op == "pad":
        return [_inside(a, box)]
    if n.op == "concat":
        region = region_of(map(some_of, box))
        parts = [read_by_concat(n.op, a, i, region) for i in range(len(n.operands))]
        return [None if p is None else tuple(d.within for d in p.dims) for p in parts]
    axis, behind = a.args[0], a.args[0] + len(a.sources[1])
    return [(*box[:axis], range(a.sources[0][axis]), *box[behind:]), box[axis:behind]]


def _by_view(n: Node, box: Box) -> Box:
    region = read_by_view(n.op, n.attr, 0, region_of(map(some_of, box)))
    assert region is not None
    return tuple(d.within for d in region.dims)


def _restricted(g: Generic, box: Box) -> Restricted:
    cuts = {
        d: LoopRange(r[0], r.step if len(r) > 1 else 1, len(r))
        for d, r in enumerate(box)
        if len(r) != g.sizes[d]
    }
    return restricted(g, cuts)


def _range(cut: Move) -> Box:
    return tuple(range(a, b, k) for a, b, k in zip(*cut.args, strict=True))


# ---- the program that is left --------------------------------------------------------------------
def _part(b: Builder, node: int, have: Box, want: Box) -> int:
    """The part of a value that is wanted, of which more may be there."""
    pairs = list(zip(have, want, strict=True))
    start = [(w[0] - h[0]) // h.step if len(w) else 0 for h, w in pairs]
    step = [w.step // h.step if len(w) > 1 else 1 for h, w in pairs]
    limit = [a + (len(w) - 1) * k + 1 for a, k, (_, w) in zip(start, step, pairs, strict=True)]
    if tuple(map(len, want)) == b.nodes[node].types[0].shape:
        return node
    cut = slice_of(b.type(node).shape, start, limit, step)
    return node if moves_nothing(cut) else b.add("slice", (node,), cut)


def _written(b: Builder, n: Node, box: Box, operands: Sequence[int | None]) -> int:
    """The op on what is left of its operands."""
    there = tuple([o for o in operands if o is not None])
    a = n.attr
    if n.op == "slice" and all(map(len, box)):
        return there[0]
    if box == _whole(n) or not all(map(len, box)):
        return b.move(n, there)
    shape = tuple(map(len, box))
    if isinstance(a, Generic):
        return b.add("generic", there, _restricted(a, box).sig)
    if isinstance(a, Transpose):
        return b.add("transpose", there, Transpose(b.type(there[0]).shape, a.perm))
    if isinstance(a, Reshape):
        source = b.type(there[0]).shape
        return there[0] if source == shape else b.add("reshape", there, Reshape(source, shape))
    assert isinstance(a, Move)
    shapes = [b.type(o).shape for o in there]
    if n.op == "concat":
        return there[0] if len(there) == 1 else b.add("concat", there, concat_of(shapes, a.args[0]))
    if n.op == "gather":
        return b.add("gather", there, gather_of(shapes[0], shapes[1], a.args[0]))
    inside = _inside(a, box)
    low = [r[0] + p - w[0] for r, p, w in zip(inside, a.args[0], box, strict=True)]
    high = [s - p - x for s, p, x in zip(shape, low, shapes[0], strict=True)]
    pad = pad_of(shapes[0], low, high, a.args[2])
    return there[0] if moves_nothing(pad) else b.add("pad", there, pad)
