"""Candidate dispatches: every legal group of nodes around one result, grown backwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from eqsat.extract.candidates.space import order
from eqsat.extract.dispatch.fusedaccess import Reader
from eqsat.extract.groups.borders import Borders
from eqsat.extract.groups.feasibility import EMPTY, PartialGroup, UseContext
from eqsat.model.deadline import tick


class Candidate(NamedTuple):
    """One dispatch that may be chosen; classes are named as their reader or writer sees them.

    `members` are nodes in topological order, views and fills included. `writes` must be written
    (nobody inside reads them); each class of `exposable` may be, for its write traffic. `time_ps`
    is UNASKED where that takes a plan.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    exposable: tuple[int, ...]
    time_ps: int
    slack_ps: int = (
        0  # traffic that may be added for free: arithmetic takes longer than all there is
    )


class _NodeReads(NamedTuple):
    """The reads of a group with one more node, and whether that reads something computed inside."""

    reads: dict[int, int]
    readers: dict[int, tuple[Reader, ...]]
    queue: tuple[int, ...]
    views: tuple[int, ...]
    is_met: bool


class _Next(NamedTuple):
    """A group in the making: those of few members come first, of these the ones of least work."""

    members: int
    work: float
    number: int
    state: PartialGroup
    most: int  # members it may have


@dataclass(frozen=True)
class Grower(Borders):
    """Grows the groups that end at one node."""

    def grown(self, sink: int) -> Iterator[PartialGroup]:
        """The groups whose result is this node's, the node alone first, those of few members first.

        All legal ones, or those whose borders no other one dominates, and small ones.
        """
        making, whole = self.seen(sink)
        waiting: list[_Next] = []
        self._wait(waiting, self.add(EMPTY, None, sink), self.most)
        while waiting:
            tick()
            *_, state, most = heappop(waiting)
            if self.projects and state.members < self.most:
                if self.is_dominated(state, sink, making):
                    most = min(most, self.small)
                if state.members > most:
                    continue
            group = self._decided(state, most, waiting)
            if group is None or not self.fits(group, sink):
                continue
            is_new = not self.projects or not self.is_dominated(group, sink, whole)
            if is_new or group.members <= self.small:
                yield group

    def _wait(self, waiting: list[_Next], state: PartialGroup | None, most: int) -> None:
        if state is not None:
            work, number = self.work(state.inside.values()), next(self._numbers)
            heappush(waiting, _Next(state.members, work, number, state, most))

    @cached_property
    def _numbers(self) -> Iterator[int]:
        return count()

    def _decided(self, state: PartialGroup, most: int, waiting: list[_Next]) -> PartialGroup | None:
        """With everything that is open read; what computes one of it inside is for later."""
        producers, relaxed = self.pool.producers, self.pool.relaxed
        reads, queue, is_full = dict(state.reads), state.queue, state.members >= most
        for at in range(state.at, len(queue)):
            b = queue[at]
            is_made, views = b in producers, relaxed.get(b, ())
            makers = () if is_full or not is_made else self.joined(state, b)
            if views or makers:
                before = state.reading(dict(reads), at - state.at)
                above = self.above(before, b)
                for n in (*views, *makers):
                    self._wait(waiting, self.put(before, b, n, above), most)
            if not is_made or not self.may_read(state, b):
                return None
            reads[b] = self._class_read(state, b)
        return state.reading(reads, len(queue) - state.at)

    def read(self, state: PartialGroup, buffer: int) -> PartialGroup:
        """With a buffer as an operand, in the class that its first reader sees."""
        return state.reading({**state.reads, buffer: self._class_read(state, buffer)}, 1)

    def _class_read(self, state: PartialGroup, buffer: int) -> int:
        node, operand = state.readers[buffer][0]
        eclass = self.space.egraph.nodes[node].children[operand]
        if self.space.buffer[eclass] != buffer:  # seen through a relax
            return self._relaxed_class(state, buffer)
        return eclass

    def _relaxed_class(self, state: PartialGroup, buffer: int) -> int:
        nodes = self.space.egraph.nodes
        return next(
            nodes[v].children[0]
            for v in state.views
            if nodes[v].op == "relax" and self.space.operands[v] == (buffer,)
        )

    def add(self, state: PartialGroup, buffer: int | None, node: int) -> PartialGroup | None:
        """The state with `node` inside as the producer of `buffer`; None if that is illegal."""
        if buffer is None:
            return self.put(state, None, node, UseContext(()))
        if self.space.kinds[node] != "view" and node not in self.joined(state, buffer):
            return None
        return self.put(state, buffer, node, self.above(state, buffer))

    def put(
        self, state: PartialGroup, buffer: int | None, node: int, above: UseContext
    ) -> PartialGroup | None:
        """The state with a node inside that joins all users of its buffer; None if illegal."""
        points, is_view = self._iterations[node], self.space.kinds[node] == "view"
        readers, runs, is_repeated = above.readers, above.runs, above.is_repeated
        if not is_view and self.recomputes(state, node, above):
            return None
        if buffer is not None and self._reads_itself(state, node, readers):
            return None
        runs = max(points, runs)
        roots = state.roots
        if self.legality.roots[node]:
            roots = self.legality.count_roots((node, *state.inside.values()))
            if readers and not self._joins_roots(state, node, runs, roots, is_repeated):
                return None
        if self._turns_inside(state, node, readers):
            return None
        inside = dict(state.inside)
        for b in self.space.output_buffers[node] if buffer is None else (buffer,):
            inside[b] = node
        seen = self._seen(state, inside, node, readers if is_view else None)
        grown = PartialGroup(
            inside,
            seen.reads,
            seen.readers,
            seen.queue,
            (*seen.views, node) if is_view else seen.views,
            state.repeated | {node} if is_repeated else state.repeated,
            {**state.runs, node: runs},
            state.at + (buffer is not None),
            state.members + (not is_view),
            roots,
            state.met,
        )
        if self._reads_in_step and not self._reads_known_well(grown, node):
            return None
        return self._recheck(grown) if seen.is_met else grown

    def _seen(
        self,
        state: PartialGroup,
        inside: dict[int, int],
        node: int,
        seen_by: tuple[Reader, ...] | None,
    ) -> _NodeReads:
        """Look at the operands of a new node: fills come in, held buffers are read."""
        held, filled, rest = self.sides[node]
        reads, queue, views, is_met = state.reads, state.queue, state.views, False
        readers = dict(state.readers)
        if held:
            reads = dict(reads)
        for i, b, eclass in held:
            reads.setdefault(b, eclass)
            readers[b] = readers.get(b, ()) + (((node, i),) if seen_by is None else seen_by)
        for n in filled:
            views = views if n in views else (*views, n)
        for i, b in rest:
            seen = ((node, i),) if seen_by is None else seen_by
            if b not in readers:
                queue = (*queue, b)
            if b not in inside:
                readers[b] = readers.get(b, ()) + seen
                continue
            is_met = True
            for below in self._shown(inside, b):
                readers[below] = readers.get(below, ()) + seen
        return _NodeReads(reads, readers, queue, views, is_met)

    def _reads_known_well(self, state: PartialGroup, node: int) -> bool:
        """Whether a new node may read so what is held, or what others were found to read."""
        operands = self.space.operands[node]
        return all([self._is_read_well(state, b) for b in operands if b in state.reads])

    def _shown(self, inside: Mapping[int, int], buffer: int) -> list[int]:
        """A buffer and, if a view inside makes it, those it is seen through down to: all are read.

        Views that are added later hand their readers on as they come in.
        """
        shown = [buffer]
        while shown[-1] in inside and self.space.kinds[inside[shown[-1]]] == "view":
            (below,) = self.space.operands[inside[shown[-1]]]
            if below in self.pool.fills or below in shown:
                break
            shown.append(below)
        return shown

    def _recheck(self, state: PartialGroup) -> PartialGroup | None:
        """A new reader of something computed inside: joins, repeats and cycles anew."""
        repeated: set[int] = set()
        runs: dict[int, int] = {}
        waiting, nobody = list(state.inside.items()), ()
        above = self._views_above(state)
        while waiting:
            left: list[Reader] = []
            for b, node in waiting:
                readers = state.readers.get(b, nobody)
                if not all([q in runs for q, _ in readers]) or not all(
                    [v in runs for v in above.get(b, nobody)]
                ):
                    left.append((b, node))
                elif not self._is_legal_below(state, b, node, repeated, runs):
                    return None
            if len(left) == len(waiting):
                return None
            waiting = left
        if not all([self._is_read_well(state, b) for b in state.reads]):
            return None
        return state._replace(repeated=frozenset(repeated), met=True)

    def _is_legal_below(
        self, state: PartialGroup, buffer: int, node: int, repeated: set[int], runs: dict[int, int]
    ) -> bool:
        """Whether a node may be inside of all its readers, which are in `repeated` and `runs`."""
        legality, keeps = self.legality, self._keeps
        readers = state.readers.get(buffer, ())
        is_used = readers and self.space.kinds[node] != "view"
        if is_used and node not in self.joined(state, buffer):
            return False
        most = self._iterations[node]
        for q, i in readers:
            if not keeps[q]:
                most = max(most, legality.staged_runs(q, i) if self._stages[q] else runs[q])
                if q in repeated or legality.repeats(q, i):
                    repeated.add(node)
        runs[node] = most
        return not legality.is_root(node) or not (
            (node in repeated and self._recomputes_root(state, node, most))
            or self._crowds(state, (node,))
        )

    def _views_above(self, state: PartialGroup) -> dict[int, list[int]]:
        """Per buffer: the views inside that show it; their readers count as its readers."""
        views: dict[int, list[int]] = {}
        for v in state.inside.values():
            if self.space.kinds[v] == "view":
                for b in self.space.operands[v]:
                    views.setdefault(b, []).append(v)
        return views

    def candidate(self, state: PartialGroup, sink: int) -> Candidate:
        space = self.space
        nodes = {*state.inside.values(), *state.views, *space.views_of(sink)}
        members, writes = order(space, nodes), space.outputs[sink]
        hidden = {sink, *self.legality.in_front(members)}
        if self._has_gathers:
            hidden |= self.costs.gathered.in_part(members, writes)
        is_op, outputs = space.is_op, space.outputs
        exposable = tuple([outputs[m][0] for m in members if m not in hidden and is_op[m]])
        reads = tuple(state.reads.values())
        runs = None if state.met else state.runs
        price = self.costs.stated(members, reads, writes, runs)
        return Candidate(members, reads, writes, exposable, *price)

    @cached_property
    def _has_gathers(self) -> bool:
        return bool(self.costs.gathered.gathers)
