"""From an e-graph and a target to an ExtractionProblem, and back from its answer to groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.extract.costs import Costs
from eqsat.extract.groups import GROUPS_PER_NODE, Candidate, Grower
from eqsat.extract.legality import Legality
from eqsat.extract.linear import OWN
from eqsat.extract.merge import Merger
from eqsat.extract.pool import Pool
from eqsat.extract.problem import Answer, ExtractionProblem, Option
from eqsat.extract.prune import possible, undominated
from eqsat.extract.space import Space
from eqsat.extract.variants import Variant, Variants, group_of
from eqsat.model.goal import Goal
from eqsat.model.selection import Group, Removed
from eqsat.model.target import Target


@dataclass(frozen=True)
class Assembly:
    """The problem, and for each of its options the candidate it stands for."""

    pool: Pool
    problem: ExtractionProblem
    candidates: tuple[Candidate, ...]  # per option
    removed: tuple[Removed, ...]

    def groups(self, answer: Answer) -> tuple[Group, ...]:
        """The chosen groups in execution order, steps renumbered from 0."""
        options, space = self.problem.options, self.pool.space
        steps = sorted({options[i].step for i in answer})
        number = {s: n for n, s in enumerate(steps)}
        found = []
        for i in sorted(answer, key=lambda i: (options[i].step, i)):
            c, o, time_ps = self.candidates[i], options[i], self.problem.value("time", (i,))
            found.append(group_of(space, c, o.writes, time_ps, number[o.step]))
        return tuple(found)

    def ahead(self, groups: tuple[Group, ...]) -> tuple[int, ...]:
        """Nodes to compute from weights before the first dispatch."""
        space = self.pool.space
        buffers = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
        return self.pool.ahead_nodes(b for b in buffers if b in self.pool.resident)


def assemble(
    space: Space, target: Target, input_only: bool, goals: Mapping[str, Goal] = OWN
) -> Assembly:
    """The problem of choosing among all nodes, or among those of the input program."""
    pool = Pool(Legality(space, target), input_only)
    costs = Costs(space, target)
    candidates, removed = _candidates(pool, costs)
    variants = Variants(pool, costs, tuple(candidates), goals)
    kept = possible(pool, undominated(variants.found()))
    problem = _problem(pool, kept, _covers(space, variants.needed, kept), tuple(goals))
    return Assembly(pool, problem, tuple(v.candidate for v in kept), removed)


def _candidates(pool: Pool, costs: Costs) -> tuple[list[Candidate], tuple[Removed, ...]]:
    """Groups of every buffer some group reads, starting at the roots; then their merges."""
    space = pool.space
    grower, merger = Grower(pool, costs), Merger(pool, costs)
    removed = list(pool.limited.values())
    done: set[int] = set(pool.held)
    grown: set[int] = set()
    work = [r for r in space.roots if r not in done]
    found: list[Candidate] = []
    while work:
        b = work.pop()
        if b in done:
            continue
        done.add(b)
        if b in pool.fills:
            found.append(_fill(pool, costs, pool.fills[b]))
        for sink in (p for p in pool.producers.get(b, ()) if p not in grown):
            grown.add(sink)
            new = list(grower.groups(sink))
            if len(new) >= GROUPS_PER_NODE:
                removed.append(_capped(f"groups of {space.name(sink)}", len(new)))
            found += new
            work += sorted({space.buffer[r] for c in new for r in c.reads} - done)
    found += merger.merged(found)
    return found, (*removed, *merger.removed.values())


def _fill(pool: Pool, costs: Costs, node: int) -> Candidate:
    outputs = pool.space.outputs[node]
    return Candidate((node,), (), outputs, (), costs.group_ps((node,), (), list(outputs)))


def _capped(what: str, count: int) -> Removed:
    return Removed(what, count, GROUPS_PER_NODE, "candidates", "")


def _problem(
    pool: Pool, kept: list[Variant], covers: tuple[tuple[int, ...], ...], linear: tuple[str, ...]
) -> ExtractionProblem:
    space = pool.space
    moments = {m: n for n, m in enumerate(sorted({v.moment for v in kept}))}
    options = tuple(
        Option(
            moments[v.moment],
            v.adds,
            tuple(sorted(v.reads)),
            tuple(sorted(v.resident)),
            tuple(sorted(v.writes)),
            tuple(sorted(v.exclusive)),
        )
        for v in kept
    )
    made = [r for r in space.roots if r not in pool.held]
    held = [r for r in space.roots if r in pool.resident]
    fixed = space.input_bytes + sum(space.nbytes(r) for r in (*held, *made))
    used = {b for o in options for b in (*o.writes, *o.reads, *o.resident)} | set(made)
    nbytes = {b: space.nbytes(b) for b in sorted(used)}
    for b in held:  # a weight that is a result is counted there, once
        nbytes[b] = 0
    return ExtractionProblem(options, nbytes, tuple(made), fixed, covers, linear)


def _covers(
    space: Space, needed: tuple[int, ...], kept: list[Variant]
) -> tuple[tuple[int, ...], ...]:
    computing: dict[int, list[int]] = {}
    for n, v in enumerate(kept):
        for value in sorted(space.computes(v.candidate.members)):
            computing.setdefault(value, []).append(n)
    return tuple(tuple(computing.get(v, ())) for v in needed)
