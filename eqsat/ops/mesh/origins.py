"""Where the dims of values come from: which dims of arguments, and whether dims of weights.

What one axis may cut together shares its origins: the columns of a weight are the features behind
it, the first dim of an argument is the batch of all that is computed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from eqsat.model.mesh import Mesh
from eqsat.model.program import Program
from eqsat.ops.mesh.cuts import OpCut, cuts_of

WEIGHT = "weight"
Origin = frozenset[int | str]  # dims of arguments, and WEIGHT
Origins = dict[int, tuple[Origin, ...]]  # node → one per dim
NOWHERE: Origin = frozenset()


def origins(program: Program, ops: Sequence[int], leaves: Collection[int], mesh: Mesh) -> Origins:
    """Of leaves and of computed values, in program order."""
    found: Origins = {}
    for v in leaves:
        rank = len(program.nodes[v].types[0].shape)
        is_input = program.nodes[v].op == "input"
        found[v] = tuple(frozenset([d if is_input else WEIGHT]) for d in range(rank))
    for m in ops:
        n = program.nodes[m]
        made: list[Origin] = [NOWHERE] * len(n.types[0].shape)
        shapes = tuple(program.nodes[o].types[0].shape for o in n.operands)
        for devices in sorted(set(mesh.sizes)):
            for cut in cuts_of(n.op, n.attr, shapes, devices):
                if isinstance(cut.result, int) and cut.result < len(made):
                    made[cut.result] |= origin_of(cut, n.operands, found)
        found[m] = tuple(made)
    return found


def origin_of(
    cut: OpCut, operands: Sequence[int], known: Mapping[int, tuple[Origin, ...]]
) -> Origin:
    """Of what a cut divides: that of every dim of an operand that it cuts."""
    found = NOWHERE
    for i, (kind, o) in enumerate(zip(cut.operands, operands, strict=True)):
        if isinstance(kind, int) and o in known and i not in cut.streams:
            found |= known[o][kind]
    return found


def origin_facts(origin: Origin) -> dict[str, int | bool]:
    """As conditions of rules name them."""
    dims = [d for d in origin if isinstance(d, int)]
    return {
        "argument_dim": min(dims, default=-1),
        "of_argument": bool(dims),
        "of_weight": WEIGHT in origin,
    }
