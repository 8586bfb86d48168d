"""An op between two reshapes that undo each other runs over the loops that were there before.

What is reshaped, computed and reshaped back is computed as it was; a reduction whose result stays
what it is reads what was reshaped for it. A reshape that is left, however, stays where it was
written: whether layouts pass it is for the rules to say.
"""

from __future__ import annotations

from collections import defaultdict

from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.movement import Reshape
from eqsat.model.program import Builder, Node, Program, prune
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.movement.collapse import RegroupedOperand, before_reshape


def through_views(program: Program) -> Program:
    """The program without reshapes that are undone behind the next op."""
    if not any(n.op == "reshape" for n in program.nodes):
        return program
    wanted = _wanted(program)
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        found = _between(b, n, operands, wanted[i])
        new[i] = b.move(n, operands) if found is None else found
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _wanted(program: Program) -> dict[int, set[Shape]]:
    """The shapes that every value is read in; () stands for its own."""
    found: dict[int, set[Shape]] = defaultdict(set)
    for n in program.nodes:
        for o in n.operands:
            found[o].add(n.type.shape if n.op == "reshape" else ())
    for r in program.results:
        found[r].add(())
    return found


def _between(b: Builder, n: Node, operands: tuple[int, ...], wanted: set[Shape]) -> int | None:
    """The op over the loops of what one of its operands is a reshape of, if no reshape is added."""
    g = n.attr
    if not isinstance(g, Generic) or len(g.yields) != 1 or contraction_roles(g) is not None:
        return None
    for i, o in enumerate(operands):
        groups = b.nodes[o].attr
        found = before_reshape(g, i, groups) if isinstance(groups, Reshape) else None
        if found is None or not (found.result is None or wanted == {found.sig.result_shape}):
            continue
        reads = _read_before(b, operands, i, found)
        if reads is not None:
            y = b.add("generic", reads, found.sig)
            return y if found.result is None else b.add("reshape", (y,), found.result)
    return None


def _read_before(
    b: Builder, operands: tuple[int, ...], i: int, found: RegroupedOperand
) -> tuple[int, ...] | None:
    """What the op reads instead: values of which its operands are reshapes, or operands."""
    reads: list[int] = []
    for x, groups in zip(operands, (*found.before, None, *found.after), strict=True):
        if groups is None and len(reads) != i:
            reads.append(x)
            continue
        shape = found.sig.shapes[len(reads)]
        (below,) = b.nodes[x].operands if b.nodes[x].op == "reshape" else (x,)
        if b.type(below).shape != shape:
            return None
        reads.append(below)
    return tuple(reads)
