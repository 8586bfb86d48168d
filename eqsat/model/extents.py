"""Extents that are not known: whole numbers that remember how they are computed.

A symbolic dim `m` with the known divisor 16 stands in every shape as the number 16 * p, p a prime
of its own near 2**61. Every test on it (is it 64? does 8 divide it? is it `n`?) then answers what
holds for all multiples of 16, and code that knows nothing of symbols needs no change: sums,
products and quotients of extents are extents again. `at` says what one is for given sizes.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

LARGE = 1 << 48  # no static extent is as large, every symbolic one is larger
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # decide below 3.3e24
MOST_TERMS = 64  # of one extent; longer ones are refused


class Unit(NamedTuple):
    """What is left of a symbol when its known divisor is taken out."""

    name: str
    divisor: int


class Floor(NamedTuple):
    """The whole part of a quotient that is not known to be whole."""

    terms: Terms
    by: int


Atom = Unit | Floor
Terms = tuple[tuple[tuple[Atom, ...], int], ...]  # products of atoms, with their factors
_KNOWN: dict[int, Terms] = {}  # value -> how it is computed, for numbers from JSON


class Extent(int):
    """A symbolic extent; prints as it is computed: `m`, `m * 64`, `m // 16`, `-(-m // 48)`."""

    terms: Terms

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
        return _product(self, other) if isinstance(other, int) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        return _quotient(self, other) if isinstance(other, int) else NotImplemented

    def __str__(self) -> str:
        return _text(self.terms)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) if spec else str(self)

    def __reduce__(self) -> Any:
        return _restore, (int(self), self.terms)


def _restore(value: int, terms: Terms) -> int:
    return extent(terms)


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
    value = evaluated(terms, None)
    _KNOWN.setdefault(value, terms)
    found = int.__new__(Extent, value)
    found.terms = terms
    return found


def terms_of(value: int) -> Terms:
    """How a number is computed; a constant unless it is an extent."""
    if isinstance(value, Extent):
        return value.terms
    if abs(value) >= LARGE and value in _KNOWN:
        return _KNOWN[value]
    return (((), int(value)),)


def is_symbolic(value: int) -> bool:
    return isinstance(value, Extent) or (abs(value) >= LARGE and value in _KNOWN)


def names_of(value: int) -> frozenset[str]:
    """The symbols a number depends on."""
    return _names(terms_of(value))


def _names(terms: Terms) -> frozenset[str]:
    atoms = [a for product, _ in terms for a in product]
    parts = [frozenset({a.name}) if isinstance(a, Unit) else _names(a.terms) for a in atoms]
    return frozenset().union(*parts)


def at(value: int, sizes: Mapping[str, int]) -> int:
    """What a number is where the symbols have these sizes (multiples of their divisors)."""
    return evaluated(terms_of(value), sizes) if is_symbolic(value) else value


def evaluated(terms: Terms, sizes: Mapping[str, int] | None) -> int:
    """The value of terms at these sizes; without sizes, the number that stands for all of them."""
    return sum(f * math.prod(_atom(a, sizes) for a in atoms) for atoms, f in terms)


def _atom(atom: Atom, sizes: Mapping[str, int] | None) -> int:
    if sizes is None:
        return _prime(atom)
    if isinstance(atom, Floor):
        return evaluated(atom.terms, sizes) // atom.by
    return sizes[atom.name] // atom.divisor


@lru_cache(maxsize=10_000)
def _prime(atom: Atom) -> int:
    """A prime of its own for every atom, the same in every process.

    Near 2**61 for a symbol. Of a quotient it is near the quotient, not equal to it: what a tile
    pads is not known, so no size with padding may equal one with some number added.
    """
    seed = int.from_bytes(hashlib.sha256(repr(atom).encode()).digest()[:7], "big")
    if isinstance(atom, Unit):
        return _next_prime((1 << 61) + seed)
    quotient = evaluated(atom.terms, None) // atom.by
    found = _next_prime(abs(quotient) + (1 << 32) + seed % (1 << 32))
    return found if quotient > 0 else -found


def _next_prime(n: int) -> int:
    n |= 1
    while not _is_prime(n):
        n += 2
    return n


def _is_prime(n: int) -> bool:
    """Miller and Rabin, certain below 3.3e24."""
    if any(n % q == 0 for q in _WITNESSES):
        return n in _WITNESSES
    twos = ((n - 1) & -(n - 1)).bit_length() - 1
    return all(_passes(n, q, twos) for q in _WITNESSES)


def _passes(n: int, witness: int, twos: int) -> bool:
    x = pow(witness, (n - 1) >> twos, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


# ---- arithmetic ------------------------------------------------------------------------------
def _sum(parts: Iterable[tuple[int, int]]) -> int:
    total: Counter[tuple[Atom, ...]] = Counter()
    for value, sign in parts:
        for atoms, factor in terms_of(value):
            total[atoms] += sign * factor
    return extent(_sorted(total))


def _product(a: int, b: int) -> int:
    total: Counter[tuple[Atom, ...]] = Counter()
    for left, f in terms_of(a):
        for right, g in terms_of(b):
            total[tuple(sorted((*left, *right), key=repr))] += f * g
    return extent(_sorted(total))


def _sorted(total: Mapping[tuple[Atom, ...], int]) -> Terms:
    kept = [(atoms, f) for atoms, f in total.items() if f]
    return tuple(sorted(kept, key=repr)) or (((), 0),)


def _quotient(a: int, b: int) -> int:
    """a // b; a plain number if b is a sum of symbols, or none of a's."""
    if is_symbolic(b):
        return _by_product(a, terms_of(b))
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
        whole[(Floor(left, b),)] += 1
    return extent(_sorted(whole))


def _by_product(a: int, divisor: Terms) -> int:
    """a // b for a product b that all terms of a hold; else the plain quotient."""
    plain = evaluated(terms_of(a), None) // evaluated(divisor, None)
    if len(divisor) != 1:
        return plain
    ((by, factor),) = divisor
    found: dict[tuple[Atom, ...], int] = {}
    for atoms, f in terms_of(a):
        left = Counter(atoms)
        left.subtract(by)
        if f % factor or any(n < 0 for n in left.values()):
            return plain
        found[tuple(sorted(left.elements(), key=repr))] = f // factor
    return extent(_sorted(found))


# ---- text and JSON ---------------------------------------------------------------------------
def _text(terms: Terms) -> str:
    parts = [_product_text(atoms, factor) for atoms, factor in terms]
    return " + ".join(parts).replace("+ -", "- ")


def _product_text(atoms: tuple[Atom, ...], factor: int) -> str:
    """`m * 64`: the known divisor of a symbol is put back where the factor holds it."""
    words: list[str] = []
    for a in atoms:
        if isinstance(a, Floor):
            inner = _text(a.terms)
            words.append(f"({inner}) // {a.by}" if len(a.terms) > 1 else f"{inner} // {a.by}")
            continue
        shared = math.gcd(factor, a.divisor)
        factor //= shared
        left = a.divisor // shared
        words.append(a.name if left == 1 else f"{a.name} // {left}")
    if factor != 1 or not words:
        words.append(str(factor))
    return " * ".join(f"({w})" if "//" in w and len(words) > 1 else w for w in words)


def read_extent(text: str, symbols: Mapping[str, int]) -> int | None:
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


def read_tree(node: ast.expr, symbols: Mapping[str, int]) -> int | None:
    """The same of a parsed expression."""
    match node:
        case ast.Constant(value) if type(value) is int:
            return value
        case ast.Name(name):
            return symbols.get(name)
        case ast.UnaryOp(ast.USub(), inner):
            found = read_tree(inner, symbols)
            return None if found is None else -found
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            a, b = read_tree(left, symbols), read_tree(right, symbols)
            if a is None or b is None or (isinstance(op, ast.FloorDiv) and not b):
                return None
            return _OPERATORS[type(op)](a, b)
    return None


# ---- whole records ---------------------------------------------------------------------------
def mapped(value: Any, change: Callable[[int], int]) -> Any:
    """A record with every extent in it changed; the record itself if it holds none."""
    if isinstance(value, int):
        return change(value) if type(value) is not bool and is_symbolic(value) else value
    if isinstance(value, tuple):
        found = [mapped(v, change) for v in value]
        same = all(a is b for a, b in zip(found, value, strict=True))
        return value if same else type(value)(found)
    if is_dataclass(value) and not isinstance(value, type):
        old = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        new = {k: mapped(v, change) for k, v in old.items()}
        changed = {k: v for k, v in new.items() if v is not old[k]}
        return replace(value, **changed) if changed else value
    return value


def bound(value: Any, sizes: Mapping[str, int]) -> Any:
    """A record with the symbols' sizes put in."""
    return mapped(value, lambda v: at(v, sizes))


def restored(value: Any) -> Any:
    """A record read from JSON, its large numbers extents again."""
    return mapped(value, lambda v: extent(terms_of(v)))


def extents_to_json(values: Iterable[Any]) -> list[Any]:
    """All extents that records hold, for `learn`."""
    found: dict[int, Terms] = {}

    def note(value: int) -> int:
        found.setdefault(int(value), terms_of(value))
        return value

    for v in values:
        mapped(v, note)
    return [terms_to_json(terms) for _, terms in sorted(found.items())]


def terms_to_json(terms: Terms) -> Any:
    return [[[_atom_to_json(a) for a in atoms], factor] for atoms, factor in terms]


def _atom_to_json(a: Atom) -> Any:
    return list(a) if isinstance(a, Unit) else [terms_to_json(a.terms), a.by]


def terms_from_json(data: Any) -> Terms:
    return tuple((tuple(_atom_from_json(a) for a in atoms), factor) for atoms, factor in data)


def _atom_from_json(data: Any) -> Atom:
    first, second = data
    return Unit(first, second) if isinstance(first, str) else Floor(terms_from_json(first), second)


def learn(table: Iterable[Any]) -> None:
    """Take up extents from JSON, so that their numbers are known again."""
    for terms in table:
        extent(terms_from_json(terms))
