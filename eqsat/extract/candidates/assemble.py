"""From an e-graph and a target to an ExtractionProblem, and back from its answer to groups."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.extract.candidates.alloptions import placed
from eqsat.extract.candidates.free import covers_of, free_problem, problem_of
from eqsat.extract.candidates.plantimes import LARGEST
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.timetable import Timetable, answer_timetable, program_timetable
from eqsat.extract.candidates.variants import Variant, Variants, group_of
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.linear import OWN
from eqsat.extract.solve.presolve import presolve
from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.model.cycles import uncollected
from eqsat.model.deadline import until
from eqsat.model.goal import Goal
from eqsat.model.selection import TIME_LIMIT, Cut, Group, Removed
from eqsat.model.target import Target


@dataclass(frozen=True)
class Assembly:
    """The problem, and for each of its options the candidate it stands for."""

    pool: Pool
    problem: ExtractionProblem
    candidates: tuple[Candidate, ...]  # per option
    removed: tuple[Removed, ...]
    cuts: tuple[Cut, ...]
    variants: Variants  # what the options are made from, whatever the order
    seconds: float = 0.0  # what stating the problem took; under another order it takes no longer

    @property
    def looked_at(self) -> int:
        """How many candidates there are, whatever became of them."""
        rolled, found = self.pool.space.rolled, self.variants.candidates
        return len(found) if rolled is None else sum(rolled.times(c.members) for c in found)

    def groups(self, answer: Answer) -> tuple[Group, ...]:
        """The chosen groups in execution order, steps renumbered from 0."""
        options = self.problem.options
        steps = sorted({options[i].step for i in answer})
        number = {s: n for n, s in enumerate(steps)}
        listed = sorted(answer, key=lambda i: (options[i].step, i))
        return tuple(self._group(i, number[options[i].step]) for i in listed)

    def _group(self, option: int, step: int) -> Group:
        writes, time_ps = self.problem.options[option].writes, self.problem.value("time", (option,))
        rolled, candidate = self.pool.space.rolled, self.candidates[option]
        time_ps //= 1 if rolled is None else rolled.times(candidate.members)
        return group_of(self.variants.costs, candidate, writes, time_ps, step)

    def locate(self, groups: Sequence[Group]) -> tuple[Answer, ...]:
        """These groups as an answer of this problem; nothing if it does not hold them all."""
        space, options = self.pool.space, self.problem.options
        at: dict[frozenset[int], list[int]] = {}
        for i, o in enumerate(options):
            at.setdefault(frozenset(o.writes), []).append(i)
        chosen: set[int] = set()
        alike: set[int] = set()  # what is chosen in an equal block
        written: dict[int, int] = {}
        for g in groups:
            reads = {space.buffer[r] for r in g.reads}
            exclusive = self.pool.legality.exclusive(g.members)
            in_time = [
                i
                for i in at.get(frozenset(space.buffer[w] for w in g.writes), [])
                if reads.issuperset(options[i].reads)
                and reads.issuperset(options[i].resident)
                and written.keys().isdisjoint(options[i].resident)
                and exclusive.issuperset(options[i].exclusive)
                and all(r in written for r in options[i].reads)
                and all(self._comes_before(written[r], options[i].step) for r in options[i].reads)
            ]
            if not in_time:  # perhaps nobody needs it: a better one does the same inside
                continue
            same = [i for i in in_time if self.candidates[i].members == g.members]
            best = min(same or in_time, key=lambda i: (i not in alike, options[i].adds, i))
            chosen.add(best)
            alike.update(self.problem.partners.get(best, ()))
            written |= dict.fromkeys(options[best].writes, options[best].step)
        answer = tuple(sorted(chosen))
        return (self.problem.pruned(answer),) if self.problem.is_legal(answer) else ()

    def _comes_before(self, step: int, later: int) -> bool:
        return step < later or not self.problem.is_ordered

    def alone(self, order: Sequence[int]) -> Assembly:
        """These options and no others, one after the other: its only answer is all of them."""
        known = self.problem
        options = tuple(replace(known.options[i], step=n) for n, i in enumerate(order))
        every = (known.nbytes, known.roots, known.fixed_bytes, (), known.linear)
        candidates = tuple(self.candidates[i] for i in order)
        problem = ExtractionProblem(options, *every, kept=known.kept)
        return replace(self, problem=problem, candidates=candidates)

    def reordered(self, groups: Sequence[Group]) -> Assembly:
        """The same choice under another order: that of these groups, which it can express."""
        return Choices(self.variants, self.removed, self.cuts).under(groups)

    def unordered(self) -> Assembly:
        """The same choice without an order: its peak bytes hold in every order (`anyorder`)."""
        if isinstance(self.problem, AnyOrder):
            return self
        kept, free = free_problem(self.variants)
        candidates = tuple(v.candidate for v in kept)
        return Assembly(self.pool, free, candidates, self.removed, self.cuts, self.variants)

    def free(self) -> AnyOrder:
        """The problem of the same choice without an order."""
        problem = self.problem
        return problem if isinstance(problem, AnyOrder) else free_problem(self.variants)[1]

    def ahead(self, groups: tuple[Group, ...]) -> tuple[int, ...]:
        """Nodes to compute from weights before the first dispatch."""
        space = self.pool.space
        buffers = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
        buffers -= {space.buffer[w] for g in groups for w in g.writes}
        return self.pool.ahead_nodes(b for b in buffers if b in self.pool.resident)


@dataclass(frozen=True)
class Choices:
    """What there is to choose from, whatever the order, and what was left out of it."""

    variants: Variants
    removed: tuple[Removed, ...]
    cuts: tuple[Cut, ...]

    @property
    def fits_arrays(self) -> bool:
        """Whether what its goals come to is a number of 64 bits; an array's numbers end there.

        What plans take is seen when they are made (`FreeOptions.asked`).
        """
        space, found = self.variants.space, self.variants.candidates
        time_ps = max((c.time_ps for c in found), default=0)
        nbytes = max(map(space.nbytes, set(space.buffer)), default=0)
        return max(time_ps, nbytes) * len(space.buffer) < LARGEST

    def single_ops(self) -> Choices:
        """Of dispatches of one op each alone: few, so their plans are soon made."""
        is_op = self.variants.space.is_op
        few = tuple(c for c in self.variants.candidates if sum([is_op[m] for m in c.members]) <= 1)
        return replace(self, variants=replace(self.variants, candidates=few)).cut_short

    @property
    def cut_short(self) -> Choices:
        """The same, with a word about groups behind any op that there was no time for."""
        nodes = sum(map(len, self.variants.pool.producers.values()))
        known = [c for c in self.cuts if (c.what, c.by) != ("groups", TIME_LIMIT)]
        more = [Cut("groups", nodes, TIME_LIMIT)] if nodes else []  # no op: nothing to cut
        return replace(self, cuts=(*known, *more))

    def ordered(self, places: Timetable | None = None) -> Assembly:
        """The problem under an order, or under the program's."""
        start = time.monotonic()
        variants, pool = self.variants, self.variants.pool
        found = placed(variants, places or program_timetable(pool.space, pool.held))
        kept = sorted(found, key=lambda v: v.key)
        covers = covers_of(pool, variants.needed, kept)
        problem = problem_of(pool, kept, covers, tuple(variants.goals))
        useful = range(len(kept)) if pool.keeps_all else presolve(problem)
        candidates = tuple(kept[i].candidate for i in useful)
        small, seconds = problem.restricted(tuple(useful)), time.monotonic() - start
        return Assembly(pool, small, candidates, self.removed, self.cuts, variants, seconds)

    def under(self, groups: Sequence[Group]) -> Assembly:
        """The problem under the order of these groups."""
        pool = self.variants.pool
        with uncollected():
            return self.ordered(answer_timetable(pool.space, pool.held, groups))

    def among(self, options: tuple[Variant, ...]) -> Choices:
        """With these options and no others."""
        return replace(self, variants=replace(self.variants, options=options))


def choices(
    pool: Pool,
    goals: Mapping[str, Goal] = OWN,
    *,
    known: Sequence[Candidate] = (),
    enough: float = math.inf,
) -> Choices:
    """Dispatches of all nodes of a pool.

    known: the input program's candidates, which stay if there is no time for all. enough: when (of
    time.monotonic()) no further candidates are looked for.
    """
    costs = pool.space.remembered(Costs, pool.legality.target)
    with until(enough):
        found = enumerated(pool, costs, known)
    variants = Variants(pool, costs, found.candidates, goals)
    return Choices(variants, found.removed, found.cuts)


def assemble(
    space: Space,
    target: Target,
    input_only: bool,
    goals: Mapping[str, Goal] = OWN,
    *,
    keep_all: bool = False,
    enough: float = math.inf,
    asked: frozenset[str] = frozenset(),
) -> Assembly:
    """The problem of these choices under the program's order.

    OutOfTime if stating it takes longer than the deadline it is under.
    """
    pool = Pool(Legality(space, target), input_only, asked, keep_all)
    return choices(pool, goals, enough=enough).ordered()
