"""The columns of candidates: one for each set of values that a candidate may write.

What is written besides the results of a candidate, which weights it keeps in memory and which it
reads from the run, and what it adds to the goals, for all candidates at once.
`tests/plain_options.py` says the same of one candidate after another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.extract.blocks import NOWHERE
from eqsat.extract.candidates.sources import (
    EXTRAS,
    CandidateTable,
    Listed,
    Sources,
    asked_ps,
    choice_facts,
    column_images,
    group_of,
    one_of_each_kernel,
    undominated,
    with_plan_times,
)
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.legal import mirrored, presolved
from eqsat.extract.choice.linear import Dispatches, RelayoutBytes, Ties, Time, added, kernels
from eqsat.extract.dispatch.planfloors import PlanFloors
from eqsat.extract.dispatch.prices import UNASKED
from eqsat.extract.ragged import Ints, Mask, Ragged, contains, counted, distinct
from eqsat.model.deadline import tick

PART = 50_000  # candidates whose columns are all there at once


def choice_of(sources: Sources, *, floored: bool = False) -> Columns:
    """The columns of all candidates that some answer may need; OutOfTime.

    floored: no plan is made. Times that take one are floors of it; such columns dominate no others
    and are not dominated yet. OverflowError if sums of times are too large for arrays.
    """
    pool, target = sources.pool, sources.pool.legality.target
    choice = _tabulated(sources)
    if target.is_planned and not pool.keeps_all:
        choice = _kept(choice, one_of_each_kernel(sources.space, choice, sources.candidates))
    if not floored or not all(t.is_planned for _, t in target.devices):
        choice = with_plan_times(sources, choice, np.arange(len(choice)))
    if not pool.keeps_all:
        timed, others = np.flatnonzero(choice.is_asked), np.flatnonzero(~choice.is_asked)
        left = undominated(choice.take(timed) if len(others) else choice, sources.candidates)
        choice = _kept(choice, np.concatenate([timed[left], others]))
    return choice.take(presolved(choice))


def undominated_columns(sources: Sources, choice: Columns) -> Columns:
    """Without those that others dominate, and what no answer needs then."""
    left = _kept(choice, undominated(choice, sources.candidates))
    return left.take(presolved(left))


def _kept(choice: Columns, rows: Ints) -> Columns:
    """These rows; of equal blocks the same ones in each."""
    if choice.facts.blocks is not None:
        rows = mirrored(rows, choice.image_row)
    return choice.take(np.sort(rows))


def _tabulated(sources: Sources) -> Columns:
    """All columns, of so many candidates at once."""
    every = sources.candidates
    is_read, parts = _read_by_any(sources, every), list[dict[str, Any]]()
    for begin in range(0, max(len(every), 1), PART):
        tick()
        part = every.part(np.arange(begin, min(begin + PART, len(every))))
        parts.append(_Tabulation(sources, part, is_read).columns())

    def whole(name: str) -> Any:
        sides = [p[name] for p in parts]
        return Ragged.stacked(sides) if isinstance(sides[0], Ragged) else np.concatenate(sides)

    columns = {name: whole(name) for name in parts[0]}
    if sources.space.rolled is None:
        image = np.full(len(columns["candidate"]), -1)
    else:
        members = every.columns["members"].take(columns["candidate"])
        sides = columns["reads"], columns["resident"], columns["writes"]
        image = column_images(sources.space, members, sides, columns["last"])
    facts = choice_facts(sources.pool, tuple(sources.goals))
    return Columns(facts, key=np.arange(len(image)), image=image, **columns)


def _read_by_any(sources: Sources, every: CandidateTable) -> Mask:
    """Per buffer, whether some candidate or the caller reads it."""
    buffer = np.array(sources.space.buffer, dtype=np.int64)
    mask = np.zeros(len(buffer), dtype=bool)
    mask[list(sources.space.roots)] = True
    mask[buffer[every.columns["reads"].index]] = True
    if sources.space.rolled is not None:  # also what is read in the blocks that are left out
        later = np.array(sources.space.later.buffer, dtype=np.int64)
        there = later[np.flatnonzero(mask)]
        mask[there[there >= 0]] = True
    return mask


class _Tabulation:
    """Facts per node and class as arrays, and per candidate what they make of it.

    `is_read`: per buffer, whether some candidate or the caller reads it.
    """

    def __init__(self, sources: Sources, candidates: Listed, is_read: Mask):
        self.sources, self.pool = sources, sources.pool
        self.space, self.costs = sources.space, sources.costs
        self.candidates, self.is_read = candidates, is_read
        self.members = self.candidates.column("members")
        self.buffer = np.array(self.space.buffer, dtype=np.int64)
        self.value = np.array(self.space.value, dtype=np.int64)
        self.nodes, self.classes = len(self.space.egraph.nodes), len(self.buffer)

    def is_one_of(self, classes: frozenset[int]) -> Mask:
        """Per class: whether it is among these."""
        mask = np.zeros(self.classes, dtype=bool)
        mask[list(classes)] = True
        return mask

    def by_node(self, of: Callable[[int], frozenset[int]]) -> Ragged:
        """Per candidate: the numbers its members have."""
        used = np.unique(self.members.index).tolist()
        numbers: list[frozenset[int]] = [frozenset()] * self.nodes
        for n in used:
            numbers[n] = of(n)
        return self.members.spread(Ragged.of(numbers)).distinct()

    # ---- per candidate -----------------------------------------------------------------------
    @cached_property
    def reads(self) -> Ragged:
        return self.candidates.column("reads").mapped(self.buffer).distinct()

    @cached_property
    def sinks(self) -> Ragged:
        return self.candidates.column("writes").mapped(self.buffer).distinct()

    @cached_property
    def exclusive(self) -> Ragged:
        return self.by_node(lambda n: self.pool.legality.exclusive((n,)))

    @cached_property
    def computes(self) -> Ragged:
        return self.by_node(lambda n: self.space.computes((n,)))

    def _serves(self, owners: Ints, writes: Ragged) -> Ragged:
        """Per option of these candidates: the values it serves (`dominators.served_by`)."""
        nobody, behind = frozenset[int](), self.pool.behind
        held = self.by_node(lambda n: self.pool.served.get(n, nobody)).take(owners)
        if not len(held.index):
            return held
        stays = contains(self._computed, owners[held.rows] * self.classes + held.index)
        others = Ragged.of([behind.get(v, nobody) for v in range(self.classes)]).take(held.index)
        written = distinct(writes.mapped(self.value).pairs(self.classes))
        comes_out = contains(written, held.rows[others.rows] * self.classes + others.index)
        return held.where(stays | others.any(comes_out))

    @cached_property
    def _computed(self) -> Ints:
        """(candidate, value it computes) as keys."""
        return self.computes.pairs(self.classes)

    @cached_property
    def is_possible(self) -> Mask:
        """Per candidate: whether it reads nothing that it writes, nor touches distant blocks."""
        read = self.reads.pairs(self.classes)
        possible = ~self.sinks.any(contains(read, self.sinks.pairs(self.classes)))
        if (rolled := self.space.rolled) is not None:
            possible &= np.array([rolled.is_near(m.tolist()) for m in self.members], dtype=bool)
        return possible

    @cached_property
    def room(self) -> Ints:
        """Per candidate: buffers it may write besides; -1 where that is not needed."""
        if not self.pool.legality.target.devices:
            fusion = self.pool.legality.fusion
            operands, several = fusion.operands, fusion.multi_result
        else:
            of = [self.pool.legality.of(m.tolist()).fusion for m in self.members]
            operands = np.array([f.operands for f in of], dtype=np.int64)
            several = np.array([f.multi_result for f in of], dtype=bool)
        room = operands - self.candidates.column("reads").counts - self.sinks.counts
        return np.where((room > 0) & several, room, -1)

    @cached_property
    def _users(self) -> Ragged:
        """Per value: those computed from it; the caller comes behind all values."""
        users = [self.space.consumers.get(v, frozenset()) for v in range(self.classes)]
        return Ragged.of([[u if u >= 0 else self.classes for u in c] for c in users])

    # ---- what is written besides ---------------------------------------------------------------
    @cached_property
    def useful(self) -> Ragged:
        """Per candidate with room: inner buffers that others may read."""
        shown = self.candidates.column("exposable")
        shown = shown.where((self.room > 0)[shown.rows])
        users = self._users.take(self.value[shown.index])
        candidates = shown.rows[users.rows]
        outside = ~contains(self._computed, candidates * self.classes + users.index)
        wanted = users.any(outside | (users.index == self.classes))
        buffers = shown.mapped(self.buffer)
        wanted &= self.is_read[buffers.index]
        wanted &= ~contains(self.sinks.pairs(self.classes), buffers.pairs(self.classes))
        return buffers.where(wanted).distinct()

    @cached_property
    def _extra_sets(self) -> tuple[Ints, Ragged]:
        """Per option: its candidate, and what it writes besides."""
        useful, count = self.useful, len(self.candidates)
        empty = np.zeros(0, dtype=np.int64)
        owner, sets = [np.arange(count)], [Ragged(np.zeros(count + 1, dtype=np.int64), empty)]
        owner.append(useful.rows)
        sets.append(Ragged(np.arange(len(useful.index) + 1), useful.index))
        first, second = _couples(useful)
        owner.append(useful.rows[first])
        both = np.stack([useful.index[first], useful.index[second]], axis=1).reshape(-1)
        sets.append(Ragged(np.arange(0, 2 * len(first) + 1, 2), both))
        more = [(c, s) for c in self._with_many_roots for s in self._larger(c)]
        owner.append(np.array([c for c, _ in more], dtype=np.int64))
        sets.append(Ragged.of([s for _, s in more]))
        extras, owners = Ragged.stacked(sets), np.concatenate(owner)
        room = self.room[owners]
        possible = self.is_possible[owners] & ((extras.counts <= room) | (room < 0))
        possible &= ~self._is_written_too_often(owners, extras, possible)
        order = np.flatnonzero(possible)
        order = order[np.argsort(owners[order], kind="stable")]
        return owners[order], extras.take(order)

    @cached_property
    def _is_root(self) -> Mask:
        return self.is_one_of(frozenset(self.space.roots))

    @cached_property
    def _with_many_roots(self) -> list[int]:
        inner = np.bincount(
            self.useful.rows[self._is_root[self.useful.index]], minlength=len(self.candidates)
        )
        return np.flatnonzero(inner > EXTRAS).tolist()

    def _larger(self, candidate: int) -> list[tuple[int, ...]]:
        """All results of the program that are computed inside, and one buffer more."""
        extras = self.useful[candidate].tolist()
        roots = tuple(b for b in extras if self._is_root[b])
        return [roots, *(tuple(sorted({*roots, b})) for b in extras if b not in roots)]

    def _is_written_too_often(self, owners: Ints, extras: Ragged, asked: Mask) -> Mask:
        """Per option: whether a value is written in more layouts than others need.

        Not computed where a candidate has no room to write anything else.
        """
        rows = np.flatnonzero(asked & (self.room[owners] > 0))
        owners, extras = owners[rows], extras.take(rows)
        written = self.sinks.take(owners).joined(extras).mapped(self.value)
        keys = np.sort(written.pairs(self.classes))
        value, layouts = counted(keys)
        several = layouts > 1
        value, layouts = value[several], layouts[several]
        option, value = value // self.classes, value % self.classes
        others = self._others(owners[option], value)
        excess = np.zeros(len(asked), dtype=bool)
        excess[rows[option[layouts > others]]] = True
        return excess

    def _others(self, candidates: Ints, values: Ints) -> Ints:
        """How many other values are computed from these outside, results of the program apart."""
        wanted = np.zeros(self.classes, dtype=np.int64)
        for v, count in self.space.wanted.items():
            wanted[v] = count
        users = self._users.take(values)
        is_outside = ~contains(self._computed, candidates[users.rows] * self.classes + users.index)
        is_outside &= users.index < self.classes
        return wanted[values] + users.sums(is_outside.astype(np.int64))

    # ---- what must be written ------------------------------------------------------------------
    @cached_property
    def _alone(self) -> Ragged:
        """Per candidate: values that nobody else may compute, and that others may read."""
        is_once = self.is_one_of(self.sources.lost.once)
        owned = self.computes.where(is_once[self.computes.index])
        users = self._users.take(owned.index)
        candidates = owned.rows[users.rows]
        outside = ~contains(self._computed, candidates * self.classes + users.index)
        return owned.where(users.any(outside | (users.index == self.classes)))

    def _leaves_a_way(self, owners: Ints, writes: Ragged) -> Mask:
        """Per option: whether all results can be computed without what it keeps (`Lost`)."""
        alone, written = self._alone.take(owners), writes.mapped(self.value)
        there = np.sort(written.pairs(self.classes))
        lost = alone.where(~contains(there, alone.pairs(self.classes)))
        leaves = np.ones(len(owners), dtype=bool)
        for i in np.flatnonzero(lost.counts).tolist():
            sides = frozenset(lost[i].tolist()), frozenset(written[i].tolist())
            leaves[i] = self.sources.lost.leaves_a_way(*sides)
        return leaves

    # ---- what is read of this run's, and of the weights ----------------------------------------
    def _sides(self, owners: Ints) -> tuple[Ints, Ragged, Ragged]:
        """(option, reads, resident): weights that may be made in the run are either.

        What one of several parts makes in its run no other reads: there such weights are resident.
        """
        reads = self.reads.take(owners)
        held, optional = map(self.is_one_of, (self.pool.held, self.pool.optional))
        resident = self.is_one_of(self.pool.resident)
        run = reads.where(~(held | optional)[reads.index])
        is_made = optional[reads.index] & self._may_make[owners][reads.rows]
        in_memory = reads.where(resident[reads.index] & ~is_made)
        either = reads.where(is_made)
        choices = 1 << either.counts
        option = np.repeat(np.arange(len(owners)), choices)
        if len(option) == len(owners):
            return option, run, in_memory
        number = np.arange(len(option)) - np.repeat(np.cumsum(choices) - choices, choices)
        parts = either.take(option)
        place = np.arange(len(parts.index)) - parts.start[parts.rows]
        is_made = (number[parts.rows] >> place & 1).astype(bool)
        computed, there = parts.where(is_made), parts.where(~is_made)
        run, in_memory = run.take(option).joined(computed), in_memory.take(option).joined(there)
        return option, run.distinct(), in_memory.distinct()

    @cached_property
    def _may_make(self) -> Mask:
        """Per candidate: whether what it reads may be made from weights in the same run."""
        may_make = np.ones(len(self.candidates), dtype=bool)
        target, devices = self.pool.legality.target, self.pool.legality.devices
        if target.has_parts:
            may_make[:] = [devices.of(m.tolist()) == target.default_device for m in self.members]
        return may_make

    # ---- what it adds to the goals -------------------------------------------------------------
    def _time_ps(self, owners: Ints, extras: Ragged) -> tuple[Ints, Mask]:
        """Of every option, and whether that is its time, or a floor as its plan was not made.

        Goals that plug-ins bring may look at the time, so there all of them are asked for.
        """
        stated, is_wider = self.candidates.time_ps[owners], extras.counts > 0
        is_known = np.ones(len(owners), dtype=bool)
        if self.costs.target.is_planned or self.pool.legality.target.devices:
            is_known = (stated != UNASKED) & ~is_wider
            # goals that no dispatch's time adds to but its own
            if all(
                type(g) in (Time, RelayoutBytes, Ties, Dispatches)
                for g in self.sources.goals.values()
            ):
                return np.where(is_known, stated, self._floor_ps(owners, extras)), is_known
            rows = np.flatnonzero(~is_known)
            stated[rows] = asked_ps(self.costs, self.candidates, owners[rows], extras.take(rows))
            return stated, np.ones(len(owners), dtype=bool)
        slack = self.candidates.slack_ps[owners]
        class_ps = np.array(self.costs.class_ps, dtype=self.candidates.prices)
        return stated + np.maximum(extras.sums(class_ps[extras.index]) - slack, 0), is_known

    def _floor_ps(self, owners: Ints, extras: Ragged) -> Ints:
        """A floor of every plan of an option; 0 on devices without plans."""
        floor_ps = np.zeros(len(owners), dtype=np.int64)
        writes = self.sinks.take(owners).joined(extras).distinct()
        members, reads = self.members.take(owners), self.reads.take(owners)
        for device, rows in self._rows_by_device(members):
            target = self.costs.part(device).target
            if target.is_planned and len(rows):
                floors = self.space.remembered(PlanFloors, target)
                sides = members.take(rows), reads.take(rows), writes.take(rows)
                floor_ps[rows] = floors.of(*sides) * target.calls
        return floor_ps

    def _rows_by_device(self, members: Ragged) -> list[tuple[str, Ints]]:
        """Per device: which of these dispatches run there."""
        target, devices = self.costs.target, self.pool.legality.devices
        if not target.devices:
            return [("", np.arange(len(members)))]
        names = [name for name, _ in target.devices]
        number = {name: i for i, name in enumerate(names)}
        of = [number[devices.of(members[i].tolist())] for i in range(len(members))]
        where = np.array(of, dtype=np.int64)
        return [(name, np.flatnonzero(where == i)) for i, name in enumerate(names)]

    def _adds(self, owners: Ints, extras: Ragged) -> tuple[Ints, Mask]:
        sides = len(owners), len(self.sources.goals)
        values = np.empty(sides, dtype=self.candidates.prices)
        time_ps, is_asked = self._time_ps(owners, extras)
        for at, (name, goal) in enumerate(self.sources.goals.items()):
            if isinstance(goal, Time):
                values[:, at] = time_ps
            elif type(goal) is RelayoutBytes:
                values[:, at] = self._summed(self.sources.moved)[owners]
            elif type(goal) is Ties:
                values[:, at] = self._summed(self.sources.tied)[owners]
            elif type(goal) is Dispatches:
                values[:, at] = self._dispatches[owners]
            else:
                for i, c in enumerate(owners.tolist()):
                    tick()
                    group = self._group(c, extras[i].tolist(), int(time_ps[i]))
                    target = self.pool.legality.target
                    values[i, at] = added(name, goal, self.space.egraph, target, group)
        return values * self.space.times_in(self._last[owners])[:, None], is_asked

    @cached_property
    def _last(self) -> Ints:
        """Per candidate: the last block that it touches."""
        rolled = self.space.rolled
        if rolled is None:
            return np.full(len(self.candidates), NOWHERE)
        return np.array([rolled.last(m.tolist()) for m in self.members], dtype=np.int64)

    def _group(self, candidate: int, extra: list[int], time_ps: int):
        writes = (*self.sinks[candidate].tolist(), *extra)
        return group_of(self.costs, self.candidates[candidate], writes, time_ps)

    def _summed(self, per_node: tuple[int, ...]) -> Ints:
        per_node_of = np.array(per_node, dtype=self.candidates.prices)
        return self.members.sums(per_node_of[self.members.index])

    @cached_property
    def _dispatches(self) -> Ints:
        if not self.sources.has_loops:
            return np.ones(len(self.candidates), dtype=np.int64)
        egraph = self.space.egraph
        return np.array([kernels(egraph, m.tolist()) for m in self.members], dtype=np.int64)

    # ---- all of it -----------------------------------------------------------------------------
    def columns(self) -> dict[str, Any]:
        """By the names of the fields of a `Columns`."""
        owners, extras = self._extra_sets
        tick()
        writes = self.sinks.take(owners).joined(extras).distinct()
        left = np.flatnonzero(self._leaves_a_way(owners, writes))
        owners, extras, writes = owners[left], extras.take(left), writes.take(left)
        tick()
        adds, is_asked = self._adds(owners, extras)
        column, reads, resident = self._sides(owners)
        owners, writes = owners[column], writes.take(column)
        return {
            "adds": adds[column],
            "reads": reads,
            "resident": resident,
            "writes": writes,
            "exclusive": self.exclusive.take(owners),
            "computes": self.computes.take(owners),
            "serves": self._serves(owners, writes),
            "candidate": self.candidates.numbers[owners],
            "extras": extras.take(column),
            "is_asked": is_asked[column],
            "last": self._last[owners],
        }


def _couples(rows: Ragged) -> tuple[Ints, Ints]:
    """Places of every two numbers of a row, the first before the second."""
    later = rows.start[1:][rows.rows] - np.arange(len(rows.index)) - 1
    first = np.repeat(np.arange(len(rows.index)), later)
    past = np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later)
    return first, first + 1 + past
