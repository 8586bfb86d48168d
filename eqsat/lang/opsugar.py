"""Named ops in rules: `matmul(a, b)` and elementwise bodies → `generic` with a named signature.

On the left `relu(x)` is `generic(x, sig=s)` where `is_op("max(x0, 0.0)", s)`; on the right its
loops are those of that name on the shapes that its operands have. Elementwise ops inside of each
other are one body, as they are in a program once it is read. A program may have the operands of a
body in any order, so a rule that names one stands for all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product

from eqsat.model.diag import Span
from eqsat.model.rules import Apply, AttrExpr, Field, Function, Name, Term, Value, Var
from eqsat.ops.generics.namedops import ELEMENTWISE, MATMUL
from eqsat.ops.meaning.scalar import FUNCTIONS as SCALARS

RELU = "relu"
NAMED_OPS = ELEMENTWISE | {MATMUL, RELU}
MOST_ORDERS = 6  # of operands, in which a left side is matched
Order = tuple[int, ...]


@dataclass
class NamedOps:
    """The named ops of one rule; `orders`: those of the operands of bodies, as they are read."""

    orders: Sequence[Order] = ()
    ops: list[tuple[str, Name]] = field(default_factory=list)  # of the left side, with signatures
    counts: list[int] = field(default_factory=list)  # operands of its bodies that may be exchanged

    @property
    def anchor(self) -> Name | None:
        """The signature that says element type and precision: of a product, if there is one."""
        products = [sig for name, sig in self.ops if name == MATMUL]
        return next(iter([*products, *(sig for _, sig in self.ops)]), None)

    def guards(self) -> Iterator[Function]:
        """That the signatures of the left side are what their names say."""
        for name, sig in self.ops:
            more = () if self.anchor is None or sig.name == self.anchor.name else (self.anchor,)
            yield Function("is_op", (Value(name, sig.span), sig, *more), sig.span)

    def every_order(self) -> list[tuple[Order, ...]]:
        """The orders of operands in which a left side is matched, as it is written first."""
        return list(product(*(permutations(range(n)) for n in self.counts)))

    def matched(self, name: str, operands: Sequence[Term], span: Span) -> Apply:
        """The pattern of a named op; `name` numbers the operands as they are given."""
        if name != MATMUL and len(operands) > 1:
            at = len(self.counts)
            self.counts.append(len(operands))
            if at < len(self.orders):
                order = self.orders[at]
                operands = [operands[i] for i in order]
                name = _renumbered(name, order)
        sig = Name(f"{'matmul' if name == MATMUL else 'body'}_{len(self.ops) + 1}", span)
        self.ops.append((name, sig))
        return Apply("generic", tuple(operands), (("sig", sig),), span)


def _renumbered(name: str, order: Order) -> str:
    """The body with `x0` as the place that operand 0 has in this order."""
    tree = ast.parse(name, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id[0] == "x" and node.id[1:].isdigit():
            node.id = f"x{order.index(int(node.id[1:]))}"
    return ast.unparse(tree)


@dataclass
class BodyText:
    """Elementwise ops inside of each other as one body, and the operands that it reads."""

    text: Callable[[ast.expr], str]
    operands: list[ast.expr] = field(default_factory=list)

    def of(self, node: ast.expr) -> str:
        """The body of a call; ValueError says what is wrong with it."""
        if isinstance(node, ast.Call) and (name := self._elementwise(node)):
            want = 1 if name == RELU else SCALARS[name].arity
            if len(node.args) != want:
                raise ValueError(f"`{name}` takes {want} operand(s), got {len(node.args)}")
            parts = [self.of(a) for a in node.args]
            return f"max({parts[0]}, 0.0)" if name == RELU else f"{name}({', '.join(parts)})"
        number = node.operand if isinstance(node, ast.UnaryOp) else node
        if isinstance(number, ast.Constant) and type(number.value) in (int, float):
            return self.text(node)
        texts = [self.text(o) for o in self.operands]
        if isinstance(node, ast.Name) and node.id in texts:
            return f"x{texts.index(node.id)}"
        self.operands.append(node)
        return f"x{len(self.operands) - 1}"

    @staticmethod
    def _elementwise(node: ast.Call) -> str:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return name if name in NAMED_OPS and name != MATMUL and not node.keywords else ""


def shape_expression(term: Term) -> AttrExpr | None:
    """The shape of an operand of a right side, as it is computed; None if rules cannot say it."""
    if isinstance(term, Var):
        return Field(Name(term.name, term.span), "shape", term.span)
    if not isinstance(term, Apply):
        return None
    inner = [shape_expression(o) for o in term.operands]
    shapes = tuple(s for s in inner if s is not None)
    if len(shapes) < len(inner):
        return None
    attrs = dict(term.attrs)
    if term.op == "transpose":
        return Function("compose", (*shapes, attrs["perm"]), term.span)
    sig = attrs.get("sig")
    if not isinstance(sig, Function) or sig.name != "op_loops":
        return None
    is_product = isinstance(sig.args[0], Value) and sig.args[0].value == MATMUL
    return Function("matmul_shape", shapes, term.span) if is_product else shapes[0]


def named_term(name: str, operands: Sequence[Term], anchor: Name, span: Span) -> Apply | None:
    """A named op of a right side; None if the shape of an operand cannot be said."""
    shapes = [shape_expression(o) for o in operands]
    args = tuple(s for s in shapes if s is not None)
    if len(args) < len(shapes):
        return None
    sig = Function("op_loops", (Value(name, span), Name(anchor.name, span), *args), span)
    return Apply("generic", tuple(operands), (("sig", sig),), span)
