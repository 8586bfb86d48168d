"""The tables behind rules: attributes of a matched left side in, attributes of right sides out.

egglog matches and asks (`want`), this module answers (`do`) between saturation steps: no row means
that a condition does not hold, several rows are a `foreach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.model.attr import Attr, Shape, ShapeError, loop_order
from eqsat.model.diag import fail
from eqsat.model.extents import Extent
from eqsat.model.layout import Layout
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
    expressions_within,
)
from eqsat.ops.attrs import FUNCTIONS, RULE_OPS, Operand
from eqsat.ops.builtin.layouts import NeedsPadding
from eqsat.ops.programs.facts import FACTS

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
# ops of whose attribute a column may hold None, with their operands: the first is left as it is
OPTIONAL = {op: r.operands for op, r in RULE_OPS.items() if r.operands and op != "result"}
Row = tuple[Attr | None, ...]
Env = dict[str, Any]
Functions = Mapping[str, Callable[..., Any]]


class NoRow(Exception):
    """A condition does not hold: this match gives nothing."""


@dataclass(frozen=True)
class RuleAtArity:
    """A rule at fixed arities of its splat variables."""

    rule: Rule
    number: int  # over all variants of a run
    arity: tuple[tuple[str, int], ...]  # splat variable -> number of operands

    @property
    def name(self) -> str:
        return f"{self.rule.name}#{self.number}"


# an op of a left side, and how many attributes it has if a splat runs over it (else None)
Slot = tuple[Apply, int | None]


def slots(term: Term, arity: Mapping[str, int]) -> Iterator[Slot]:
    """The ops of a left side in pre-order, the order of their attributes in a match."""
    if isinstance(term, Splat) and isinstance(term.inner, Apply):
        yield term.inner, arity[splat_name(term)]
    if isinstance(term, Apply):
        yield term, None
        for o in term.operands:
            yield from slots(o, arity)


def splat_name(s: Splat) -> str:
    """The splat variable that `*xs` or `*pack(xs, …)` runs over."""
    if isinstance(s.inner, Var):
        return s.inner.name
    x = s.inner.operands[0]
    assert isinstance(x, Var)
    return x.name


def mark(name: str, i: int) -> str:
    """The name of a splat's operand where it is asked whether it is an unpacked value."""
    return f"{name}_{i}_unpacked"


def fact_key(fact: str, name: str) -> str:
    """The name of the answer to `wasted(x)` in a match, which no variable has."""
    return f"{fact}({name})"


class Answers:
    """Evaluates one variant; `functions` replaces attribute functions (the target's tiles)."""

    def __init__(self, variant: RuleAtArity, functions: Functions):
        self.variant = variant
        self.rule = variant.rule
        self.arity = dict(variant.arity)
        self.functions = functions
        self.matched: Shape | None = None  # of the left side, for the match at hand
        self.takes_orders = any(
            f in FUNCTIONS and FUNCTIONS[f].orders for f in functions_of(self.rule)
        )
        sides = (self.rule.left, *self.rule.also)
        self.slots = [s for t in sides for s in slots(t, self.arity)]
        self.width = sum(1 if n is None else n for _, n in self.slots)  # attributes of a match

    def rows(self, attrs: list[Attr], uses: dict[str, int]) -> list[Row]:
        """All right sides for this match, each as the attributes of its ops in post-order."""
        env: Env = {}
        if not self.takes_orders and any(map(loop_order, attrs)):
            return []  # the canonical form of it is in the same class
        try:
            self._bind(env, attrs, uses)
            return [row for e in self._each(env, list(self.rule.foreach)) for row in self._row(e)]
        except NoRow:
            return []

    # ---- left side --------------------------------------------------------------------------
    def _bind(self, env: Env, attrs: list[Attr], uses: dict[str, int]) -> None:
        at = 0
        for node, count in self.slots:
            if count is None:
                self._bind_attr(env, node, attrs[at])
                self._bind_shapes(env, node, attrs[at].operand_shapes(node.op), uses)
            else:
                self._bind_list(env, node, attrs[at : at + count])
            at += 1 if count is None else count
        shapes = (a.value_shape(n.op) for (n, _), a in zip(self.slots, attrs, strict=False))
        self.matched = next((s for s in shapes if s is not None), None)
        self._bind_roots(env, uses)

    def _bind_roots(self, env: Env, uses: dict[str, int]) -> None:
        """The names of whole patterns, which no op around them binds."""
        for term in (self.rule.left, *self.rule.also):
            if term.name:
                shape = self.matched if term is self.rule.left else None
                env[term.name] = self._operand(term.name, shape, uses)

    @staticmethod
    def _operand(name: str, shape: Shape | None, uses: dict[str, int]) -> Operand:
        held = frozenset(f for f in FACTS if uses.get(fact_key(f, name)))
        return Operand(shape, uses.get(name, 0), facts=held)

    def _bind_list(self, env: Env, node: Apply, attrs: list[Attr]) -> None:
        """`*op(xs, …)`: a whole key binds the list of attributes, a field is equal in all."""
        whole = RULE_OPS[node.op].whole
        for key, pattern in node.attrs:
            if key == whole:
                self._unify(env, pattern, tuple(attrs))
            else:
                for attr in attrs:
                    self._unify(env, pattern, attr.field(key))
        (over,) = node.operands
        assert isinstance(over, Var)
        shapes = [a.operand_shapes(node.op) for a in attrs]
        env[over.name] = tuple(Operand(s[0]) for s in shapes if s)

    def _bind_attr(self, env: Env, node: Apply, attr: Attr) -> None:
        whole = RULE_OPS[node.op].whole
        given = dict(node.attrs)
        if whole in given:
            self._unify(env, given[whole], attr)
            return
        for key, value in given.items():
            self._unify(env, value, attr.field(key))
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
        self,
        env: Env,
        node: Apply,
        shapes: tuple[Shape, ...] | None,
        uses: dict[str, int],
    ) -> None:
        at = 0
        for o in node.operands:
            if isinstance(o, Splat):
                n = self.arity[splat_name(o)]
                if isinstance(o.inner, Var):
                    name, mine = o.inner.name, (shapes or ())[at : at + n]
                    env[name] = tuple(
                        Operand(s, unpacked=bool(uses.get(mark(name, i), 0)))
                        for i, s in enumerate(mine)
                    )
                at += n
                continue
            if o.name:
                env[o.name] = self._operand(o.name, shapes[at] if shapes else None, uses)
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
        return value(expr, env, self.functions)

    # ---- right side ---------------------------------------------------------------------------
    def _build(self, term: Term, env: Env, out: list[Attr | None]) -> tuple[Shape | None, ...]:
        """Append the attributes of a right side in post-order; returns the shapes it stands for."""
        if isinstance(term, Var):
            return (env[term.name].shape,)
        if isinstance(term, Splat):
            return self._build_splat(term, env, out)
        shapes = [s for o in term.operands for s in self._build(o, env, out)]
        attr = self._attr(term, shapes, {k: self.value(v, env) for k, v in term.attrs})
        out.append(attr)
        return (self._result_shape(term, attr, shapes),)

    def _build_splat(
        self, term: Splat, env: Env, out: list[Attr | None]
    ) -> tuple[Shape | None, ...]:
        if isinstance(term.inner, Var):
            return tuple(x.shape for x in env[term.inner.name])
        op = term.inner
        operands = env[splat_name(term)]
        others = [s for o in op.operands[1:] for s in self._build(o, env, out)]
        columns = {k: self._column(op, k, self.value(v, env), len(operands)) for k, v in op.attrs}
        shapes: list[Shape | None] = []
        for i, x in enumerate(operands):
            given = {k: column[i] for k, column in columns.items()}
            attr = self._attr(op, [x.shape, *others], given)
            out.append(attr)
            shapes.append(self._result_shape(op, attr, [x.shape, *others]))
        return tuple(shapes)

    def _column(self, op: Apply, key: str, value: Any, count: int) -> tuple[Any, ...]:
        """One entry per operand: a list as it is, one permutation or number for all of them."""
        is_whole = key == RULE_OPS[op.op].whole
        is_list = is_whole or (isinstance(value, tuple) and not _is_ints(value))
        column = value if is_list else (value,) * count
        if len(column) != count:
            message = f"rule `{self.rule.name}`: {len(column)} attributes for {count} operands"
            raise fail("E110", message, op.span, exit_code=1)
        return column

    def _attr(
        self, term: Apply, shapes: Sequence[Shape | None], given: dict[str, Any]
    ) -> Attr | None:
        if given and all(v is None for v in given.values()):
            if term.op not in OPTIONAL:
                raise NoRow
            return None
        whole = RULE_OPS[term.op].whole
        if whole in given:
            return given[whole]
        try:
            return RULE_OPS[term.op].attribute([s or () for s in shapes], given)
        except NeedsPadding:
            raise NoRow from None
        except ShapeError as e:
            message = f"rule `{self.rule.name}` builds an ill-typed `{term.op}`: {e}"
            raise fail("E110", message, term.span, exit_code=1) from e

    def _require_equal_shapes(self, shape: Shape | None) -> None:
        if shape is not None and self.matched is not None and shape != self.matched:
            raise fail(
                "E110",
                f"rule `{self.rule.name}` is unsound: its left side has the shape"
                f" {list(self.matched)} here, its right side {list(shape)}",
                self.rule.right.span,
                exit_code=1,
            )

    def _result_shape(
        self, term: Apply, attr: Attr | None, shapes: Sequence[Shape | None]
    ) -> Shape | None:
        if attr is None:
            return shapes[0]
        wanted = attr.operand_shapes(term.op)
        if wanted is None:
            return shapes[0]
        given = [s for s in shapes if s is not None]
        if len(given) == len(shapes) and wanted != tuple(given):
            raise fail(
                "E110",
                f"rule `{self.rule.name}` builds an ill-typed `{term.op}`: it reads"
                f" {[list(s) for s in wanted]}, its operands are {[list(s) for s in given]}",
                term.span,
                exit_code=1,
            )
        return attr.value_shape(term.op)


# ---- attribute expressions -----------------------------------------------------------------------
def value(expr: AttrExpr, env: Env, functions: Functions) -> Any:
    """The value of an attribute expression; NoRow where a function gives None."""
    match expr:
        case Name(name):
            return env[name]
        case Value(constant):
            return plain(constant)
        case Field(base, name):
            owner = value(base, env, functions)
            attribute = None if owner is None else getattr(owner, name)  # None: it is left out
            if attribute is None and isinstance(owner, Operand):
                raise NoRow  # the op around it does not say
            return attribute
        case Not(inner):
            return not value(inner, env, functions)
        case Compare(op, left, right):
            return COMPARE[op](value(left, env, functions), value(right, env, functions))
        case Function(name, args):
            fn = functions.get(name) or FUNCTIONS[name].meaning
            given = [value(a, env, functions) for a in args]
            if any(a is None for a in given):
                return None  # of what is left out
            result = fn(*given)
            if result is None:
                raise NoRow
            return result
    raise TypeError(expr)


def functions_of(rule: Rule) -> set[str]:
    """The attribute functions that a rule calls."""
    return {f.name for f in rule.calls}


def variables_asked(rule: Rule, function: str) -> set[str]:
    """The variables that a rule asks a function about, such as their uses in the input."""
    return {a.name for f in rule.calls if f.name == function for a in f.args if isinstance(a, Name)}


def is_closed(condition: AttrExpr) -> bool:
    """Whether a condition asks about no match, but about the target alone."""
    return not any(isinstance(p, Name) for p in expressions_within(condition))


def is_moot(rule: Rule, functions: Functions) -> bool:
    """Whether a condition on the target alone does not hold."""
    try:
        return not all(value(c, {}, functions) for c in rule.where if is_closed(c))
    except NoRow:
        return True


def _is_ints(value: tuple[Any, ...]) -> bool:
    return all(isinstance(v, int | Extent) for v in value)


def plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
