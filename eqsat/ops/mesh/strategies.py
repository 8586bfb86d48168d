"""Strategies of an op on a mesh: each axis cuts one thing, or computes the same everywhere.

A device runs the same op over the blocks that it holds. An axis that cuts a parallel loop leaves
operands without this loop whole on every device. Where it cuts their summed loop instead, each
device holds a block of it; the op gathers a panel of every block, multiplies, and adds up (SUMMA).
What is sent is what a gather of the whole operand sends, but a device holds one panel of it at a
time (van de Geijn and Watts, 1997). An axis that cuts the summed loop besides leaves a part of the
panels to each of its layers (Solomonik and Demmel, 2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from eqsat.model.attr import Attr, Shape
from eqsat.model.generic import Generic
from eqsat.model.leaves import Fill
from eqsat.model.mesh import REPLICATED, Mesh, Spread
from eqsat.model.movement import Move, Reshape, Transpose, move_of
from eqsat.ops.mesh.cuts import OpCut, cuts_of, loop_of, stream_of

# ---- operands gathered panel by panel ------------------------------------------------------------
LEAST_PANEL = 128  # elements of the summed loop: fewer leave lanes of a matrix unit idle
PANELS = (8, 4, 2)


def taken(reads: Sequence[Spread], cuts: Sequence[OpCut | None]) -> tuple[Spread, ...]:
    """Spreads an op computes on, where it reads so: streamed axes hold nothing of their own."""
    return tuple(
        tuple(
            REPLICATED if c is not None and i in c.streams else kind
            for kind, c in zip(spread, cuts, strict=True)
        )
        for i, spread in enumerate(reads)
    )


def panels_agree(cuts: Sequence[OpCut | None], mesh: Mesh) -> bool:
    """Whether all operands' panels are of the same elements of one summed loop.

    They are if every axis that divides the loop for good walks it with the same stride in each
    operand, of which the blocks that axes stream are a part.
    """
    loops = {stream_of(c.name) for c in cuts if c is not None and c.streams}
    if not loops:
        return True
    if len(loops) > 1 or any(c is not None and c.form == "parts" for c in cuts):
        return False
    (loop,) = loops
    fixed = {i for i, c in enumerate(cuts) if c is not None and c.name == f"d{loop}"}
    operands = len(next(c for c in cuts if c is not None).operands)
    strides = {tuple(_strides(o, cuts, fixed, mesh)) for o in range(operands)}
    return len(strides) == 1


def _strides(
    operand: int, cuts: Sequence[OpCut | None], fixed: set[int], mesh: Mesh
) -> list[tuple[int, int]]:
    """(axis, into how many blocks it and the axes before it divide the loop) of each fixed axis."""
    strides, blocks = [], 1
    for i, c in enumerate(cuts):
        if i in fixed or (c is not None and operand in c.streams):
            blocks *= mesh.sizes[i]
        if i in fixed:
            strides.append((i, blocks))
    return strides


def panels(g: Generic, cuts: Sequence[str], streams: Sequence[int], mesh: Mesh) -> int:
    """In how many steps the summed loop is walked. streams: per operand, blocks it is gathered of.

    As many as leave a panel LEAST_PANEL elements of every block, at most eight.
    """
    loop = next(k for name in cuts if (k := stream_of(name)) is not None)
    fixed = math.prod(n for n, name in zip(mesh.sizes, cuts, strict=True) if name == f"d{loop}")
    blocks = math.lcm(*streams)
    run = g.sizes[loop] // (fixed * blocks)
    return next((p for p in PANELS if run % p == 0 and run // p * blocks >= LEAST_PANEL), 1)


# ---- strategies ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Strategy:
    """One way to run an op: what each axis cuts (`""` for nothing), what it reads and makes.

    share: how much of the work of the whole op one device does. taken: what it computes on, where
    it gathers operands itself, in so many panels (`ops.mesh.strategies`).
    """

    cuts: tuple[str, ...]
    reads: tuple[Spread, ...]
    made: Spread
    share: float
    taken: tuple[Spread, ...]
    panels: int = 0  # 0: it gathers nothing


@lru_cache(maxsize=5_000)
def strategies(
    op: str, attr: Attr, operands: tuple[Shape, ...], result: Shape, mesh: Mesh
) -> tuple[Strategy, ...]:
    """Every assignment of axes to cuts whose blocks are of one size; the first one cuts nothing.

    Axes that cut the same thing divide it together, the first of them outermost.
    """
    sizes = mesh.sizes
    cuts_of = known_cuts(op, attr, operands, mesh)
    names = list(dict.fromkeys(c for cuts in cuts_of.values() for c in cuts))
    fitting: list[Strategy] = []
    for choice in product(["", *names], repeat=len(sizes)):
        cuts = _fitting(choice, sizes, cuts_of)
        if cuts is not None and panels_agree(cuts, mesh):
            strategy = _strategy(attr, choice, cuts, len(operands), mesh)
            if _fits(strategy, operands, result, mesh):
                fitting.append(strategy)
    return tuple(fitting)


@lru_cache(maxsize=5_000)
def known_cuts(
    op: str, attr: Attr, operands: tuple[Shape, ...], mesh: Mesh
) -> dict[int, dict[str, OpCut]]:
    """The cuts of an op by their names, for every number of blocks that axes make together."""
    return {
        n: {c.name: c for c in cuts_of(op, attr, operands, n)}
        for n in sorted({math.prod(s) for s in _subsets(mesh.sizes)})
    }


def _subsets(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    masks = product((False, True), repeat=len(sizes))
    return [tuple(s for s, k in zip(sizes, which, strict=True) if k) for which in masks]


def _fitting(
    choice: Sequence[str], sizes: Sequence[int], cuts_of: dict[int, dict[str, OpCut]]
) -> list[OpCut | None] | None:
    """Per axis its cut; None if something is not cut into so many blocks."""
    total: dict[str, int] = {}
    for name, size in zip(choice, sizes, strict=True):
        total[name] = total.get(name, 1) * size
    cuts = [cuts_of[total[name]].get(name) if name else None for name in choice]
    return None if any(n and c is None for n, c in zip(choice, cuts, strict=True)) else cuts


def _strategy(
    attr: Attr, choice: tuple[str, ...], cuts: Sequence[OpCut | None], operands: int, mesh: Mesh
) -> Strategy:
    reads = tuple(
        tuple(REPLICATED if c is None else c.operands[i] for c in cuts) for i in range(operands)
    )
    result = tuple(REPLICATED if c is None else c.result for c in cuts)
    divided = [s for s, n in zip(mesh.sizes, choice, strict=True) if n not in ("", "parts")]
    whole = taken(reads, cuts)
    steps = 0
    if whole != reads:
        assert isinstance(attr, Generic)
        steps = panels(
            attr, choice, [_gathered(a, b, mesh) for a, b in zip(reads, whole, strict=True)], mesh
        )
    return Strategy(choice, reads, result, 1 / math.prod(divided), whole, steps)


def _gathered(read: Spread, whole: Spread, mesh: Mesh) -> int:
    """Of how many blocks an operand is gathered."""
    each = zip(mesh.sizes, read, whole, strict=True)
    return math.prod(size for size, a, b in each if a != b)


def _fits(s: Strategy, operands: Sequence[Shape], result: Shape, mesh: Mesh) -> bool:
    """Different cuts may meet in one dim of an operand only if they are one cut."""
    every = [*zip(s.reads, operands, strict=True), (s.made, result)]
    return all(mesh.fits(spread, shape) for spread, shape in every)


def local_loops(g: Generic, cuts: Sequence[str], mesh: Mesh, panels: int = 1) -> Shape:
    """The extents of a nest's loops on one device, where each axis cuts one of them or none.

    panels: in how many steps the loop is walked along which operands are gathered.
    """
    sizes = list(g.sizes)
    for name, devices in zip(cuts, mesh.sizes, strict=True):
        loop = loop_of(name)
        if loop is not None:
            sizes[loop] //= devices
    streamed = {k for name in cuts if (k := stream_of(name)) is not None}
    for loop in streamed:
        sizes[loop] //= panels
    return tuple(sizes)


# ---- the op on one device ------------------------------------------------------------------------
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
    """The movement on one device; a slice takes all of a dim that is cut."""
    args = move.args
    if move.op == "slice":
        start, limit, stride = args
        ends = zip(limit, move.sources[0], operands[0], strict=True)
        args = start, tuple(b if s == n else n for b, s, n in ends), stride
    return move_of(move.op, operands, *args)
