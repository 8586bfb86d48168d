"""`pack(pos=[0], tiles=[16], outer=[0, 1])` → the layout in which an argument or result crosses.

What is written is the op that lays a plain tensor out so, without its operand: a `pack`, a
`transpose`, or a `set_encoding`, which the target turns into one of them or into nothing.
"""

from __future__ import annotations

import ast

from eqsat.lang.expressions import Poisoned, Refused, masked, parse
from eqsat.lang.programterms import TermBuilder
from eqsat.lang.source import Lines, Placed
from eqsat.model.diag import Diagnostic, EqsatError
from eqsat.model.layout import Encoding, Free, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType

HELD_OPS = ("pack", "transpose", "set_encoding")
FORMS = "write `pack(pos=[0, 1], tiles=[16, 16])`, `transpose(perm=[1, 0])` or `set_encoding(…)`"


def read_layout(text: str, of: TensorType, where: str) -> Layout | Encoding | Free:
    """The layout of `--layout NAME=…` for a tensor of this type; EqsatError E394, E301, E312, E313.

    where: what the text is a part of, for messages.
    """
    lines = Lines(where, text)
    placed = Placed(text, lines, tuple(range(len(text))))
    free = _free(placed)
    return free or layout_of(placed, of)


def _free(placed: Placed) -> Free | None:
    """`free`, or `free(calls=100)`."""
    tree = parse(placed, "E394")
    if isinstance(tree, Diagnostic):
        raise EqsatError(tree)
    body = tree.body
    if isinstance(body, ast.Name) and body.id == "free":
        return Free()
    if not isinstance(body, ast.Call) or tree.text(body.func) != "free":
        return None
    calls = {k.arg: k.value for k in body.keywords}.get("calls")
    number = calls.value if isinstance(calls, ast.Constant) else None
    if body.args or len(body.keywords) != 1 or type(number) is not int or number < 1:
        help = "write `free`, or `free(calls=100)` if the caller converts once in 100 calls"
        message = "a free layout has a number of calls, or nothing"
        raise EqsatError(Diagnostic("E394", message, tree.span(body), help=help))
    return Free(number)


def layout_of(placed: Placed, of: TensorType) -> Layout | Encoding:
    """The layout a text asks for, of a tensor of this type; EqsatError E394, or that of its op."""
    tree = parse(placed, "E394", masked(placed.text))
    if isinstance(tree, Diagnostic):
        raise EqsatError(tree)
    call = tree.body
    op = tree.text(call.func) if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call) or op not in HELD_OPS or call.args:
        message = f"`{tree.text(call)}` is no layout of an argument or result"
        raise EqsatError(Diagnostic("E394", message, tree.span(call), help=FORMS))
    builder = Builder("border")
    tensor = builder.append("input", (), Leaf("x", of, 0))
    # the operand stands where the op's name does, as a piece of text has to be there for it
    call.args.append(ast.copy_location(ast.Name(op), call.func))
    try:
        node = TermBuilder(tree, builder, {op: tensor}).root(call, None, True)
    except Refused as error:
        raise EqsatError(error.diagnostic) from None
    except Poisoned:  # pragma: no cover - the only name is the tensor's
        raise AssertionError("a layout names no value") from None
    attr = builder.nodes[node].attr
    if isinstance(attr, Transpose):
        return Layout(attr.source, (), (), attr.perm, ())
    assert isinstance(attr, Layout | Encoding)
    return attr
