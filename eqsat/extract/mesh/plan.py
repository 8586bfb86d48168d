"""The best spreads of a schedule as a plan, its alternatives, and its front of memory and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from eqsat.extract.mesh.alike import alike_layers
from eqsat.extract.mesh.build import Spreads
from eqsat.extract.mesh.choice import FORBIDDEN, SpreadChoice
from eqsat.extract.mesh.solve import SolvedSpreads, Solver
from eqsat.extract.mesh.works import Works
from eqsat.model.mesh import Mesh, Spread
from eqsat.model.meshplan import MeshPlan, PlanRule, Reshard, Sharded
from eqsat.model.rules import SpreadRule
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.ops.mesh.collectives import MeshMachine
from eqsat.ops.mesh.permits import Permits

LARGE = 90  # ops of a program whose equal layers take equal choices


class MeshPlanner:
    """Plans of one schedule on the mesh of its target.

    of: `answer` or `input`. rules: what may be chosen. wanted, chained: as of `Spreads`.
    """

    def __init__(
        self,
        schedule: Schedule,
        target: Target,
        of: str,
        rules: Sequence[SpreadRule],
        wanted: Mapping[int, Spread],
        chained: Sequence[tuple[int, int]],
        barred: Container[tuple[int, int]] = (),
    ):
        self.given = schedule, target, of, rules, wanted, chained
        if target.mesh is None:
            raise ValueError(f"target {target.name} has no mesh")
        self.schedule, self.of = schedule, of
        self.mesh: Mesh = target.mesh
        bandwidth = target.memory[-1].bandwidth
        self.works = Works(schedule, target, self.mesh)
        machine = MeshMachine(replace(self.mesh, shards=()), target.launch_ps, bandwidth)
        is_large = len({m for d in schedule.dispatches for m in d.members}) > LARGE
        alike = alike_layers(schedule) if is_large else None
        self.permits = Permits(rules)
        self.spreads = Spreads(self.works, machine, self.permits, wanted, chained, alike, barred)

    @cached_property
    def choice(self) -> SpreadChoice:
        return self.spreads.choice()

    def quickest(self, seconds: float, seed: int, limit: int | None = None) -> MeshPlan | str:
        """The quickest plan within so many bytes of a device; a status if none was found."""
        same = self._everywhere()
        found = Solver(self.choice, seconds, seed).quickest(limit, same)
        if found.status == "unknown" and self._is_admissible(same, limit):
            cost, peak = self.choice.cost(same), self.choice.peak(same)
            found = SolvedSpreads("feasible", same, cost, peak, max(found.bound, 0))
        return self.plan(found) if found.chosen else found.status

    def _everywhere(self) -> tuple[int, ...]:
        """Every op computes the same on all devices: what is asked of borders apart.

        Where rules forbid that, the first that they permit.
        """
        whole, spreads = self.mesh.whole, self.spreads
        return tuple(
            0 if kind == "op" or whole not in spreads.held[v] else spreads.held[v].index(whole)
            for kind, v in spreads.place
        )

    def _is_admissible(self, chosen: Sequence[int], limit: int | None) -> bool:
        if self.choice.cost(chosen) >= FORBIDDEN:
            return False
        return limit is None or self.choice.peak(chosen) <= limit

    def leanest(self, seconds: float, seed: int) -> MeshPlan | str:
        """The plan that holds least; its bound of time says nothing."""
        found = Solver(self.choice, seconds, seed).leanest()
        return self.plan(replace(found, bound=0)) if found.chosen else found.status

    def without(self, places: Iterable[tuple[int, int]]) -> MeshPlanner:
        """The planner of plans that send nothing for these: (value, its reader or -1 for all).

        The difference is the price of the collectives that stand there.
        """
        return MeshPlanner(*self.given, barred=frozenset(places))

    # ---- what was found, as a plan -------------------------------------------------------------
    def plan(self, found: SolvedSpreads) -> MeshPlan:
        """Every figure recomputed from the strategies alone."""
        chosen, spreads = found.chosen, self.spreads
        values = tuple(self._sharded(v, chosen) for v in (*spreads.leaves, *spreads.ops))
        values = tuple(sorted(values, key=lambda v: v.node))
        by_node = {v.node: v for v in values}
        reshards = tuple(self._reshards(by_node))
        compute = sum(v.time_ps for v in values) + self.works.launches_ps
        sent = sum(r.time_ps for r in reshards) + sum(v.stream_ps for v in values)
        weights = [v.node for v in values if v.node in spreads.leaves and not self._is_input(v)]
        return MeshPlan(
            mesh=self.mesh,
            of=self.of,
            values=values,
            reshards=reshards,
            time_ps=compute + sent,
            compute_ps=compute,
            sent_ps=sent,
            peak_bytes=self.choice.peak(chosen),
            resident_bytes=sum(spreads.bytes(v, by_node[v].held) for v in weights),
            bound_ps=min(found.bound + self.works.launches_ps, compute + sent),
            stop="proven" if found.status == "optimal" else "time",
            alike=self._most_alike(),
            single_ps=sum(d.time_ps for d in self.schedule.dispatches),
            single_bytes=self.schedule.peak_bytes,
            rules=self._rules(values, reshards),
        )

    def _is_input(self, v: Sharded) -> bool:
        return self.schedule.program.nodes[v.node].op == "input"

    def _most_alike(self) -> int:
        groups = list(self.choice.groups)
        return max(map(groups.count, set(groups)), default=1)

    def _sharded(self, v: int, chosen: Sequence[int]) -> Sharded:
        spreads = self.spreads
        held = spreads.held[v][chosen[spreads.place["held", v]]]
        if v not in spreads.strategies:
            kept = spreads.permitted.keep_rules(v, held)
            return Sharded(v, held, held, kept_by=_named(kept))
        s = spreads.strategies[v][chosen[spreads.place["op", v]]]
        kept, cut = spreads.permitted.keep_rules(v, held), spreads.permitted.cut_rules(v, s)
        return Sharded(
            v, s.made, held, s.reads, s.cuts, self.works.time_ps(v, s), _named(cut), _named(kept),
            s.taken, s.panels, self.works.streams(v, s, spreads.machine),
        )  # fmt: skip

    def _reshards(self, by_node: Mapping[int, Sharded]) -> Iterable[Reshard]:
        for v in by_node.values():
            if v.made != v.held:
                yield self._reshard(v.node, -1, v.made, v.held)
            for o, spread in dict(self._read(v)).items():
                if by_node[o].held != spread:
                    yield self._reshard(o, v.node, by_node[o].held, spread)

    def _read(self, v: Sharded) -> Iterable[tuple[int, Spread]]:
        operands = self.schedule.program.nodes[v.node].operands
        return zip(operands, v.reads, strict=True) if v.reads else ()

    def _reshard(self, node: int, reader: int, origin: Spread, result: Spread) -> Reshard:
        steps = self.spreads.conversion(node, origin, result)
        if steps is None:
            raise AssertionError(f"%{node} cannot be taken from {origin} to {result}")
        steps = self.spreads.permitted.by_rules(node, steps)
        return Reshard(node, reader, origin, result, steps)

    def _rules(
        self, values: Iterable[Sharded], reshards: Iterable[Reshard]
    ) -> tuple[PlanRule, ...]:
        """Every rule with what it permits here, and what of that is chosen."""
        used = Counter(r for v in values for r in (*v.cut_by, *v.kept_by) if r)
        used.update(s.rule for r in reshards for s in r.steps)
        admitted = self.permits.admitted
        return tuple(
            PlanRule(r.name, r.at, admitted[r.name], used[r.name]) for r in self.permits.rules
        )

    # ---- the front -----------------------------------------------------------------------------
    def front(self, points: int, seconds: float, seed: int) -> list[MeshPlan]:
        """Plans of which none is both quicker and smaller, the quickest first.

        Each is the quickest within the bytes that are left when the one before it is too large; at
        most so many, in steps that divide what lies between the ends.
        """
        solver = Solver(self.choice, seconds, seed)
        now, last = solver.quickest(self.mesh.memory_bytes), solver.leanest()
        if not now.chosen or not last.chosen:
            return []
        step = max((now.peak - last.peak) // max(points - 1, 1), 1)
        found: list[MeshPlan] = []
        while now.chosen:
            found.append(self.plan(now))
            if now.peak <= last.peak or len(found) >= points:
                break
            below = now.peak - step if len(found) < points - 1 else last.peak
            now = solver.quickest(max(below, last.peak), now.chosen)
        return found


def _named(rules: Iterable[str | None]) -> tuple[str, ...]:
    """Names of rules; "" for what the caller asked for, whatever rules say."""
    return tuple(r or "" for r in rules)
