"""Equal contractions and reductions are one value, whatever order of dims they were written in.

`a @ b` and `(bᵀ @ aᵀ)ᵀ`, a product of matrices and the same one over split dims: both walk the same
elements of the same values. So a sum is known by how far each of its loops steps in the memory of
what its operands are views of, loops that step alike put together. Of equal ones the first is kept;
the others are reshapes and transposes of it. Which of its operands carry a transpose stays as it
was written. Every op is looked at once; only those that resemble another one are compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate, pairwise

from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import Expr, arg
from eqsat.model.generic import Generic
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Builder, Node, Program, rewritten
from eqsat.ops.generics.canonical import canonical_body
from eqsat.ops.movement.view import View, view_of

VIEWS = ("transpose", "reshape", "slice")
Step = tuple[int, int]  # of a digit: its extent, and how far apart its neighbours are in memory
Chain = tuple[tuple[str, Attr], ...]  # movement between a value and an operand, innermost first


@dataclass(frozen=True)
class _Loop:
    """Loops that step alike: iterations, steps in each operand, and where the result lies.

    parts: extents and steps in the result, innermost first; empty for a sum.
    """

    extent: int
    steps: tuple[int, ...]
    parts: tuple[Step, ...]


def without_equal_sums(program: Program) -> Program:
    """The program in which equal sums are computed once."""
    alike = Counter(filter(None, map(_resemblance, program.nodes)))
    if program.symbols or not any(n > 1 for n in alike.values()):
        return program
    sums: dict[tuple[object, ...], tuple[int, tuple[_Loop, ...]]] = {}

    def write(b: Builder, _: int, n: Node, operands: tuple[int, ...]) -> int:
        new, like = b.move(n, operands), _resemblance(n)
        form = _known_by(b, b.nodes[new]) if like is not None and alike[like] > 1 else None
        if form is None:
            return new
        key, loops = form
        first, others = sums.setdefault(key, (new, loops))
        moved = None if first == new else _moved(b, first, others, loops, n.type.shape)
        return new if moved is None else moved

    return rewritten(program, write)


def _resemblance(n: Node) -> tuple[object, ...] | None:
    """Key that equal sums have in common at first sight; None of what is no sum."""
    g = n.attr
    if not isinstance(g, Generic) or len(g.yields) != 1 or g.tile or not g.reductions:
        return None
    if 0 in g.sizes or len(g.maps) > 2:
        return None
    return len(g.maps), g.yields[0].dtype, math.prod(g.sizes), math.prod(g.result_shape)


def _known_by(b: Builder, n: Node) -> tuple[tuple[object, ...], tuple[_Loop, ...]] | None:
    """Key that tells a sum from others, and its loops in the order that this has them in."""
    g = n.attr
    assert isinstance(g, Generic)
    forms = []
    for order in _orders(g):
        values, chains = zip(*(_source(b, n.operands[i]) for i in order), strict=True)
        form = _form(g, order, chains)
        if form is not None:
            offsets, loops = form
            told = tuple((loop.extent, loop.steps, not loop.parts) for loop in loops)
            key = (values, offsets, told, _body(g, order), g.yields[0].dtype, g.combine)
            forms.append(((*key, g.precision), loops))
    return min(forms, key=lambda f: f[0][:3]) if forms else None


def _orders(g: Generic) -> list[tuple[int, ...]]:
    """The orders of the operands in which the body is the same."""
    straight = tuple(range(len(g.maps)))
    if len(straight) == 2 and _body(g, (1, 0)) == g.body and g.dtypes[0] == g.dtypes[1]:
        return [straight, (1, 0)]
    return [straight]


def _body(g: Generic, order: tuple[int, ...]) -> Expr:
    return canonical_body(g.body.substitute({o: arg(n) for n, o in enumerate(order)}))


def _source(b: Builder, node: int) -> tuple[int, Chain]:
    """The value that this one is a view of, and the movement in between."""
    chain: list[tuple[str, Attr]] = []
    while b.nodes[node].op in VIEWS:
        chain.append((b.nodes[node].op, b.nodes[node].attr))
        (node,) = b.nodes[node].operands
    return node, tuple(reversed(chain))


# ---- steps in memory -----------------------------------------------------------------------------
@lru_cache(maxsize=5_000)  # equal layers of a model are alike
def _form(
    g: Generic, order: tuple[int, ...], chains: tuple[Chain, ...]
) -> tuple[tuple[int, ...], tuple[_Loop, ...]] | None:
    """Where each operand begins in the memory of what it is a view of, and the loops."""
    offsets: list[int] = []
    read: list[dict[int, list[Step]]] = []
    for i, chain in zip(order, chains, strict=True):
        walk = _walk(g, i, chain)
        if walk is None:
            return None
        offsets.append(walk[0])
        read.append(walk[1])
    fine = [_cut(g, d, [steps.get(d, [(g.sizes[d], 0)]) for steps in read]) for d in _loops(g)]
    if None in fine:
        return None
    joined = _joined([loop for loops in fine if loops is not None for loop in loops])
    return None if joined is None else (tuple(offsets), joined)


def _loops(g: Generic) -> list[int]:
    return [d for d, size in enumerate(g.sizes) if size > 1]


def _walk(g: Generic, i: int, chain: Chain) -> tuple[int, dict[int, list[Step]]] | None:
    """How every loop steps through the memory behind operand i, outermost digit first."""
    dims = _strides(g.shapes[i], chain)
    if dims is None:
        return None
    offset, steps = dims
    steps_of: dict[int, list[Step]] = {}
    for e, digits, size in zip(g.maps[i], steps, g.shapes[i], strict=True):
        if e.dim is not None and g.sizes[e.dim] == size and e.dim not in steps_of:
            steps_of[e.dim] = digits
            continue
        if len(digits) > 1:
            return None
        far = digits[0][1] if digits else 0
        offset += e.constant * far
        for d, s in e.terms:
            before = steps_of.get(d, [(g.sizes[d], 0)])
            if len(before) != 1 or before[0][0] != g.sizes[d]:
                return None
            steps_of[d] = [(g.sizes[d], before[0][1] + s * far)]
    return offset, steps_of


def _strides(shape: Shape, chain: Chain) -> tuple[int, list[list[Step]]] | None:
    """Where a view begins in memory, and the digits of each of its dims; None if it is uneven."""
    first: View | None = view_of("transpose", Transpose(shape, tuple(range(len(shape)))))
    views = [view_of(op, attr) for op, attr in chain] or [first]
    whole = reduce(lambda a, v: None if a is None or v is None else a.then(v), views[1:], views[0])
    if whole is None or whole.guards:
        return None
    weights = [math.prod(whole.source[k + 1 :]) for k in range(len(whole.source))]
    pairs = list(zip(whole.index, weights, strict=True))
    far: Counter[int] = Counter()
    for e, w in pairs:
        for d, s in e.terms:
            far[d] += s * w
    at, dims = 0, []
    for extents, size in zip(whole.digits, whole.shape, strict=True):
        if math.prod(extents) != size:
            return None
        dims.append([(extent, far[at + n]) for n, extent in enumerate(extents)])
        at += len(extents)
    return sum(e.constant * w for e, w in pairs), dims


def _cut(g: Generic, d: int, read: Sequence[list[Step]]) -> list[_Loop] | None:
    """A loop in pieces that are one step wide in every operand; None if these overlap."""
    points = _points([e for e, _ in steps] for steps in read)
    if points is None:
        return None
    result = math.prod(g.result_shape[d + 1 :]) if d < g.rank else 0
    return [
        _Loop(
            high // low,
            tuple(_step_at(steps, low) for steps in read),
            ((high // low, result * low),) if d < g.rank else (),
        )
        for low, high in pairwise(points)
    ]


def _points(ways: Iterable[Sequence[int]]) -> list[int] | None:
    """Where digits end if they are cut in all of these ways, each outermost first."""
    ends = sorted({1}.union(*(accumulate(reversed(way), lambda a, b: a * b) for way in ways)))
    return None if any(b % a for a, b in pairwise(ends)) else ends


def _step_at(steps: Sequence[Step], low: int) -> int:
    """The step of what is `low` iterations wide."""
    width = 1
    for extent, step in reversed(steps):
        if low < width * extent:
            return step * (low // width)
        width *= extent
    return 0


def _joined(loops: list[_Loop]) -> tuple[_Loop, ...] | None:
    """Loops that step through every operand as one would, put together; in order of steps."""
    by_steps = {(loop.steps, not loop.parts): loop for loop in loops}
    if len(by_steps) < len(loops) or any(not any(loop.steps) for loop in loops):
        return None
    for loop in sorted(loops, key=lambda x: [abs(s) for s in x.steps]):
        inner = by_steps.get((loop.steps, not loop.parts))
        while inner is not None:
            wide = tuple(s * inner.extent for s in inner.steps), not inner.parts
            outer = by_steps.pop(wide, None)
            if outer is None:
                break
            parts = (*inner.parts, *outer.parts)
            inner = _Loop(inner.extent * outer.extent, inner.steps, parts)
            by_steps[inner.steps, not inner.parts] = inner
    return tuple(by_steps[k] for k in sorted(by_steps))


# ---- one result as another -----------------------------------------------------------------------
def _moved(
    b: Builder, node: int, before: Sequence[_Loop], loops: Sequence[_Loop], shape: Shape
) -> int | None:
    """The result with these loops as a reshape, transpose and reshape of a known one."""
    pieces: list[tuple[int, int, int]] = []  # extent, step in the known result, step in the other
    for one, two in zip(before, loops, strict=True):
        points = _points([e for e, _ in reversed(loop.parts)] for loop in (one, two))
        if points is None:
            return None
        first, second = tuple(reversed(one.parts)), tuple(reversed(two.parts))
        pieces += [
            (high // low, _step_at(first, low), _step_at(second, low))
            for low, high in pairwise(points)
        ]
    pieces.sort(key=lambda p: -p[1])
    order = sorted(range(len(pieces)), key=lambda n: -pieces[n][2])
    y = _reshaped(b, node, tuple(p[0] for p in pieces))
    if order != sorted(order):
        y = b.add("transpose", (y,), Transpose(b.type(y).shape, tuple(order)))
    return _reshaped(b, y, shape)


def _reshaped(b: Builder, node: int, shape: Shape) -> int:
    source = b.type(node).shape
    return node if source == shape else b.add("reshape", (node,), Reshape(source, shape))
