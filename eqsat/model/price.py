"""What another choice would have cost: the question, and its answer in the first goal."""

from __future__ import annotations

from dataclasses import dataclass

EXACT, AT_LEAST, NOT_ADMISSIBLE = "exact", "at least", "not admissible"
WEIGHTED = "weighted"  # the goal of a run whose goals have weights; in millionths of its value


@dataclass(frozen=True)
class Question:
    """A choice that was not made.

    kind: node (this e-node is computed and its result used) | without (this e-node is not; of
    what is made ahead of time: its result is not read) |
    written (this class is written to memory and read) | inside (the value of this class is
    computed inside of a dispatch that needs it and does not write it).
    """

    kind: str
    subject: int  # an e-node, or a class


@dataclass(frozen=True)
class Price:
    """The first goal's best value with a choice forced, minus the chosen value.

    status: exact | at least (time ran out: `delta` is the best found, if any) | not admissible
    (proven: no program under the budgets makes this choice). `bound`: what it is at least.
    """

    goal: str
    status: str
    delta: int | None = None
    bound: int = 0

    @property
    def key(self) -> tuple[bool, int, bool]:
        """Cheapest first; what is not admissible last."""
        known = self.bound if self.delta is None else self.delta
        return (self.status == NOT_ADMISSIBLE, known, self.status != EXACT)

    def to_json(self) -> dict[str, str | int | None]:
        """`delta` and `bound` in the solver's integers: ps, bytes, a count, millionths."""
        return dict(vars(self))
