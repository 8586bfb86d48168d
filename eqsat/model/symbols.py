"""Names in a program: symbols of unknown dims, and the origins of values.

A symbol has a known divisor and the size at which it is priced. Origins (name, line, other names)
are for messages only: they do not decide whether two nodes or programs are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.model.diag import did_you_mean, fail
from eqsat.model.extents import symbol_extent
from eqsat.model.files import as_plain

NAME = re.compile(r"[^\W\d]\w*")
LARGEST = 1 << 40  # of a size somebody asks for
DEFAULT_SIZE = 128  # what a size nothing decides is priced at unless somebody says otherwise


class Size(int):
    """A requested size of a symbol, and a divisor of every size it will have, if given."""

    divisor: int | None = None

    @classmethod
    def of(cls, size: int, divisor: int | None = None) -> Size:
        number = cls(size)
        number.divisor = divisor
        return number


@dataclass(frozen=True)
class Symbol:
    """A dim with a name: its sizes are multiples of `divisor`; `size` is the priced one.

    also: further sizes for which a target is asked what there is, such as tiles.
    """

    name: str
    divisor: int
    size: int
    also: tuple[int, ...] = ()

    @cached_property
    def extent(self) -> int:
        """The extent of the dim in shapes (see `model.extents`)."""
        return symbol_extent(self.name, self.divisor)

    def verify(self) -> None:
        """ValueError if the size cannot be one of the symbol's."""
        if self.divisor < 1 or self.size < 1 or self.size % self.divisor:
            raise ValueError(f"`{self.name}` is a multiple of {self.divisor}, {self.size} is none")

    def to_json(self) -> list[Any]:
        return [self.name, self.divisor, self.size, *([list(self.also)] if self.also else [])]

    def __str__(self) -> str:
        return f"symbol {self.name} divisor={self.divisor} size={self.size}"


def sized(
    name: str, divisor: int, default: int | None, sizes: Mapping[str, int] | None = None
) -> Symbol:
    """The symbol at the requested size, otherwise at its default.

    Raises EqsatError: E385 if there is neither, E386 if the divisor does not divide it.
    """
    asked = (sizes or {}).get(name, default)
    if asked is None:
        why = f"the size of `{name}` is not known, and everything is priced at some size"
        raise fail("E385", why, help=f"give one: `--size {name}=128`, in Python `sizes=`")
    given = asked.divisor if isinstance(asked, Size) else None
    symbol = Symbol(name, divisor if given is None else given, int(asked))
    if given is not None and given % divisor:
        why = f"`{name}` is a multiple of {divisor}, which a multiple of {given} need not be"
        raise fail("E386", why)
    _check(symbol)
    return symbol


def _check(symbol: Symbol) -> None:
    if symbol.size < 1 or symbol.size > LARGEST or symbol.size % symbol.divisor:
        fits = f"`{symbol.name}` is a multiple of {symbol.divisor} up to {LARGEST}"
        raise fail("E386", f"{fits}, {symbol.size} is none")


def check_names(sizes: Mapping[str, int] | None, symbols: Iterable[Symbol]) -> None:
    """EqsatError E385 if a size is given for a symbol the program does not have."""
    names = [s.name for s in symbols]
    for name in sizes or {}:
        if name not in names:
            has = f"its symbols are {', '.join(names)}" if names else "all its sizes are known"
            hint = did_you_mean(name, names) if names else ""
            raise fail("E385", f"the program has no symbol `{name}`: {has}", help=hint)


def extents_of(symbols: Iterable[Symbol]) -> dict[str, int]:
    """The extents of the symbols in shapes, by name."""
    return {s.name: s.extent for s in symbols}


def sizes_of(symbols: Sequence[Symbol]) -> dict[str, int]:
    """The sizes at which the symbols are priced."""
    return {s.name: s.size for s in symbols}


def sizes_judged(symbols: Sequence[Symbol]) -> list[dict[str, int]]:
    """The sizes for which a target is asked: the priced ones, and each symbol's others."""
    priced = sizes_of(symbols)
    others = [priced | {s.name: size} for s in symbols for size in s.also]
    return [priced, *others] if symbols else []


def resized(symbols: Sequence[Symbol], sizes: Mapping[str, int]) -> tuple[Symbol, ...]:
    """The symbols at other sizes, each at its own where none is given; E385 and E386 as above."""
    check_names(sizes, symbols)
    # without the divisors of sizes: a program that was searched keeps its own
    plain = {name: int(size) for name, size in sizes.items()}
    return tuple(replace(sized(s.name, s.divisor, s.size, plain), also=s.also) for s in symbols)


def read_size(text: str) -> tuple[str, Size]:
    """`m=128`, or `m=128:16` if all its sizes are multiples of 16; EqsatError E385."""
    match = re.fullmatch(r"\s*([^=]+?)\s*=\s*(\d{1,13})\s*(?::\s*(\d{1,13})\s*)?", text)
    if match is None:
        raise fail("E385", f"`{text}` is no size; write `m=128`, or `m=128:16` for multiples of 16")
    divisor = None if match[3] is None else int(match[3])
    if divisor == 0:
        raise fail("E386", f"`{text}`: nothing is a multiple of 0")
    return match[1], Size.of(int(match[2]), divisor)


LONGEST = 64  # characters of a name that a front end makes up
_UNSPEAKABLE = re.compile(r"[^\w.]+")
_DOTS = re.compile(r"\.{2,}")


@dataclass(frozen=True, slots=True)
class Origin:
    """name: unique in its program, without the `%` of its text; "" if nothing names it.

    at: `file.py:12`, the line that asked for it. also: other values that turned out to be this one.
    """

    name: str = ""
    at: str = ""
    also: tuple[str, ...] = ()

    def called(self, name: str) -> Origin:
        """The origin under another name."""
        return replace(self, name=name)

    def joined(self, other: Origin) -> Origin:
        """With the names of another value that is the same one."""
        names = (self.name, *self.also)
        new = [n for n in (other.name, *other.also) if n and n not in names]
        return replace(self, also=(*self.also, *new), at=self.at or other.at) if new else self

    def to_json(self) -> list[Any]:
        return [self.name, self.at, list(self.also)]

    @classmethod
    def from_json(cls, data: list[Any]) -> Origin:
        name, at, also = data
        return cls(
            as_plain(str, name), as_plain(str, at), tuple([as_plain(str, other) for other in also])
        )


NO_ORIGIN = Origin()
KEY = "called"  # of a node, in JSON


def without_origins(data: Any) -> Any:
    """JSON of programs without what they call their values, for hashes of what they compute."""
    if isinstance(data, dict):
        return {k: without_origins(v) for k, v in data.items() if k != KEY}
    return [without_origins(x) for x in data] if isinstance(data, list | tuple) else data


def file_line(file: str, line: int) -> str:
    """`folder/file.py:12`; "" for a text that is no file."""
    parts = file.replace("\\", "/").split("/")
    return "" if file.startswith("<") or not file else f"{'/'.join(parts[-2:])}:{line}"


def spoken(text: str) -> str:
    """A text as a name: words joined by dots, not a number alone; "" if nothing is left.

    Of a long one its last parts, at most `LONGEST` characters.
    """
    plain = _DOTS.sub(".", _UNSPEAKABLE.sub("_", text)).strip(".")
    if len(plain) > LONGEST:
        plain = plain[-LONGEST:].partition(".")[2] or plain[-LONGEST:].lstrip(".")
    return f"v{plain}" if plain.isdigit() else plain


def unique(name: str, taken: dict[str, int], mark: str = "_") -> str:
    """This name, or the first of `name_2`, `name_3`, … that is not taken.

    taken: names, and the number that was given to each last.
    """
    fresh = name
    while fresh in taken:
        taken[name] += 1
        fresh = f"{name}{mark}{taken[name]}"
    return fresh
