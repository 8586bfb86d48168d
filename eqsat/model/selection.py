"""Selection: the chosen dispatches in their order, and value, bound and gap of every goal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eqsat.model.printed import Printed
from eqsat.model.restore import restored

GREEDY = "greedy"  # the stop of an answer that nobody searched for
EXTRACTORS = ("cpsat", GREEDY)
CAP, TIME_LIMIT = "candidates", "time_limit"  # what leaves candidates out
RESULT_RELATION = "fusion.result_relation"  # what removes ops that write permuted


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
    # vector | scratch | RESULT_RELATION, or what cut the candidates: CAP | TIME_LIMIT
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

    __str__ = to_text
