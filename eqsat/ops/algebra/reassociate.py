"""Which brackets pay: the guards of laws about sums and products of any rank.

`work <= 0.9` bounds the multiply-adds of the right side by those of the left, other guards are
words. `order` is that of products of three, (a b) c = a (b c): in a chain of matrices the
multiply-adds may rise by half, as the best order may lie behind a poorer one; at most there are
n³ / 6 products of n matrices. Elsewhere a tenth of them has to be saved, or of two sums the value
in between be an eighth.
Sources: matrix chain ordering; opt_einsum (Smith and Gray, JOSS 2018); decision 143.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations

from eqsat.ops.algebra.brackets import Bracket, Rebracketed, rebracketed
from eqsat.ops.algebra.einsum import Factor, is_tenth_less, is_times_less

MUCH_SMALLER = 8  # a value in between that has so many times fewer elements is a gain of its own
Guard = Callable[[Rebracketed], bool]


def guard(text: str, left: Bracket, right: Bracket) -> Guard:
    """What a word, or a bound of the work, asks of a law; ValueError if it asks nothing of it."""
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
    made = math.prod(f.sizes[: f.rank])
    makes = math.prod(r.before.sizes[d] for d in r.steps[0][1].used)
    smaller = both and now <= before and is_times_less(makes, made, MUCH_SMALLER)
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
