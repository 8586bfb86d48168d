"""A schedule on a mesh as a choice: an op and a holder per value, conversions as their edges.

An op's strategies are what the axes cut; a holder's are the spreads in which the value is kept for
its readers. The edge from an op to its holder is the conversion behind the op, paid once; an edge
from a holder to a reader is one for that reader alone. Weights and arguments have a holder only.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from eqsat.extract.mesh.options import HELP, Permitted, Works
from eqsat.model.diag import fail
from eqsat.model.mesh import SLICE, MeshStep, Spread, is_partial
from eqsat.model.sets import by_key
from eqsat.model.sharding import FORBIDDEN, ShardEdge, ShardExcess, ShardNode, ShardProblem
from eqsat.model.tensor import TensorType
from eqsat.ops.mesh.collectives import MeshMachine, conversion
from eqsat.ops.mesh.gathers import batch_dims
from eqsat.ops.mesh.runorder import run_order
from eqsat.ops.mesh.strategies import Permits, Strategy, strategies

# of a place between op and holder, or holder and reader: what may become of the value there
Sending = Literal["kept", "unsent", "sent"]
UNIT_PS = 1_000  # of costs: what is shorter decides nothing


@dataclass(frozen=True, eq=False)
class PairTable:
    """Row per strategy of the first node, column per strategy of the second.

    Rows and columns that are alike are stated once: `rows[s]` is the line of strategy s.
    """

    rows: Sequence[int]
    columns: Sequence[int]
    costs: Sequence[Sequence[int]]
    usages: Sequence[Sequence[int]]

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Lines that are allowed together."""
        lines = enumerate(self.costs)
        return [(r, c) for r, line in lines for c, cost in enumerate(line) if cost < FORBIDDEN]

    @cached_property
    def uses(self) -> bool:
        return any(self.usages[r][c] for r, c in self.pairs)

    @cached_property
    def flat(self) -> list[int]:
        """Costs of a `ShardEdge`."""
        return np.array(self.costs)[np.ix_(self.rows, self.columns)].ravel().tolist()

    @cached_property
    def to_ends(self) -> tuple[list[int], list[int]]:
        """Costs of the edges from the node of its pairs to both of its ends."""
        first, second = zip(*self.pairs, strict=True)
        return _matching(first, self.rows), _matching(second, self.columns)


def _matching(lines: Sequence[int], other: Sequence[int]) -> list[int]:
    """A `ShardEdge` between nodes whose strategies have these lines: both have the same one."""
    differ = np.array(lines)[:, None] != np.array(other)
    return (differ * FORBIDDEN).ravel().tolist()


class SpreadChoice:
    """The choice of spreads as a problem of `eqsat shard`; all nodes first, then all edges.

    A pair of strategies that holds something is a node of its own, with an edge to each of the two
    that allows what it pairs: so all that uses memory is a node. Nodes of one group are equal,
    by an edge.

    spare: bytes of each step but the last, `steps` - 1, that lie in another memory.
    """

    def __init__(self, steps: int, spare: int = 0):
        self.steps, self.spare = steps, spare
        self.nodes: list[ShardNode] = []
        self.edges: list[ShardEdge] = []
        self.excesses: list[ShardExcess] = []
        self.group: list[int] = []
        self._tables: list[tuple[int, int, PairTable]] = []
        self._alike: dict[tuple[int, int, int], int] = {}

    def add_node(self, node: ShardNode, like: int | None = None) -> int:
        """Its number; it takes the strategy of `like`."""
        number = len(self.nodes)
        self.nodes.append(node)
        self.group.append(number if like is None else like)
        if self.group[-1] != number:
            every = range(len(node.costs))
            self.edges.append(ShardEdge(self.group[-1], number, _matching(every, every)))
        return number

    def add_edge(self, first: int, second: int, table: PairTable, lower: int, upper: int) -> None:
        """An edge: costs of two nodes together, and what they hold in steps lower <= t < upper."""
        if not table.uses:
            self.edges.append(ShardEdge(first, second, table.flat))
            return
        costs = tuple(table.costs[r][c] for r, c in table.pairs)
        usages = tuple(table.usages[r][c] for r, c in table.pairs)
        key = self.group[first], self.group[second], id(table)
        number = self.add_node(ShardNode(costs, usages, lower, upper), self._alike.get(key))
        self._alike.setdefault(key, number)
        self._tables.append((first, second, table))
        if self.group[number] == number:
            for end, matching in zip((first, second), table.to_ends, strict=True):
                self.edges.append(ShardEdge(number, end, matching))

    def problem(self, limit: int | None) -> ShardProblem:
        """Within so many bytes: spare ones are part of the limit, and used in the last step."""
        most = sum(max(n.usages) for n in self.nodes) if limit is None else limit
        spare = ShardNode((0,), (self.spare,), self.steps - 1, self.steps)
        return ShardProblem((*self.nodes, spare), self.edges, most + self.spare, self.excesses)

    def completed(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """Strategies of all nodes of the problem, from those of the nodes; none if not allowed."""
        complete = list(chosen)
        for first, second, table in self._tables:
            pair = table.rows[chosen[first]], table.columns[chosen[second]]
            if pair not in table.pairs:
                return ()
            complete.append(table.pairs.index(pair))
        return (*complete, 0)

    def peak(self, strategies: Sequence[int]) -> int:
        """Bytes at the worst step."""
        return self.problem(0).most_used(strategies)[0] - self.spare


@dataclass(frozen=True)
class Life:
    """Steps in which a value is read or written, half-open, and whether it is in memory anyway."""

    lower: int
    upper: int
    is_buffer: bool


class Spreads:
    """The choice of spreads of one schedule.

    permits: the rules that say what may be chosen. wanted: node → spread that an argument or result
    must have; chained: pairs of an argument and a result that have one spread. alike: node → a
    number of those that take one strategy. barred: (value, reader), or -1 for behind its op, where
    nothing may be sent.
    """

    def __init__(
        self,
        works: Works,
        machine: MeshMachine,
        permits: Permits,
        wanted: Mapping[int, Spread],
        chained: Iterable[tuple[int, int]] = (),
        alike: Sequence[int] | None = None,
        barred: Container[tuple[int, int]] = (),
    ):
        self.works, self.machine, self.mesh = works, machine, works.mesh
        self.schedule, self.program = works.schedule, works.schedule.program
        self.wanted, self.chained, self.alike = wanted, tuple(chained), alike
        self.barred, self.permits = barred, permits

    # ---- values --------------------------------------------------------------------------------
    @cached_property
    def ops(self) -> tuple[int, ...]:
        """Nodes that a call computes, in program order."""
        return tuple(sorted(self.made_at))

    @cached_property
    def made_at(self) -> dict[int, int]:
        """Op → the dispatch that computes it first."""
        return run_order(self.schedule)

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """Leaves that are read or returned: arguments, weights, there before any dispatch."""
        computed = set(self.ops)
        read = {o for m in self.ops for o in self.program.nodes[m].operands}
        return tuple(sorted((read | {*self.program.results, *self.program.inputs}) - computed))

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """Value → the ops that read it, each once."""
        readers: dict[int, list[int]] = {v: [] for v in (*self.leaves, *self.ops)}
        for m in self.ops:
            for o in dict.fromkeys(self.program.nodes[m].operands):
                readers[o].append(m)
        return readers

    @cached_property
    def lives(self) -> dict[int, Life]:
        """Arguments, weights and results are there all the time, in a last step they are alone."""
        dispatches = enumerate(self.schedule.dispatches)
        steps = by_key((m, number) for number, d in dispatches for m in d.members)
        owned = {*self.leaves, *self.program.results}
        buffers = {w for d in self.schedule.dispatches for w in d.writes} | owned
        lives = {}
        for v, readers in self.readers.items():
            at = [s for m in (v, *readers) for s in steps.get(m, ())]
            at += [self.made_at[m] for m in (v, *readers) if m in self.made_at]
            whole = v in owned
            lower = 0 if whole else min(at)
            upper = self.steps + 1 if whole else max(at) + 1
            lives[v] = Life(lower, upper, v in buffers)
        return lives

    @property
    def steps(self) -> int:
        return max(len(self.schedule.dispatches), 1)

    def type(self, v: int) -> TensorType:
        """Of a value; of several results of one op that of the widest, as all have one shape."""
        return max(self.program.nodes[v].types, key=lambda t: t.nbytes)

    @cached_property
    def permitted(self) -> Permitted:
        """The choices that rules permit here, and by which of them."""
        return Permitted(self.program, self.ops, self.leaves, self.mesh, self.permits)

    # ---- strategies ----------------------------------------------------------------------------
    @cached_property
    def strategies(self) -> dict[int, tuple[Strategy, ...]]:
        """Per op what the rules permit."""
        return {m: self.permitted.strategies(m, every) for m, every in self.possible.items()}

    @cached_property
    def possible(self) -> dict[int, tuple[Strategy, ...]]:
        """Per op all there is, whatever the rules say."""
        possible = {}
        for m in self.ops:
            n = self.program.nodes[m]
            shapes = tuple(self.type(o).shape for o in n.operands)
            result, batch = self.type(m), batch_dims(self.program, m)
            every = strategies(n.op, n.attr, shapes, result.shape, self.mesh, batch)
            # nothing adds up truth values
            possible[m] = tuple(s for s in every if result.dtype != "bool" or "add" not in s.made)
        return possible

    @cached_property
    def held(self) -> dict[int, tuple[Spread, ...]]:
        """The spreads in which a value may be kept: those that its op makes or a reader wants.

        An argument or weight also as readers could want it that no rule permits: it may be
        gathered for those that are permitted. What the caller asked for needs no rule.
        """
        return {v: self._held(v) for v in (*self.leaves, *self.ops)}

    def _held(self, v: int) -> tuple[Spread, ...]:
        if v in self.wanted:
            return (self.wanted[v],)
        strategies = self.possible if v not in self.strategies else self.strategies
        reads = dict.fromkeys(
            s.reads[i]
            for m in self.readers[v]
            for i, o in enumerate(self.program.nodes[m].operands)
            if o == v
            for s in strategies[m]
        )
        result_spreads = [s.made for s in self.strategies.get(v, ())]
        inner = v in self.strategies and v not in self.program.results
        spreads = tuple(
            s
            for s in dict.fromkeys([self.mesh.whole, *result_spreads, *reads])
            if not is_partial(s) or (inner and s in result_spreads)
        )
        permitted = tuple(s for s in spreads if self.permitted.keeps(v, s))
        if not permitted:
            what = f"no rule of spreads permits to keep `{self.program.value_name(v)}` on the mesh"
            raise fail("E233", what, help=HELP)
        return permitted

    # ---- the choice ----------------------------------------------------------------------------
    @cached_property
    def place(self) -> dict[tuple[str, int], int]:
        """(`op` or `held`, node) → number in the choice."""
        keys = [("op", m) for m in self.ops] + [("held", v) for v in (*self.leaves, *self.ops)]
        return {key: i for i, key in enumerate(keys)}

    @cached_property
    def choice(self) -> SpreadChoice:
        """The whole problem, its costs in units of UNIT_PS."""
        choice = SpreadChoice(self.steps + 1, self._spare)
        first: dict[object, int] = {}
        for number, (kind, v) in enumerate(self.place):
            node = self._op(v) if kind == "op" else self._holder(v)
            like = number
            if self.alike is not None:
                size = len(self.strategies[v]) if kind == "op" else self.held[v]
                like = first.setdefault((kind, self.alike[v], size), number)
            choice.add_node(node, like)
        for m in self.ops:
            self._behind(choice, m)
        for v, readers in self.readers.items():
            for m in readers:
                self._before(choice, v, m)
        for a, r in self.chained:
            self._chain(choice, a, r)
        for number, d in enumerate(self.schedule.dispatches):
            choice.excesses.append(self._excess(number, d.members))
        return choice

    @cached_property
    def _spare(self) -> int:
        """Bytes of a memory in which compilers keep temporaries."""
        return sum(m.size_bytes for m in self.works.target.memory[:-1] if m.temporaries)

    def _op(self, m: int) -> ShardNode:
        """The node of an op: its time with the panels that it gathers, and the bytes of those."""
        dispatches = self.works.dispatches_of.get(m, ())
        costs, held = [], []
        for s in self.strategies[m]:
            own = math.fsum(self.works.sides_ps(d, m, s)[0] for d in dispatches)
            streams = self.works.streams(m, s, self.machine)
            sent = s.panels * sum(step.time_ps for each in streams for step in each.steps)
            costs.append(round((own + sent) / UNIT_PS))
            held.append(self.works.panel_bytes(m, s))
        step = self.made_at[m]
        return ShardNode(tuple(costs), tuple(held), step, step + 1)

    def _excess(self, number: int, members: Sequence[int]) -> ShardExcess:
        """By how much the other side of a dispatch, arithmetic or traffic, is the longer one."""
        sides = (
            [self.works.sides_ps(number, m, s)[1] / UNIT_PS for s in self.strategies[m]]
            for m in members
        )
        costs = tuple(tuple(map(round, excess)) for excess in sides)
        return ShardExcess(tuple(self.place["op", m] for m in members), costs)

    def _holder(self, v: int) -> ShardNode:
        life, spreads = self.lives[v], self.held[v]
        nbytes = [self.bytes(v, s) if life.is_buffer else 0 for s in spreads]
        return ShardNode((0,) * len(spreads), tuple(nbytes), life.lower, life.upper)

    def bytes(self, v: int, spread: Spread) -> int:
        """Of all results of an op on one device."""
        types = self.program.nodes[v].types
        return sum(self.works.local_bytes(t, spread) for t in types)

    def _behind(self, choice: SpreadChoice, m: int) -> None:
        """Edges of a value that is converted beside what its op made.

        It lies there in the step that makes it; in a dispatch it has to be in memory besides,
        as long as it is read.

        What only a movement reads that leaves no more than it takes is converted behind that, as
        then less is sent.
        """
        life = self.lives[m]
        result_spreads = [s.made for s in self.strategies[m]]
        only = self.readers[m] if m not in self.program.results else []
        moving = ("reshape", "transpose", "result", "slice")
        is_kept = len(only) == 1 and self.program.nodes[only[0]].op in moving
        mode: Sending = "kept" if is_kept else self._mode(m, -1)
        table = self._table(m, result_spreads, self.held[m], mode, in_memory=life.is_buffer)
        lower = self.made_at[m] if life.is_buffer else life.lower
        upper = lower + 1 if life.is_buffer else life.upper
        choice.add_edge(self.place["op", m], self.place["held", m], table, lower, upper)

    def _mode(self, v: int, reader: int) -> Sending:
        return "unsent" if (v, reader) in self.barred else "sent"

    def _before(self, choice: SpreadChoice, v: int, m: int) -> None:
        """Edges of a value of one reader, which is converted behind its op."""
        at = self.program.nodes[m].operands.index(v)
        reads = [s.reads[at] for s in self.strategies[m]]
        is_kept = v in self.strategies and len(self.readers[v]) == 1
        is_kept &= v not in self.program.results
        mode: Sending = "kept" if is_kept else self._mode(v, m)
        table = self._table(v, self.held[v], reads, mode, in_memory=False)
        step = self.made_at[m]
        choice.add_edge(self.place["held", v], self.place["op", m], table, step, step + 1)

    def _table(
        self,
        v: int,
        origins: Sequence[Spread],
        results: Sequence[Spread],
        mode: Sending,
        *,
        in_memory: bool,
    ) -> PairTable:
        """Conversions of a value; in_memory: its origin lies in memory, too."""
        whole = self.bytes(v, self.mesh.whole)
        key = (
            self.type(v), whole, tuple(origins), tuple(results), mode, in_memory,
            self.permitted.allowed(v),
        )  # fmt: skip
        if key not in self._tables:
            rows, columns = list(dict.fromkeys(origins)), list(dict.fromkeys(results))
            pairs = [[self._pair(v, a, b, mode, in_memory) for b in columns] for a in rows]
            self._tables[key] = PairTable(
                [rows.index(s) for s in origins],
                [columns.index(s) for s in results],
                [[cost for cost, _ in line] for line in pairs],
                [[usage for _, usage in line] for line in pairs],
            )
        return self._tables[key]

    @cached_property
    def _tables(self) -> dict[object, PairTable]:
        return {}

    def _pair(
        self, v: int, a: Spread, b: Spread, mode: Sending, in_memory: bool
    ) -> tuple[int, int]:
        if mode == "kept" and a != b:
            return FORBIDDEN, 0
        steps = self.conversion(v, a, b)
        if steps is None:
            return FORBIDDEN, 0
        cost = round(sum(s.time_ps for s in steps) / UNIT_PS)
        if all(s.kind == SLICE for s in steps):
            return cost, 0  # read where it lies
        if mode == "unsent":
            return FORBIDDEN, 0
        return cost, self.bytes(v, a if in_memory else b)

    def conversion(self, v: int, a: Spread, b: Spread) -> tuple[MeshStep, ...] | None:
        """The cheapest conversion of a value that rules permit; None if there is none."""
        return conversion(a, b, self.type(v), self.machine, self.permitted.allowed(v))

    def _chain(self, choice: SpreadChoice, argument: int, result: int) -> None:
        """A result leaves as the argument came in."""
        a, b = self.held[argument], self.held[result]
        costs = [[0 if s == t else FORBIDDEN for t in b] for s in a]
        table = PairTable(range(len(a)), range(len(b)), costs, [[0] * len(b)] * len(a))
        choice.add_edge(self.place["held", argument], self.place["held", result], table, 0, 0)
