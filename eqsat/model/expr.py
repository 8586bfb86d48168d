"""The scalar body of a generic: an expression DAG over its operands.

Equal expressions are one object, however they were built: a part that is used twice exists once,
is walked once, computed once and costs once. Nothing here or in what walks a body recurses, so
bodies may be as deep as their source is long. Expressions have the order of their texts.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cmp_to_key, lru_cache
from typing import Any, Generic, NoReturn, TypeVar
from weakref import KeyedRef

K = TypeVar("K")
T = TypeVar("T")


class Expr:
    """`arg(i)`, `const(value)` or `fn(args…)`; equal expressions are the same object.

    fn is a name of `ops.meaning.scalar.FUNCTIONS`, or "arg" (value: operand number), or "const"
    (value: a Python bool, int or float), or "cast" (value: dtype name). Immutable; hash and
    equality are those of the object, as the table of living expressions holds no two equal ones
    (hash-consing; Filliâtre and Conchon, "Type-safe modular hash-consing", ML 2006).
    """

    __slots__ = ("__weakref__", "_operands", "args", "fn", "value")
    fn: str
    args: tuple[Expr, ...]
    value: Any
    _operands: tuple[int, ...]

    def __new__(cls, fn: str, args: tuple[Expr, ...] = (), value: Any = None) -> Expr:
        kind = type(value)
        # nan is one value here; 0.0 is not -0.0, and 1 is neither True nor 1.0
        plain = value is None or kind is str or kind is int
        key = (fn, args, value if plain else (kind.__name__, repr(value)))
        reference = _living.get(key)
        expr = reference() if reference is not None else None
        return _interned(key, fn, args, value) if expr is None else expr

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an expression does not change: {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_nodes, (_nodes(self),)

    def __deepcopy__(self, memo: Any) -> Expr:
        return self

    def walk(self) -> Iterator[Expr]:
        """This expression and all below it, each once, in the order of first use."""
        return walk_all([self])

    def operands(self) -> tuple[int, ...]:
        """Operand numbers in the order of first use."""
        return self._operands

    def substitute(self, operands: Mapping[int, Expr]) -> Expr:
        """Replace `arg(i)` by `operands[i]` where given."""
        new = {i: e for i, e in operands.items() if e is not arg(i)}
        if new.keys().isdisjoint(self.operands()):
            return self
        if self.args and not any([a.args for a in self.args]):  # as most bodies that are read
            return rebuilt(self, [new.get(a.value, a) if a.fn == "arg" else a for a in self.args])

        def parts(e: Expr) -> tuple[Expr, ...]:
            return () if new.keys().isdisjoint(e.operands()) else e.args

        def step(e: Expr, args: Sequence[Expr]) -> Expr:
            if e.fn == "arg":
                return new.get(e.value, e)
            return rebuilt(e, args) if args else e

        return BottomUp(step, parts)(self)

    def count(self) -> int:
        """Number of scalar operations, each part computed once; casts and leaves not counted."""
        return count_all([self])

    def __str__(self) -> str:
        return body_text(self)

    def __repr__(self) -> str:
        return f"<{short_body(self)}>"

    def to_json(self) -> Any:
        """`[[fn, value, number of each argument…], …]`: every part once, the whole one last."""
        return [
            [fn, literal(value) if fn == "const" else value, *args]
            for fn, value, *args in _nodes(self)
        ]

    @classmethod
    def from_json(cls, data: Any) -> Expr:
        """Undo `to_json`; format 1 nested the arguments, `[fn, value, [fn, value, …] …]`."""
        nodes = _flattened(data) if isinstance(data[0], str) else data
        return _from_nodes(
            [fn, read_literal(value) if fn == "const" else value, *args]
            for fn, value, *args in nodes
        )


# ---- the table of living expressions -------------------------------------------------------------
_living: dict[Any, KeyedRef[Any, Expr]] = {}
_lock = threading.RLock()


def _interned(key: Any, fn: str, args: tuple[Expr, ...], value: Any) -> Expr:
    with _lock:  # two threads that build one expression have to get one object
        reference = _living.get(key)
        expr = reference() if reference is not None else None
        if expr is None:
            expr = object.__new__(Expr)
            fill = object.__setattr__
            fill(expr, "fn", fn)
            fill(expr, "args", args)
            fill(expr, "value", value)
            fill(expr, "_operands", _used(fn, args, value))
            _living[key] = KeyedRef(expr, _forget, key)
    return expr


def _forget(reference: KeyedRef[Any, Expr]) -> None:
    with _lock:
        if _living.get(reference.key) is reference:  # else an equal one was made since
            del _living[reference.key]


def _used(fn: str, args: tuple[Expr, ...], value: Any) -> tuple[int, ...]:
    if fn == "arg":
        return (value,)
    used: tuple[int, ...] = ()
    for a in args:
        if used != a.operands():  # most parts of a body read what their first part reads
            used = tuple(dict.fromkeys(used + a.operands()))
    return used


# ---- walking -------------------------------------------------------------------------------------
class BottomUp(Generic[K, T]):
    """A function that is defined by its values on parts: computed once per part, without recursion.

    step: (whole, value of each part) → value. parts: what a whole is computed from; the arguments
    of an expression, unless given. What was computed is kept for the calls that follow.

        depth = BottomUp(lambda e, inner: 1 + max(inner, default=0))
    """

    def __init__(
        self,
        step: Callable[[K, Sequence[T]], T],
        parts: Callable[[K], Sequence[K]] = lambda whole: whole.args,  # type: ignore[attr-defined]
    ):
        self._step = step
        self._parts = parts
        self.memo: dict[K, T] = {}

    def __call__(self, root: K) -> T:
        memo, left = self.memo, [root]
        while left:
            whole = left[-1]
            if whole in memo:
                left.pop()
                continue
            parts = self._parts(whole)
            missing = [p for p in parts if p not in memo]
            if missing:
                left += reversed(missing)
                continue
            memo[whole] = self._step(whole, [memo[p] for p in parts])
            left.pop()
        return memo[root]


def walk_all(bodies: Sequence[Expr]) -> Iterator[Expr]:
    """The parts of these bodies, each once, in the order of first use."""
    seen: set[Expr] = set()
    left = list(reversed(bodies))
    while left:
        e = left.pop()
        if e not in seen:
            seen.add(e)
            left += reversed(e.args)
            yield e


def count_all(bodies: Sequence[Expr]) -> int:
    """Number of scalar operations of several results, what they share once; see `Expr.count`."""
    return sum(e.fn not in ("arg", "const", "cast") for e in walk_all(bodies))


def rebuilt(e: Expr, args: Sequence[Expr]) -> Expr:
    """The function of an expression applied to other arguments."""
    return e if e.args == tuple(args) else Expr(e.fn, tuple(args), e.value)


def _nodes(root: Expr) -> list[list[Any]]:
    """`[fn, value, number of each argument…]` of every part, parts first."""
    nodes: list[list[Any]] = []

    def add(e: Expr, args: Sequence[int]) -> int:
        nodes.append([e.fn, e.value, *args])
        return len(nodes) - 1

    BottomUp(add)(root)
    return nodes


def _from_nodes(nodes: Any) -> Expr:
    """Undo `_nodes`."""
    exprs: list[Expr] = []
    for fn, value, *args in nodes:
        exprs.append(Expr(fn, tuple(exprs[a] for a in args), value))
    return exprs[-1]


def _flattened(nested: Any) -> list[list[Any]]:
    """Nested nodes in a list, parts first."""
    order, left = [], [nested]
    while left:
        one = left.pop()
        order.append(one)
        left += one[2:]
    number = {id(one): len(order) - 1 - i for i, one in enumerate(order)}
    return [[*one[:2], *(number[id(a)] for a in one[2:])] for one in reversed(order)]


# ---- building ------------------------------------------------------------------------------------
@lru_cache(maxsize=1_000)  # so that the leaves of most bodies live on and are not made again
def arg(i: int) -> Expr:
    return Expr("arg", (), i)


def const(value: bool | int | float) -> Expr:
    return Expr("const", (), value)


def call(fn: str, *args: Expr) -> Expr:
    return Expr(fn, tuple(args))


def cast(x: Expr, dtype: str) -> Expr:
    return Expr("cast", (x,), dtype)


def literal(value: bool | int | float) -> str:
    """The text of a scalar: `true`, `3`, `0.5`, `-inf`, `nan`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def read_literal(text: str) -> bool | int | float:
    """Undo `literal`."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


# ---- text ----------------------------------------------------------------------------------------
DEEPEST = 64  # nested calls, then a part gets a name: parsers of expressions are recursive
SHOWN = 400  # characters of a body that a person is shown


def body_text(root: Expr) -> str:
    """The body in the `.eqs` notation, linear in its distinct parts.

    A part with arguments that is used twice, or that `DEEPEST` calls lead down from, is named
    where it is first needed. Bodies without such parts are one nested call.
    """
    uses = Counter(a for e in root.walk() for a in e.args)
    named: list[str] = []

    def step(e: Expr, inner: Sequence[tuple[str, int]]) -> tuple[str, int]:
        text, depth = call_text(e, [t for t, _ in inner]), 1 + max((d for _, d in inner), default=0)
        if not e.args or e is root or (uses[e] < 2 and depth < DEEPEST):
            return text, depth
        named.append(f"t{len(named)} := {text}")
        return f"t{len(named) - 1}", 1

    text, _ = BottomUp(step)(root)
    return f"({', '.join([*named, text])})" if named else text


def short_body(root: Expr) -> str:
    """The body as a person reads it: how it begins, how it ends, and how much of it there is."""
    text = body_text(root)
    if len(text) <= SHOWN:
        return text
    return f"{text[: SHOWN // 2]} … {text[-SHOWN // 2 :]} [{root.count()} operations]"


def call_text(e: Expr, inner: Sequence[str]) -> str:
    """One call, around the texts of its arguments."""
    if not e.args:
        return f"x{e.value}" if e.fn == "arg" else literal(e.value)
    return f"{e.fn}({', '.join([*inner, e.value] if e.fn == 'cast' else inner)})"


class TextOrder:
    """Compares expressions as their texts written out in full would compare, and writes none.

    Equal parts are skipped and what was found is kept, so that ordering all parts of a body is
    linear in the body.
    """

    def __init__(self) -> None:
        self._signs: dict[tuple[Expr, Expr], int] = {}
        self.key: Any = cmp_to_key(self.compare)

    def compare(self, a: Expr, b: Expr) -> int:
        """-1, 0 or 1."""
        trail: list[tuple[Expr, Expr]] = []
        sign = 0
        while a is not b:
            if (a, b) in self._signs:
                sign = self._signs[a, b]
                break
            trail.append((a, b))
            heads = _head(a), _head(b)
            other = [(x, y) for x, y in zip(a.args, b.args, strict=False) if x is not y]
            if heads[0] != heads[1] or not other:
                # of two casts of one value the type decides
                texts = heads if heads[0] != heads[1] else (str(a.value), str(b.value))
                sign = (texts[0] > texts[1]) - (texts[0] < texts[1])
                break
            a, b = other[0]
        self._signs.update(dict.fromkeys(trail, sign))
        return sign


def _head(e: Expr) -> str:
    return f"{e.fn}(" if e.args else call_text(e, ())
