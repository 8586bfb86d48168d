"""The independent checker: is a selection a legal program of its e-graph, and worth what it says?

It knows the e-graph, the target and the selection; it shares prices and fusion legality with the
search, but no enumeration, no step ranks and no solver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.space import Space
from eqsat.extract.checkedgroups import CheckedGroups
from eqsat.extract.choice.columns import GOALS
from eqsat.extract.choice.linear import TIE_BREAK, linear_goals, value_stated
from eqsat.model.deadline import (
    CANDIDATE_TIME,
    INTERRUPTED,
    ORDER_TIME,
    OTHER_SIZES,
    OUT_OF_MEMORY,
    OUT_OF_TIME,
    SEARCH_TIME,
)
from eqsat.model.egraph import EGraph
from eqsat.model.selection import CAP, GREEDY, REFUSED, TIME_LIMIT, Selection
from eqsat.model.target import DROPPED, HELD, Target

STOPS = (
    "optimal", "gap", "cut", OUT_OF_TIME, CANDIDATE_TIME, SEARCH_TIME, ORDER_TIME, INTERRUPTED,
    OUT_OF_MEMORY, OTHER_SIZES, GREEDY,
)  # fmt: skip


def check(egraph: EGraph, target: Target, selection: Selection) -> list[str]:
    """Faults of a selection, one sentence each; nothing if it is fine."""
    checker = Checker(Space(egraph, target.padding), target, selection)
    faults = checker.numbers() or [*checker.ahead_faults(), *checker.all_group_faults()]
    return faults or [*checker.order_faults(), *checker.sharing_faults(), *checker.goal_faults()]


@dataclass(frozen=True)
class Checker(CheckedGroups):
    """One selection under test."""

    def numbers(self) -> list[str]:
        """Node and class numbers that do not exist, and other nonsense."""
        nodes, classes = len(self.space.egraph.nodes), len(self.space.egraph.types)
        faults = []
        for i, g in enumerate(self.selection.groups):
            if not all(0 <= m < nodes for m in g.members) or not g.members:
                faults.append(f"group {i} has members that do not exist")
            if not all(
                0 <= c < classes and len(self.space.egraph.types[c]) == 1
                for c in (*g.reads, *g.writes)
            ):
                faults.append(f"group {i} names classes that are no buffers")
        if not all(0 <= a < nodes for a in self.selection.ahead):
            faults.append("ahead names nodes that do not exist")
        if self.selection.stop not in STOPS:
            faults.append(f"no stop reason named `{self.selection.stop}`")
        if any(c.what not in ("groups", "merges") or c.count < 1 for c in self.selection.cuts):
            faults.append("nothing that can be cut was cut")
        if self.selection.cuts and self.selection.stop in ("optimal", "gap"):
            faults.append("candidates were cut, and yet all was searched")
        if self.selection.candidates and self.selection.candidates < len(self.selection.groups):
            faults.append("fewer candidates were looked at than were chosen")
        unsized = (CAP, TIME_LIMIT, REFUSED)
        removed = (r for r in self.selection.removed if r.limit_name not in unsized)
        if any(r.bytes <= r.limit for r in removed):
            faults.append("something was removed that keeps its limit")
        return faults

    def ahead_faults(self) -> list[str]:
        """Ahead nodes come after their operands, from weights only, each needed and once."""
        faults, ready = [], set()
        read = {b for g in self.selection.groups for b in self.buffers(g.reads)}
        read |= set(self.space.roots)
        read |= {o for i in self.selection.ahead for o in self.space.operands[i]}
        for i in self.selection.ahead:
            n = self.space.egraph.nodes[i]
            b = self.space.buffer[n.eclass]
            if n.op == "input" or not self.is_candidate(i):
                faults.append(f"node {i} cannot be computed ahead of time")
            if b in ready or b not in read:
                faults.append(f"ahead node {i} is computed twice or not needed")
            if any(o not in ready for o in self.space.operands[i]):
                faults.append(f"ahead node {i} comes before an operand")
            ready.add(b)
        return faults

    def all_group_faults(self) -> list[str]:
        return [
            f"group {i}: {f}"
            for i, g in enumerate(self.selection.groups)
            for f in (*self.place_faults(g), *self.at(g).group_faults(g))
        ]

    def order_faults(self) -> list[str]:
        """Steps ascend without holes; reads come from before; roots are there in the end."""
        steps = [g.step for g in self.selection.groups]
        faults = []
        if steps != sorted(steps) or set(steps) != set(range(len(set(steps)))):
            faults.append("steps do not count up from 0")
        there = set(self.space.inputs) | self.ahead_buffers
        written: dict[int, int] = {}
        for i, g in enumerate(self.selection.groups):
            for b in self.buffers(g.reads):
                if b not in there and written.get(b, g.step) >= g.step:
                    faults.append(f"group {i} reads c{b} before it is written")
            for b in self.buffers(g.writes):
                if b in there or b in written:
                    faults.append(f"group {i} writes c{b}, which is there already")
                written.setdefault(b, g.step)
        missing = [r for r in self.space.roots if r not in there | written.keys()]
        return faults + [f"result c{r} is never written" for r in missing]

    def sharing_faults(self) -> list[str]:
        """No op is computed twice that must not be, and no group is useless."""
        exclusive = self.legality.exclusive
        count = Counter(n for g in self.selection.groups for n in exclusive(g.members))
        faults = [f"exclusive number {n} is held {k} times" for n, k in count.items() if k > 1]
        read = {b for g in self.selection.groups for b in self.buffers(g.reads)}
        read |= set(self.space.roots)
        for i, g in enumerate(self.selection.groups):
            if read.isdisjoint(self.buffers(g.writes)):
                faults.append(f"group {i} is not needed")
        return faults

    def peak_bytes(self) -> int:
        """Arguments, results, resident weights, and the temporaries of the worst step."""
        space = self.space
        roots = [r for r in space.roots if r not in space.inputs]
        fixed = space.input_bytes + sum(space.nbytes(b) for b in roots)
        resident = sum(space.nbytes(b) for b in self.weights.resident - set(roots))
        groups = self.selection.groups
        last: dict[int, int] = {}
        for g in groups:
            for b in self.buffers(g.reads):
                last[b] = max(g.step, last.get(b, 0))
        live: Counter[int] = Counter()
        for g in groups:
            for b in set(self.buffers(g.writes)) - set(space.roots):
                for step in range(g.step, max(g.step, last.get(b, 0)) + 1):
                    live[step] += space.nbytes(b)
        return fixed + resident + max(live.values(), default=0)

    @cached_property
    def weights(self) -> CheckedWeights:
        return CheckedWeights(self.space, self.target, self.selection, self.ahead_buffers)

    def goal_values(self, names: Iterable[str]) -> dict[str, int]:
        """Goals of these names, recomputed from the groups alone."""
        asked = dict.fromkeys(names)
        linear, weights = linear_goals(asked), self.weights
        sides = self.space.egraph, self.target, self.selection
        recomputed = {
            "memory": self.peak_bytes, "resident": weights.resident_bytes,
            "load_peak": weights.load_peak_bytes,
        }  # fmt: skip
        stated = (n for n in asked if n in recomputed or n in linear)
        return {
            n: recomputed[n]() if n in recomputed else value_stated(n, linear[n], *sides)
            for n in stated
        }

    def goal_faults(self) -> list[str]:
        """Whether every goal has the value it says, and a bound that may be one."""
        promised = dict(self.selection.goals)
        actual = self.goal_values(n for n in (*GOALS, *promised) if n != TIE_BREAK)
        faults = [f"goal `{n}` is missing" for n in actual if n not in promised]
        for n, r in promised.items():
            if n in actual and r.value != actual[n]:
                faults.append(f"`{n}` is {actual[n]}, not {r.value}")
            if not 0 <= r.bound <= r.value:
                faults.append(f"the bound of `{n}` is above its value or negative")
        return faults


# ---- weights -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CheckedWeights:
    """The weights of one selection; `ahead_buffers` are there before its first step."""

    space: Space
    target: Target
    selection: Selection
    ahead_buffers: frozenset[int]

    @cached_property
    def resident(self) -> frozenset[int]:
        """Weights in memory all the time: those that are read or results, and held originals."""
        read = {b for g in self.selection.groups for b in (self.space.buffer[r] for r in g.reads)}
        read |= set(self.space.roots)
        originals = self._originals if self.target.originals == HELD else ()
        return frozenset(read & self.ahead_buffers).union(originals)

    @cached_property
    def _originals(self) -> list[int]:
        nodes, buffer = self.space.egraph.nodes, self.space.buffer
        return list(dict.fromkeys(buffer[n.eclass] for n in nodes if n.op == "weight"))

    def resident_bytes(self) -> int:
        """Weights that stay in memory."""
        return sum(map(self.space.nbytes, self.resident))

    def load_peak_bytes(self) -> int:
        """The most that weights take while they are packed, one after another."""
        if self.target.originals != DROPPED:
            return self.resident_bytes()
        size, sources = self.space.nbytes, self._sources()
        order = {w: n for n, w in enumerate(self._originals)}
        copies = {b: max(order[w] for w in sources[b]) for b in self.resident if sources[b] != {b}}
        worst = 0
        for turn in range(len(order)):
            there = set(self.resident - copies.keys())
            there |= {b for b, last in copies.items() if last <= turn}
            there |= {w for b, last in copies.items() if last >= turn for w in sources[b]}
            worst = max(worst, sum(map(size, there)))
        return worst

    def _sources(self) -> dict[int, frozenset[int]]:
        """Per buffer of an ahead node: the weights it is made from."""
        sources: dict[int, frozenset[int]] = {}
        for i in self.selection.ahead:
            n, b = self.space.egraph.nodes[i], self.space.buffer[self.space.egraph.nodes[i].eclass]
            below = (sources.get(o, frozenset()) for o in self.space.operands[i])
            sources[b] = frozenset({b}) if n.op == "weight" else frozenset[int]().union(*below)
        return sources
