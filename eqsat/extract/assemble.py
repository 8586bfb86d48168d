"""From an e-graph and a target to an ExtractionProblem, and back from its answer to groups."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.extract.costs import Costs
from eqsat.extract.cover import needed_values
from eqsat.extract.groups import GROUPS_PER_NODE, Candidate, Grower
from eqsat.extract.legality import Legality
from eqsat.extract.merge import Merger
from eqsat.extract.pool import Pool
from eqsat.extract.problem import Answer, ExtractionProblem, Option
from eqsat.extract.space import Moment, Space
from eqsat.model.selection import Group, Removed
from eqsat.model.target import Target

_BEGIN: Moment = (-1, 0, 0, -(1 << 30))


@dataclass(frozen=True)
class Assembly:
    """The problem, and for each of its options the candidate it stands for."""

    pool: Pool
    costs: Costs
    problem: ExtractionProblem
    candidates: tuple[Candidate, ...]  # per option
    removed: tuple[Removed, ...]

    def groups(self, answer: Answer) -> tuple[Group, ...]:
        """The chosen groups in execution order, steps renumbered from 0."""
        options, space = self.problem.options, self.pool.space
        chosen = sorted(answer, key=lambda i: (options[i].step, i))
        steps = sorted({options[i].step for i in chosen})
        number = {s: n for n, s in enumerate(steps)}
        found = []
        for i in chosen:
            c, option = self.candidates[i], options[i]
            extra = [w for w in c.exposable if space.buffer[w] in answer[i]]
            prices = dict(option.extras)
            time_ps = option.time_ps + sum(prices[b] for b in answer[i])
            writes = (*extra, *c.writes)
            found.append(Group(c.members, c.reads, writes, time_ps, number[option.step]))
        return tuple(found)

    def ahead(self, groups: tuple[Group, ...]) -> tuple[int, ...]:
        """Nodes to compute from weights before the first dispatch."""
        space = self.pool.space
        buffers = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
        return self.pool.ahead_nodes(b for b in buffers if b in self.pool.resident)


@dataclass(frozen=True)
class _Instance:
    """A candidate at a moment, in buffers."""

    candidate: Candidate
    moment: Moment
    reads: frozenset[int]  # those that are not there from the start
    resident: frozenset[int]
    writes: tuple[int, ...]
    extras: frozenset[int]
    is_conversion: bool


@dataclass(frozen=True)
class Assembler:
    """Enumerates, prunes and numbers the options of one pool."""

    pool: Pool
    costs: Costs

    def assembly(self) -> Assembly:
        candidates, removed = self._candidates()
        instances = self._prune(self._undominated(self._instances(candidates)))
        moments = {m: n for n, m in enumerate(sorted({i.moment for i in instances}))}
        instances.sort(key=lambda i: (i.moment, i.writes, i.candidate.members, i.candidate.reads))
        options = tuple(self._option(i, moments[i.moment]) for i in instances)
        space = self.pool.space
        held = [r for r in space.roots if r in self.pool.resident]
        made = [r for r in space.roots if r not in self.pool.held]
        fixed = space.input_bytes + sum(space.nbytes(r) for r in (*held, *made))
        used = {b for o in options for b in (*o.writes, *o.reads, *o.resident)}
        used |= {b for o in options for b, _ in o.extras} | set(made)
        nbytes = {b: space.nbytes(b) for b in sorted(used)}
        problem = ExtractionProblem(options, nbytes, tuple(made), fixed, self._covers(instances))
        kept = tuple(i.candidate for i in instances)
        return Assembly(self.pool, self.costs, problem, kept, removed)

    def _candidates(self) -> tuple[list[Candidate], tuple[Removed, ...]]:
        """Groups of every buffer some group reads, starting at the roots."""
        pool, space = self.pool, self.pool.space
        grower, merger = Grower(pool, self.costs), Merger(pool, self.costs)
        removed = list(pool.limited.values())
        done: set[int] = set(pool.held)
        work = [r for r in space.roots if r not in done]
        grown: set[int] = set()
        found: list[Candidate] = []
        while work:
            b = work.pop()
            if b in done:
                continue
            done.add(b)
            if b in pool.fills:
                found.append(self._fill(pool.fills[b]))
            for sink in pool.producers.get(b, ()):
                if sink in grown:
                    continue
                grown.add(sink)
                new = list(grower.groups(sink))
                if len(new) >= GROUPS_PER_NODE:
                    removed.append(_capped(f"groups of {space.name(sink)}", len(new)))
                found += new
                work += sorted({space.buffer[r] for c in new for r in c.reads} - done)
        found += merger.merged(found)
        return found, (*removed, *merger.removed.values())

    def _fill(self, node: int) -> Candidate:
        outputs = self.pool.space.outputs[node]
        return Candidate((node,), (), outputs, (), self.costs.group_ps((node,), (), list(outputs)))

    def _instances(self, candidates: list[Candidate]) -> list[_Instance]:
        space, pool = self.pool.space, self.pool
        read = {space.buffer[r] for c in candidates for r in c.reads} | set(space.roots)
        found = []
        for c in candidates:
            reads = frozenset(space.buffer[r] for r in c.reads)
            writes = tuple(dict.fromkeys(space.buffer[w] for w in c.writes))
            if reads & set(writes):
                continue
            extras: frozenset[int] = frozenset()
            if pool.legality.fusion.multi_result:
                extras = frozenset(space.buffer[e] for e in c.exposable) & read - set(writes)
            convert = self._is_conversion(c)
            for m in self._moments(c, writes, extras, convert):
                found.append(
                    _Instance(
                        c, m, reads - pool.held, reads & pool.resident, writes, extras, convert
                    )
                )
        return found

    def _is_conversion(self, c: Candidate) -> bool:
        return all(self.pool.space.kinds[m] in ("conversion", "view", "leaf") for m in c.members)

    def _moments(
        self, c: Candidate, writes: tuple[int, ...], extras: frozenset[int], convert: bool
    ) -> list[Moment]:
        """When a group may run: conversions right after their value, others at a written value.

        A group that can write values inside it also gets the first of their moments.
        """
        space, pool = self.pool.space, self.pool
        if convert:
            return self._conversion_moments(space.value[writes[0]])
        known = [space.earliest(space.buffer[r], pool.held) or _BEGIN for r in c.reads]
        after = max(known, default=_BEGIN)
        found = []
        for buffers in (writes, (*writes, *sorted(extras))):
            options = [m for b in buffers for m in self._own_moments(space.value[b]) if m > after]
            if options and min(options) not in found:
                found.append(min(options))
        return found

    def _own_moments(self, value: int) -> list[Moment]:
        space = self.pool.space
        sub = -1 if space.is_source(value) else 0
        return [(p, d, t, sub) for p, d, t, _ in space.positions.get(value, ())]

    def _conversion_moments(self, value: int) -> list[Moment]:
        space = self.pool.space
        count = space.levels(value)
        subs = range(-count, 0) if space.is_source(value) else range(1, count + 1)
        return [(p, d, t, s) for p, d, t, _ in space.positions.get(value, ()) for s in subs]

    def _undominated(self, instances: list[_Instance]) -> list[_Instance]:
        """Drop an option if another writes the same, reads less, can expose more, and is faster."""
        buckets: dict[tuple[Moment, frozenset[int]], list[_Instance]] = {}
        for i in instances:
            buckets.setdefault((i.moment, frozenset(i.writes)), []).append(i)
        found = []
        for bucket in buckets.values():
            bucket.sort(
                key=lambda i: (
                    i.candidate.time_ps,
                    len(i.candidate.reads),
                    -len(i.extras),
                    i.candidate.members,
                    i.candidate.reads,
                )
            )
            kept: list[_Instance] = []
            for i in bucket:
                if not any(self._dominates(k, i) for k in kept):
                    kept.append(i)
            found += kept
        return found

    def _dominates(self, a: _Instance, b: _Instance) -> bool:
        if not (a.reads <= b.reads and a.resident <= b.resident and a.extras >= b.extras):
            return False
        # the input program itself must stay among the answers, so its groups only give way to
        # groups that block nothing more
        nodes = self.pool.space.egraph.nodes
        if all(nodes[m].rule == -1 for m in b.candidate.members):
            return self._exclusive(a.candidate) <= self._exclusive(b.candidate)
        return True

    def _exclusive(self, c: Candidate) -> frozenset[int]:
        return frozenset(m for m in c.members if not self.pool.legality.is_cloneable(m))

    def _prune(self, instances: list[_Instance]) -> list[_Instance]:
        """Leave what can get its reads in time and what something later may read."""
        instances.sort(key=lambda i: (i.moment, i.candidate.members, i.candidate.reads))
        written: dict[int, list[Moment]] = {}
        possible = []
        for i in instances:
            if all(any(m < i.moment for m in written.get(r, ())) for r in i.reads):
                if i.is_conversion and not self._has_news(i, written):
                    continue
                possible.append(i)
                for b in (*i.writes, *i.extras):
                    written.setdefault(b, []).append(i.moment)
        wanted: dict[int, Moment] = dict.fromkeys(self.pool.space.roots, (1 << 61, 0, 0, 0))
        useful = []
        for i in reversed(possible):
            if any(wanted.get(b, _BEGIN) > i.moment for b in (*i.writes, *i.extras)):
                useful.append(i)
                for r in i.reads:
                    wanted.setdefault(r, i.moment)
        return useful[::-1]

    def _has_news(self, i: _Instance, written: dict[int, list[Moment]]) -> bool:
        """A conversion is tried again at a later level only if something it reads came just now."""
        p, d, t, s = i.moment
        value = self.pool.space.value[i.writes[0]]
        source = self.pool.space.is_source(value)
        first = -self.pool.space.levels(value) if source else 1
        return s == first or any((p, d, t, s - 1) in written.get(r, ()) for r in i.reads)

    def _option(self, i: _Instance, step: int) -> Option:
        space, fusion = self.pool.space, self.pool.legality.fusion
        free = fusion.operands - len(i.candidate.reads) - len(i.writes)
        extras = tuple((b, self.costs.traffic_ps(space.nbytes(b))) for b in sorted(i.extras))
        extras = extras if free > 0 else ()
        return Option(
            step,
            i.candidate.time_ps,
            tuple(sorted(i.reads)),
            tuple(sorted(i.resident)),
            i.writes,
            extras,
            min(max(free, 0), len(extras)),
            tuple(sorted(self._exclusive(i.candidate))),
        )

    def _covers(self, instances: list[_Instance]) -> tuple[tuple[int, ...], ...]:
        space = self.pool.space
        computing: dict[int, list[int]] = {}
        for n, i in enumerate(instances):
            values = {
                space.value[c]
                for m in i.candidate.members
                if space.kinds[m] not in ("leaf", "view", "conversion")
                for c in space.outputs[m]
            }
            for v in values:
                computing.setdefault(v, []).append(n)
        return tuple(tuple(computing.get(v, ())) for v in needed_values(self.pool))


def _capped(what: str, count: int) -> Removed:
    return Removed(what, count, GROUPS_PER_NODE, "candidates", "")


def assemble(space: Space, target: Target, input_only: bool) -> Assembly:
    """The problem of choosing among all nodes, or among those of the input program."""
    pool = Pool(Legality(space, target), input_only)
    return Assembler(pool, Costs(space, target)).assembly()
