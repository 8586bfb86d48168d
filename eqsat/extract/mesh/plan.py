"""The best spreads of a schedule as a plan, its alternatives, and its front of memory and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from eqsat.extract.mesh.options import Works
from eqsat.extract.mesh.spreads import UNIT_PS, SpreadChoice, Spreads
from eqsat.extract.shard import least_used, solve_sharding
from eqsat.lang.requests import FREE, read_spread
from eqsat.model.deadline import elapsed
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.mesh import Mesh, MeshPlan, PlanRule, Reshard, Sharded, Spread
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet, SpreadRule
from eqsat.model.schedule import Schedule
from eqsat.model.sharding import Sharding
from eqsat.model.target import Target
from eqsat.ops.mesh.collectives import MeshMachine
from eqsat.ops.mesh.strategies import Permits, Strategy

Borders = tuple[dict[int, Spread], tuple[tuple[int, int], ...]]


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
        is_large = len({m for d in schedule.dispatches for m in d.members}) > 90  # ops
        alike = alike_layers(schedule) if is_large else None
        self.permits = Permits(rules)
        self.spreads = Spreads(self.works, machine, self.permits, wanted, chained, alike, barred)

    @property
    def choice(self) -> SpreadChoice:
        return self.spreads.choice

    def quickest(self, seconds: float, seed: int, limit: int | None = None) -> MeshPlan | str:
        """The quickest plan within so many bytes of a device; a status if none was found."""
        everywhere = self.choice.completed(self._everywhere())
        sharding = self._quickest(elapsed() + seconds, seed, limit, everywhere)
        return self.plan(sharding) if sharding.strategies else sharding.status

    def _quickest(
        self, deadline: float, seed: int, limit: int | None, hint: Sequence[int]
    ) -> Sharding:
        """Of least time, and of those one that holds least."""
        problem = self.choice.problem(limit)
        sharding = solve_sharding(
            problem, time_limit=_left(deadline), seed=seed, initial=hint, exact=True
        )
        if sharding.status == "optimal":
            again = least_used(
                problem, time_limit=min(_left(deadline), 10.0), seed=seed,
                most_cost=sharding.cost, initial=sharding.strategies,
            )  # fmt: skip
            sharding = replace(sharding, strategies=again.strategies or sharding.strategies)
        return sharding

    def _leanest(self, deadline: float, seed: int) -> Sharding:
        return least_used(self.choice.problem(None), time_limit=_left(deadline), seed=seed)

    def _everywhere(self) -> tuple[int, ...]:
        """Every op computes the same on all devices: what is asked of borders apart.

        Where rules forbid that, the first that they permit.
        """
        whole, spreads = self.mesh.whole, self.spreads
        return tuple(
            0 if kind == "op" or whole not in spreads.held[v] else spreads.held[v].index(whole)
            for kind, v in spreads.place
        )

    def leanest(self, seconds: float, seed: int) -> MeshPlan | str:
        """The plan that holds least; its bound of time says nothing."""
        sharding = self._leanest(elapsed() + seconds, seed)
        return self.plan(sharding) if sharding.strategies else sharding.status

    def without(self, places: Iterable[tuple[int, int]]) -> MeshPlanner:
        """The planner of plans that send nothing for these: (value, its reader or -1 for all).

        The difference is the price of the collectives that stand there.
        """
        return MeshPlanner(*self.given, barred=frozenset(places))

    # ---- what was found, as a plan -------------------------------------------------------------
    def plan(self, sharding: Sharding) -> MeshPlan:
        """Every figure recomputed from the strategies alone."""
        chosen, spreads = sharding.strategies, self.spreads
        strategies = {m: spreads.strategies[m][chosen[spreads.place["op", m]]] for m in spreads.ops}
        times_ps = self.works.times_ps(strategies)
        values = tuple(self._leaf(v, chosen) for v in spreads.leaves)
        values += tuple(self._op(m, s, chosen, times_ps[m]) for m, s in strategies.items())
        values = tuple(sorted(values, key=lambda v: v.node))
        by_node = {v.node: v for v in values}
        reshards = tuple(self._reshards(by_node))
        compute = sum(v.time_ps for v in values) + self.works.launches_ps
        sent = sum(r.time_ps for r in reshards) + sum(v.stream_ps for v in values)
        bound = max(sharding.bound or 0, 0) * UNIT_PS
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
            bound_ps=min(bound + self.works.launches_ps, compute + sent),
            stop="proven" if sharding.status == "optimal" else "time",
            alike=self._most_alike(),
            single_ps=sum(d.time_ps for d in self.schedule.dispatches),
            single_bytes=self.schedule.peak_bytes,
            rules=self._rules(values, reshards),
        )

    def _is_input(self, v: Sharded) -> bool:
        return self.schedule.program.nodes[v.node].op == "input"

    def _most_alike(self) -> int:
        groups = self.choice.group[: len(self.spreads.place)]
        return max(map(groups.count, set(groups)), default=1)

    def _leaf(self, v: int, chosen: Sequence[int]) -> Sharded:
        held = self.spreads.held[v][chosen[self.spreads.place["held", v]]]
        return Sharded(v, held, held, kept_by=_named(self.spreads.permitted.keep_rules(v, held)))

    def _op(self, v: int, s: Strategy, chosen: Sequence[int], time_ps: int) -> Sharded:
        spreads, leaf = self.spreads, self._leaf(v, chosen)
        return Sharded(
            v, s.made, leaf.held, s.reads, s.cuts, time_ps,
            _named(spreads.permitted.cut_rules(v, s)), leaf.kept_by, s.taken, s.panels,
            self.works.streams(v, s, spreads.machine),
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
        deadline = elapsed() + seconds
        now = self._quickest(deadline, seed, self.mesh.memory_bytes, ())
        last = self._leanest(deadline, seed)
        if not now.strategies or not last.strategies:
            return []
        least = self.choice.peak(last.strategies)
        step = max((self.choice.peak(now.strategies) - least) // max(points - 1, 1), 1)
        plans: list[MeshPlan] = []
        while now.strategies:
            plans.append(self.plan(now))
            peak = plans[-1].peak_bytes
            if peak <= least or len(plans) >= points:
                break
            below = peak - step if len(plans) < points - 1 else least
            now = self._quickest(deadline, seed, max(below, least), ())
        return plans


def _left(deadline: float) -> float:
    return max(deadline - elapsed(), 1.0)


def _named(rules: Iterable[str | None]) -> tuple[str, ...]:
    """Names of rules; "" for what the caller asked for, whatever rules say."""
    return tuple(r or "" for r in rules)


def mesh_planner(schedule: Schedule, target: Target, of: str, rules: RuleSet) -> MeshPlanner:
    """of: `answer` or `input`; EqsatError E232 for a spread that cannot be, E233 without rules."""
    assert target.mesh is not None
    if not rules.spreads:
        message = f"the rule set `{rules.name}` says nothing of how programs are cut over a mesh"
        raise fail("E233", message, help="add the set `spread`, or use a target without a mesh")
    wanted, chained = borders(schedule.program, target.mesh)
    return MeshPlanner(schedule, target, of, rules.spreads, wanted, chained)


def borders(program: Program, mesh: Mesh) -> Borders:
    """Spreads of arguments, weights and results that were asked for, and results like an argument.

    A result leaves as the first argument of its type came in, unless one of the two was asked for:
    layers and steps then follow each other without a conversion.
    """
    nodes = {program.leaf(i).name: i for i in (*program.inputs, *program.weights)}
    nodes |= {f"result{k}": r for k, r in enumerate(program.results)}
    wanted: dict[int, Spread] = {}
    for name, text in mesh.shards:
        if name not in nodes:
            hint = did_you_mean(name, nodes)
            raise fail("E232", f"no argument or result is named `{name}`", help=hint)
        spread = read_spread(text, name, program.nodes[nodes[name]].type.shape, mesh)
        if spread is not None:
            wanted[nodes[name]] = spread
    free = {nodes[name] for name, text in mesh.shards if text.strip() == FREE}
    asked = wanted.keys() | free
    chained: list[tuple[int, int]] = []
    for r in program.results:
        t = program.nodes[r].types[0]
        like = next((i for i in program.inputs if program.nodes[i].type == t), None)
        if like is not None and like != r and not {r, like} & asked:
            chained.append((like, r))
    return wanted, tuple(chained)


def prices_without(
    planner: MeshPlanner, plan: MeshPlan, asked: Sequence[Reshard], seconds: float, seed: int
) -> dict[Reshard, MeshPlan | str]:
    """Per conversion the quickest plan in which its value is not sent there.

    A text where there is none: `infeasible` within the memory of a device, or `unknown`.
    """
    deadline = elapsed() + seconds
    plans: dict[Reshard, MeshPlan | str] = {}
    for number, reshard in enumerate(asked):
        share = (deadline - elapsed()) / (len(asked) - number)
        other = planner.without([(reshard.node, reshard.reader)])
        plans[reshard] = other.quickest(max(share, 1.0), seed, plan.mesh.memory_bytes)
    return plans


def alike_layers(schedule: Schedule) -> list[int]:
    """Node → a number that nodes share whose surroundings are the same, as in equal layers.

    Colours are refined by those of operands and readers four times (Weisfeiler and Leman).
    """
    program = schedule.program
    readers: list[list[int]] = [[] for _ in program.nodes]
    for i, n in enumerate(program.nodes):
        for o in n.operands:
            readers[o].append(i)
    seen: dict[object, int] = {}
    computed = {m for d in schedule.dispatches for m in d.members}
    ends = set(program.results)
    colours = [
        seen.setdefault(
            (n.op, n.types, None if not n.operands else n.attr, i in computed, i in ends), i
        )
        for i, n in enumerate(program.nodes)
    ]
    for _ in range(4):
        seen = {}
        colours = [
            seen.setdefault(
                (
                    colours[i],
                    tuple(colours[o] for o in n.operands),
                    tuple(sorted(colours[r] for r in readers[i])),
                ),
                i,
            )
            for i, n in enumerate(program.nodes)
        ]
    return colours
