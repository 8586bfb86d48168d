"""Candidate dispatches: every legal group of nodes around one result, grown backwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eqsat.extract.costs import Costs
from eqsat.extract.legality import iterations
from eqsat.extract.pool import Pool

GROUPS_PER_NODE = 2000  # a bound no transformer layer comes near; the single-node group is first

Reader = tuple[int, int]  # (node, operand)


@dataclass(frozen=True)
class Candidate:
    """One dispatch that may be chosen; classes are named as their reader or writer sees them.

    `members` are nodes in topological order, views and fills included. `writes` must be written
    (nobody inside reads them); each class of `exposable` may be, for its write traffic.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    exposable: tuple[int, ...]
    time_ps: int


@dataclass(frozen=True)
class _State:
    """A group in the making: operands up to `at` are decided (read, or computed inside)."""

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


def order(pool: Pool, nodes: set[int]) -> tuple[int, ...]:
    """Nodes of a group in topological order, smaller numbers first among the ready ones."""
    space = pool.space
    made = {space.buffer[space.egraph.nodes[n].eclass]: n for n in nodes}
    waits = {n: {made[o] for o in space.operands[n] if o in made} - {n} for n in nodes}
    found: list[int] = []
    while waits:
        ready = [n for n, w in waits.items() if w.isdisjoint(waits)]
        assert ready, "groups are grown without cycles"
        found.append(min(ready))
        del waits[found[-1]]
    return tuple(found)


@dataclass(frozen=True)
class Grower:
    """Grows the groups that end at one node."""

    pool: Pool
    costs: Costs

    def groups(self, sink: int) -> Iterator[Candidate]:
        """All legal groups whose result is this node's, the node alone first."""
        start = _State({}, {}, {}, (), (), frozenset(), {})
        stack = [s for s in [self._add(start, None, sink)] if s]
        found = 0
        while stack and found < GROUPS_PER_NODE:
            state = stack.pop()
            if state.at == len(state.queue):
                if self._fits(state):
                    found += 1
                    yield self._candidate(state, sink)
                continue
            stack += self._decide(state, state.queue[state.at])

    def _decide(self, state: _State, buffer: int) -> list[_State]:
        """Compute one operand inside in every legal way, or (last, so popped first) read it."""
        pool = self.pool
        following = replace(state, at=state.at + 1)
        found = [self._add(following, buffer, r) for r in pool.relaxed.get(buffer, ())]
        if state.members < pool.legality.fusion.members:
            found += [self._add(following, buffer, p) for p in pool.producers.get(buffer, ())]
        if buffer in pool.producers:
            found.append(self._read(following, buffer))
        return [s for s in found if s is not None]

    def _read(self, state: _State, buffer: int) -> _State | None:
        node, operand = state.readers[buffer][0]
        eclass = self.pool.space.egraph.nodes[node].children[operand]
        if self.pool.space.buffer[eclass] != buffer:  # seen through a relax
            eclass = self._relaxed_class(state, buffer)
        reads = state.reads | {buffer: eclass}
        return replace(state, reads=reads)

    def _relaxed_class(self, state: _State, buffer: int) -> int:
        nodes = self.pool.space.egraph.nodes
        return next(
            nodes[v].children[0]
            for v in state.views
            if nodes[v].op == "relax" and self.pool.space.operands[v] == (buffer,)
        )

    def _add(self, state: _State, buffer: int | None, node: int) -> _State | None:
        """The state with `node` inside as the producer of `buffer`; None if that is illegal."""
        readers = () if buffer is None else state.readers[buffer]
        is_view = self.pool.space.kinds[node] == "view"
        legality = self.pool.legality
        if not is_view and not all(legality.may_join(node, q, i) for q, i in readers):
            return None
        is_root = legality.is_root(node)
        repeated = any(q in state.repeated or legality.repeats(q, i) for q, i in readers)
        if is_root and readers and (repeated or state.roots >= legality.fusion.roots):
            return None
        if self._turns_inside(state, node, readers):
            return None
        own = iterations(self.pool.space.egraph.nodes[node])
        runs = max([own, *(state.runs[q] for q, _ in readers)])
        if runs > own and buffer is not None and self._recomputes(node, runs, own, buffer, readers):
            return None
        outputs = [self.pool.space.buffer[c] for c in self.pool.space.outputs[node]]
        made = {buffer: node} if buffer is not None else dict.fromkeys(outputs, node)
        state = replace(
            state,
            inside=state.inside | made,
            members=state.members + (not is_view),
            roots=state.roots + is_root,
            views=(*state.views, node) if is_view else state.views,
            repeated=state.repeated | {node} if repeated else state.repeated,
            runs=state.runs | {node: runs},
        )
        return self._connect(state, node, readers if is_view else None)

    def _turns_inside(self, state: _State, node: int, readers: tuple[Reader, ...]) -> bool:
        """Whether a rule's conversion would stand between two elementwise ops of one group.

        The same group with the conversion at its rim exists too: every op has its own layout.
        """
        kinds, nodes = self.pool.space.kinds, self.pool.space.egraph.nodes
        if kinds[node] != "elementwise":
            return False
        work = [q for q, _ in readers if kinds[q] == "conversion" and nodes[q].rule != -1]
        while work:
            q = work.pop()
            above = [r for r, _ in state.readers.get(self.costs.made_by(q)[0], ())]
            if any(kinds[r] == "elementwise" for r in above):
                return True
            work += [r for r in above if kinds[r] == "conversion" and nodes[r].rule != -1]
        return False

    def _recomputes(
        self, node: int, runs: int, own: int, buffer: int, readers: tuple[Reader, ...]
    ) -> bool:
        """Whether computing an op again for each run of its reader costs more than its buffer.

        Arithmetic that hides behind the reader's own traffic is free.
        """
        costs, space = self.costs, self.pool.space
        extra = costs.compute_ps(node, runs) - costs.compute_ps(node, own)
        if extra <= 0:
            return False
        slack = 0.0
        for q, _ in readers:
            n = space.egraph.nodes[q]
            sides = sum(costs.traffic_ps(space.nbytes(c)) for c in (*n.children, *space.outputs[q]))
            slack += max(0.0, sides - costs.compute_ps(q, iterations(n)))
        buffer_ps = 2 * costs.traffic_ps(space.nbytes(buffer)) + costs.target.launch_ps
        return extra > buffer_ps + slack

    def _connect(
        self, state: _State, node: int, seen_by: tuple[Reader, ...] | None
    ) -> _State | None:
        """Look at the operands of a new node: fills come in, held buffers are read."""
        pool = self.pool
        inside, reads, readers = state.inside, dict(state.reads), dict(state.readers)
        queue, views, diamond = list(state.queue), list(state.views), False
        for i, b in enumerate(pool.space.operands[node]):
            eclass = pool.space.egraph.nodes[node].children[i]
            if b in pool.held:
                reads.setdefault(b, eclass)
            elif b in pool.fills:
                views += [pool.fills[b]] if pool.fills[b] not in views else []
            else:
                diamond |= b in inside
                if b not in readers:
                    queue.append(b)
                readers[b] = readers.get(b, ()) + (((node, i),) if seen_by is None else seen_by)
        state = replace(state, reads=reads, readers=readers, queue=tuple(queue), views=tuple(views))
        return self._recheck(state) if diamond else state

    def _recheck(self, state: _State) -> _State | None:
        """A new reader of something computed inside: joins, repeats and cycles anew."""
        legality, space = self.pool.legality, self.pool.space
        repeated: set[int] = set()
        waiting = dict(state.inside)
        done: set[int] = set()
        while waiting:
            ready = [b for b in waiting if all(q in done for q, _ in state.readers.get(b, ()))]
            if not ready:
                return None
            for b in ready:
                node = waiting.pop(b)
                readers = state.readers.get(b, ())
                is_view = space.kinds[node] == "view"
                if not is_view and not all(legality.may_join(node, q, i) for q, i in readers):
                    return None
                if any(q in repeated or legality.repeats(q, i) for q, i in readers):
                    repeated.add(node)
                if node in repeated and legality.is_root(node):
                    return None
                done.add(node)
        return replace(state, repeated=frozenset(repeated))

    def _fits(self, state: _State) -> bool:
        space = self.pool.space
        computed = [
            space.value[b]
            for b, n in state.inside.items()
            if space.kinds[n] not in ("view", "conversion")
        ]
        if len(set(computed)) < len(computed) or any(
            space.value[b] in computed for b in state.reads
        ):
            return len(state.inside) == 1  # a value computed twice, or computed and read
        fusion, operands = self.pool.legality.fusion, len(state.reads) + 1
        return state.members == 1 or (operands <= fusion.operands and state.roots <= fusion.roots)

    def _candidate(self, state: _State, sink: int) -> Candidate:
        space = self.pool.space
        nodes = {*state.inside.values(), *state.views, *space.views_of(sink)}
        members = order(self.pool, nodes)
        writes = space.outputs[sink]
        inner = [m for m in members if m != sink and space.kinds[m] not in ("leaf", "view")]
        exposable = tuple(space.outputs[m][0] for m in inner)
        reads = tuple(state.reads.values())
        time_ps = self.costs.group_ps(members, reads, list(writes))
        return Candidate(members, reads, writes, exposable, time_ps)
