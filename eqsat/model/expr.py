"""The scalar body of a generic: an expression tree over its operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Expr:
    """`arg(i)`, `const(value)` or `fn(args…)`; equal trees compare and hash equal.

    fn is a name of `ops.scalar.FUNCTIONS`, or "arg" (value: operand number), or "const"
    (value: a Python bool, int or float), or "cast" (value: dtype name).
    """

    fn: str
    args: tuple[Expr, ...] = ()
    value: Any = None

    def __post_init__(self) -> None:
        # bodies sit inside interned signatures, so their hash is asked for very often
        kind = type(self.value).__name__
        object.__setattr__(self, "_hash", hash((self.fn, self.args, kind, repr(self.value))))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Expr)
            and hash(self) == hash(other)
            and self.fn == other.fn
            and type(self.value) is type(other.value)
            and repr(self.value) == repr(other.value)  # nan == nan here
            and self.args == other.args
        )

    def walk(self) -> Iterator[Expr]:
        """This expression and all below it, outermost first."""
        yield self
        for a in self.args:
            yield from a.walk()

    def operands(self) -> tuple[int, ...]:
        """Operand numbers in the order of first use."""
        return tuple(dict.fromkeys(e.value for e in self.walk() if e.fn == "arg"))

    def substitute(self, operands: Mapping[int, Expr]) -> Expr:
        """Replace `arg(i)` by `operands[i]` where given."""
        if self.fn == "arg":
            return operands.get(self.value, self)
        if not self.args:
            return self
        return Expr(self.fn, tuple(a.substitute(operands) for a in self.args), self.value)

    def count(self) -> int:
        """Number of scalar operations, casts and leaves not counted."""
        own = 0 if self.fn in ("arg", "const", "cast") else 1
        return own + sum(a.count() for a in self.args)

    def __str__(self) -> str:
        if self.fn == "arg":
            return f"x{self.value}"
        if self.fn == "const":
            return literal(self.value)
        inner = [str(a) for a in self.args]
        if self.fn == "cast":
            inner.append(self.value)
        return f"{self.fn}({', '.join(inner)})"

    def to_json(self) -> Any:
        value = literal(self.value) if self.fn == "const" else self.value
        return [self.fn, value, *(a.to_json() for a in self.args)]

    @classmethod
    def from_json(cls, data: Any) -> Expr:
        fn, value, *args = data
        if fn == "const":
            value = read_literal(value)
        return cls(fn, tuple(cls.from_json(a) for a in args), value)


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
