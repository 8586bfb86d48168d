"""All ways to run an op on a mesh: each axis cuts one thing, or computes the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from eqsat.model.attr import Attr, Shape
from eqsat.model.generic import Generic
from eqsat.model.mesh import REPLICATED, Mesh, Spread
from eqsat.ops.mesh.cuts import OpCut, cuts_of, loop_of, stream_of
from eqsat.ops.mesh.streams import panels, panels_agree, taken


@dataclass(frozen=True)
class Strategy:
    """One way to run an op: what each axis cuts (`""` for nothing), what it reads and makes.

    share: how much of the work of the whole op one device does. taken: what it computes on, where
    it gathers operands itself, in so many panels (`ops.mesh.streams`).
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
    known = known_cuts(op, attr, operands, mesh)
    names = list(dict.fromkeys(c for found in known.values() for c in found))
    made: list[Strategy] = []
    for choice in product(["", *names], repeat=len(sizes)):
        cuts = _fitting(choice, sizes, known)
        if cuts is not None and panels_agree(cuts, mesh):
            found = _strategy(attr, choice, cuts, len(operands), mesh)
            if _fits(found, operands, result, mesh):
                made.append(found)
    return tuple(made)


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
    kept = product((False, True), repeat=len(sizes))
    return [tuple(s for s, k in zip(sizes, which, strict=True) if k) for which in kept]


def _fitting(
    choice: Sequence[str], sizes: Sequence[int], known: dict[int, dict[str, OpCut]]
) -> list[OpCut | None] | None:
    """Per axis its cut; None if something is not cut into so many blocks."""
    total: dict[str, int] = {}
    for name, size in zip(choice, sizes, strict=True):
        total[name] = total.get(name, 1) * size
    cuts = [known[total[name]].get(name) if name else None for name in choice]
    return None if any(n and c is None for n, c in zip(choice, cuts, strict=True)) else cuts


def _strategy(
    attr: Attr, choice: tuple[str, ...], cuts: Sequence[OpCut | None], operands: int, mesh: Mesh
) -> Strategy:
    reads = tuple(
        tuple(REPLICATED if c is None else c.operands[i] for c in cuts) for i in range(operands)
    )
    made = tuple(REPLICATED if c is None else c.result for c in cuts)
    divided = [s for s, n in zip(mesh.sizes, choice, strict=True) if n not in ("", "parts")]
    whole = taken(reads, cuts)
    steps = 0
    if whole != reads:
        assert isinstance(attr, Generic)
        steps = panels(
            attr, choice, [_gathered(a, b, mesh) for a, b in zip(reads, whole, strict=True)], mesh
        )
    return Strategy(choice, reads, made, 1 / math.prod(divided), whole, steps)


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
