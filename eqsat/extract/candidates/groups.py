"""Candidate dispatches: every legal group of nodes around one result, grown backwards."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.legality import Legality
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.uses import Reader
from eqsat.model.deadline import tick
from eqsat.model.movement import Move


class Candidate(NamedTuple):
    """One dispatch that may be chosen; classes are named as their reader or writer sees them.

    `members` are nodes in topological order, views and fills included. `writes` must be written
    (nobody inside reads them); each class of `exposable` may be, for its write traffic.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    exposable: tuple[int, ...]
    time_ps: int
    slack_ps: int = (
        0  # traffic that may be added for free: arithmetic takes longer than all there is
    )


class State(NamedTuple):
    """A group in the making: operands up to `at` are decided (read, or computed inside).

    A tuple, and never changed: thousands are made per layer, and they share their parts.
    """

    inside: dict[int, int]  # buffer -> node that computes it here
    reads: dict[int, int]  # buffer -> class, as its first reader sees it
    readers: dict[int, tuple[Reader, ...]]
    queue: tuple[int, ...]  # buffers to decide
    views: tuple[int, ...]
    repeated: frozenset[int]  # nodes below a broadcast: they run more often than needed
    runs: dict[int, int]  # how often each node runs
    at: int = 0
    members: int = 0
    roots: int = 0
    met: bool = False  # something inside is read again from further down: `runs` may be too low


def order(space: Space, nodes: Collection[int]) -> tuple[int, ...]:
    """Nodes of a group in topological order, smaller numbers first among the ready ones."""
    if len(nodes) == 1:
        return tuple(nodes)
    left = sorted(nodes)
    made = {space.result[n]: n for n in left}
    waits: dict[int, set[int]] = {}
    for n in left:
        before = {made[o] for o in space.operands[n] if o in made}
        before.discard(n)
        waits[n] = before
    found: list[int] = []
    while left:
        ready = next((n for n in left if waits[n].issubset(found)), None)
        assert ready is not None, "groups are grown without cycles"
        found.append(ready)
        left.remove(ready)
    return tuple(found)


class _Slack(dict[int, float]):
    """Per node: picoseconds its own traffic takes longer than its arithmetic."""

    def __init__(self, costs: Costs):
        super().__init__()
        self.costs = costs

    def __missing__(self, node: int) -> float:
        costs, space = self.costs, self.costs.space
        sides = (*space.egraph.nodes[node].children, *space.outputs[node])
        traffic = sum([costs.class_ps[c] for c in sides])
        self[node] = max(0.0, traffic - costs.least_ps(node, costs.iterations[node]))
        return self[node]


@dataclass(frozen=True)
class Grower:
    """Grows the groups that end at one node."""

    pool: Pool
    costs: Costs
    device: str = ""  # whose dispatches these are, if there are several

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def legality(self) -> Legality:
        return self.pool.legality.part(self.device)

    @cached_property
    def held(self) -> frozenset[int]:
        return self.pool.held

    def grown(self, sink: int) -> Iterator[State]:
        """All legal groups whose result is this node's, the node alone first."""
        start = State({}, {}, {}, (), (), frozenset(), {})
        stack = [s for s in [self.add(start, None, sink)] if s]
        while stack:
            state = stack.pop()
            tick()
            if state.at < len(state.queue):
                stack += self._decide(state, state.queue[state.at])
            elif self.fits(state, sink):
                yield state

    def _decide(self, state: State, buffer: int) -> list[State]:
        """Compute one operand inside in every legal way, or (last, so popped first) read it."""
        pool = self.pool
        producers = pool.producers.get(buffer)
        nodes = pool.relaxed.get(buffer, ())
        if producers is not None and state.members < self.legality.fusion.members:
            nodes = (*nodes, *producers)
        found = [s for s in [self.add(state, buffer, n) for n in nodes] if s is not None]
        if producers is not None and self.may_read(state, buffer):
            found.append(self.read(state, buffer))
        return found

    def may_read(self, state: State, buffer: int) -> bool:
        """Whether a buffer is where its readers are, and is read by a map the target allows."""
        return self._is_here(state, buffer) and self._is_read_well(state, buffer)

    def _is_read_well(self, state: State, buffer: int) -> bool:
        uses = self.legality.uses
        if uses.fusion.index_relation != "identity":
            return True
        return all(map(uses.may_read, uses.of(state.readers, buffer)))

    def _is_here(self, state: State, buffer: int) -> bool:
        """Whether a buffer is on the device of its readers; a transfer reads from elsewhere."""
        if not self.device:
            return True
        kinds = self.space.kinds
        crosses = any(kinds[q] == "transfer" for q, _ in state.readers[buffer])
        return crosses or self.pool.legality.devices.may_read(self.device, buffer)

    def read(self, state: State, buffer: int) -> State:
        node, operand = state.readers[buffer][0]
        eclass = self.space.egraph.nodes[node].children[operand]
        if self.space.buffer[eclass] != buffer:  # seen through a relax
            eclass = self._relaxed_class(state, buffer)
        return state._replace(reads={**state.reads, buffer: eclass}, at=state.at + 1)

    def _relaxed_class(self, state: State, buffer: int) -> int:
        nodes = self.space.egraph.nodes
        return next(
            nodes[v].children[0]
            for v in state.views
            if nodes[v].op == "relax" and self.space.operands[v] == (buffer,)
        )

    def add(self, state: State, buffer: int | None, node: int) -> State | None:
        """The state with `node` inside as the producer of `buffer`; None if that is illegal."""
        readers = () if buffer is None else state.readers[buffer]
        legality, runs = self.legality, self.costs.iterations[node]
        is_view = self.space.kinds[node] == "view"
        keeps = legality.row_blocks.keeps
        for q, _ in readers:
            runs = runs if keeps(q) else max(runs, state.runs[q])
        if buffer is not None and not is_view and not self._may_add(state, buffer, node, runs):
            return None
        is_root = legality.is_root(node)
        above = [(q, i) for q, i in readers if not keeps(q)]
        repeated = any(q in state.repeated or legality.repeats(q, i) for q, i in above)
        roots = legality.count_roots((node, *state.inside.values())) if is_root else state.roots
        if is_root and readers:
            if repeated and self._recomputes_root(state, node, runs):
                return None
            if roots > legality.fusion.roots:
                return None
            if self._crowds(state, (node,)):
                return None
        if self._turns_inside(state, node, readers):
            return None
        made = dict.fromkeys(self.space.made[node], node) if buffer is None else {buffer: node}
        grown = State(
            {**state.inside, **made},
            state.reads,
            state.readers,
            state.queue,
            (*state.views, node) if is_view else state.views,
            state.repeated | {node} if repeated else state.repeated,
            {**state.runs, node: runs},
            state.at + (buffer is not None),
            state.members + (not is_view),
            roots,
            state.met,
        )
        return self._connect(grown, node, readers if is_view else None)

    def _turns_inside(self, state: State, node: int, readers: tuple[Reader, ...]) -> bool:
        """Whether a rule's conversion would stand between two elementwise ops of one group.

        The same group with the conversion at its rim exists too: every op has its own layout.
        """
        kinds, nodes = self.space.kinds, self.space.egraph.nodes
        if kinds[node] != "elementwise":
            return False
        work = [q for q, _ in readers if kinds[q] == "conversion" and nodes[q].rule != -1]
        while work:
            q = work.pop()
            above = [r for r, _ in state.readers.get(self.space.made[q][0], ())]
            if any(kinds[r] == "elementwise" for r in above):
                return True
            work += [r for r in above if kinds[r] == "conversion" and nodes[r].rule != -1]
        return False

    def _may_add(self, state: State, buffer: int, node: int, runs: int) -> bool:
        if runs > self.costs.iterations[node]:
            runs = min(runs, self._evaluations(state, state.readers[buffer]))
        return self.joins(node, state, buffer) and not self._recomputes(state, node, runs)

    def _evaluations(self, state: State, readers: Iterable[Reader]) -> int:
        """How often these readers need a value at least: an index once per row it takes."""
        found = 0
        for q, i in readers:
            attr = self.space.egraph.nodes[q].attr
            if i == 1 and isinstance(attr, Move) and attr.op == "gather":
                found = max(found, math.prod(attr.sources[1]))
                continue
            above = [r for b in self.space.made[q] for r in state.readers.get(b, ())]
            found = max(found, self.costs.iterations[q], self._evaluations(state, above))
        return found

    def joins(self, node: int, state: State, buffer: int) -> bool:
        """Whether an op may be computed inside of all who use its buffer here."""
        uses = self.legality.uses
        return all([uses.may_join(node, u) for u in uses.of(state.readers, buffer)])

    def _recomputes(self, state: State, node: int, runs: int) -> bool:
        """Whether computing an op again for each run of its reader certainly takes longer.

        Than writing its buffer and reading it: arithmetic that hides behind the traffic of the
        group, or of the op by itself, is free.
        """
        own = self.costs.iterations[node]
        if runs <= own:
            return False
        extra = self.costs.least_ps(node, runs) - self.costs.least_ps(node, own)
        if extra <= 0:
            return False
        hidden = sum([self._slack[n] for n in {node, *state.inside.values()}])
        return extra > self.costs.target.launch_ps + hidden

    @cached_property
    def _slack(self) -> _Slack:
        return _Slack(self.costs)

    def _connect(self, state: State, node: int, seen_by: tuple[Reader, ...] | None) -> State | None:
        """Look at the operands of a new node: fills come in, held buffers are read."""
        fills, held, children = self.pool.fills, self.held, self.space.egraph.nodes[node].children
        inside, reads, readers = state.inside, dict(state.reads), dict(state.readers)
        queue, views, diamond = state.queue, state.views, False
        for i, b in enumerate(self.space.operands[node]):
            seen = ((node, i),) if seen_by is None else seen_by
            if b in held:
                reads.setdefault(b, children[i])
                readers[b] = readers.get(b, ()) + seen
            elif b in fills:
                views = views if fills[b] in views else (*views, fills[b])
            else:
                diamond = diamond or b in inside
                if b not in readers:
                    queue = (*queue, b)
                for below in self._shown(inside, b):
                    readers[below] = readers.get(below, ()) + seen
        state = State(inside, reads, readers, queue, views, *state[5:])
        if not all([self._is_read_well(state, b) for b in self.space.operands[node] if b in held]):
            return None
        return self._recheck(state) if diamond else state

    def _shown(self, inside: Mapping[int, int], buffer: int) -> list[int]:
        """A buffer and, if a view inside makes it, those it is seen through down to: all are read.

        Views that are added later hand their readers on as they come in.
        """
        found = [buffer]
        while found[-1] in inside and self.space.kinds[inside[found[-1]]] == "view":
            (below,) = self.space.operands[inside[found[-1]]]
            if below in self.pool.fills or below in found:
                break
            found.append(below)
        return found

    def _recheck(self, state: State) -> State | None:
        """A new reader of something computed inside: joins, repeats and cycles anew."""
        legality, kinds = self.legality, self.space.kinds
        repeated: set[int] = set()
        runs: dict[int, int] = {}
        waiting = dict(state.inside)
        above = self._views_above(state)
        done: set[int] = set()
        while waiting:
            ready = [
                b
                for b in waiting
                if all(q in done for q, _ in state.readers.get(b, ()))
                and all(v in done for v in above.get(b, ()))
            ]
            if not ready:
                return None
            for b in ready:
                node = waiting.pop(b)
                readers = state.readers.get(b, ())
                if kinds[node] != "view" and not self.joins(node, state, b):
                    return None
                readers = [(q, i) for q, i in readers if not legality.row_blocks.keeps(q)]
                above_runs = (runs[q] for q, _ in readers)
                runs[node] = max(self.costs.iterations[node], *above_runs, 0)
                if any(q in repeated or legality.repeats(q, i) for q, i in readers):
                    repeated.add(node)
                if legality.is_root(node) and (
                    (node in repeated and self._recomputes_root(state, node, runs[node]))
                    or self._crowds(state, (node,))
                ):
                    return None
                done.add(node)
        if not all(self._is_read_well(state, b) for b in state.reads):
            return None
        return state._replace(repeated=frozenset(repeated), met=True)

    def _views_above(self, state: State) -> dict[int, list[int]]:
        """Per buffer: the views inside that show it; their readers count as its readers."""
        found: dict[int, list[int]] = {}
        for v in state.inside.values():
            if self.space.kinds[v] == "view":
                for b in self.space.operands[v]:
                    found.setdefault(b, []).append(v)
        return found

    def fits(self, state: State, sink: int) -> bool:
        value, kinds = self.space.value, self.space.kinds
        computed = [
            value[b] for b, n in state.inside.items() if kinds[n] not in ("view", "conversion")
        ]
        distinct = set(computed)
        if len(distinct) < len(computed) or any(value[b] in distinct for b in state.reads):
            return len(state.inside) == 1  # a value computed twice, or computed and read
        made = state.inside.values()
        if state.roots > 1 and self._crowds(state, filter(self.legality.is_root, made)):
            return False
        legality = self.legality
        fusion, blocks = legality.fusion, legality.row_blocks
        if blocks.is_on and state.members > 1:
            again = any(n in state.repeated for n in made if legality.is_contraction(n))
            if not blocks.is_legal(state.inside, by_rows=again):
                return False
        operands = len(state.reads) + len(self.space.outputs[sink])
        return state.members == 1 or (operands <= fusion.operands and state.roots <= fusion.roots)

    def _recomputes_root(self, state: State, root: int, runs: int) -> bool:
        """Whether a root below a broadcast is computed again, and not kept by rows either."""
        legality = self.legality
        if not legality.recomputes_root(root, runs):
            return False
        roots = {n for n in (root, *state.inside.values()) if legality.is_root(n)}
        return not legality.row_blocks.may_be(roots)

    def _crowds(self, state: State, roots: Iterable[int]) -> bool:
        """Whether these roots together break the scratch limit, read as they are read here."""
        legality = self.legality
        if not legality.target.pipelines:
            return False
        return legality.crowds([legality.inside(n, state.readers) for n in roots])

    def candidate(self, state: State, sink: int) -> Candidate:
        space = self.space
        nodes = {*state.inside.values(), *state.views, *space.views_of(sink)}
        members, writes = order(space, nodes), space.outputs[sink]
        hidden = {sink, *self.costs.gathered.in_part(members, writes)}
        exposable = tuple(
            space.outputs[m][0] for m in members if m not in hidden and space.is_op[m]
        )
        reads = tuple(state.reads.values())
        runs = None if state.met else state.runs
        price = self.costs.price(members, reads, writes, runs)
        return Candidate(members, reads, writes, exposable, *price)
