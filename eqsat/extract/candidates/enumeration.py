"""All candidates of a pool: groups behind every op that an answer may reach, then their merges.

Under a deadline they come best first: the op alone behind every op, then a few groups behind every
op, then all of them. What a cap or the deadline left out is recorded (`Cut`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from eqsat.extract.candidates.checks import Grown
from eqsat.extract.candidates.copies import Book, Copies, SinkRun
from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.groups import Candidate, Grower
from eqsat.extract.candidates.merge import Merger
from eqsat.extract.candidates.mergecopies import add_merges
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.shifted import Shifted
from eqsat.extract.candidates.templates import Templates, templates, widened
from eqsat.model.deadline import OutOfTime, tick, whatever_it_takes
from eqsat.model.selection import CAP, TIME_LIMIT, Cut, Removed

GROUPS_PER_NODE = 100_000  # a bound that no program comes near; the single-node group is first
FIRST = 4  # groups of every op that are looked for before all of any op, where there is a deadline


@dataclass(frozen=True)
class Enumerated:
    """Candidates, the groups that limits of the target removed, and what was not looked at.

    Those behind ops that look alike in several blocks were found once; the others are `copies`.
    """

    candidates: tuple[Candidate, ...]
    copies: Copies
    removed: tuple[Removed, ...]
    cuts: tuple[Cut, ...]

    @cached_property
    def all(self) -> tuple[Candidate, ...]:
        """With the copies, which come last."""
        return (*self.candidates, *self.copies.of(self.candidates))


def enumerated(pool: Pool, costs: Costs, known: Sequence[Candidate] = ()) -> Enumerated:
    """Every candidate, or what there was time for.

    `known` are candidates of the input program, which stay whatever is cut. Without them there is
    no answer, so at least the dispatches of one op each are found then, whatever it takes; with
    them OutOfTime means that not even that much could be found.
    """
    work = _Enumeration(pool, costs)
    if known:
        work.reach(1)
    else:
        with whatever_it_takes():
            work.reach(1)
    with suppress(OutOfTime):  # `found` takes what there is
        work.reach(FIRST)
    book = work.found()
    refused = work.ways.merged(book)
    cuts = _cuts(work, refused)
    found = Enumerated(tuple(book.direct), book.copies(work.sinks), (), cuts)
    if any(c.by == TIME_LIMIT for c in cuts):
        # not among the copies, which would all have to be made: one of two equal ones goes later
        there = {(c.members, c.reads, c.writes) for c in found.candidates}
        missing = (c for c in known if (c.members, c.reads, c.writes) not in there)
        found = replace(found, candidates=(*found.candidates, *missing))
    crowded = book.crowded(pool.legality)
    return replace(found, removed=(*pool.limited.values(), *work.capped, *refused, *crowded))


@dataclass
class _Groups:
    """Groups behind one op as far as they were looked for."""

    more: Iterator[Grown]
    taken: list[Grown] = field(default_factory=list)

    def first(self, most: int) -> list[Grown]:
        """So many of them, if there are."""
        if len(self.taken) < most:
            for state in islice(self.more, most - len(self.taken)):
                self.taken.append(state)
        return self.taken[:most]


class _Enumeration:
    """One enumeration: what it has looked at, and what it left out."""

    def __init__(self, pool: Pool, costs: Costs):
        self.pool, self.costs = pool, costs
        self.ways = _Ways(pool, costs)
        shift = pool.space.egraph.shift
        self.book = Book(None if shift is None else Shifted(pool, shift))
        self.sources: dict[int, int] = {}  # first of ops that look alike -> the one looked at
        self.groups: dict[int, _Groups] = {}
        self.runs: dict[int, SinkRun] = {}  # as `sources`: what is behind the first that is reached
        self.reads: dict[int, list[int]] = {}  # buffers that these read
        self.capped: list[Removed] = []
        self.full: dict[int, Removed] = {}
        self.cut: set[int] = set()  # ops behind which the deadline left groups out

    @property
    def sinks(self) -> tuple[int, int]:
        """Ops behind which groups were enumerated, and those behind which they are copies."""
        return len(self.runs), sum(len(run.blocks) for run in self.runs.values())

    def _source(self, sink: int) -> tuple[int, int]:
        """The op whose groups are looked for instead, and how many blocks later this one is."""
        place = self.book.place(sink)
        source = self.sources.setdefault(place.first, sink)
        return source, place.block - self.book.place(source).block

    def _of(self, sink: int) -> _Groups:
        if sink not in self.groups:
            grower, _, _ = self.ways.of(sink)
            self.groups[sink] = _Groups(grower.grown(sink))
        return self.groups[sink]

    def reach(self, most: int) -> None:
        """Look for so many groups behind every op that these groups lead to."""
        done = set(self.pool.held)
        work = [r for r in self.pool.space.roots if r not in done]
        while work:
            b = work.pop()
            if b in done:
                continue
            done.add(b)
            for sink in self.pool.producers.get(b, ()):
                tick()
                source, blocks = self._source(sink)
                for state in self._of(source).first(most):
                    work += set(self.book.buffers(state.reads, blocks)) - done

    def found(self) -> Book:
        """Groups of every buffer some group reads, starting at the roots."""
        pool, space = self.pool, self.pool.space
        done: set[int] = set(pool.held)
        started: set[int] = set()
        work = [r for r in space.roots if r not in done]
        while work:
            b = work.pop()
            if b in done:
                continue
            done.add(b)
            if b in pool.fills:
                self.book.add([_fill(pool, self.costs, pool.fills[b])])
            for sink in (p for p in pool.producers.get(b, ()) if p not in started):
                started.add(sink)
                work += sorted(set(self._add(sink)) - done)
        return self.book

    def _add(self, sink: int) -> list[int]:
        """Add the groups behind one op, or copies of them; the buffers they read."""
        place = self.book.place(sink)
        if place.first not in self.runs:
            new = self._candidates(sink)
            self.runs[place.first] = self.book.add(new, place.block)
            buffer = self.pool.space.buffer
            self.reads[place.first] = list(dict.fromkeys(buffer[r] for c in new for r in c.reads))
            return self.reads[place.first]
        blocks = place.block - self.runs[place.first].block
        self.runs[place.first].blocks.append(blocks)
        source, _ = self._source(sink)
        if source in self.full:
            self.capped.append(self._capped(sink, self.full[source]))
        if source in self.cut:
            self.cut.add(sink)
        return self.book.buffers(self.reads[place.first], blocks)

    def _candidates(self, sink: int) -> list[Candidate]:
        """Those behind one op: all, the first of many, or those that were there in time."""
        source, blocks = self._source(sink)
        grower, _, _ = self.ways.of(source)
        grown = self._grown(source)
        if source in self.full:
            self.capped.append(self._capped(sink, self.full[source]))
        if source in self.cut:
            self.cut.add(sink)
        if grower.costs.target.is_planned:
            grown = grower.one_of_each(grown)
        found = [grower.candidate(state, source) for state in grown]
        return list(self.book.moved(found, blocks))

    def _capped(self, sink: int, source: Removed) -> Removed:
        return replace(source, what=f"groups of {self.pool.space.name(sink)}")

    def _grown(self, sink: int) -> list[Grown]:
        grower, own, makers = self.ways.of(sink)
        groups = self._of(sink)
        grown = list(groups.taken)
        try:
            tick()
            grown = list(groups.first(GROUPS_PER_NODE))
            if len(grown) >= GROUPS_PER_NODE:
                self.full[sink] = Removed("", len(grown), GROUPS_PER_NODE, CAP, "")
                grown += own.grown(sink)  # the baseline's are among them
            wide = widened(makers, grown, sink)
            grown += [s for s in wide if not grower.waits_for_itself(s)]
        except OutOfTime:
            self.cut.add(sink)
            grown = list(groups.taken)
        return grown


def _cuts(work: _Enumeration, refused: Sequence[Removed]) -> tuple[Cut, ...]:
    """What was left out: ops whose groups, and values whose merges, are not all there."""
    merges = [r.limit_name for r in refused]
    found = (
        Cut("groups", len(work.capped), CAP),
        Cut("groups", len(work.cut), TIME_LIMIT),
        Cut("merges", merges.count(TIME_LIMIT), TIME_LIMIT),
    )
    return tuple(c for c in found if c.count)


@dataclass(frozen=True)
class _Ways:
    """How dispatches are made on each device; no dispatch is on two."""

    pool: Pool
    costs: Costs

    def _device(self, members: Iterable[int]) -> str:
        legality = self.pool.legality
        return legality.devices.of(members) if legality.target.devices else ""

    @cached_property
    def _makers(self) -> dict[str, tuple[Grower, Grower, tuple[Templates, ...]]]:
        return {}

    def of(self, sink: int) -> tuple[Grower, Grower, tuple[Templates, ...]]:
        """What grows groups that end at a node: all nodes', the program's own, templates."""
        device = self._device((sink,))
        if device not in self._makers:
            costs = self.costs.part(device)
            grower = Grower(self.pool, costs, device)
            own = Grower(replace(self.pool, input_only=True), costs, device)
            self._makers[device] = grower, own, templates(grower)
        return self._makers[device]

    def merged(self, book: Book) -> list[Removed]:
        """Add all legal merges of groups; what limits have refused."""
        by: dict[str, list[int]] = {}
        for i, c in enumerate(book.direct):
            by.setdefault(self._device(c.members), []).append(i)
        mergers = [(Merger(self.pool, self.costs.part(d), d), found) for d, found in by.items()]
        for merger, found in mergers:
            add_merges(merger, book, found)
        return [r for m, _ in mergers for r in m.removed.values()]


def _fill(pool: Pool, costs: Costs, node: int) -> Candidate:
    outputs, here = pool.space.outputs[node], costs.of((node,))
    return Candidate((node,), (), outputs, (), *here.stated((node,), (), outputs))
