"""Unknown extents: sums of products of symbols, with a type of their own.

A shape holds whole numbers and extents. Equality and divisibility of extents hold for every size
that their symbols may have: an extent equals one that is computed in the same way, and a number
divides it if it divides every term, where a symbol counts as its divisor times an unknown number.
Comparisons of order are those of large sizes. An extent is no number: operations that would lose
its symbols (`range`, `int`, arrays) raise TypeError, and `at` evaluates it for given sizes.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard, cast

MOST_TERMS = 64  # of one extent; longer ones are refused


class Unit(NamedTuple):
    """A symbol divided by its known divisor."""

    name: str
    divisor: int


class Floor(NamedTuple):
    """The whole part of a quotient that is not known to be whole."""

    terms: Terms
    by: Terms


Atom = Unit | Floor
Terms = tuple[tuple[tuple[Atom, ...], int], ...]  # products of atoms, with their factors
Growth = Mapping[tuple[Unit, ...], Fraction]  # what an extent is like where symbols are large
Symbols = Mapping[str, int]  # extents of symbols, by name
NO_SYMBOLS: Symbols = {}


@dataclass(frozen=True, eq=False, repr=False)
class Extent:
    """A symbolic extent; prints as it is computed: `m`, `m * 64`, `m // 16`, `-m // 48 * -1`.

    In type annotations the elements of shapes are `int`, as nearly all of them are. An extent has
    the arithmetic that shapes need, and none that turns a symbol into a plain number.
    """

    terms: Terms

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self.terms == other.terms

    def __add__(self, other: int) -> int:
        return _sum([(self, 1), (other, 1)])

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return _sum([(self, 1), (other, -1)])

    def __rsub__(self, other: int) -> int:
        return _sum([(other, 1), (self, -1)])

    def __neg__(self) -> int:
        return _sum([(self, -1)])

    def __mul__(self, other: int) -> int:
        return _product(self, other) if isinstance(other, int | Extent) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        return _quotient(self, other) if isinstance(other, int | Extent) else NotImplemented

    def __rfloordiv__(self, other: int) -> int:
        return _quotient(other, self) if isinstance(other, int | Extent) else NotImplemented

    def __truediv__(self, other: int) -> float:
        return _ratio(self, other)

    def __rtruediv__(self, other: int) -> float:
        return _ratio(other, self)

    def __mod__(self, other: int) -> int:
        return self - self // other * other

    def __rmod__(self, other: int) -> int:
        return other - other // self * self

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return other // self, other % self

    def __lt__(self, other: int) -> bool:
        return _sign(other - self) > 0

    def __gt__(self, other: int) -> bool:
        return _sign(self - other) > 0

    def __le__(self, other: int) -> bool:
        return _sign(other - self) >= 0

    def __ge__(self, other: int) -> bool:
        return _sign(self - other) >= 0

    def __abs__(self) -> int:
        return -self if _sign(self) < 0 else extent(self.terms)

    def __str__(self) -> str:
        return _text(self.terms)

    __repr__ = __str__

    def to_json(self) -> Any:
        return {"extent": _text(self.terms)}


# ---- what an extent is -----------------------------------------------------------------------
def symbol_extent(name: str, divisor: int) -> int:
    """The extent of a symbol that is a multiple of `divisor`."""
    return extent((((Unit(name, divisor),), divisor),))


def extent(terms: Terms) -> int:
    """The extent with these terms; a plain number if no symbol is left in it."""
    if all(not atoms for atoms, _ in terms):
        return sum(factor for _, factor in terms)
    if len(terms) > MOST_TERMS:
        raise OverflowError("an extent is computed in more steps than can be followed")
    return cast(int, Extent(terms))


def terms_of(value: int | Extent) -> Terms:
    """How a number is computed; a constant unless it is an extent."""
    return value.terms if isinstance(value, Extent) else (((), int(value)),)


def is_symbolic(value: Any) -> bool:
    return isinstance(value, Extent)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether this is a whole number, known or not."""
    return isinstance(value, int | Extent) and type(value) is not bool


def names_of(value: int) -> frozenset[str]:
    """The symbols a number depends on."""
    return _names(terms_of(value))


def _names(terms: Terms) -> frozenset[str]:
    atoms = [a for product, _ in terms for a in product]
    parts = [
        frozenset({a.name}) if isinstance(a, Unit) else _names(a.terms) | _names(a.by)
        for a in atoms
    ]
    return frozenset().union(*parts)


def at(value: int, sizes: Mapping[str, int]) -> int:
    """Value of a number where the symbols have these sizes (multiples of their divisors)."""
    return _evaluated(value.terms, sizes) if isinstance(value, Extent) else value


def _evaluated(terms: Terms, sizes: Mapping[str, int]) -> int:
    return sum(f * math.prod(_atom(a, sizes) for a in atoms) for atoms, f in terms)


def _atom(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Floor):
        return _evaluated(atom.terms, sizes) // _evaluated(atom.by, sizes)
    return sizes[atom.name] // atom.divisor


# ---- arithmetic ------------------------------------------------------------------------------
def _sum(parts: Iterable[tuple[int | Extent, int]]) -> int:
    total: Counter[tuple[Atom, ...]] = Counter()
    for value, sign in parts:
        for atoms, factor in terms_of(value):
            total[atoms] += sign * factor
    return extent(_sorted(total))


def _product(a: int | Extent, b: int | Extent) -> int:
    total: Counter[tuple[Atom, ...]] = Counter()
    for left, f in terms_of(a):
        for right, g in terms_of(b):
            total[tuple(sorted((*left, *right), key=repr))] += f * g
    return extent(_sorted(total))


def _sorted(total: Mapping[tuple[Atom, ...], int]) -> Terms:
    nonzero = [(atoms, f) for atoms, f in total.items() if f]
    return tuple(sorted(nonzero, key=repr)) or (((), 0),)


def _quotient(a: int | Extent, b: int | Extent) -> int:
    """a // b: what is known to be whole, and the whole part of the rest."""
    if isinstance(b, Extent):
        exact = _by_product(a, b.terms)
        return extent((((Floor(terms_of(a), b.terms),), 1),)) if exact is None else exact
    whole: Counter[tuple[Atom, ...]] = Counter()
    rest: Counter[tuple[Atom, ...]] = Counter()
    for atoms, factor in terms_of(a):
        out = abs(factor) // b * (1 if factor > 0 else -1) if atoms else factor // b
        whole[atoms] += out
        rest[atoms] += factor - out * b
    left = _sorted(rest)
    if any(factor for _, factor in left):
        if all(not atoms for atoms, _ in left):  # less than b: the quotient is whole without it
            return extent(_sorted(whole))
        whole[(Floor(left, terms_of(b)),)] += 1
    return extent(_sorted(whole))


def _by_product(a: int | Extent, divisor: Terms) -> int | None:
    """a // b for a product b that all terms of a hold."""
    if len(divisor) != 1:
        return None
    ((by, factor),) = divisor
    quotient: Counter[tuple[Atom, ...]] = Counter()
    for atoms, f in terms_of(a):
        left = Counter(atoms)
        left.subtract(by)
        if f % factor or any(n < 0 for n in left.values()):
            return None
        quotient[tuple(sorted(left.elements(), key=repr))] = f // factor
    return extent(_sorted(quotient))


# ---- order: what is larger where all symbols are large ----------------------------------------
def _sign(value: int | Extent) -> int:
    """1 or -1 as a number is above or below 0 at large sizes, 0 where that is not known."""
    if not isinstance(value, Extent):
        return (value > 0) - (value < 0)
    growth = _growth(value.terms)
    if not growth:
        return 0
    return 1 if growth[_leading(growth)] > 0 else -1


def _ratio(a: int | Extent, b: int | Extent) -> float:
    """a / b at large sizes."""
    above, below = _growth(terms_of(a)), _growth(terms_of(b))
    if not above or not below:
        return math.nan if not below else 0.0
    top, bottom = _leading(above), _leading(below)
    if len(top) != len(bottom):
        return 0.0 if len(top) < len(bottom) else math.copysign(math.inf, above[top])
    return float(above[top] / below[bottom])


def _leading(growth: Growth) -> tuple[Unit, ...]:
    return max(growth, key=lambda units: (len(units), units))


def _growth(terms: Terms) -> Growth:
    """Terms as a polynomial of the symbols; a whole part counts as its mean."""
    total: dict[tuple[Unit, ...], Fraction] = {}
    for atoms, factor in terms:
        product: Growth = {(): Fraction(factor)}
        for a in atoms:
            product = _multiplied(product, {(a,): Fraction(1)} if isinstance(a, Unit) else _mean(a))
        for units, f in product.items():
            total[units] = total.get(units, Fraction(0)) + f
    return {units: f for units, f in total.items() if f}


def _mean(a: Floor) -> Growth:
    """(t - (by - 1) / 2) / by; nothing for a quotient by symbols, of which nothing is said."""
    by = extent(a.by)
    if isinstance(by, Extent):
        return {}
    growth = dict(_growth(a.terms))
    growth[()] = growth.get((), Fraction(0)) - Fraction(by - 1, 2)
    return {units: f / by for units, f in growth.items()}


def _multiplied(a: Growth, b: Growth) -> Growth:
    product: dict[tuple[Unit, ...], Fraction] = {}
    for left, f in a.items():
        for right, g in b.items():
            units = tuple(sorted((*left, *right)))
            product[units] = product.get(units, Fraction(0)) + f * g
    return product


# ---- text and JSON ---------------------------------------------------------------------------
def _text(terms: Terms) -> str:
    parts = [_product_text(atoms, factor) for atoms, factor in terms]
    return " + ".join(parts).replace("+ -", "- ")


def _product_text(atoms: tuple[Atom, ...], factor: int) -> str:
    """`m * 64`: the known divisor of a symbol is put back where the factor holds it."""
    words: list[str] = []
    for a in atoms:
        if isinstance(a, Floor):
            words.append(f"{_operand(a.terms)} // {_operand(a.by)}")
            continue
        shared = math.gcd(factor, a.divisor)
        factor //= shared
        left = a.divisor // shared
        words.append(a.name if left == 1 else f"{a.name} // {left}")
    if factor != 1 or not words:
        words.append(str(factor))
    return " * ".join(f"({w})" if "//" in w and len(words) > 1 else w for w in words)


def _operand(terms: Terms) -> str:
    """A side of a quotient: in parentheses unless it is one number or what only binds as tight."""
    return _text(terms) if len(terms) == 1 else f"({_text(terms)})"


def read_extent(text: str, symbols: Symbols) -> int | None:
    """A number, or sums, products and quotients of numbers and symbols; None if it is neither."""
    try:
        return read_tree(ast.parse(text.strip(), mode="eval").body, symbols)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}


def read_tree(node: ast.expr, symbols: Symbols) -> int | None:
    """`read_extent` of a parsed expression."""
    match node:
        case ast.Constant(value) if type(value) is int:
            return value
        case ast.Name(name):
            return symbols.get(name)
        case ast.UnaryOp(ast.USub(), inner):
            operand = read_tree(inner, symbols)
            return None if operand is None else -operand
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            a, b = read_tree(left, symbols), read_tree(right, symbols)
            if a is None or b is None or (isinstance(op, ast.FloorDiv) and not b):
                return None
            return _OPERATORS[type(op)](a, b)
    return None


def extent_to_json(value: int) -> Any:
    return value.to_json() if isinstance(value, Extent) else value


def extent_from_json(data: Any, symbols: Symbols) -> Any:
    """An extent from its text; anything else as it is."""
    return read_extent(data["extent"], symbols) if isinstance(data, dict) else data


# ---- whole records ---------------------------------------------------------------------------
def bound(value: Any, sizes: Mapping[str, int]) -> Any:
    """A record with the symbols' sizes put in; the record itself if it holds no extent."""
    if isinstance(value, Extent):
        return at(cast(int, value), sizes)
    if isinstance(value, tuple):
        parts = [bound(v, sizes) for v in value]
        same = all(a is b for a, b in zip(parts, value, strict=True))
        if same:
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        old = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        new = {k: bound(v, sizes) for k, v in old.items()}
        changed = {k: v for k, v in new.items() if v is not old[k]}
        return replace(value, **changed) if changed else value
    return value
