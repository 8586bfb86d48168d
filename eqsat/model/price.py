"""The price of a choice that the answer does not make: the question, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EXACT, AT_LEAST, NOT_ADMISSIBLE = "exact", "at least", "not admissible"
WEIGHTED = "weighted"  # the goal of a run whose goals have weights; in millionths of its value


@dataclass(frozen=True)
class Question:
    """A choice that the answer does not make.

    kind: node (this e-node is computed and its result used) | without (this e-node is not; of
    what is made ahead of time: its result is not read) |
    written (this class is written to memory and read) | inside (the value of this class is
    computed inside of a dispatch that needs it and does not write it) | resident (this class is
    made of weights ahead of time and read).
    """

    kind: str
    subject: int  # an e-node, or a class


# why another program takes as much: what differs between its dispatches and the chosen ones
SPELLING = "the same dispatches, spelled otherwise"
COMPUTE = "compute-bound: layouts tie"
UNPACKED = "no contraction reads what lies otherwise"
BYTES = "the same bytes move"
SUMS = "what one dispatch gains another loses"
WHYS = (SPELLING, COMPUTE, UNPACKED, BYTES, SUMS)


@dataclass(frozen=True)
class Tied:
    """Another program of equal value of the first goal: why, and what decided against it.

    why: one of WHYS, of the known such program that differs least. goal, delta: the first later
    goal in which none of those known is as good as the chosen one, and by how much; "" if there is
    one that is equal in every goal. So a delta is an upper bound.
    """

    why: str
    goal: str = ""
    delta: int = 0

    def to_json(self) -> dict[str, str | int]:
        """`delta` in the solver's integers."""
        return dict(vars(self))


@dataclass(frozen=True)
class Price:
    """The first goal's best value with a choice forced, minus the chosen value.

    status: exact | at least (time ran out: `delta` is the best found, if any) | not admissible
    (proven: no program under the budgets makes this choice). `bound`: what it is at least. `tie`:
    where the best found has the value of the chosen one.
    """

    goal: str
    status: str
    delta: int | None = None
    bound: int = 0
    tie: Tied | None = None

    @property
    def key(self) -> tuple[bool, int, bool]:
        """Cheapest first; what is not admissible last."""
        cost = self.bound if self.delta is None else self.delta
        return (self.status == NOT_ADMISSIBLE, cost, self.status != EXACT)

    def to_json(self) -> dict[str, Any]:
        """`delta` and `bound` in the solver's integers: ps, bytes, a count, millionths."""
        return vars(self) | {"tie": self.tie and self.tie.to_json()}
