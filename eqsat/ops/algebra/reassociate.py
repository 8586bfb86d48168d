"""Reassociation of sums of products of any rank: laws of brackets, and which brackets pay.

A pair of brackets is an op, and so is the whole: it multiplies what it holds, and sums over the
loops that nothing outside of it has. Which loops an operand has is not said, so a law is about
matrices, batches, vectors and outer products alike, whatever the order of their dims.

    a b => (a) b            a sum over loops of a alone comes first
    (a b) c => a (b c)      associativity
    (a b) (a b) => …        the square of a product: equal brackets are one op

Both sides are Σ Π of all operands, so every such law holds; which of them pays, guards say.
`work <= 0.9` bounds the multiply-adds of the right side by those of the left, other guards are
words. `order` is that of products of three, (a b) c = a (b c): in a chain of matrices the
multiply-adds may rise by half, as the best order may lie behind a poorer one; at most there are
n³ / 6 products of n matrices. Elsewhere a tenth of them has to be saved, or of two sums the value
in between be an eighth.

A matrix of low rank is never built where its factors do: not to be added to a weight (LoRA), not to
scale one (BatchEnsemble), not for its norm. It has to save a tenth of the multiply-adds, too.
Sources: NumPy's einsum; opt_einsum (Smith and Gray, JOSS 2018); matrix chain ordering; decision
143; LoRA (Hu et al., ICLR 2022); BatchEnsemble (Wen et al., ICLR 2020); DoRA (Liu et al. 2024).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import permutations

from eqsat.model.expr import Expr, arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import NONE, finer
from eqsat.ops.algebra.einsum import (
    UNIT,
    Einsum,
    Factor,
    einsum_of,
    generic_of,
    is_tenth_less,
    is_times_less,
    work_of,
)
from eqsat.ops.algebra.linear import ONE, REALS, affine_in, factors, plus, times
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import (
    canonical_body,
    canonical_generic,
    compose_maps,
    identity,
    without_operand,
)


# ---- laws ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Bracket:
    """Factors of one op: operands, and brackets that are ops of their own."""

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
        """The brackets around other operands."""
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
    """The einsum of an op, with a factor for each part of a bracket."""
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
        number = dict(zip(g.result, f.loops, strict=True))
        number |= {d: len(sizes) + k for k, d in enumerate(g.reductions)}
        sizes |= {number[d]: g.sizes[d] for d in g.reductions}
        inner = _leaves(part, ops, number, sizes)
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
    for several, result in steps[:-1]:
        is_sum = UNIT not in several[0].loops and not several[0].used <= result.used
        is_product = len(several) > 1 and all(len(f.used) == len(f.loops) for f in taken)
        if not (is_product or (len(several) == 1 and is_sum)):
            return None
    return Rebracketed(before, left, right, tuple(steps))


# ---- guards --------------------------------------------------------------------------------------
MUCH_SMALLER = 8  # a value in between that has so many times fewer elements is a gain of its own
Guard = Callable[[Rebracketed], bool]


def guard(text: str, left: Bracket, right: Bracket) -> Guard:
    """Guard of a law that a word or a bound of the work names; ValueError for other texts."""
    bound = re.fullmatch(r"work <= (\d+(?:\.\d+)?)", text)
    if bound is not None:  # of whole numbers: a size may be open
        share = Fraction(bound[1])
        return lambda r: share.denominator * r.work <= share.numerator * _work_before(r)
    if text not in WORDS:
        raise ValueError(f"`{text}` is no guard: `work <= 0.9`, {', '.join(WORDS)}")
    pairs = [{*side.ops[0].names} for side in (left, right) if len(side.ops) == 2]
    is_of_three = len(left.names) == 3 and [len(p) for p in pairs] == [2, 2]
    if text == "order" and not (is_of_three and len(pairs[0] & pairs[1]) == 1):
        raise ValueError("`order` is about products of three, `(a b) c => a (b c)`")
    return WORDS[text]


def _work_before(r: Rebracketed) -> int:
    return sum(e.work for e in r.before.ops)


def is_least(r: Rebracketed) -> bool:
    """No other order of the operands on the right side is less work, and no earlier one as much."""
    works: dict[tuple[str, ...], int] = {}
    for names in permutations(r.left.names):
        other = rebracketed(r.left, r.right.renamed(iter(names)), r.before)
        if other is not None:
            works[names] = other.work
    return min(works, key=works.__getitem__) == r.right.names


def is_settled(r: Rebracketed) -> bool:
    """No operand alone has a loop that is summed: that sum would come first."""
    return all(len(names) > 1 for names in _holders(r))


def each_sums(r: Rebracketed) -> bool:
    """Each new bracket sums a loop that all its operands have, and no other operand has."""
    return all(sorted(b.names) in _holders(r) for b in r.right.ops[:-1])


def _holders(r: Rebracketed) -> list[list[str]]:
    """Of every loop that is summed, the operands that vary along it."""
    summed = r.before.sizes.keys() - set(r.before.result)
    return [sorted(n for n, f in r.before.leaves if d in f.used) for d in summed]


# ---- (a b) c = a (b c) ---------------------------------------------------------------------------
def is_order(r: Rebracketed) -> bool:
    """Whether a product of three may be worth having in this order, too."""
    f, e = r.before.ops
    left, right = ({*side.ops[0].names} for side in (r.left, r.right))
    near, far, c = (
        dict(r.before.leaves)[min(n)] for n in (left & right, left - right, right - left)
    )
    if not near.used & c.used:
        return False  # an outer product first
    before, now = _work_before(r), r.work
    both = bool(e.reductions and f.reductions)
    if both and _is_chain(r, near, far, c):
        return 2 * now <= 3 * before and _differs(r, near, far, c)
    elements = math.prod(f.sizes[: f.rank])
    makes = math.prod(r.before.sizes[d] for d in r.steps[0][1].used)
    smaller = both and now <= before and is_times_less(makes, elements, MUCH_SMALLER)
    return is_tenth_less(now, before) or smaller


def _is_chain(r: Rebracketed, near: Factor, far: Factor, c: Factor) -> bool:
    """Whether sums run over what neighbours share: near stands between far and c."""
    # what far and c have in common is a batch: near has it, too, and the result
    ends = far.used & c.used
    sums = (near.used | far.used | c.used).difference(r.before.result)
    return ends <= near.used and ends <= set(r.before.result) and sums <= near.used


def _differs(r: Rebracketed, near: Factor, far: Factor, c: Factor) -> bool:
    """Whether one order of a chain may cost less than the other: not where all sizes are one.

    A vector at an end has one column.
    """
    batch = near.used & far.used & c.used
    sizes = {r.before.sizes[d] for d in (near.used | far.used | c.used) - batch}
    is_vector = any(not end.used - near.used for end in (far, c))
    return len(sizes | ({1} if is_vector else set())) > 1


WORDS: dict[str, Guard] = {
    "least": is_least, "settled": is_settled, "sums": each_sums, "order": is_order,
}  # fmt: skip


# ---- matrices of low rank ------------------------------------------------------------------------
_TERM_FIRST, _TERM_BEHIND = read_brackets("(a b) c"), read_brackets("c (a b)")
_A_FIRST = _TERM_FIRST, read_brackets("(a c) b")
_B_FIRST = _TERM_FIRST, read_brackets("(b c) a")
_FEW = 4  # operands are few if they have so many times fewer elements than their product


@dataclass(frozen=True)
class TermApart:
    """Term added to a product, and the sum of two contractions."""

    rest: Generic
    total: Generic


# ---- x (w + a b) ---------------------------------------------------------------------------------
def term_apart(g: Generic, side: int, s: Generic, i: int, k: Generic) -> TermApart | None:
    """x (w + α a b) = x w + α (x (a b)), where x times a times b is less work than a b.

    Operand `side` of g is s, an elementwise op that adds its operand i, the product k(a, b).
    """
    e, f = einsum_of(g), einsum_of(k)
    t = g.yields[0].dtype
    if e is None or f is None or len(e.factors) != 2 or len(f.factors) != 2 or t not in REALS:
        return None
    if len(s.yields) != 1 or s.tile or s.rank != len(s.sizes) or {*s.dtypes} != {t}:
        return None
    form = affine_in(s.body, i)
    if s.maps[i] != identity(s.rank) or s.yields[0].dtype != t or form is None:
        return None
    if form.scale is None or form.scale.operands() or not form.shift or not form.shift.operands():
        return None
    pair = matched(_TERM_BEHIND if side else _TERM_FIRST, [k, g])
    if pair is None or any(UNIT in x.loops for _, x in pair.leaves):
        return None
    a, b, c = (dict(pair.leaves)[name] for name in "abc")
    firsts = [rebracketed(*sides, pair) for n, sides in ((a, _A_FIRST), (b, _B_FIRST))
              if n.used & c.used]  # fmt: skip
    works = [r.work for r in firsts if r is not None]
    if not works or not is_tenth_less(min(works), f.work + math.prod(s.sizes)):
        return None
    total = plus(arg(0), times(form.scale, arg(1)))
    assert total is not None
    return TermApart(without_operand(s, i, [form.shift], NONE), _elementwise(g, total))


def _elementwise(g: Generic, body: Expr) -> Generic:
    """A body over two values of g's result."""
    t = g.yields[0].dtype
    return canonical_generic(
        g.result_shape, range(g.rank), [identity(g.rank)] * 2, [g.result_shape] * 2,
        [Yield(canonical_body(body), t)], (), (t, t), precision=NONE,
    )  # fmt: skip


# ---- w ∘ (r sᵀ) ----------------------------------------------------------------------------------
def factors_inside(e: Generic, i: int, o: Generic) -> Generic | None:
    """An elementwise op that multiplies by its operand i, an outer product, reads its factors.

    Each of these may then be moved on its own; both have far fewer elements than their product.
    """
    outer = einsum_of(o)
    if outer is None or outer.reductions or len(outer.factors) != 2 or outer.dtype not in REALS:
        return None
    if len(e.yields) != 1 or e.tile or e.rank != len(e.sizes) or set(e.dtypes) != {outer.dtype}:
        return None
    if set(o.dtypes) != {outer.dtype} or e.yields[0].dtype != outer.dtype or 0 in e.sizes:
        return None
    scale, rest = factors(e.body, {i}.__contains__)
    if scale == ONE or not rest.operands() or i in rest.operands():
        return None
    if not is_times_less(sum(map(math.prod, o.shapes)), math.prod(o.sizes), _FEW):
        return None
    maps = [m for m in e.maps]
    maps[i : i + 1] = [compose_maps(m, e.maps[i]) for m in o.maps]
    shapes, dtypes = list(e.shapes), list(e.dtypes)
    shapes[i : i + 1], dtypes[i : i + 1] = o.shapes, o.dtypes
    new = {j: arg(j + (j > i)) for j in range(len(e.maps))}
    new[i] = o.body.substitute({0: arg(i), 1: arg(i + 1)})
    body = canonical_body(e.body.substitute(new))
    return canonical_generic(
        e.sizes, range(e.rank), maps, shapes, [replace(e.yields[0], body=body)], (), dtypes,
        precision=NONE,
    )  # fmt: skip


FUNCTIONS = attr_functions(term_apart, factors_inside)
