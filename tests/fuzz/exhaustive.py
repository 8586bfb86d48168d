"""Rules that only move data, tried on everything: all permutations, layouts and reshapes of a rank.

A rule of `transpose`, `pack`, `unpack` and `reshape` says the same of every element type, and lanes
with random 64-bit numbers tell all of them apart: what is enumerated holds, for these sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

from eqsat.hunt.findings import ConditionCount, Counterexample, Findings
from eqsat.hunt.instances import Functions, Instance
from eqsat.hunt.search import attempt, describe
from eqsat.lang.content import expression_text
from eqsat.model.attr import Attr, Shape
from eqsat.model.layout import Layout
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.rules import Apply, AttrExpr, Name, Rule, Splat, Term, Value, Var
from eqsat.model.tensor import TensorType
from eqsat.ops.attrs import RULE_OPS
from eqsat.saturate.rows import is_closed, plain

OPS = frozenset({"transpose", "pack", "unpack", "reshape", "retype", "relax"})
DTYPE = "i64"
MOST_RANK = 4
MOST = 4000  # matches of a rule at a rank
LARGEST = 25  # times as many, if one shape alone has them


@dataclass(frozen=True)
class Domain:
    """What is enumerated: shapes of plain tensors, extents of tiles, and paddings."""

    shapes: tuple[Shape, ...]
    tiles: tuple[int, ...]
    pads: tuple[str, ...] = ("0", "?")
    most_tiles: int = 4  # tiled dims of one layout


def domain(rank: int) -> Domain:
    """The sizes of a rank, those that tell most first: distinct ones, divisible or not, and 1."""
    if rank <= 1:
        return Domain(tuple(itertools.product((4, 3, 5, 1, 2, 6), repeat=rank)), (1, 2, 3))
    if rank == 2:
        first = ((3, 4), (4, 3), (1, 3), (2, 1), (5, 2))
        rest = itertools.product((1, 2, 3, 4), repeat=2)
        return Domain(tuple(dict.fromkeys((*first, *rest))), (1, 2, 3))
    if rank == 3:
        return Domain(((2, 3, 4), (3, 1, 2), (4, 2, 1), (3, 3, 2)), (2, 3), ("?",), 2)
    return Domain(((2, 3, 1, 4), (3, 4, 2, 1)), (2,), ("?",), 1)


def is_index_map(rule: Rule) -> bool:
    """Whether every op of the left side only moves data, so that all its matches can be listed."""
    return all(_ops(t) <= OPS for t in (rule.left, *rule.also)) and not _has_splats(rule.left)


def _ops(term: Term) -> set[str]:
    if isinstance(term, Splat):
        return _ops(term.inner)
    if not isinstance(term, Apply):
        return set()
    return {term.op}.union(*(_ops(o) for o in term.operands))


def _has_splats(term: Term) -> bool:
    if isinstance(term, Apply):
        return any(_has_splats(o) for o in term.operands)
    return isinstance(term, Splat)


def exhaust(
    rule: Rule,
    rank: int,
    *,
    most: int = MOST,
    functions: Functions | None = None,
    within: Domain | None = None,
) -> Findings:
    """Try an index-map rule on every instance over the shapes of a rank.

    most: matches after which no further shape is begun. Findings are not `complete` if one shape
    has ever so many more. ValueError if the rule does more than move data.
    """
    if not is_index_map(rule):
        raise ValueError(f"`{rule.name}` does more than move data")
    return _Exhaustion(rule, within or domain(rank), functions).run(most)


class _Exhaustion:
    def __init__(self, rule: Rule, sizes: Domain, functions: Functions | None):
        self.rule, self.sizes, self.functions = rule, sizes, functions
        self.seen = self.tried = self.padded = self.refused = 0
        self.met = [0] * len(rule.where)
        self.missed = [0] * len(rule.where)

    def run(self, most: int) -> Findings:
        found: Counterexample | None = None
        is_complete = True
        for shape in self.sizes.shapes:
            if self.seen >= most or not is_complete:
                break
            for instance in self._instances(replace(self.sizes, shapes=(shape,))):
                if self.seen >= LARGEST * most:
                    is_complete = False
                    break
                why = self._try(instance)
                if why and (found is None or instance.size < found.size):
                    found = Counterexample(describe(instance), why, instance.size)
        conditions = tuple(
            ConditionCount(expression_text(c), self.met[i], self.missed[i])
            for i, c in enumerate(self.rule.where)
            if not is_closed(c)  # what a target says is no matter of matches
        )
        return Findings(
            self.rule, 0, self.tried, self.padded, self.refused, conditions, found, is_complete
        )

    def _try(self, instance: Instance) -> str:
        self.seen += 1
        for i, met in enumerate(instance.conditions(self.functions)):
            self.met[i] += met is True
            self.missed[i] += met is False
        outcome = attempt(instance, Random(instance.size), None, self.functions)
        self.refused += not outcome.rows
        if outcome.rows and outcome.is_valid:
            self.tried += 1
            self.padded += outcome.is_padded
        return outcome.why

    def _instances(self, sizes: Domain) -> Iterator[Instance]:
        for state in _patterns([self.rule.left, *self.rule.also], _State(), sizes):
            tensors = tuple((n, (TensorType(DTYPE, s),)) for n, s in state.tensors.items())
            uses = tuple((n, 1) for n in state.tensors)
            yield Instance(self.rule, (), state.attrs, tensors, uses)


# ---- all matches of patterns --------------------------------------------------------------------
@dataclass(frozen=True)
class _State:
    """What the patterns so far have bound; `attrs` in pre-order."""

    tensors: dict[str, Shape] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    attrs: tuple[Attr, ...] = ()


def _patterns(terms: Sequence[Apply], state: _State, sizes: Domain) -> Iterator[_State]:
    if not terms:
        yield state
        return
    for _, found in _matches(terms[0], None, state, sizes):
        yield from _patterns(terms[1:], found, sizes)


def _matches(
    term: Term, want: Shape | None, state: _State, sizes: Domain
) -> Iterator[tuple[Shape, _State]]:
    """Every way to fill in a term whose result has the shape `want` (None: any)."""
    if isinstance(term, Var):
        yield from _variables(term, want, state, sizes)
        return
    assert isinstance(term, Apply)
    # a packed operand is enumerated from its plain side, all else from its operand if that is free
    from_result = want is not None or term.op in ("unpack", "retype", "relax")
    if not from_result:
        for shape, inner in _matches(term.operands[0], None, state, sizes):
            for attr, result in _from_operand(term.op, shape, sizes):
                found = _bound(term, attr, result, inner, len(state.attrs))
                if found is not None:
                    yield result, found
        return
    for result in sizes.shapes if want is None else (want,):
        for attr, shape in _from_result(term.op, result, want is None, sizes):
            bound = _bound(term, attr, result, state, len(state.attrs))
            if bound is None:
                continue
            given = attr.packed_shape if isinstance(attr, Layout) and want is None else result
            out = given if term.op in ("retype", "relax") else result
            for _, inner in _matches(term.operands[0], shape, bound, sizes):
                yield out, inner


def _variables(
    term: Var, want: Shape | None, state: _State, sizes: Domain
) -> Iterator[tuple[Shape, _State]]:
    known = state.tensors.get(term.name)
    if known is not None:
        if want in (None, known):
            yield known, state
        return
    for shape in sizes.shapes if want is None else (want,):
        yield shape, _State({**state.tensors, term.name: shape}, state.values, state.attrs)


def _bound(term: Apply, attr: Attr, result: Shape, state: _State, at: int) -> _State | None:
    """The state with this attribute at its place in pre-order; None if a name says otherwise."""
    whole = RULE_OPS[term.op].whole
    values, tensors = dict(state.values), dict(state.tensors)
    for key, pattern in term.attrs:
        value = attr if key == whole else attr.field(key)
        if not _agrees(pattern, value, values):
            return None
    if isinstance(attr, Layout) and whole not in dict(term.attrs) and not _is_default(term, attr):
        return None
    if term.name and tensors.setdefault(term.name, result) != result:
        return None
    return _State(tensors, values, (*state.attrs[:at], attr, *state.attrs[at:]))


def _agrees(pattern: AttrExpr, value: Any, values: dict[str, Any]) -> bool:
    if isinstance(pattern, Name):
        return values.setdefault(pattern.name, value) == value
    return not isinstance(pattern, Value) or plain(pattern.value) == value


def _is_default(term: Apply, attr: Layout) -> bool:
    given = dict(term.attrs)
    plain_order = "outer" in given or attr.outer == tuple(range(len(attr.outer)))
    return plain_order and ("pad" in given or not attr.is_padded)


# ---- all attributes -----------------------------------------------------------------------------
def _from_operand(op: str, shape: Shape, sizes: Domain) -> Iterator[tuple[Attr, Shape]]:
    """Every attribute that reads this shape, and the shape it gives."""
    if op == "transpose":
        for perm in itertools.permutations(range(len(shape))):
            yield Transpose(shape, perm), tuple(shape[p] for p in perm)
    elif op == "reshape":
        for other in regroupings(shape):
            yield Reshape(shape, other), other
    else:
        for layout in layouts_of(shape, sizes):
            yield layout, layout.packed_shape


def _from_result(
    op: str, shape: Shape, is_plain: bool, sizes: Domain
) -> Iterator[tuple[Attr, Shape]]:
    """Every attribute that gives this shape (is_plain: of the plain side), and what it reads."""
    if op == "transpose":
        for perm in itertools.permutations(range(len(shape))):
            source = tuple(shape[perm.index(d)] for d in range(len(perm)))
            yield Transpose(source, perm), source
    elif op == "reshape":
        for other in regroupings(shape):
            yield Reshape(other, shape), other
    elif op == "unpack" or is_plain:
        for layout in layouts_of(shape, sizes):
            yield layout, layout.packed_shape
    else:
        for layout in _layouts_to(shape, sizes):
            yield layout, layout.source if op == "pack" else layout.packed_shape


def layouts_of(source: Shape, sizes: Domain) -> Iterator[Layout]:
    """Every layout of a plain shape: tiled dims in every order, tiles, outer orders, paddings."""
    n = len(source)
    for count in range(1, min(n, sizes.most_tiles) + 1):
        for pos in itertools.permutations(range(n), count):
            for tiles in itertools.product(sizes.tiles, repeat=count):
                for pads in _paddings(source, pos, tiles, sizes.pads):
                    for outer in itertools.permutations(range(n)):
                        yield Layout(source, pos, tiles, outer, pads)


def _paddings(
    source: Shape, pos: Sequence[int], tiles: Sequence[int], pads: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    choices = [pads if source[d] % t else ("-",) for d, t in zip(pos, tiles, strict=True)]
    return itertools.product(*choices)


def _layouts_to(packed: Shape, sizes: Domain) -> Iterator[Layout]:
    """Every layout with this packed shape."""
    for count in range(1, min(len(packed) // 2, sizes.most_tiles) + 1):
        n = len(packed) - count
        tiles = packed[n:]
        for pos in itertools.permutations(range(n), count):
            for outer in itertools.permutations(range(n)):
                whole = [packed[outer.index(d)] for d in range(n)]
                for cuts in itertools.product(*(range(t) for t in tiles)):
                    source = list(whole)
                    for d, t, cut in zip(pos, tiles, cuts, strict=True):
                        source[d] = source[d] * t - cut
                    for pads in _paddings(tuple(source), pos, tiles, sizes.pads):
                        yield Layout(tuple(source), pos, tiles, outer, pads)


@lru_cache(maxsize=1000)
def regroupings(shape: Shape) -> tuple[Shape, ...]:
    """Shapes of the same elements: all of them at small ranks, else what one step leads to.

    A step merges neighbours, splits a dim in two, or puts in or leaves out a dim of size 1.
    """
    n = len(shape)
    if n <= 2:
        return tuple(f for rank in range(n + 2) for f in _factors(math.prod(shape), rank))
    found = [shape]
    for bars in itertools.product((False, True), repeat=n - 1):
        found.append(_merged(shape, bars))
    for d in range(n):
        splits = _factors(shape[d], 2) if n < MOST_RANK else []
        found += [(*shape[:d], *pair, *shape[d + 1 :]) for pair in splits]
        found += [(*shape[:d], *shape[d + 1 :])] if shape[d] == 1 else []
    return tuple(dict.fromkeys(found))


def _merged(shape: Shape, bars: tuple[bool, ...]) -> Shape:
    """Neighbours as one dim where there is no bar between them."""
    found = [shape[0]]
    for size, bar in zip(shape[1:], bars, strict=True):
        if bar:
            found.append(size)
        else:
            found[-1] *= size
    return tuple(found)


def _factors(size: int, n: int) -> list[Shape]:
    if n == 0:
        return [()] if size == 1 else []
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    return [(d, *rest) for d in divisors for rest in _factors(size // d, n - 1)]
