"""Transposes and reshapes that a contraction reads, and something else too.

A pack in front of the contraction could take them in; whoever else reads them keeps them alive.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from eqsat.model.ops import LEAVES
from eqsat.model.program import Program, word

MOVES = ("transpose", "reshape")
THROUGH = (*MOVES, "slice")  # what a pack may take in on its way to the value


@dataclass(frozen=True)
class SharedMove:
    """A transpose or reshape. packed, others: readers that end in contractions alone, and not."""

    node: int
    packed: int
    others: int


def shared_moves(program: Program) -> tuple[SharedMove, ...]:
    """Those with a packed reader and another one, in the order of the program.

    A reader is packed if it is a contraction, or movement that some contraction reads. What follows
    from weights alone is left out: it is made once, ahead of time.
    """
    readers: dict[int, list[int]] = defaultdict(list)
    for i, n in enumerate(program.nodes):
        for o in n.operands:
            readers[o].append(i)
    is_fixed: list[bool] = []
    for n in program.nodes:
        of_weights = n.operands and all(is_fixed[o] for o in n.operands)
        is_fixed.append(bool(of_weights) or n.op in LEAVES - {"input"})
    is_packed = [False] * len(program.nodes)
    for i in range(len(program.nodes) - 1, -1, -1):
        n = program.nodes[i]
        through = n.op in THROUGH and any(is_packed[r] for r in readers[i])
        is_packed[i] = through or word(n.op, n.attr) == "matmul"
    found = []
    for i, n in enumerate(program.nodes):
        packed = sum(is_packed[r] for r in readers[i])
        others = program.uses[i] - packed
        if n.op in MOVES and packed and packed + others > 1 and not is_fixed[i]:
            found.append(SharedMove(i, packed, others))
    return tuple(found)
