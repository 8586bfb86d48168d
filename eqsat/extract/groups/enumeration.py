"""All candidates of a pool: groups behind every op that an answer may reach, then their merges.

Under a deadline they come best first: the op alone behind every op, then a few groups behind every
op, then all of them. What a cap or the deadline left out is recorded (`Cut`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from eqsat.extract.blocks import ONE, TWO
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.feasibility import PartialGroup
from eqsat.extract.groups.grow import Candidate, Grower
from eqsat.extract.groups.merge import Merger
from eqsat.extract.groups.templates import Templates
from eqsat.model.deadline import OutOfTime, tick, whatever_it_takes
from eqsat.model.selection import CAP, TIME_LIMIT, Cut, Removed

GROUPS_PER_NODE = 100_000  # a bound that no program comes near; the single-node group is first
FIRST = 4  # groups of every op that are looked for before all of any op, where there is a deadline


@dataclass(frozen=True)
class Enumerated:
    """Candidates, the groups that limits of the target removed, and what was not looked at."""

    candidates: tuple[Candidate, ...]
    removed: tuple[Removed, ...]
    cuts: tuple[Cut, ...]


def enumerated(pool: Pool, costs: Costs, baseline: Sequence[Candidate] = ()) -> Enumerated:
    """Every candidate, or what there was time for.

    `baseline`: candidates of the input program, which stay among them; without any they are
    looked for after all others. Without them there is no answer, so at least the dispatches of one
    op each are found then, whatever it takes; with them OutOfTime means that not even that much
    could be found.
    """
    work = _Enumeration(pool, costs)
    baseline = pool.allowed(baseline)
    if baseline:
        work.reach(1)
    else:
        with whatever_it_takes():
            work.reach(1)
    with suppress(OutOfTime):  # `candidates` takes what there is
        work.reach(FIRST)
    candidates = work.candidates()
    merged, refused = work.merged(candidates)
    # what waits for itself may be part of a merge, or of a template, that computes what it reads
    left = candidates
    with suppress(OutOfTime):
        waits, computes = pool.waits.for_itself, pool.space.computes
        left = [c for c in candidates if not waits(computes(c.members), c.reads)]
    candidates, refusals = _accepted(pool, with_images(pool.space, left + merged))
    cuts = _cuts(work, refused)
    if not (baseline or pool.input_only or pool.only):
        with suppress(OutOfTime):
            program = enumerated(replace(pool, input_only=True), costs).candidates
            baseline = pool.allowed(program)
    crowded = {r.what: r for r in pool.legality.all_crowded}.values()
    removed = (*pool.limited.values(), *work.capped, *refused, *crowded, *refusals)
    return Enumerated(with_others(candidates, baseline), removed, cuts)


def _accepted(
    pool: Pool, candidates: Sequence[Candidate]
) -> tuple[Sequence[Candidate], Iterable[Removed]]:
    """Candidates but those that a compiler refused, and these."""
    if not pool.has_refusals:
        return candidates, ()
    refusals = [pool.legality.of(c.members).refusal(c.members) for c in candidates]
    accepted = [c for c, r in zip(candidates, refusals, strict=True) if r is None]
    return accepted, {r.what: r for r in refusals if r is not None}.values()


def with_others(
    candidates: Sequence[Candidate], others: Iterable[Candidate]
) -> tuple[Candidate, ...]:
    """With the others that are not among them."""
    there = {(c.members, c.reads, c.writes) for c in candidates}
    return *candidates, *(c for c in others if (c.members, c.reads, c.writes) not in there)


@dataclass
class _Groups:
    """Groups behind one op as far as they were looked for."""

    more: Iterator[PartialGroup]
    taken: list[PartialGroup] = field(default_factory=list)

    def first(self, most: int) -> list[PartialGroup]:
        """So many of them, if there are."""
        if len(self.taken) < most:
            for state in islice(self.more, most - len(self.taken)):
                self.taken.append(state)
        return self.taken[:most]


class _Enumeration:
    """One enumeration: what it has looked at, and what it left out."""

    def __init__(self, pool: Pool, costs: Costs):
        self.pool, self.costs = pool, costs
        self.makers: dict[str, tuple[Grower, Templates]] = {}  # per device; no group is on two
        self.groups: dict[int, _Groups] = {}
        self.sinks: dict[int, None] = {}
        self.capped: list[Removed] = []
        self.cut: set[int] = set()  # ops behind which the deadline left groups out

    def _device(self, members: Iterable[int]) -> str:
        legality = self.pool.legality
        return legality.devices.of(members) if legality.target.devices else ""

    def _makers(self, sink: int) -> tuple[Grower, Templates]:
        """The grower of groups that end at a node, and the templates that widen them."""
        device = self._device((sink,))
        if device not in self.makers:
            grower = Grower(self.pool, self.costs.part(device), device)
            self.makers[device] = grower, Templates(grower)
        return self.makers[device]

    def _of(self, sink: int) -> _Groups:
        if sink not in self.groups:
            self.groups[sink] = _Groups(self._makers(sink)[0].grown(sink))
        return self.groups[sink]

    def _sinks(self, buffer: int) -> list[int]:
        """Ops that make a buffer: what computes it dominates most of what turns it."""
        kinds = self.pool.space.kinds
        return sorted(self.pool.producers.get(buffer, ()), key=lambda n: kinds[n] == "conversion")

    def reach(self, most: int) -> None:
        """Look for so many groups behind every op that these groups lead to."""
        buffer = self.pool.space.buffer
        done = set(self.pool.held)
        work = [r for r in self.pool.space.roots if r not in done]
        while work:
            b = work.pop()
            if b in done:
                continue
            done.add(b)
            for sink in self._sinks(b):
                tick()
                for state in self._of(sink).first(most):
                    work += {buffer[r] for r in state.reads} - done

    def candidates(self) -> list[Candidate]:
        """Groups of every buffer some group reads, starting at the roots."""
        pool, space = self.pool, self.pool.space
        candidates: list[Candidate] = []
        done: set[int] = set(pool.held)
        work = [r for r in space.roots if r not in done]
        while work:
            b = work.pop()
            if b in done:
                continue
            done.add(b)
            if b in pool.fills:
                candidates.append(_fill(pool, self.costs, pool.fills[b]))
            for sink in (p for p in self._sinks(b) if p not in self.sinks):
                self.sinks[sink] = None
                new = self._candidates(sink)
                candidates += new
                work += sorted({space.buffer[r] for c in new for r in c.reads} - done)
        return candidates

    def _candidates(self, sink: int) -> list[Candidate]:
        """Candidates behind one op: all, the first of many, or those that were there in time."""
        grower, templates = self._makers(sink)
        grown = self._grown(sink, templates)
        if grower.costs.target.is_planned:
            grown = grower.one_of_each(grown)
        return [grower.candidate(state, sink) for state in grown]

    def _grown(self, sink: int, templates: Templates) -> list[PartialGroup]:
        groups = self._of(sink)
        grown = list(groups.taken)
        try:
            tick()
            grown = list(groups.first(GROUPS_PER_NODE))
            if len(grown) >= GROUPS_PER_NODE:
                what = f"groups of {self.pool.space.name(sink)}"
                self.capped.append(Removed(what, len(grown), GROUPS_PER_NODE, CAP, ""))
            waits, computes = self.pool.waits.for_itself, self.pool.space.computes
            wide = templates.of(grown, sink)
            grown += [s for s in wide if not waits(computes(s.inside.values()), s.reads)]
        except OutOfTime:
            self.cut.add(sink)
            grown = list(groups.taken)
        return grown

    def merged(self, candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[Removed]]:
        """All legal merges of groups, and what limits have refused."""
        by: dict[str, list[Candidate]] = {}
        for c in candidates:
            by.setdefault(self._device(c.members), []).append(c)
        mergers = {d: Merger(self.pool, self.costs.part(d), d) for d in by}
        merges = [m for d, merger in mergers.items() for m in merger.merges(by[d])]
        return merges, [r for merger in mergers.values() for r in merger.removed.values()]


def _cuts(work: _Enumeration, refused: Sequence[Removed]) -> tuple[Cut, ...]:
    """Cuts: ops whose groups, and values whose merges, are not all there."""
    merges = [r.limit_name for r in refused]
    cuts = (
        Cut("groups", len(work.capped), CAP),
        Cut("groups", len(work.cut), TIME_LIMIT),
        Cut("merges", merges.count(TIME_LIMIT), TIME_LIMIT),
    )
    return tuple(c for c in cuts if c.count)


def _fill(pool: Pool, costs: Costs, node: int) -> Candidate:
    outputs, here = pool.space.outputs[node], costs.of((node,))
    return Candidate((node,), (), outputs, (), *here.stated((node,), (), outputs))


# ---- equal blocks --------------------------------------------------------------------------------
# What is made for one of the two equal blocks of a short program is there for the other one, too:
# the second one stands for all blocks up to the last but one, but what follows it is the last
# block, and what precedes the first one is block 0. So what nobody needs there somebody may need
# elsewhere.
def with_images(space: Space, candidates: Sequence[Candidate]) -> list[Candidate]:
    """With those of either block as well as of the other; distant blocks aside."""
    rolled = space.rolled
    if rolled is None:
        return list(candidates)
    near = [c for c in candidates if rolled.is_near(c.members)]
    there = {_key(c) for c in near}
    sides = (rolled.node_images, rolled.images)
    ways = {ONE: sides, TWO: (_inverse(sides[0]), _inverse(sides[1]))}
    for c in list(near):
        if (last := rolled.last(c.members)) in ways:
            image = _image(c, *ways[last])
            if image is not None and _key(image) not in there:
                there.add(_key(image))
                near.append(image)
    return near


def _key(c: Candidate) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    return frozenset(c.members), frozenset(c.reads), frozenset(c.writes)


def _inverse(image: Sequence[int]) -> list[int]:
    inverse = [-1] * len(image)
    for i, j in enumerate(image):
        if j >= 0 and inverse[j] < 0:
            inverse[j] = i
    return inverse


def _image(c: Candidate, node: Sequence[int], eclass: Sequence[int]) -> Candidate | None:
    members = tuple(node[m] for m in c.members)
    reads, writes, shown = (tuple(eclass[x] for x in s) for s in (c.reads, c.writes, c.exposable))
    if min((*members, *reads, *writes, *shown), default=0) < 0:
        return None
    return c._replace(members=members, reads=reads, writes=writes, exposable=shown)
