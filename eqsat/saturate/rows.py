"""The tables behind rules: attributes of a matched left side in, attributes of right sides out.

egglog matches and asks (`want`), this module answers (`do`) between saturation steps: no row means
that a condition does not hold, several rows are a `foreach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.model.attrs import Attr, Generic, Layout, Move, Reshape, Shape, ShapeError, Transpose
from eqsat.model.diag import fail
from eqsat.model.rules import (
    Apply,
    AttrExpr,
    Compare,
    Field,
    Function,
    Name,
    Not,
    Rule,
    Splat,
    Term,
    Value,
    Var,
)
from eqsat.model.tensor import TensorType
from eqsat.ops.attrs import FUNCTIONS, WHOLE, Operand
from eqsat.ops.layout import make_layout

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
# a layout column may hold None: the operand is left as it is
Row = tuple[Attr | None, ...]
Env = dict[str, Any]


class NoRow(Exception):
    """A condition does not hold: this match gives nothing."""


@dataclass(frozen=True)
class Variant:
    """A rule at fixed arities of its splat variables."""

    rule: Rule
    number: int  # over all variants of a run
    arity: tuple[tuple[str, int], ...]  # splat variable -> number of operands

    @property
    def name(self) -> str:
        return f"{self.rule.name}#{self.number}"


def left_nodes(term: Term) -> Iterator[Apply]:
    """The ops of a left side in pre-order: one attribute each."""
    if isinstance(term, Apply):
        yield term
        for o in term.operands:
            yield from left_nodes(o)


def operand_shapes(op: str, attr: Attr | None) -> tuple[Shape, ...]:
    """Shapes of the operands an attribute instance stands for."""
    match attr:
        case Generic():
            return attr.shapes
        case Transpose() | Reshape():
            return (attr.source,)
        case Layout():
            return (attr.source if op == "pack" else attr.packed_shape,)
        case Move():
            return attr.sources
    source = getattr(attr, "source", None)
    return () if source is None else (source,)


class Rows:
    """Evaluates one variant; `functions` replaces attribute functions (the target's tiles)."""

    def __init__(self, variant: Variant, functions: Mapping[str, Callable[..., Any]]):
        self.variant = variant
        self.rule = variant.rule
        self.arity = dict(variant.arity)
        self.functions = functions
        self.matched: Shape = ()  # of the left side, for the match at hand
        self.left = [n for t in (self.rule.left, *self.rule.also) for n in left_nodes(t)]

    def rows(self, attrs: list[Attr], uses: dict[str, int]) -> list[Row]:
        """All right sides for this match, each as the attributes of its ops in post-order."""
        env: Env = {}
        try:
            self._bind(env, attrs, uses)
            self.matched = result_shape(self.rule.left.op, attrs[0])
            return [row for e in self._each(env, list(self.rule.foreach)) for row in self._row(e)]
        except NoRow:
            return []

    # ---- left side --------------------------------------------------------------------------
    def _bind(self, env: Env, attrs: list[Attr], uses: dict[str, int]) -> None:
        for node, attr in zip(self.left, attrs, strict=True):
            self._bind_attr(env, node, attr)
            self._bind_shapes(env, node, operand_shapes(node.op, attr), uses)

    def _bind_attr(self, env: Env, node: Apply, attr: Attr) -> None:
        whole = WHOLE.get(node.op, ("", ""))[0]
        given = dict(node.attrs)
        if whole in given:
            self._unify(env, given[whole], attr)
            return
        for key, value in given.items():
            self._unify(env, value, field(attr, key))
        if isinstance(attr, Layout):  # a field that is not written is the default
            if "outer" not in given and attr.outer != tuple(range(len(attr.outer))):
                raise NoRow
            if "pad" not in given and attr.is_padded:
                raise NoRow

    def _unify(self, env: Env, pattern: AttrExpr, value: Any) -> None:
        if isinstance(pattern, Name):
            if env.setdefault(pattern.name, value) != value:
                raise NoRow
        elif isinstance(pattern, Value) and plain(pattern.value) != value:
            raise NoRow

    def _bind_shapes(
        self, env: Env, node: Apply, shapes: tuple[Shape, ...], uses: dict[str, int]
    ) -> None:
        at = 0
        for o in node.operands:
            if isinstance(o, Splat):
                assert isinstance(o.inner, Var)
                n = self.arity[o.inner.name]
                env[o.inner.name] = tuple(Operand(s) for s in shapes[at : at + n])
                at += n
                continue
            if o.name:
                env[o.name] = Operand(shapes[at], uses.get(o.name, 0))
            at += 1

    # ---- let, where, foreach ------------------------------------------------------------------
    def _each(self, env: Env, loops: list[tuple[str, AttrExpr]]) -> Iterator[Env]:
        if not loops:
            yield env
            return
        (name, domain), *rest = loops
        for value in self.value(domain, env):
            yield from self._each(env | {name: value}, rest)

    def _row(self, env: Env) -> list[Row]:
        try:
            for name, expr in self.rule.lets:
                env[name] = self.value(expr, env)
            if not all(self.value(c, env) for c in self.rule.where):
                return []
            out: list[Attr | None] = []
            (shape,) = self._build(self.rule.right, env, out)
            self._require_equal_shapes(shape)
        except NoRow:
            return []
        return [tuple(out)]

    def value(self, expr: AttrExpr, env: Env) -> Any:
        """The value of an attribute expression; NoRow where a function gives None."""
        match expr:
            case Name(name):
                return env[name]
            case Value(value):
                return plain(value)
            case Field(base, name):
                return getattr(self.value(base, env), name)
            case Not(inner):
                return not self.value(inner, env)
            case Compare(op, left, right):
                return COMPARE[op](self.value(left, env), self.value(right, env))
            case Function(name, args):
                fn = self.functions.get(name) or FUNCTIONS[name].meaning
                result = fn(*(self.value(a, env) for a in args))
                if result is None:
                    raise NoRow
                return result
        raise TypeError(expr)

    # ---- right side ---------------------------------------------------------------------------
    def _build(self, term: Term, env: Env, out: list[Attr | None]) -> tuple[Shape, ...]:
        """Append the attributes of a right side in post-order; returns the shapes it stands for."""
        if isinstance(term, Var):
            return (env[term.name].shape,)
        if isinstance(term, Splat):
            return self._build_splat(term, env, out)
        shapes = [s for o in term.operands for s in self._build(o, env, out)]
        attr = self._attr(term, shapes, env)
        out.append(attr)
        return (self._result_shape(term, attr, shapes),)

    def _build_splat(self, term: Splat, env: Env, out: list[Attr | None]) -> tuple[Shape, ...]:
        if isinstance(term.inner, Var):
            return tuple(x.shape for x in env[term.inner.name])
        op = term.inner
        (over,) = op.operands
        assert isinstance(over, Var)
        (_, column) = op.attrs[0]
        shapes = []
        for x, attr in zip(env[over.name], self.value(column, env), strict=True):
            out.append(attr)
            shapes.append(self._result_shape(op, attr, [x.shape]))
        return tuple(shapes)

    def _attr(self, term: Apply, shapes: list[Shape], env: Env) -> Attr | None:
        whole = WHOLE.get(term.op, ("", ""))[0]
        given = {k: self.value(v, env) for k, v in term.attrs}
        if whole in given:
            return given[whole]
        try:
            return make_attr(term.op, shapes[0], given)
        except ShapeError as e:
            message = f"rule `{self.rule.name}` builds an ill-typed `{term.op}`: {e}"
            raise fail("E110", message, term.span, exit_code=1) from e

    def _require_equal_shapes(self, shape: Shape) -> None:
        if shape != self.matched:
            raise fail(
                "E110",
                f"rule `{self.rule.name}` is unsound: its left side has the shape"
                f" {list(self.matched)} here, its right side {list(shape)}",
                self.rule.right.span,
                exit_code=1,
            )

    def _result_shape(self, term: Apply, attr: Attr | None, shapes: list[Shape]) -> Shape:
        if attr is None:
            return shapes[0]
        if operand_shapes(term.op, attr) != tuple(shapes):
            raise fail(
                "E110",
                f"rule `{self.rule.name}` builds an ill-typed `{term.op}`: it reads"
                f" {[list(s) for s in operand_shapes(term.op, attr)]}, its operands are"
                f" {[list(s) for s in shapes]}",
                term.span,
                exit_code=1,
            )
        return result_shape(term.op, attr)


def plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def field(attr: Attr, key: str) -> Any:
    """A written-out field of an attribute."""
    return getattr(attr, "pads" if key == "pad" else key)


def result_shape(op: str, attr: Attr) -> Shape:
    """Shape of the (single) result an attribute instance stands for."""
    if isinstance(attr, Layout):
        return attr.source if op == "unpack" else attr.packed_shape
    if isinstance(attr, Generic | Transpose | Reshape):
        return attr.result_shape
    if isinstance(attr, Move):
        return attr.shape
    return operand_shapes(op, attr)[0]


def make_attr(op: str, shape: Shape, given: dict[str, Any]) -> Attr:
    """An attribute from written-out fields and the shape of its operand.

    ShapeError if they do not go together; NoRow for a pack that would need a padding value.
    """
    if op == "transpose":
        attr: Attr = Transpose(shape, given["perm"])
    elif op == "reshape":
        attr = Reshape(shape, given["shape"])
    else:
        attr = _layout(shape, given)
    attr.infer(op, (TensorType("f32", shape),))
    return attr


def _layout(shape: Shape, given: dict[str, Any]) -> Layout:
    pads = given.get("pad") or ("-",) * len(given["tiles"])
    outer = given.get("outer", tuple(range(len(shape))))
    try:
        layout = make_layout(shape, given["pos"], given["tiles"], outer, pads)
    except (IndexError, ValueError, ZeroDivisionError) as e:
        raise ShapeError(f"`pos` and `tiles` do not fit a tensor of shape {list(shape)}") from e
    divisible = all(shape[d] % t == 0 for d, t in zip(layout.pos, layout.tiles, strict=True))
    if not divisible and "-" in pads:
        raise NoRow
    return layout
