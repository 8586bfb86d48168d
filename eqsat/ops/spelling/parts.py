"""A part of a body that is a value of the program is read, not computed once more.

`exp(x0)` inside of an op that reads x, beside a value `exp(x)`: which of the two ways it was
written decides nothing, as a value may be computed again wherever that is cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from eqsat.model.attr import Shape
from eqsat.model.expr import BottomUp, Expr, arg, literal
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Builder, Node, Program, prune
from eqsat.ops.algebra.linear import replaced
from eqsat.ops.generics.canonical import Operand, generic_node, identity
from eqsat.ops.meaning.scalar import FUNCTIONS, result_dtype
from eqsat.ops.spelling.storedbytes import is_byte_function

Known = dict[tuple[str, str], tuple[int, Shape]]  # form and type -> the value, its shape


def shared(program: Program) -> Program:
    """The program whose bodies read the values that they would compute once more."""
    b = Builder(program.name)
    new: dict[int, int] = {}
    known: Known = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        g = n.attr
        if not isinstance(g, Generic) or len(g.yields) != 1 or g.tile or g.has_precision:
            new[i] = b.move(n, operands)
            continue
        new[i] = _written(b, n, operands, g, known)
        if g.rank == len(g.sizes) and g.body.args and not is_byte_function(g):
            key = _form(g, operands, g.body), g.yields[0].dtype
            known.setdefault(key, (new[i], g.result_shape))
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _written(b: Builder, n: Node, operands: tuple[int, ...], g: Generic, known: Known) -> int:
    found = _largest(g, operands, known)
    if found is None:
        return b.move(n, operands)
    part, value, shape = found
    y: Yield = replace(g.yields[0], body=replaced(g.body, part, arg(len(operands))))
    reads: list[Operand] = list(zip(operands, g.maps, strict=True))
    reads.append((value, identity(len(shape))))
    return generic_node(b, g.sizes, range(g.rank), reads, [y], precision=g.precision)


def _largest(g: Generic, operands: tuple[int, ...], known: Known) -> tuple[Expr, int, Shape] | None:
    """The outermost part of a body that is known as a value over the first loops of the op."""
    if not known:
        return None
    form = _former(g, operands)
    for part in g.body.walk():
        if not part.args or (part is g.body and g.rank == len(g.sizes)):
            continue
        dtype = result_dtype(part, g.dtypes)
        value = known.get((form(part), dtype or ""))
        if value is not None and value[1] == g.sizes[: len(value[1])]:
            return part, *value
    return None


def _form(g: Generic, operands: tuple[int, ...], e: Expr) -> str:
    return _former(g, operands)(e)


def _former(g: Generic, operands: tuple[int, ...]) -> BottomUp[Expr, str]:
    """What a part of a body is, over which values, whatever its operands are numbered."""
    leaves = [f"{o} {', '.join(map(str, m))}" for o, m in zip(operands, g.maps, strict=True)]

    def step(e: Expr, args: Sequence[str]) -> str:
        if e.fn == "arg":
            return leaves[e.value]
        known = FUNCTIONS.get(e.fn)
        if known is not None and known.commutative:
            args = sorted(args)
        value = literal(e.value) if e.fn == "const" else str(e.value)
        return blake2b("|".join((e.fn, value, *args)).encode(), digest_size=16).hexdigest()

    return BottomUp(step)
