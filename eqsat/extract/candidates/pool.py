"""Nodes of an e-graph that may be chosen, and how its weights may live.

All nodes may be but the subsumed ones, or the input program's alone. What can be computed from
weights alone may be there before the first dispatch (it was stored so, or is made once at load) or
be made at run time, by dispatches of its own or inside of those that read it. The first is never
slower and is the only way where it can be no worse: where a buffer is no larger than the weights it
is made from and nothing else needs these. A product that another one may be cut out of is nothing
else: no answer needs both. Rows of bytes say what weights take, also while they are packed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.candidates.dominators import (
    Waits,
    derivations,
    necessity,
    needed_values,
    served_values,
    values_behind,
)
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.columns import KeptRow
from eqsat.extract.choice.linear import OTHERS
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.idle import GOALS, Idle, converts_for_free
from eqsat.model.control import CONTROL
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.selection import GoalRequest, Removed
from eqsat.model.target import DROPPED, HELD

if TYPE_CHECKING:
    from eqsat.extract.groups.grow import Candidate
    from eqsat.model.target import Target


@dataclass(frozen=True)
class Pool:
    """Candidates of one extraction; `input_only` leaves the nodes of the input program.

    keeps_all: with groups that are in no best answer, for questions about worse ones.
    small_bytes: buffers made from weights of at most so many bytes are there in every answer.
    is_time_first: the best time is wanted, whatever else follows (`idle`).
    """

    legality: Legality
    input_only: bool
    asked: frozenset[str] = frozenset()  # names of the goals and budgets
    keeps_all: bool = False
    small_bytes: int = 0
    only: frozenset[int] | None = None  # nodes, if it is about few of them
    is_time_first: bool = False
    merged: frozenset[frozenset[int]] | None = None  # what merges may compute, if only few

    @property
    def space(self) -> Space:
        return self.legality.space

    def allows(self, node: int) -> bool:
        n = self.space.egraph.nodes[node]
        if self.only is not None and node not in self.only:
            return False
        return n.rule == -1 if self.input_only else not n.subsumed

    def allowed(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Nodes that may be chosen: rules with `apply: replace` take some out."""
        return [c for c in candidates if all(self.allows(m) for m in c.members)]

    @cached_property
    def _nodes(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.space.egraph.nodes)) if self.allows(i))

    @cached_property
    def _limits(self) -> dict[int, Removed]:
        """Nodes a limit of the target removes from every dispatch."""
        of = self.legality.of
        limits = {i: of((i,)).limit_of(i) for i in self._nodes}
        return {i: r for i, r in limits.items() if r is not None}

    @cached_property
    def limited(self) -> dict[int, Removed]:
        """Nodes that a limit excludes and that may not be computed ahead of time either."""
        return {i: r for i, r in self._limits.items() if not self.is_ahead_node(i)}

    @cached_property
    def _plain(self) -> tuple[int, ...]:
        """Unpacked contractions in no dispatch: tiles are forced, or no pipeline takes them."""
        return tuple(i for i in self._nodes if not self.legality.of((i,)).is_admissible(i))

    @cached_property
    def untiled(self) -> tuple[int, ...]:
        """Unpacked contractions that `tiles_forced` removes, or that no pipeline takes."""
        return tuple(i for i in self._plain if not self.is_ahead_node(i))

    @cached_property
    def misplaced(self) -> frozenset[int]:
        """Nodes with tiles that their device does not have: another one's, or any at all."""
        legality = self.legality
        if not legality.target.devices:
            return frozenset()
        return frozenset(i for i in self._nodes if not legality.devices.may_run(i))

    def is_ahead_node(self, node: int) -> bool:
        outputs = self.space.outputs[node]
        return bool(outputs) and all(self.space.buffer[c] in self.ahead for c in outputs)

    @cached_property
    def producers(self) -> dict[int, tuple[int, ...]]:
        """Per buffer: the nodes that compute it at run time, by number."""
        every = self._every_producer
        return Idle(self, every).producers if self.has_free_conversions else every

    @cached_property
    def has_refusals(self) -> bool:
        """Whether single dispatches are excluded, so that a worse one may be the best there is."""
        target = self.legality.target
        return any(t.refused for t in (target, *dict(target.devices).values()))

    @cached_property
    def has_free_conversions(self) -> bool:
        """Whether conversions inside of a dispatch change nothing that is asked for (`idle`)."""
        if self.input_only or self.keeps_all or self.has_refusals:
            return False
        if not (self.is_time_first and self.asked <= GOALS):
            return False
        return converts_for_free(self, {n for ns in self._every_producer.values() for n in ns})

    @cached_property
    def _every_producer(self) -> dict[int, tuple[int, ...]]:
        producers: dict[int, list[int]] = {}
        gone = self.misplaced.union(self._plain, self._limits)
        for i in self._nodes:
            if self.space.kinds[i] in ("leaf", "view") or i in gone:
                continue
            for b in dict.fromkeys(self.space.buffer[c] for c in self.space.outputs[i]):
                if b not in self.space.operands[i]:
                    producers.setdefault(b, []).append(i)
        return {b: tuple(p) for b, p in producers.items()}

    @cached_property
    def relaxed(self) -> dict[int, tuple[int, ...]]:
        """Per buffer: the `relax` nodes that see another buffer as this one, for free."""
        relaxed: dict[int, list[int]] = {}
        for i in self._nodes:
            n = self.space.egraph.nodes[i]
            b = self.space.buffer[n.eclass]
            if n.op == "relax" and self.space.operands[i] != (b,):
                relaxed.setdefault(b, []).append(i)
        return {b: tuple(p) for b, p in relaxed.items()}

    @cached_property
    def fills(self) -> dict[int, int]:
        """Per buffer that holds one value everywhere: its `fill` node."""
        nodes = self.space.egraph.nodes
        fills: dict[int, int] = {}
        for i in self._nodes:
            if nodes[i].op == "fill":
                fills.setdefault(self.space.buffer[nodes[i].eclass], i)
        return fills

    @cached_property
    def ahead(self) -> dict[int, int]:
        """Per buffer that needs only weights and constants: the node of its cheapest derivation.

        Cost is the number of nodes; ties go to the smaller node number.
        """
        return self._cheapest(self._ahead_cost)

    @cached_property
    def constants(self) -> dict[int, int]:
        """Per buffer that needs nothing but fills: the node of its cheapest derivation.

        Part of what is computed from weights; by itself a constant is computed where it is read,
        as memory costs more than arithmetic.
        """
        return self._cheapest(self._constant_cost)

    def _cheapest(self, cost_of: Callable[[int, dict[int, int]], int | None]) -> dict[int, int]:
        costs: dict[int, int] = {}
        options = [i for i in self._nodes if self._may_be_ahead(i)]
        changed = True
        while changed:
            changed = False
            for i in options:
                cost = cost_of(i, costs)
                b = self.space.buffer[self.space.egraph.nodes[i].eclass]
                if cost is not None and cost < costs.get(b, 1 << 60):
                    costs[b], changed = cost, True
        best: dict[int, int] = {}
        for i in options:
            b = self.space.buffer[self.space.egraph.nodes[i].eclass]
            if b in costs and cost_of(i, costs) == costs[b]:
                best.setdefault(b, i)
        return best

    def _may_be_ahead(self, node: int) -> bool:
        n = self.space.egraph.nodes[node]
        single = n.op == "result" and len(self.space.egraph.types[n.children[0]]) == 1
        return n.op not in ("input", "fill", "reshape") and not single

    def _ahead_cost(self, node: int, costs: dict[int, int]) -> int | None:
        if self.space.egraph.nodes[node].op == "weight":
            return 1
        operands = self.space.operands[node]
        constant = self.fills.keys() | self.constants.keys()
        weights = [o for o in operands if o in costs or o not in constant]
        if not weights or any(o not in costs for o in weights):
            return None
        return 1 + sum(costs[o] for o in weights)

    def _constant_cost(self, node: int, costs: dict[int, int]) -> int | None:
        if self.space.egraph.nodes[node].op in ("weight", "opaque", *CONTROL):
            return None
        rest = [o for o in self.space.operands[node] if o not in self.fills]
        return None if any(o not in costs for o in rest) else 1 + sum(costs[o] for o in rest)

    @cached_property
    def resident(self) -> frozenset[int]:
        """Ahead buffers a dispatch may read; those that are `relax`ed views are read through."""
        nodes = self.space.egraph.nodes
        single = (b for b, i in self.ahead.items() if nodes[i].op != "relax")
        return frozenset(b for b in single if len(self.space.egraph.types[b]) == 1)

    @cached_property
    def optional(self) -> frozenset[int]:
        """Of these, those that may be made in every run instead, where that can be better."""
        return found_optional(self)

    @cached_property
    def derivations(self) -> dict[int, list[frozenset[int]]]:
        """Per value: the values each node reads that computes it anew."""
        return derivations(self)

    @cached_property
    def necessity(self) -> dict[int, int]:
        """Per value that is computed at run time: those that every derivation computes, as bits."""
        return necessity(self)

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """Values every answer computes."""
        return needed_values(self)

    @cached_property
    def served(self) -> dict[int, frozenset[int]]:
        """Per node: needed values of which every answer holds one of the nodes that serve it."""
        return served_values(self)

    @cached_property
    def behind(self) -> dict[int, frozenset[int]]:
        """Per value computed at run time: itself, and those that stand in its place."""
        return values_behind(self)

    @cached_property
    def waits(self) -> Waits:
        return Waits(self)

    @cached_property
    def held(self) -> frozenset[int]:
        """Buffers that are there before the first dispatch, whatever is chosen."""
        return (self.space.inputs | self.resident) - self.optional

    def ahead_nodes(self, buffers: Iterable[int]) -> tuple[int, ...]:
        """The nodes that compute these buffers from weights, operands first.

        The weights come before all others, in the order of the program.
        """
        done: dict[int, None] = {}
        for b in sorted(buffers):
            self._add_ahead(b, done)
        nodes = self.space.egraph.nodes
        weights = sorted(i for i in done if nodes[i].op == "weight")
        return (*weights, *(i for i in done if nodes[i].op != "weight"))

    def _add_ahead(self, buffer: int, done: dict[int, None]) -> None:
        stack = [(buffer, False)]
        while stack:
            b, ready = stack.pop()
            node = self.ahead.get(b, self.fills.get(b, self.constants.get(b)))
            assert node is not None, f"buffer {b} has no derivation from weights"
            if ready:
                done.setdefault(node)
            elif node not in done:
                stack.append((b, True))
                stack += [(o, False) for o in reversed(self.space.operands[node])]


@dataclass(frozen=True)
class DevicePool:
    """A pool on one device; `device` says whose dispatches are made, if there are several."""

    pool: Pool
    costs: Costs
    device: str = ""

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def legality(self) -> Legality:
        return self.pool.legality.part(self.device)


CALLER = -1  # who reads results
AGAIN = -2  # who reads a second time what is made from a weight


def found_optional(pool: Pool) -> frozenset[int]:
    """Buffers computed from weights that may be better made at run time; results stay weights."""
    space, target = pool.space, pool.legality.target
    if target.devices and not target.has_parts:
        return frozenset()
    optional = {
        b
        for b in pool.resident - frozenset(space.roots)
        if pool.producers.get(b) and space.nbytes(b) > pool.small_bytes
    }
    if not optional:
        return frozenset()
    if target.originals == HELD and not pool.asked.isdisjoint(OTHERS):
        return frozenset(optional)
    if target.originals == DROPPED and "load_peak" in pool.asked:
        return frozenset(optional)
    sources, users = sources_of(pool), _users(pool)
    return frozenset(
        b
        for b in optional
        if space.nbytes(b) > sum(space.nbytes(s) for s in sources[b])
        or any(len(users[s]) > 1 for s in sources[b])
    )


def small_bytes(target: Target, goals: Sequence[GoalRequest]) -> int:
    """Bytes of what is not worth a dispatch that makes it in every run, where time comes first.

    Reading it from the slowest memory takes no longer than the launch of that dispatch. 0 where
    bytes of weights may decide: they come first or have a budget, or time has a tolerance or a
    weight.
    """
    first = goals[0]
    if (
        first != GoalRequest("time")
        or not dict(target.budget).keys().isdisjoint(OTHERS)
        or not target.memory
    ):
        return 0
    slowest = min(m.bandwidth for m in target.memory)
    return int(target.launch_ps * slowest / PS_PER_SECOND)


def sources_of(pool: Pool) -> dict[int, frozenset[int]]:
    """Per buffer that is computed from weights: the weights it is made from ahead of time."""
    space, sources = pool.space, dict[int, frozenset[int]]()
    for b in pool.ahead:
        for node in pool.ahead_nodes([b]):
            buffer = space.buffer[space.egraph.nodes[node].eclass]
            if buffer in sources:
                continue
            if space.egraph.nodes[node].op == "weight":
                sources[buffer] = frozenset({buffer})
            else:
                below = (sources.get(o, frozenset()) for o in space.operands[node])
                sources[buffer] = frozenset().union(*below)
    return sources


def _users(pool: Pool) -> dict[int, set[int]]:
    """Per weight: the values computed at run time that read something made from it."""
    space = pool.space
    by_value: dict[int, set[int]] = {}
    for b, sources in sources_of(pool).items():
        by_value.setdefault(space.value[b], set()).update(sources)
    users_of: dict[int, set[int]] = {s: set() for s in set().union(*by_value.values())}
    for value in by_value.keys() & {space.value[r] for r in space.roots}:
        for s in by_value[value]:
            users_of[s].add(CALLER)
    twice: dict[tuple[int, int], set[int]] = {}  # value that may be computed twice, weight -> reads
    for node, values in _computing(pool):
        reads = [
            (s, o) for o in set(space.operands[node]) for s in by_value.get(space.value[o], ())
        ]
        counts = Counter(s for s, _ in reads)
        for s, count in counts.items():
            users_of[s].update(values, [AGAIN] if count > 1 else [])
        if pool.legality.of((node,)).is_cloneable(node):
            for s, o in reads:
                twice.setdefault((min(values), s), set()).add(o)
    for (_, s), layouts in twice.items():
        users_of[s].update([AGAIN] if len(layouts) > 1 else [])
    return {s: _at_once(users, pool.behind) for s, users in users_of.items()}


def _at_once(users: set[int], behind: Mapping[int, frozenset[int]]) -> set[int]:
    """Without values that stand in place of another one; of a circle the least stays."""
    nobody = frozenset[int]()
    return {
        u
        for u in users
        if not any(
            u in behind.get(v, nobody) and (v not in behind.get(u, nobody) or v < u)
            for v in users - {u}
        )
    }


def _computing(pool: Pool) -> Iterator[tuple[int, set[int]]]:
    """Nodes that compute values at run time, and these."""
    space = pool.space
    there = {space.value[b] for b in pool.ahead}
    for i, is_op in enumerate(space.is_op):
        values = {space.value[c] for c in space.outputs[i]} - there
        if is_op and space.kinds[i] != "conversion" and values:
            yield i, values


# ---- what weights take while they are packed -----------------------------------------------------
# Weights are packed in the order of the program. All originals are there at first. Each layout that
# is kept is made in one pass, in the turn of the last weight it is made from; an original goes
# after the last turn that needs it, unless it is kept itself.
Term = tuple[int, tuple[int, ...]]


def originals_held(pool: Pool) -> frozenset[int]:
    """Weights that are in memory whatever is chosen, as the caller holds them."""
    if pool.legality.target.originals != HELD:
        return frozenset()
    return frozenset(_originals(pool))


def _originals(pool: Pool) -> list[int]:
    """The buffers of all weights, in the order of the program."""
    space = pool.space
    nodes = space.egraph.nodes
    return list(dict.fromkeys(space.buffer[n.eclass] for n in nodes if n.op == "weight"))


def kept_rows(pool: Pool) -> dict[str, tuple[KeptRow, ...]]:
    """Per goal about bytes of weights that is asked for: the rows of which it is the largest."""
    rows: dict[str, tuple[KeptRow, ...]] = {}
    if "resident" in pool.asked:
        rows["resident"] = (_resident(pool),)
    if "load_peak" in pool.asked:
        drops = pool.legality.target.originals == DROPPED
        rows["load_peak"] = _turns(pool) if drops else (_resident(pool),)
    return rows


def _always(pool: Pool) -> frozenset[int]:
    """Kept whatever is chosen: weights that are results, and those the caller holds."""
    roots = (r for r in pool.space.roots if r in pool.resident)
    return originals_held(pool).union(roots)


def _resident(pool: Pool) -> KeptRow:
    size, always = pool.space.nbytes, _always(pool)
    terms = tuple((size(b), (b,)) for b in sorted(pool.resident - always))
    return KeptRow(sum(map(size, always)), terms)


def _turns(pool: Pool) -> tuple[KeptRow, ...]:
    """A row per weight of which a layout may be kept, and one for the originals alone."""
    sources, always = sources_of(pool), _always(pool)
    turn = {w: n for n, w in enumerate(_originals(pool))}
    resident = sorted(pool.resident)
    last = {b: max(turn[w] for w in sources[b]) for b in resident}
    computed = [b for b in resident if sources[b] != {b}]
    rows = []
    for t in sorted({last[b] for b in computed}) or [len(turn)]:
        terms: list[Term] = []
        for w in turn:
            needed = (w, *(b for b in computed if w in sources[b] and last[b] >= t))
            terms.append((pool.space.nbytes(w), needed))
        terms += [(pool.space.nbytes(b), (b,)) for b in computed if last[b] <= t]
        rows.append(_row(terms, always))
    return tuple(dict.fromkeys(rows))


def _row(terms: list[Term], always: frozenset[int]) -> KeptRow:
    fixed = [n for n, any_of in terms if not always.isdisjoint(any_of)]
    return KeptRow(sum(fixed), tuple(t for t in terms if always.isdisjoint(t[1])))
