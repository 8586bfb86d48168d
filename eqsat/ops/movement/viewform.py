"""The normal form of a view: equal movement is written in one way.

Digits of extent 1 are dropped and digits that always run together are one; guards that never act
are forgotten and the others written in whole numbers, without the digits that do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eqsat.model.affine import Affine, affine
from eqsat.model.attr import Shape
from eqsat.model.tensor import cdiv

Groups = tuple[tuple[int, ...], ...]
ZERO = Affine(())


class Guard(NamedTuple):
    """Where not low <= number < high, the value is `fill` ("?": anything)."""

    number: Affine
    low: int
    high: int
    fill: str

    def over(self, number: Affine) -> Guard:
        return self._replace(number=number)


Parts = tuple[Groups, tuple[Affine, ...], tuple[Guard, ...]]  # digits, index, guards


def normal_form(
    source: Shape,
    shape: Shape,
    digits: Sequence[Sequence[int]],
    index: Iterable[Affine],
    guards: Iterable[Guard],
) -> Parts:
    """Digits, index and guards of a view in their normal form."""
    index, guards = tuple(index), tuple(guards)
    if 0 in shape:
        return tuple([tuple(g) for g in digits]), index, ()
    groups, index, guards = _without_units(shape, digits, index, guards)
    ranges = Digits(shape, groups)
    guards = _acting(guards, ranges)
    index = _where_it_counts(source, index, guards, ranges)
    longest = tuple([_longest(g, ranges) for g in guards])
    groups, index, guards = _joined(shape, groups, index, longest)
    if guards:
        ranges = Digits(shape, groups)
        guards = _in_order([_shortest(g, ranges) for g in guards])
    return groups, index, guards


class Digits:
    """The digits of a shape, counted through all its dims."""

    def __init__(self, shape: Shape, groups: Groups):
        self.shape, self.groups = shape, groups
        self.extents = [e for g in groups for e in g]
        self.home = [(k, j) for k, g in enumerate(groups) for j in range(len(g))]

    def range(self, e: Affine) -> tuple[int, int]:
        """The least and the largest value of an expression."""
        by_dim: dict[int, list[tuple[int, int]]] = {}
        for d, s in e.terms:
            k, j = self.home[d]
            by_dim.setdefault(k, []).append((j, s))
        low = high = e.constant
        for k, terms in by_dim.items():
            a, b = _range(terms, self.groups[k], self.shape[k])
            low, high = low + a, high + b
        return low, high

    def below(self, d: int) -> list[tuple[int, int]]:
        """The digits of the same dim under this one, with their weights."""
        k, j = self.home[d]
        rest = self.groups[k][j + 1 :]
        return [(d + 1 + i, math.prod(rest[i + 1 :])) for i in range(len(rest))]


def _range(terms: list[tuple[int, int]], extents: Sequence[int], size: int) -> tuple[int, int]:
    """Of a sum over the digits of one dim, which ends before `size`."""
    stride = [0] * len(extents)
    for j, s in terms:
        stride[j] = s
    free = [
        (min(0, s * (e - 1)), max(0, s * (e - 1))) for s, e in zip(stride, extents, strict=True)
    ]
    if math.prod(extents) == size:
        return sum(a for a, _ in free), sum(b for _, b in free)
    last, rest = [], size - 1
    for e in reversed(extents):
        rest, digit = divmod(rest, e)
        last.append(digit)
    last.reverse()
    ends = [(sum(s * v for s, v in zip(stride, last, strict=True)),) * 2]
    for j, v in enumerate(last):  # digits above as in the last index, this one smaller, others free
        if v:
            above = sum(s * w for s, w in zip(stride[:j], last[:j], strict=True))
            span = (min(0, stride[j] * (v - 1)), max(0, stride[j] * (v - 1)))
            a, b = (above + span[i] + sum(f[i] for f in free[j + 1 :]) for i in range(2))
            ends.append((a, b))
    return min(a for a, _ in ends), max(b for _, b in ends)


def renumbered(e: Affine, new: dict[int, int]) -> Affine:
    """The expression over renumbered digits, without those that are gone."""
    return Affine(tuple([(new[d], s) for d, s in e.terms if d in new]), e.constant)


# ---- digits --------------------------------------------------------------------------------------
def _without_units(
    shape: Shape,
    digits: Sequence[Sequence[int]],
    index: tuple[Affine, ...],
    guards: tuple[Guard, ...],
) -> Parts:
    """Without digits of extent 1; the outermost one as short as the extent of the dim asks for."""
    new: dict[int, int] = {}
    groups: list[tuple[int, ...]] = []
    at = 0
    for size, group in zip(shape, digits, strict=True):
        large: list[tuple[int, int]] = []
        low = 1
        for d, extent in reversed(list(enumerate(group, at))):
            e = min(extent, cdiv(size, low))
            low *= e
            if e > 1:
                large.append((d, e))
        large.reverse()
        for d, _ in large:
            new[d] = len(new)
        groups.append(tuple([e for _, e in large]))
        at += len(group)
    if len(new) == at:
        return tuple(groups), index, guards
    return (
        tuple(groups),
        tuple([renumbered(e, new) for e in index]),
        tuple([g.over(renumbered(g.number, new)) for g in guards]),
    )


def _joined(
    shape: Shape, groups: Groups, index: tuple[Affine, ...], guards: tuple[Guard, ...]
) -> Parts:
    """Neighbours of one dim that run together in every expression are one digit."""
    exprs = [dict(e.terms) for e in (*index, *(g.number for g in guards))]
    new: dict[int, int] = {}
    out: list[tuple[int, ...]] = []
    at = count = 0
    for k, group in enumerate(groups):
        merged: list[int] = []
        for j, e in enumerate(group):
            d = at + j
            together = merged and all(x.get(d - 1, 0) == x.get(d, 0) * e for x in exprs)
            if together:
                merged[-1] *= e
                new.pop(d - 1)
                count -= 1
            else:
                merged.append(e)
            new[d] = count
            count += 1
        if merged:
            merged[0] = min(merged[0], cdiv(shape[k], math.prod(merged[1:])))
        out.append(tuple(merged))
        at += len(group)
    if count == at:
        return groups, index, guards
    return (
        tuple(out),
        tuple([renumbered(e, new) for e in index]),
        tuple([g.over(renumbered(g.number, new)) for g in guards]),
    )


# ---- guards --------------------------------------------------------------------------------------
def _acting(guards: Iterable[Guard], digits: Digits) -> tuple[Guard, ...]:
    """The guards that act behind those before them; if nothing is read at all, the last says so."""
    acting: list[Guard] = []
    for g in guards:
        shortest = _shortest(g, digits)
        same = [f for f in acting if f.number == shortest.number]
        least, largest = digits.range(shortest.number)
        low = max([least, *[f.low for f in same]])
        high = min([largest + 1, *[f.high for f in same]])
        if shortest.low <= low and shortest.high >= high:
            continue
        if shortest.low >= shortest.high or max(low, shortest.low) >= min(high, shortest.high):
            return (*_before_run(acting, g.fill), Guard(ZERO, 1, 1, g.fill))
        acting.append(
            shortest._replace(
                low=shortest.low if shortest.low > low else least,
                high=shortest.high if shortest.high < high else largest + 1,
            )
        )
    return tuple(acting)


def _before_run(guards: Sequence[Guard], fill: str) -> list[Guard]:
    """Without the last guards that give this fill."""
    rest = list(guards)
    while rest and rest[-1].fill == fill:
        rest.pop()
    return rest


def _shortest(g: Guard, digits: Digits) -> Guard:
    """The guard over as few digits as possible, in the smallest numbers.

    Digits of small weight do not matter where a bound is a multiple of all others. A bound that
    never acts is the least or the largest value.
    """
    least, largest = digits.range(g.number)
    low = g.low - g.number.constant if g.low > least else None
    high = g.high - g.number.constant if g.high <= largest else None
    terms = sorted(g.number.terms, key=lambda t: (abs(t[1]), t[0]))
    if terms and terms[-1][1] < 0:
        terms = [(d, -s) for d, s in terms]
        low, high = None if high is None else 1 - high, None if low is None else 1 - low
    for n in reversed(range(len(terms))):
        unit = math.gcd(*[s for _, s in terms[n:]])
        a, b = _free([s for _, s in terms[:n]], [digits.extents[d] for d, _ in terms[:n]])
        first = None if low is None else {cdiv(low - a, unit), cdiv(low - b, unit)}
        last = None if high is None else {cdiv(high - a, unit), cdiv(high - b, unit)}
        if len(first or "x") == 1 == len(last or "x"):
            index = Affine(tuple(sorted([(d, s // unit) for d, s in terms[n:]])))
            least, largest = digits.range(index)
            return Guard(index, min(first or {least}), min(last or {largest + 1}), g.fill)
    return Guard(ZERO, g.low - g.number.constant, g.high - g.number.constant, g.fill)


def _free(strides: Sequence[int], extents: Sequence[int]) -> tuple[int, int]:
    """The least and the largest sum of digits that do not depend on one another."""
    ends = [s * (e - 1) for s, e in zip(strides, extents, strict=True)]
    return sum([min(0, x) for x in ends]), sum([max(0, x) for x in ends])


def _longest(g: Guard, digits: Digits) -> Guard:
    """The guard over all digits down to the last one of a dim, so that these can be joined."""
    d = next((d for d, s in g.number.terms if s == 1), None)
    below = [] if d is None else digits.below(d)
    if not below or any(b in dict(g.number.terms) for b, _ in below):
        return g
    weight = math.prod([digits.extents[b] for b, _ in below])
    terms = [*[(k, s * weight) for k, s in g.number.terms], *below]
    return Guard(affine(terms), g.low * weight, g.high * weight, g.fill)


def _where_it_counts(
    source: Shape, index: tuple[Affine, ...], guards: Sequence[Guard], digits: Digits
) -> tuple[Affine, ...]:
    """The index where the guards hold: what it is elsewhere is no part of the view."""
    if guards and not guards[-1].number.terms:
        return (ZERO,) * len(source)
    if 1 in source:
        index = tuple([ZERO if s == 1 else e for s, e in zip(source, index, strict=True)])
    for g in guards:
        if len(g.number.terms) == 1 and g.high - g.low == 1:
            ((d, _),) = g.number.terms
            index = tuple([_held(e, d, g.low, digits) for e in index])
    return index


def _held(e: Affine, d: int, value: int, digits: Digits) -> Affine:
    """The expression where digit d has this value: d joins the digit below, or is gone."""
    stride = dict(e.terms)
    below = digits.below(d)[:1]
    wanted = sum(stride.get(b, 0) * digits.extents[b] for b, _ in below)
    constant = e.constant + (stride.get(d, 0) - wanted) * value
    return affine([*(stride | {d: wanted}).items()], constant)


def _in_order(guards: Sequence[Guard]) -> tuple[Guard, ...]:
    """Neighbours of one fill in one order, and those of one index as one."""
    ordered: list[Guard] = []
    run: dict[Affine, Guard] = {}
    for g in guards:
        if run and g.fill != next(iter(run.values())).fill:
            ordered += sorted(run.values(), key=_key)
            run = {}
        same = run.get(g.number, g)
        run[g.number] = g._replace(low=max(g.low, same.low), high=min(g.high, same.high))
    return (*ordered, *sorted(run.values(), key=_key))


def _key(g: Guard) -> tuple[tuple[int, int], ...]:
    return g.number.terms
