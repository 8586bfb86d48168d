"""Attribute expressions of rules: literals, names, functions, columns, conditions – with kinds."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.lang.expressions import Tree
from eqsat.model.diag import Diagnostic, Note, Span, did_you_mean
from eqsat.model.expr import literal
from eqsat.model.rules import AttrExpr, Compare, Field, Function, Name, Not, Value
from eqsat.ops.attrs import FIELDS, FUNCTIONS, ROWS
from eqsat.ops.vocabulary import AttrFunction

UNKNOWN = ""  # the kind of something that was wrong before; fits everywhere, so nothing follows
PADS = {"any": "?", "none": "-"}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


@dataclass
class Scope:
    """Variables of a rule: name → kind and the place that bound it."""

    bindings: dict[str, tuple[str, Span | None]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    open: bool = False  # a part that binds names was refused: unknown names are not reported

    def __contains__(self, name: str) -> bool:
        return name in self.bindings

    def bind(self, name: str, kind: str, span: Span) -> None:
        self.bindings[name] = (kind, span)

    def poison(self, name: str) -> None:
        """The name exists, its kind is unknown: uses of it are not reported."""
        self.bindings.setdefault(name, (UNKNOWN, None))

    def kind(self, name: str) -> str:
        return self.bindings[name][0] if name in self.bindings else UNKNOWN

    def use(self, name: str, wanted: Iterable[str], span: Span) -> Diagnostic | None:
        """Note a use; E020 if the name is not bound, E021 if it is of another kind."""
        self.used.add(name)
        if name not in self.bindings:
            return None if self.open else self.unbound(name, span)
        kind, bound = self.bindings[name]
        wanted = tuple(wanted)
        if kind == UNKNOWN or UNKNOWN in wanted or kind in wanted:
            return None
        text = " or ".join(wanted)
        notes = (Note(bound, f"bound as {kind} here"),) if bound else ()
        message = f"`{name}` is used as {text} but was bound as {kind}"
        return Diagnostic("E021", message, span, f"wants {text}", notes=notes)

    def unbound(self, name: str, span: Span) -> Diagnostic:
        message = f"`{name}` is not bound by the left-hand side"
        return Diagnostic(
            "E020", message, span, "unbound variable", did_you_mean(name, self.bindings)
        )


class Attributes:
    """Expressions of one text over a scope."""

    def __init__(self, tree: Tree, scope: Scope, problems: list[Diagnostic]):
        self.tree = tree
        self.scope = scope
        self.problems = problems
        self.whole: ast.expr | None = None  # the condition that this text is

    def report(self, code: str, node: ast.expr, message: str, help: str = "") -> None:
        self.problems.append(Diagnostic(code, message, self.tree.span(node), help=help))

    # ---- literals -----------------------------------------------------------------------------
    def is_literal(self, node: ast.expr, kind: str) -> bool:
        """Whether this is a literal of a kind; `any` and `none` are literals of paddings only."""
        return self._literal(node, kind) is not None

    def _literal(self, node: ast.expr, kind: str) -> Value | None:
        value = _pads(node) if kind == "pads" else _plain(node)
        if kind == "str" and type(value) in (int, float):  # such as the value of a pad
            value = literal(value)
        literal_kind = "pads" if kind == "pads" else _literal_kind(value)
        if value is None or kind not in (UNKNOWN, literal_kind):
            return None
        return Value(value, self.tree.span(node))

    # ---- typed expressions ----------------------------------------------------------------------
    def of_kind(self, node: ast.expr, wanted: str) -> AttrExpr | None:
        """An expression of a kind (alternatives with `|`); reports E017 or E021 if it is not."""
        kinds = wanted.split("|")
        if isinstance(node, ast.Name) and not ("pads" in kinds and node.id in PADS):
            problem = self.scope.use(node.id, kinds, self.tree.span(node))
            if problem is not None:
                self.problems.append(problem)
                return None
            return Name(node.id, self.tree.span(node))
        for kind in kinds:
            literal = self._literal(node, kind)
            if literal is not None:
                return literal
        expr, kind = self.infer(node)
        if expr is None or kind == UNKNOWN or kind in kinds:
            return expr
        text = " or ".join(kinds)
        self.report("E017", node, f"{self._shown(node)} gives {kind}, but {text} is wanted here")
        return None

    def _shown(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call):
            return f"`{self.tree.text(node.func)}`"
        return f"`{self.tree.text(node)}`"

    def infer(self, node: ast.expr) -> tuple[AttrExpr | None, str]:
        """An expression and its kind; problems are reported and give None."""
        span = self.tree.span(node)
        match node:
            case ast.Name(id=name):
                problem = self.scope.use(name, (UNKNOWN,), span)
                if problem is not None:
                    self.problems.append(problem)
                    return None, UNKNOWN
                return Name(name, span), self.scope.kind(name)
            case ast.Call():
                return self._function(node)
            case ast.Attribute():
                return self._field(node)
            case ast.UnaryOp(op=ast.Not()):
                inner = self.of_kind(node.operand, "bool")
                return (None if inner is None else Not(inner, span)), "bool"
            case ast.Compare():
                return self._compare(node)
        literal = self._literal(node, UNKNOWN)
        if literal is not None:
            return literal, _literal_kind(literal.value)
        self.report(
            "E010", node, "cannot read this value",
            "attributes are names, `[1, 0]`, attribute functions, columns such as `c.sig`,"
            " or fields such as `l.is_padded`",
        )  # fmt: skip
        return None, UNKNOWN

    def _function(self, node: ast.Call) -> tuple[AttrExpr | None, str]:
        name = self.tree.text(node.func).replace(" ", "")
        function = FUNCTIONS.get(name)
        if function is None:
            message = f"no attribute function named `{name}`"
            is_field = any(name in fields for fields in FIELDS.values())
            near = did_you_mean(name, FUNCTIONS, "eqsat list functions")
            hint = f"it is a field, as in `x.{name}`" if is_field else near
            self.report("E016", node.func, message, hint)
            return None, UNKNOWN
        if function.is_fact and node is not self.whole:
            self.report(
                "E017", node, f"`{name}` is known of some values only and stands by itself",
                f"make `{name}(…)` a condition of its own under `where:`",
            )  # fmt: skip
            return None, UNKNOWN
        most, count = len(function.args), len(node.args)
        if node.keywords or not most - function.optional <= count <= most:
            wants, given = ", ".join(function.args), count + len(node.keywords)
            number = f"{most - function.optional} to {most}" if function.optional else str(most)
            message = f"`{name}` takes {number} argument(s) ({wants}), got {given}"
            self.report("E017", node, message)
            return None, function.given(())
        args = [self.of_kind(a, k) for a, k in zip(node.args, function.args, strict=False)]
        good = tuple(a for a in args if a is not None)
        if len(good) < len(args) or self._is_refused(function, node.args, good):
            return None, function.given(())
        return Function(name, good, self.tree.span(node)), function.given(
            [self.scope.kind(a.name) if isinstance(a, Name) else UNKNOWN for a in good]
        )

    def _is_refused(
        self, function: AttrFunction, nodes: Sequence[ast.expr], args: Sequence[AttrExpr]
    ) -> bool:
        """Whether a text that is written out is one the function cannot read (E026)."""
        if function.refuses is None:
            return False
        for node, a in zip(nodes, args, strict=True):
            text = a.value if isinstance(a, Value) else None
            problem = function.refuses(text) if isinstance(text, str) else ""
            if problem:
                self.report("E026", node, problem, function.doc)
                return True
        return False

    def _field(self, node: ast.Attribute) -> tuple[AttrExpr | None, str]:
        base, kind = self.infer(node.value)
        if base is None or kind == UNKNOWN:
            return None, UNKNOWN
        fields = FIELDS.get(kind) or ROWS.get(kind.removeprefix("row:"), {})
        if node.attr not in fields:
            owner = self.tree.text(node.value)
            noun = "field" if kind in FIELDS else "column"
            message = f"`{owner}` has no {noun} `{node.attr}`"
            hint = did_you_mean(node.attr, fields) if fields else f"`{owner}` is of kind {kind}"
            end = self.tree.range(node)[1]
            span = self.tree.placed.span(end - len(node.attr), end)
            self.problems.append(Diagnostic("E023", message, span, help=hint))
            return None, UNKNOWN
        return Field(base, node.attr, self.tree.span(node)), fields[node.attr]

    # ---- conditions -----------------------------------------------------------------------------
    def condition(self) -> AttrExpr | None:
        """The whole text as a condition."""
        if isinstance(self.tree.body, ast.BoolOp):
            self.report(
                "E010", self.tree.body, "a condition has no `and` or `or`",
                "write one condition per line; write two rules for `or`",
            )  # fmt: skip
            return None
        self.whole = self.tree.body
        return self.of_kind(self.tree.body, "bool")

    def _compare(self, node: ast.Compare) -> tuple[AttrExpr | None, str]:
        op = _COMPARISONS.get(type(node.ops[0]))
        if len(node.ops) != 1 or op is None:
            self.report(
                "E010", node, "a condition compares two values",
                "write `a == b` with one of == != < <= > >=",
            )  # fmt: skip
            return None, "bool"
        left, kind = self.infer(node.left)
        if left is None:
            self.infer(node.comparators[0])
            return None, "bool"
        if op not in ("==", "!=") and kind not in ("int", "float", UNKNOWN):
            self.report("E017", node.left, f"`{op}` compares int, not {kind}")
            return None, "bool"
        right = self.of_kind(node.comparators[0], kind)
        if right is None:
            return None, "bool"
        return Compare(op, left, right, self.tree.span(node)), "bool"


def _plain(node: ast.expr) -> Any:
    """A number, bool, string or list of ints; None if it is no literal."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List() | ast.Tuple():
            values = [_plain(e) for e in node.elts]
            return values if all(type(v) is int for v in values) else None
    return None


def _pads(node: ast.expr) -> Any:
    """A padding (`any`, `none`, a number) or a list of them, as `Layout.pads` writes them."""
    match node:
        case ast.Name(id=word) if word in PADS:
            return PADS[word]
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return repr(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return repr(-value)
        case ast.List():
            values = [_pads(e) for e in node.elts]
            return values if all(isinstance(v, str) for v in values) else None
    return None


def _literal_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    return "str" if isinstance(value, str) else "ints"
