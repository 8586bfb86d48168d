"""Selection: the chosen dispatches in their order, and value, bound and gap of every goal.

A Price is what a choice would cost that the selection does not make.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eqsat.model.files import JsonRecord, restored
from eqsat.model.printed import Printed

GREEDY = "greedy"  # the stop of an answer that nobody searched for
EXTRACTORS = ("cpsat", GREEDY)
CAP, TIME_LIMIT = "candidates", "time_limit"  # what leaves candidates out
RESULT_RELATION = "fusion.result_relation"  # what removes ops that write permuted
REFUSED = "refused"  # what removes dispatches that a compiler refused


@dataclass(frozen=True)
class GoalRequest:
    """A goal to minimise: unweighted goals are lexicographic, `within` loosens one (0.01 = 1 %).

    With weights on all, the objective is Σ weight · goal / baseline. Mixing is an error (E404).
    """

    name: str  # time | memory | dispatches, or a plugged-in goal
    weight: float | None = None
    within: float = 0.0


@dataclass(frozen=True)
class GoalResult:
    """A goal's value and the proven bound (integers: ps, bytes, counts); gap = (v - b) / v.

    `proof` says what proved a gap of 0: `relaxation` (the linear relaxation of the whole program),
    `search` (the solver), or nothing.
    """

    value: int
    bound: int
    proof: str = ""

    @property
    def gap(self) -> float:
        return 0.0 if self.value <= self.bound else (self.value - self.bound) / self.value


@dataclass(frozen=True)
class Group:
    """One dispatch as the search sees it: e-nodes computed together.

    `members` are e-node numbers in topological order; `reads` are classes read from memory;
    `writes` are classes written to memory, the last one computed being the group's own result.
    A class is named as its reader or writer sees it; reshapes between them move no data.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    time_ps: int
    step: int  # groups of one step run one after another; buffers are freed after a step
    pipeline: str = ""  # of the target, that computes its unpacked contractions


@dataclass(frozen=True)
class Removed:
    """A group that a limit of the target excludes: its ops, bytes, the limit and its place."""

    what: str
    bytes: int
    limit: int
    # vector | scratch | RESULT_RELATION | REFUSED, or what cut the candidates: CAP | TIME_LIMIT
    limit_name: str
    place: str
    result_bytes: int = 0


@dataclass(frozen=True)
class Cut:
    """Candidates that were not enumerated, so that nothing is proven about all of them."""

    what: str  # groups (behind so many ops) | merges (around so many values)
    count: int
    by: str  # CAP | TIME_LIMIT


def short_of_time(cuts: Iterable[Cut]) -> bool:
    """Whether more time would have found further candidates."""
    return any(c.by == TIME_LIMIT for c in cuts)


@dataclass(frozen=True)
class Selection(Printed):
    """Groups in execution order; `ahead` are e-nodes computed once from weights.

    `stop` (why the search ended): optimal | gap (all was searched, but some goal's bound, which
    holds in every order, is not met) | cut (all was searched but what a cap left out) | wall |
    interrupted | memory | greedy (nothing was searched). `cuts` say which candidates were left out:
    bounds also hold for those that the time limit left out, but not for those that a cap left out.
    `candidates`: the number of dispatches to choose from (0 in a run that did not count them).
    """

    groups: tuple[Group, ...]
    ahead: tuple[int, ...]
    goals: tuple[tuple[str, GoalResult], ...]
    stop: str
    removed: tuple[Removed, ...] = ()
    seconds: float = 0.0
    cuts: tuple[Cut, ...] = ()
    candidates: int = 0

    def verify(self) -> None:
        """ValueError if steps do not ascend, a bound passes its value, or a value is read unmade.

        Whether the choice is legal and its figures are right is for `extract.check`, which needs
        the e-graph and the target.
        """
        steps = [g.step for g in self.groups]
        if steps != sorted(steps):
            raise ValueError("groups are not in the order of their steps")
        for name, g in self.goals:
            if g.bound > g.value:
                raise ValueError(f"the bound of `{name}` is {g.bound}, its value {g.value}")
        for i, g in enumerate(self.groups):
            if not g.members or not g.writes or g.time_ps < 0:
                raise ValueError(f"group {i} computes nothing, or in no time")

    @property
    def capped(self) -> int:
        """Places (e-nodes, values) at which candidates were left out."""
        return sum(c.count for c in self.cuts)

    @property
    def among(self) -> str:
        """The number of candidates, where that is not all of them; otherwise ""."""
        if not self.cuts:
            return ""
        places = "place" if self.capped == 1 else "places"
        return f"{self.candidates:,} candidates, {self.capped:,} {places} cut"

    @property
    def is_capped(self) -> bool:
        """Whether bounds hold only for the candidates that were enumerated."""
        return any(c.by == CAP for c in self.cuts)

    @property
    def claim(self) -> str:
        """How far the answer is proven, and over what: `stop` where no candidate was left out.

        Else `best of 1,234 candidates, 5 places cut`, or `best found of …` if not even that is
        proven of the first goal.
        """
        if not self.cuts:
            return self.stop
        proven = self.stop == "cut" and self.goals[0][1].gap == 0
        return f"{'best' if proven else 'best found'} of {self.among}"

    def goal(self, name: str) -> GoalResult:
        return dict(self.goals)[name]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "groups": [
                [list(g.members), list(g.reads), list(g.writes), g.time_ps, g.step, g.pipeline]
                for g in self.groups
            ],
            "ahead": list(self.ahead),
            "goals": {k: [v.value, v.bound, v.proof] for k, v in self.goals},
            "stop": self.stop,
            "removed": [list(vars(r).values()) for r in self.removed],
            "seconds": self.seconds,
            "cuts": [list(vars(c).values()) for c in self.cuts],
            "candidates": self.candidates,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Selection:
        return restored(cls, {k: v for k, v in data.items() if k not in ("format", "sinks")})

    def to_text(self) -> str:
        lines = [f"{k}: value {g.value}, bound {g.bound}, gap {g.gap:.2%}" for k, g in self.goals]
        for i, g in enumerate(self.groups):
            lines.append(
                f"group {i} (step {g.step}, {g.time_ps} ps): nodes {list(g.members)}"
                f" reads {list(g.reads)} writes {list(g.writes)}"
            )
        return "\n".join([*lines, f"stop: {self.claim}", ""])


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
class Tied(JsonRecord):
    """Another program of equal value of the first goal: why, and what decided against it.

    why: one of WHYS, of the known such program that differs least. goal, delta: the first later
    goal in which none of those known is as good as the chosen one, and by how much; "" if there is
    one that is equal in every goal. So a delta is an upper bound.
    """

    why: str
    goal: str = ""
    delta: int = 0


@dataclass(frozen=True)
class Price(JsonRecord):
    """The first goal's best value with a choice forced, minus the chosen value.

    `delta` and `bound` are in the solver's integers: ps, bytes, a count, millionths.
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
