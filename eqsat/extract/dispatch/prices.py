"""Prices of dispatches: picoseconds and bytes, integers, the same for solver and checker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.candidates.space import MOVING
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.nodes import Gathered, NodePrices
from eqsat.extract.dispatch.pipelines import Way, cut, needs_pipeline
from eqsat.extract.dispatch.plans import OpPrices, PlanPrices
from eqsat.model.control import Control
from eqsat.model.devices import PS_PER_SECOND, Transfer
from eqsat.model.generic import Generic
from eqsat.model.nest import NoNest
from eqsat.model.pipelines import Pipeline
from eqsat.model.selection import Group
from eqsat.model.tensor import DTYPES

if TYPE_CHECKING:
    from eqsat.extract.groups.grow import Candidate

UNASKED = -1  # instead of a time that only the plan of a dispatch tells


@dataclass(frozen=True)
class Costs(NodePrices):
    """Prices of the nodes and groups of one e-graph on one target.

    On a target with kernels a dispatch costs what its plan does (`planned`), and one without a plan
    what XLA takes for its ops one by one (`opprices`). On other targets a roofline prices it.
    """

    @cached_property
    def _planned(self) -> PlanPrices | None:
        return self.space.remembered(PlanPrices, self.target) if self.target.is_planned else None

    @cached_property
    def one_by_one(self) -> OpPrices:
        """Prices of what has no plan."""
        return OpPrices(self)

    @cached_property
    def _work(self) -> tuple[tuple[int, float] | None, ...]:
        """Per node: operations of one run of its body, and how many a second; None: free."""
        nodes = self.space.egraph.nodes
        if not self.target.rates:
            return (None,) * len(nodes)
        return tuple(self._work_of(i, k) for i, k in enumerate(self.space.kinds))

    def _work_of(self, node: int, kind: str) -> tuple[int, float] | None:
        operations = self._operations(self.space.egraph.nodes[node], kind == "contraction")
        if not operations:
            return None
        share = self.share(node) if kind == "contraction" else self.target.elementwise_rate
        rate = self._peak(node)
        assert rate is not None, "targets without rates were handled above"
        rates = [self._piped(node, p) for p in self.target.pipelines]
        piped = [r for r in rates if r is not None]
        return operations, max(piped, default=rate * share / self._padding_of(node))

    def _padding_of(self, node: int) -> float:
        """The padding factor of a node's largest tensor: computed elements by elements there are.

        Vector units work on rows of lanes as memory has them, so what is padded there is computed.
        """
        if self.target.padding is None:
            return 1.0
        n = self.space.egraph.nodes[node]
        sizes = [(self.space.type(c).nbytes, self.space.nbytes(c)) for c in (*n.children, n.eclass)]
        plain, padded = max(sizes) if self.space.kinds[node] != "contraction" else sizes[-1]
        return max(1.0, padded / max(1, plain))

    # ---- pipelines -----------------------------------------------------------------------------
    @cached_property
    def _legality(self) -> Legality:
        return Legality(self.space, self.target)

    def _piped(self, node: int, pipeline: Pipeline) -> float | None:
        """Useful operations a second of an unpacked contraction: padding is computed as well.

        None if the pipeline does not take it.
        """
        g = self.space.egraph.nodes[node].attr
        if not isinstance(g, Generic) or not needs_pipeline(g):
            return None
        workgroup = cut(g, pipeline, self.target.padding)
        if workgroup is None:
            return None
        pipeline_peak = pipeline.peak(g.dtypes[0], g.precision)
        peak = self._peak(node) if pipeline_peak is None else pipeline_peak
        assert peak is not None, "targets without rates are not asked"
        share = self.share(node) if pipeline.rate is None else pipeline.rate
        return peak * share * self.iterations[node] / max(1, workgroup.computed)

    def _ways(self, members: Iterable[int]) -> list[Way]:
        """The pipelines that a dispatch may be computed by."""
        legality = self._legality
        return [w for w in legality.ways(legality.roots_inside(members)) if legality.fits(w)]

    def pipeline_of(self, members: tuple[int, ...]) -> str:
        """The pipeline that takes the least time, the first listed of equal ones; "" if none."""
        if not self.target.pipelines:
            return ""
        runs = self.runs(members)
        ways = self._ways(members)
        return min(ways, key=lambda w: self.arithmetic_ps(members, runs, w)).name if ways else ""

    def arithmetic_ps(
        self, members: Iterable[int], runs: Mapping[int, int], way: Way | None
    ) -> float:
        """Picoseconds of all members' arithmetic, by one pipeline or each by its best.

        The same in whatever order members come.
        """
        pipeline = None if way is None else way.pipeline
        times: list[float] = []
        for m in members:
            work = self._work[m]
            piped = None if pipeline is None or work is None else self._piped(m, pipeline)
            if work is not None and piped:
                times.append(work[0] * runs[m] * PS_PER_SECOND / piped)
            elif work is not None:
                times.append(self.compute_ps(m, runs[m]))
        return math.fsum(times)

    def _least_ps(
        self, members: tuple[int, ...], busy: list[int], runs: Mapping[int, int], pipeline: str
    ) -> float:
        """Picoseconds of arithmetic by the named pipeline, or by the best that may be used."""
        ways: list[Way] = []
        if self.target.pipelines and not self._piped_nodes.isdisjoint(busy):
            ways = [w for w in self._ways(members) if w.name == (pipeline or w.name)]
        return min([self.arithmetic_ps(busy, runs, w) for w in ways or (None,)])

    @cached_property
    def _piped_nodes(self) -> frozenset[int]:
        """Unpacked contractions."""
        attrs = ((i, n.attr) for i, n in enumerate(self.space.egraph.nodes))
        return frozenset(i for i, a in attrs if isinstance(a, Generic) and needs_pipeline(a))

    def compute_ps(self, node: int, runs: int) -> float:
        """Picoseconds of arithmetic if a node's body runs `runs` times."""
        work = self._work[node]
        return 0.0 if work is None else work[0] * runs * PS_PER_SECOND / work[1]

    @cached_property
    def least_run_ps(self) -> tuple[float, ...]:
        """Per node: `least_ps` of one run of its body; every further one is as long."""
        return tuple(self.least_ps(i, 1) for i in range(len(self.space.kinds)))

    def least_ps(self, node: int, runs: int) -> float:
        """Picoseconds that no dispatch in which a node's body runs so often goes below.

        A plan may hide or share any arithmetic but that of contractions, whose multiply-adds fill
        vectors at best; what has no plan is no quicker than its ops by themselves.
        """
        if not self.target.is_planned:
            return self.compute_ps(node, runs)
        if self.space.kinds[node] != "contraction" or self._work[node] is None:
            return 0.0
        assert self.target.kernels is not None, "planned"
        machine, c = self.target.machine, self.target.kernels.constants
        dtype = self.space.type(self.space.egraph.nodes[node].children[0]).dtype
        lanes = machine.vector_bytes * 8 / DTYPES[dtype][0]
        products = runs * self.beside_pads[node]
        planned = products / lanes * min(c.fma_ps, c.scalar_ps) / machine.cores
        return min(planned, self.compute_ps(node, runs))

    def wider_ps(self, c: Candidate, extra: Sequence[int]) -> int:
        """Time of a candidate that also writes these buffers, which it computes inside, if any."""
        if self._planned is None:  # their traffic, as far as arithmetic does not hide it
            more = sum([self.class_ps[b] for b in extra]) * self.target.calls
            return c.time_ps + max(0, more - c.slack_ps)
        shown = tuple(w for w in c.exposable if self.space.buffer[w] in extra)
        return self.price(c.members, c.reads, (*shown, *c.writes))[0]

    def runs(self, members: tuple[int, ...]) -> dict[int, int]:
        """How often each member's body runs: as often as its most frequent reader inside.

        What a contraction reads that keeps rows of it runs once, what it stages once for each
        block. `members` are in topological order.
        """
        space, iterations, rules = self.space, self.iterations, self._legality
        maker_of = {b: m for m in members for b in space.output_buffers[m]}
        runs = dict.fromkeys(members, 0)
        for m in reversed(members):
            runs[m] = most = max(runs[m], iterations[m])
            if rules.row_blocks.keeps(m):
                continue
            stages = rules.stages(m)
            for i, b in enumerate(space.operands[m]):
                maker = maker_of.get(b)
                if maker is not None:
                    wanted = rules.staged_runs(m, i) if stages else most
                    runs[maker] = max(runs[maker], wanted)
        return runs

    @cached_property
    def gathered(self) -> Gathered:
        return Gathered(self.space)

    def reads_ps(
        self, members: tuple[int, ...], reads: Iterable[int], writes: Iterable[int]
    ) -> int:
        """Time to read these; of what gathers take rows of, the rows."""
        class_ps = self.class_ps
        if self.gathered.gathers.isdisjoint(members):
            return sum([class_ps[c] for c in reads])
        taken, buffer = self.gathered.taken(members, writes), self.space.buffer
        return sum(
            self._rows_ps(c, *taken[buffer[c]]) if buffer[c] in taken else class_ps[c]
            for c in reads
        )

    def _rows_ps(self, table: int, nbytes: int, is_whole: bool) -> int:
        """Rows of a table, at the bandwidth of the level that holds it, and maybe all of it.

        What the nearest level holds is read from beyond it once, however often rows are taken.
        """
        levels, whole = self.target.memory, self.space.nbytes(table)
        if whole <= levels[0].size_bytes:
            nbytes = whole if is_whole else min(nbytes, whole)
        elif is_whole:
            nbytes += whole
        bandwidth = self.level_of(max(whole, self.between(table))).bandwidth
        return round(nbytes * PS_PER_SECOND / bandwidth)

    @cached_property
    def calls(self) -> frozenset[int]:
        """Nodes that are calls of a library."""
        kinds = self.target.fusion.calls
        return frozenset(i for i, k in enumerate(self.space.kinds) if k in kinds)

    def handed(self, members: tuple[int, ...]) -> dict[int, int]:
        """Per buffer that library calls read of other members, or these of them: to write it.

        A call reads and writes in any order of dims, so conversions between are looked through.
        """
        if len(members) == 1 or self.calls.isdisjoint(members):
            return {}
        space, kinds, calls = self.space, self.space.kinds, self.calls
        maker_of = {b: m for m in members if kinds[m] != "leaf" for b in space.output_buffers[m]}
        held: dict[int, int] = {}
        for m in members:
            if kinds[m] in MOVING:
                continue
            for b, c in zip(space.operands[m], space.egraph.nodes[m].children, strict=True):
                behind = b
                while behind in maker_of and kinds[maker_of[behind]] in MOVING:
                    behind = space.operands[maker_of[behind]][0]
                if behind in maker_of and (m in calls or maker_of[behind] in calls):
                    held[behind] = self.class_ps[c]
        return held

    @cached_property
    def _control_ps(self) -> dict[int, int]:
        """Per loop or branch whose bodies are scheduled: its time."""
        nodes = self.space.egraph.nodes
        return {
            i: self._bodies_ps(n.attr)
            for i, n in enumerate(nodes)
            if isinstance(n.attr, Control) and n.attr.schedules
        }

    def _bodies_ps(self, attr: Control) -> int:
        """The dispatches of the bodies as often as they run, and copies of what is handed on.

        Where kernels run them, slices are read and written where they lie, and states are handed on
        by address: only XLA copies them.
        """
        if self.target.is_planned and attr.is_planned:
            return attr.total([s.time_ps for s in attr.schedules], self.target.trips)
        per_body = [
            s.time_ps + sum(2 * self.traffic_ps(t.nbytes) for t in copied)
            for s, copied in zip(attr.schedules, attr.copied, strict=True)
        ]
        if self.target.is_planned:
            copies = (self.target.launch_ps + 2 * self.traffic_ps(t.nbytes) for t in attr.sliced)
            per_body[-1] += sum(copies)
        return attr.total(per_body, self.target.trips)

    def _transfer_ps(self, node: int) -> int:
        """Picoseconds of a transfer: its bytes over the link, and the link's latency."""
        n = self.space.egraph.nodes[node]
        assert isinstance(n.attr, Transfer)
        link = self.target.link(n.attr.origin, n.attr.device)
        return link.price_ps(self.space.nbytes(n.eclass))

    def group_ps(
        self,
        members: tuple[int, ...],
        reads: Iterable[int],
        writes: Iterable[int],
        pipeline: str = "",
    ) -> int:
        """Time of a dispatch that reads and writes these classes."""
        return self.price(members, reads, writes, pipeline=pipeline)[0]

    def is_compute_bound(self, g: Group) -> bool:
        """Whether a dispatch computes for longer than it moves anything."""
        if self.known_ps(g.members) is not None:
            return False
        if self._planned is not None:
            with suppress(NoNest):
                return self._planned.parts(g.members, g.reads, g.writes).bound == "compute"
        return self.price(g.members, g.reads, g.writes, pipeline=g.pipeline)[1] > 0

    def stated(
        self,
        members: tuple[int, ...],
        reads: Iterable[int],
        writes: Iterable[int],
        runs: Mapping[int, int] | None = None,
    ) -> tuple[int, int]:
        """`price`, or UNASKED where it takes a plan: few candidates are ever worth one."""
        is_known = self.known_ps(members) is not None
        if self._planned is not None and not is_known:
            return UNASKED, 0
        return self.price(members, reads, writes, runs)

    def known_ps(self, members: Sequence[int]) -> int | None:
        """Time of a transfer, a loop or a branch, whatever it reads and writes."""
        if self.target.links and self.space.kinds[members[-1]] == "transfer":
            return self._transfer_ps(members[-1])
        control_ps = self._control_ps
        if control_ps and not control_ps.keys().isdisjoint(members):
            return next(control_ps[m] for m in members if m in control_ps)
        return None

    def price(
        self,
        members: tuple[int, ...],
        reads: Iterable[int],
        writes: Iterable[int],
        runs: Mapping[int, int] | None = None,
        pipeline: str = "",
    ) -> tuple[int, int]:
        """(time of a dispatch, traffic that could be added before it takes longer), picoseconds.

        `runs` of the members, if they are known already. Without a name, that of the best pipeline.
        Both are of as many runs as the target's `calls` says.
        """
        time_ps, slack_ps = self._price_once(members, reads, writes, runs, pipeline)
        return time_ps * self.target.calls, slack_ps * self.target.calls

    def _price_once(
        self,
        members: tuple[int, ...],
        reads: Iterable[int],
        writes: Iterable[int],
        runs: Mapping[int, int] | None,
        pipeline: str,
    ) -> tuple[int, int]:
        """`price` of one run."""
        fixed_ps, writes = self.known_ps(members), tuple(writes)
        if fixed_ps is not None:
            return fixed_ps, 0
        if self._planned is not None:
            time_ps = self._planned.time_ps(members, reads, writes)
            return self.one_by_one.dispatch_ps(members) if time_ps is None else time_ps, 0
        compute, traffic, relayout = self.sides(members, reads, writes, runs, pipeline)
        slack = max(0, math.ceil(compute) - traffic)
        return traffic + slack + relayout + self.target.launch_ps, slack

    def sides(
        self,
        members: tuple[int, ...],
        reads: Iterable[int],
        writes: Sequence[int],
        runs: Mapping[int, int] | None = None,
        pipeline: str = "",
    ) -> tuple[float, int, int]:
        """Picoseconds of arithmetic, of traffic, which hides behind it, and of relayout."""
        class_ps, compute = self.class_ps, 0.0
        busy = [m for m in members if self._work[m] is not None]
        if busy:
            runs = self.runs(members) if runs is None else runs
            compute = self._least_ps(members, busy, runs, pipeline)
        traffic = self.reads_ps(members, reads, writes) + sum([class_ps[c] for c in writes])
        handed = sum(self.handed(members).values())
        if handed:  # both sides of it are traffic; behind the calls' arithmetic only theirs hides
            traffic += 2 * handed
            calls = [self.compute_ps(m, runs[m]) for m in busy if runs and m in self.calls]
            compute = max(compute, math.fsum(calls) + handed)
        return compute, traffic, sum([self.relayout_ps[m] for m in members])
