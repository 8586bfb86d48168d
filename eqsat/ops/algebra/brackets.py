"""Laws of sums and products of any rank: only brackets and the order of operands change.

A pair of brackets is an op, and so is the whole: it multiplies what it holds, and sums over the
loops that nothing outside of it has. Which loops an operand has is not said, so a law is about
matrices, batches, vectors and outer products alike, whatever the order of their dims.

    a b => (a) b            a sum over loops of a alone comes first
    (a b) c => a (b c)      associativity
    (a b) (a b) => …        the square of a product: equal brackets are one op

Both sides are Σ Π of all operands, so every such law holds; which of them pays, guards say
(`reassociate`). Source: NumPy's einsum; opt_einsum (Smith and Gray, JOSS 2018).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic
from eqsat.model.precision import NONE, finer
from eqsat.ops.algebra.einsum import UNIT, Einsum, Factor, einsum_of, generic_of, work_of


@dataclass(frozen=True)
class Bracket:
    """What one op multiplies: operands, and brackets that are ops of their own."""

    parts: tuple[str | Bracket, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The operands in it and in its brackets, in order."""
        return tuple(n for p in self.parts for n in ((p,) if isinstance(p, str) else p.names))

    @cached_property
    def ops(self) -> tuple[Bracket, ...]:
        """The brackets in the order in which they close, the whole last; equal ones once."""
        inner = (o for p in self.parts if isinstance(p, Bracket) for o in p.ops)
        return tuple(dict.fromkeys((*inner, self)))

    def renamed(self, names: Iterator[str]) -> Bracket:
        """The same brackets around other operands."""
        parts = (next(names) if isinstance(p, str) else p.renamed(names) for p in self.parts)
        return Bracket(tuple(parts))


def read_brackets(text: str) -> Bracket:
    """`(a b) c`; ValueError says what cannot be read."""
    opened: list[list[str | Bracket]] = [[]]
    for word in re.findall(r"[a-z]\w*|\S", text):
        if word == "(":
            opened.append([])
        elif word == ")" and opened[1:] and opened[-1]:
            opened[-2].append(Bracket(tuple(opened.pop())))
        elif word.isidentifier():
            opened[-1].append(word)
        else:
            raise ValueError(f"`{word}` is no operand such as `x`, and closes no bracket")
    if opened[1:] or not opened[0]:
        raise ValueError("a bracket stays open" if opened[1:] else "a side is empty")
    return Bracket(tuple(opened[0]))


# ---- ops as one sum ------------------------------------------------------------------------------
@dataclass(frozen=True)
class SumOfProduct:
    """Ops as the sum of one product: the loops of all under one numbering."""

    sizes: Mapping[int, int]
    result: range
    leaves: tuple[tuple[str, Factor], ...]  # operands as they stand, by name
    ops: tuple[Einsum, ...]
    dtype: str
    precision: str


def matched(side: Bracket, given: Sequence[Generic]) -> SumOfProduct | None:
    """These generics as the ops of a side of a law; as precise as the most precise of them."""
    if len(given) != len(side.ops):
        return None
    ops: dict[Bracket, Einsum] = {}
    for bracket, g in zip(side.ops, given, strict=True):
        op = _einsum(bracket, g)
        if op is None:
            return None
        ops[bracket] = op
    e, precision = ops[side], ""
    sizes = dict(enumerate(e.sizes))
    leaves = _leaves(side, ops, {d: d for d in sizes}, sizes)
    for op in ops.values():
        precision = None if precision is None else finer(precision, op.precision)
    if leaves is None or precision is None:
        return None
    if len(ops) > 1 and set(e.result).difference(*(f.used for _, f in leaves)):
        return None  # a result that no operand varies along
    return SumOfProduct(sizes, e.result, tuple(leaves), tuple(ops.values()), e.dtype, precision)


def _einsum(bracket: Bracket, g: Generic) -> Einsum | None:
    """What an op multiplies and sums, with a factor for each part of a bracket."""
    is_square = len(g.maps) == 1 and bracket.parts == bracket.parts[:1] * 2
    if is_square and g.body == call("mul", arg(0), arg(0)):
        e = einsum_of(replace(g, yields=(replace(g.yields[0], body=arg(0)),)))
        return None if e is None else replace(e, factors=e.factors * 2)
    e = einsum_of(g)
    return e if e is not None and len(e.factors) == len(bracket.parts) else None


def _leaves(
    bracket: Bracket, ops: Mapping[Bracket, Einsum], new: Mapping[int, int], sizes: dict[int, int]
) -> list[tuple[str, Factor]] | None:
    """Operands in a bracket over the loops of all; `new`: those of its op. Adds sizes of sums."""
    leaves: list[tuple[str, Factor]] = []
    e = ops[bracket]
    for part, factor in zip(bracket.parts, e.factors, strict=True):
        f = factor.renamed(new)
        if isinstance(part, str):
            leaves.append((part, f))
            continue
        g = ops[part]
        if UNIT in f.loops or len(f.loops) != g.rank or not f.dtype == g.dtype == e.dtype:
            return None
        is_diagonal = len(f.used) < len(f.loops)
        if is_diagonal if len(e.factors) > 1 else not (is_diagonal or e.reductions):
            return None  # a diagonal beside others; a copy
        own = dict(zip(g.result, f.loops, strict=True))
        own |= {d: len(sizes) + k for k, d in enumerate(g.reductions)}
        sizes |= {own[d]: g.sizes[d] for d in g.reductions}
        inner = _leaves(part, ops, own, sizes)
        if inner is None:
            return None
        leaves += inner
    return leaves


# ---- the sum in other brackets -------------------------------------------------------------------
@dataclass(frozen=True)
class Rebracketed:
    """Both sides of a law where its left side has matched."""

    before: SumOfProduct
    left: Bracket
    right: Bracket
    steps: tuple[tuple[list[Factor], Factor], ...]  # what the ops multiply, and what they make

    @property
    def work(self) -> int:
        """Multiply-adds of the right side."""
        return sum(work_of(self.before.sizes, *factors) for factors, _ in self.steps)

    def generics(self) -> list[Generic]:
        """The ops of the right side; a sum of one operand is no contraction."""
        b, last = self.before, self.steps[-1]
        return [
            generic_of(b.sizes, b.result if s is last else s[1].loops, s[0], b.dtype,
                       b.precision if len(s[0]) > 1 else NONE)
            for s in self.steps
        ]  # fmt: skip


def rebracketed(left: Bracket, right: Bracket, before: SumOfProduct | None) -> Rebracketed | None:
    """The ops of other brackets; None if one has nothing to do.

    Products in other brackets are of operands that no diagonal is read of.
    """
    if before is None:
        return None
    waiting = list(before.leaves)
    taken = [waiting.pop([n for n, _ in waiting].index(name))[1] for name in right.names]
    steps: list[tuple[list[Factor], Factor]] = []

    def value(bracket: Bracket, at: int) -> Factor:
        end, factors = at + len(bracket.names), list[Factor]()
        outside = set(before.result).union(*(f.used for f in (*taken[:at], *taken[end:])))
        for p in bracket.parts:
            factors.append(taken[at] if isinstance(p, str) else value(p, at))
            at += 1 if isinstance(p, str) else len(p.names)
        loops = dict.fromkeys(d for f in factors for d in f.loops)
        steps.append((factors, Factor(tuple(d for d in loops if d in outside), before.dtype)))
        return steps[-1][1]

    value(right, 0)
    for factors, made in steps[:-1]:
        is_sum = UNIT not in factors[0].loops and not factors[0].used <= made.used
        is_product = len(factors) > 1 and all(len(f.used) == len(f.loops) for f in taken)
        if not (is_product or (len(factors) == 1 and is_sum)):
            return None
    return Rebracketed(before, left, right, tuple(steps))
