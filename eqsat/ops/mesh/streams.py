"""Products that gather an operand panel by panel along a summed loop (SUMMA).

An axis that cuts a parallel loop leaves operands without this loop whole on every device. Where it
cuts their summed loop instead, each device holds a block of it; the op gathers a panel of every
block, multiplies, and adds up. What is sent is what a gather of the whole operand sends, but a
device holds one panel of it at a time (van de Geijn and Watts, 1997). An axis that cuts the summed
loop besides leaves a part of the panels to each of its layers (Solomonik and Demmel, 2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.model.generic import Generic
from eqsat.model.mesh import REPLICATED, Mesh, Spread
from eqsat.ops.mesh.cuts import OpCut, stream_of

LEAST_PANEL = 128  # elements of the summed loop: fewer leave lanes of a matrix unit idle
PANELS = (8, 4, 2)


def taken(reads: Sequence[Spread], cuts: Sequence[OpCut | None]) -> tuple[Spread, ...]:
    """What an op computes on, where it reads so: streamed axes hold nothing of their own."""
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
    found, blocks = [], 1
    for i, c in enumerate(cuts):
        if i in fixed or (c is not None and operand in c.streams):
            blocks *= mesh.sizes[i]
        if i in fixed:
            found.append((i, blocks))
    return found


def panels(g: Generic, cuts: Sequence[str], streams: Sequence[int], mesh: Mesh) -> int:
    """In how many steps the summed loop is walked. streams: per operand, blocks it is gathered of.

    As many as leave a panel LEAST_PANEL elements of every block, at most eight.
    """
    loop = next(k for name in cuts if (k := stream_of(name)) is not None)
    fixed = math.prod(n for n, name in zip(mesh.sizes, cuts, strict=True) if name == f"d{loop}")
    blocks = math.lcm(*streams)
    run = g.sizes[loop] // (fixed * blocks)
    return next((p for p in PANELS if run % p == 0 and run // p * blocks >= LEAST_PANEL), 1)
