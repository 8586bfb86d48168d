"""What is left of all options once the first goal is bounded without an order.

The linear relaxation of the problem without an order is a relaxation of every order's: its bound
holds in all of them, and an option whose reduced cost lifts it above a known answer is in no answer
as good as that one, whatever its order. A few per cent of the options survive; nothing else has to
be stated under an order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eqsat.extract.candidates.free import free_problem
from eqsat.extract.candidates.variants import Variant, Variants
from eqsat.extract.solve.relax import relaxation

# how far above the bound an answer is looked for, one after another, until one is as good
SPREADS = (0.0, 0.0005, 0.003, 0.02, 0.1)
Find = Callable[[tuple[Variant, ...]], int | None]


@dataclass(frozen=True)
class Survivors:
    """`options`: what answers within the caps and worth at most `cap` are made of, in any order.

    They have no moments yet (`Places.moments`). No answer within the caps is worth less than
    `bound`. Without a `cap` no answer is known, and they are all that some answer may need.
    """

    options: tuple[Variant, ...]
    bound: int
    cap: int | None


def narrowed(
    variants: Variants,
    weights: Mapping[str, int],
    caps: Mapping[str, int],
    known: int | None,
    find: Find,
    loose: Callable[[int], int] = lambda value: value,
) -> Survivors | None:
    """Options that survive the relaxation of Σ weight · goal; None if no answer keeps the caps.

    known: what an answer that keeps the caps is worth, if there is one. find: looks among few
    options for an answer that keeps them, and tells what it is worth. loose: what an answer may be
    worth for the goals behind if the best one known is worth so much. OutOfTime if there is no time
    to state the problem.
    """
    kept, free = free_problem(variants)
    relaxed = relaxation(free, weights, caps)
    if relaxed is None:
        return None
    best, last = known, 0
    for spread in SPREADS:
        cap = int(relaxed.bound * (1 + spread))
        if best is not None and best <= cap:
            break
        near = relaxed.within(cap)
        if len(near) > last:
            last = len(near)
            value = find(tuple(kept[i] for i in near))
            best = value if best is None or (value is not None and value < best) else best
    if best is None:
        return Survivors(tuple(kept), relaxed.bound, None)
    most = loose(best)
    return Survivors(tuple(kept[i] for i in relaxed.within(most)), relaxed.bound, most)
