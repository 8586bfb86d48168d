"""The operands of a generic in one order, whatever the order and the numbers they were given in.

Operands are numbered as the body first uses them, where the arguments of a commutative function
stand by what they are: first by the loops that they read, then by their form, and only where two
are alike by the age of the values. So two ops of one form are one record, on other values too, and
equal layers of a model are spelled alike, as their values are in one order of age.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from eqsat.model.affine import Map, map_loops
from eqsat.model.expr import BottomUp, Expr, arg, literal
from eqsat.model.program import Builder
from eqsat.ops.generics.canonical import Operand
from eqsat.ops.meaning.scalar import FUNCTIONS

# no operands, loops, form, values in the order of their use, form with the values
Key = tuple[bool, tuple[int, ...], str, tuple[int, ...], str]


def ordered_operands(
    b: Builder, reads: Sequence[Operand], body: Expr
) -> tuple[list[Operand], Expr]:
    """What is read, each once and in order, and the body over it."""
    if len(body.operands()) < 2 and len(reads) < 2:
        return list(reads), body
    numbers = _in_order(b, reads, body)
    first: dict[Operand, int] = {}
    for o in numbers:
        first.setdefault(reads[o], len(first))
    new = {o: arg(first[reads[o]]) for o in numbers}
    return list(first), body.substitute(new)


def _in_order(b: Builder, reads: Sequence[Operand], body: Expr) -> list[int]:
    """The numbers of the operands that a body uses, as it first uses them."""
    keys = _keys(b, reads)

    def step(e: Expr, args: Sequence[tuple[Key, tuple[int, ...]]]) -> tuple[Key, tuple[int, ...]]:
        if e.fn == "arg":
            return keys(e), (e.value,)
        known = FUNCTIONS.get(e.fn)
        if known is not None and known.commutative:
            args = sorted(args)
        used = tuple(dict.fromkeys(o for _, os in args for o in os))
        return _whole(e, [k for k, _ in args], tuple(reads[o][0] for o in used)), used

    return list(BottomUp(step)(body)[1])


def _keys(b: Builder, reads: Sequence[Operand]) -> Callable[[Expr], Key]:
    def key(e: Expr) -> Key:
        node, m = reads[e.value]
        form = f"{b.type(node).dtype} {_text(m)}"
        return False, tuple(sorted(map_loops(m))), form, (node,), f"{form} {node:09}"

    return key


def _text(m: Map) -> str:
    return ", ".join(map(str, m))


def _whole(e: Expr, parts: Sequence[Key], values: tuple[int, ...]) -> Key:
    value = literal(e.value) if e.fn == "const" else str(e.value)
    loops = min((p[1] for p in parts if not p[0]), default=())
    form, whole = (_digest(e.fn, value, [p[at] for p in parts]) for at in (2, 4))
    return all(p[0] for p in parts), loops, form, values, whole


def _digest(fn: str, value: str, parts: Sequence[object]) -> str:
    return blake2b("|".join((fn, value, *map(str, parts))).encode(), digest_size=12).hexdigest()
