"""Open dims of an ONNX model as symbols: the model is read at a few sizes, and what differs told.

A model is read by a trace, in which sizes are numbers. Read at several sizes it gives programs of
the same ops, whose numbers are sums of products of the sizes: the coefficients follow from the
differences, and a further reading, at sizes that took no part in it, has to agree. What depends on
a size in another way (its square, its reciprocal in a mean, a table of as many rows) has no symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from eqsat.frontends.onnxgraph import proto
from eqsat.frontends.onnxgraph.convert import checked
from eqsat.frontends.onnxgraph.interpret import open_dims, python_name, read_model, unsized
from eqsat.frontends.source import Source, Traced
from eqsat.model.attr import ShapeError
from eqsat.model.diag import EqsatError
from eqsat.model.extents import at as value_at
from eqsat.model.program import Builder, Program
from eqsat.model.symbols import DEFAULT_SIZE, Symbol, sized

MOST_SYMBOLS = 3
# primes, in multiples of a symbol's divisor: of all readings, of one symbol, of the last reading
BASE, MOVED, LAST = (11, 13, 17), (23, 29, 31), (41, 43, 47)


class Unlike(Exception):
    """Readings that no program with symbols gives; the text says where they differ."""


def read_sized(path: str | Path, sizes: Mapping[str, int] | None = None) -> Source:
    """The program of an ONNX file; dims that it leaves open are symbols.

    sizes: a number fixes a dim of this name; a `Size` with a divisor prices its symbol, of which
    all sizes are multiples of it. A symbol that nobody gives a size is priced at `DEFAULT_SIZE`.
    EqsatError E360 to E369, and E385, E386 as of symbols; E367 says why a dim has no symbol.
    """
    file, given = Path(path), dict(sizes or {})
    model = proto.parse_model(file)

    def read(at: Mapping[str, int]) -> Traced:
        return read_model(model, file, at)

    named = open_dims(checked(model, file).graph)
    free = [d for d in named if getattr(given.get(d), "divisor", None) or d not in given]
    fixed = {d: int(n) for d, n in given.items() if d not in free}
    if not free:
        return _source(read(fixed), fixed)
    try:
        return _with_symbols(read, free, fixed, given)
    except Unlike as reason:
        (error,) = unsized(free, str(file)).diagnostics
        message = f"{error.message}; no symbol stands for what they do: {reason}"
        raise EqsatError(replace(error, message=message)) from None


def _source(traced: Traced, fixed: Mapping[str, int]) -> Source:
    return Source(traced.program, traced.weights, traced.opaque, fixed=dict(fixed))


def _with_symbols(
    read: Callable[[Mapping[str, int]], Traced],
    free: Sequence[str],
    fixed: Mapping[str, int],
    given: Mapping[str, int],
) -> Source:
    """The source with symbols for the dims `free`; Unlike where the readings do not allow it."""
    if len(free) > MOST_SYMBOLS:
        raise Unlike(f"there are {len(free)}, and more than {MOST_SYMBOLS} are not told apart")
    taken: set[str] = set()
    symbols = tuple(_symbol(d, python_name(d, taken), given) for d in free)
    points = list(_points(len(free)))
    readings = []
    for units in points:
        at = {d: u * s.divisor for d, u, s in zip(free, units, symbols, strict=True)}
        try:
            readings.append(read({**fixed, **at}))
        except EqsatError as error:
            raise Unlike(error.diagnostics[0].message) from error
    first = readings[0]
    if any(r.weights.keys() != first.weights.keys() for r in readings):
        raise Unlike("a table of it has as many rows as a size says")
    program = Fit(symbols, points).program([r.program for r in readings])
    return replace(_source(first, fixed), program=program)


def _symbol(dim: str, name: str, given: Mapping[str, int]) -> Symbol:
    size = given.get(dim)
    return sized(name, 1, DEFAULT_SIZE, {} if size is None else {name: size})


def _points(count: int) -> list[tuple[int, ...]]:
    """Sizes of the readings, in units: the base, one symbol moved, two moved, all others."""
    base = BASE[:count]
    groups = [(), *combinations(range(count), 1), *combinations(range(count), 2)]
    points = [tuple(MOVED[i] if i in g else base[i] for i in range(count)) for g in groups]
    return [*points, LAST[:count]]


@dataclass(frozen=True)
class Fit:
    """Values of all readings → one value with extents; points: the sizes of each, in units."""

    symbols: tuple[Symbol, ...]
    points: Sequence[tuple[int, ...]]

    def program(self, programs: Sequence[Program]) -> Program:
        """The program with extents; Unlike where the programs differ in more than numbers."""
        first = programs[0]
        if any(_ops(p) != _ops(first) for p in programs):
            raise Unlike("its ops are others at other sizes")
        b = Builder(first.name)
        for i, node in enumerate(first.nodes):
            b.origin = node.origin
            attrs = [p.nodes[i].attr for p in programs]
            try:
                b.append(node.op, node.operands, self.value(attrs))
            except (ShapeError, TypeError) as error:  # sizes that are equal, but not provably
                raise Unlike(f"{first.value_name(i)} (`{node.op}`): {error}") from error
            except Unlike as error:
                raise Unlike(f"{first.value_name(i)} (`{node.op}`): {error}") from None
        return b.build(first.results, symbols=self.symbols)

    def value(self, values: Sequence[Any]) -> Any:
        """One value of all readings: itself where they agree, with extents where numbers differ."""
        first = values[0]
        if all(v == first for v in values):
            return first
        if any(type(v) is not type(first) for v in values):
            raise Unlike("a part of it is another kind of thing at other sizes")
        if type(first) is int:
            return self.extent(values)
        if isinstance(first, tuple) and len({len(v) for v in values}) == 1:
            parts = [self.value(part) for part in zip(*values, strict=True)]
            return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
        if is_dataclass(first) and not isinstance(first, type):
            names = [f.name for f in fields(first) if f.init]
            parts = {n: self.value([getattr(v, n) for v in values]) for n in names}
            return replace(first, **parts)
        raise Unlike(f"it holds {first!s:.40} at one size and {values[-1]!s:.40} at another")

    def extent(self, values: Sequence[int]) -> int:
        """The sum of products of sizes that has these values at the points."""
        count, base = len(self.symbols), self.points[0]
        units = [s.extent // s.divisor for s in self.symbols]
        steps = [self.points[1 + i][i] - base[i] for i in range(count)]
        pairs = list(combinations(range(count), 2))
        slopes = [_whole(values[1 + i] - values[0], steps[i]) for i in range(count)]
        total: int = values[0]
        for i in range(count):
            total = total + (units[i] - base[i]) * slopes[i]
        for at, (i, j) in enumerate(pairs, 1 + count):
            both = values[at] - values[1 + i] - values[1 + j] + values[0]
            crossed = _whole(both, steps[i] * steps[j])
            total = total + (units[i] - base[i]) * (units[j] - base[j]) * crossed
        last = {s.name: u * s.divisor for s, u in zip(self.symbols, self.points[-1], strict=True)}
        if value_at(total, last) != values[-1]:
            raise Unlike("a size in it is no sum of products of the open ones")
        return total


def _whole(number: int, by: int) -> int:
    if number % by:
        raise Unlike("a size in it is no whole multiple of an open one")
    return number // by


def _ops(program: Program) -> list[Any]:
    return [program.results, *((n.op, n.operands) for n in program.nodes)]
