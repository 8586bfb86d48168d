"""Choices for the ops and values of one schedule on a mesh, and their prices.

`Permitted` asks the spread rules: strategies of ops, spreads of values, collectives, and the rule
behind each. `Works` prices strategies by the times of the dispatches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.diag import fail
from eqsat.model.dispatch import Dispatch
from eqsat.model.generic import Generic
from eqsat.model.leaves import Custom
from eqsat.model.mesh import COLLECTIVES, SLICE, Mesh, MeshStep, Spread, Stream
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType, is_float
from eqsat.ops.meaning.scalar import cost_all
from eqsat.ops.mesh.collectives import Allowed, MeshMachine, panel_steps
from eqsat.ops.mesh.cuts import OpCut
from eqsat.ops.mesh.strategies import (
    NOWHERE,
    Facts,
    Origin,
    Origins,
    Permits,
    Strategy,
    cut_facts,
    known_cuts,
    origin_of,
    origins,
    value_facts,
)

HELP = "import `spread`, which permits all there is, or permit more in your rule set"


class Permitted:
    """The rules for the ops and leaves of one program on a mesh."""

    def __init__(
        self,
        program: Program,
        ops: Sequence[int],
        leaves: Collection[int],
        mesh: Mesh,
        permits: Permits,
    ):
        self.program, self.ops, self.leaves = program, ops, leaves
        self.mesh, self.permits = mesh, permits
        self._cuts: dict[tuple[int, int, str], str | None] = {}
        self._keeps: dict[tuple[int, int, int | str], str | None] = {}
        self._allowed: dict[int, dict[tuple[str, str], str]] = {}

    @cached_property
    def origins(self) -> Origins:
        return origins(self.program, self.ops, self.leaves, self.mesh)

    # ---- cuts ----------------------------------------------------------------------------------
    def strategies(self, m: int, every: Iterable[Strategy]) -> tuple[Strategy, ...]:
        """The strategies of an op that rules permit; EqsatError E233 if there are none."""
        permitted = tuple(s for s in every if all(self.cut_rules(m, s)))
        if not permitted:
            what = f"no rule of spreads permits a way to run `{self._name(m)}` on the mesh"
            raise fail("E233", what, help=HELP)
        return permitted

    def cut_rules(self, m: int, s: Strategy) -> tuple[str | None, ...]:
        """Per axis the rule by which it does to this op what it does."""
        return tuple(self._cut_rule(m, i, name) for i, name in enumerate(s.cuts))

    def _cut_rule(self, m: int, i: int, name: str) -> str | None:
        key = (m, i, name)
        if key not in self._cuts:
            self._cuts[key] = self._first_cut(m, i, name)
        return self._cuts[key]

    def _first_cut(self, m: int, i: int, name: str) -> str | None:
        n, axis = self.program.nodes[m], self.mesh.axes[i]
        cut = self._cut(m, i, name) if name else None
        origin = NOWHERE if cut is None else origin_of(cut, n.operands, self.origins)
        facts = cut_facts(n.op, n.attr, cut, origin)
        return self.permits.cut(axis, facts, "nothing" if cut is None else cut.form)

    def _cut(self, m: int, i: int, name: str) -> OpCut:
        """The cut of this name, by this axis alone if it divides so."""
        n = self.program.nodes[m]
        shapes = tuple(self.program.nodes[o].types[0].shape for o in n.operands)
        cuts = known_cuts(n.op, n.attr, shapes, self.mesh)
        sizes = [self.mesh.sizes[i], *cuts]
        return next(cuts[size][name] for size in sizes if name in cuts[size])

    # ---- values --------------------------------------------------------------------------------
    def keeps(self, v: int, spread: Spread) -> bool:
        """Whether a value may be held so."""
        return all(self.keep_rules(v, spread))

    def keep_rules(self, v: int, spread: Spread) -> tuple[str | None, ...]:
        """Per axis the rule by which a value is held so."""
        return tuple(self._keep_rule(v, i, kind) for i, kind in enumerate(spread))

    def _keep_rule(self, v: int, i: int, kind: int | str) -> str | None:
        key = (v, i, kind)
        if key not in self._keeps:
            facts = self._facts(v, i)
            self._keeps[key] = self.permits.keep(
                self.mesh.axes[i], facts, kind, self._origin(v, kind)
            )
        return self._keeps[key]

    def _origin(self, v: int, kind: int | str) -> Origin:
        return self.origins[v][kind] if isinstance(kind, int) else NOWHERE

    def _facts(self, v: int, i: int) -> Facts:
        named = v in self.leaves or v in self.program.results
        name = self._name(v) if named else ""
        shape = self.program.nodes[v].types[0].shape
        return value_facts(self._role(v), name, shape, self.mesh.axes[i])

    def _role(self, v: int) -> str:
        if v in self.leaves:
            return "argument" if self.program.nodes[v].op == "input" else "weight"
        return "result" if v in self.program.results else "activation"

    def _name(self, v: int) -> str:
        return self.program.value_name(v)

    # ---- collectives ---------------------------------------------------------------------------
    def allowed(self, v: int) -> Allowed:
        """The collectives that rules permit for a value, with their axes."""
        return frozenset(self._collectives(v))

    def _collectives(self, v: int) -> dict[tuple[str, str], str]:
        if v not in self._allowed:
            allowed = {}
            for i, axis in enumerate(self.mesh.axes):
                for kind in (*COLLECTIVES, SLICE):
                    rule = self.permits.convert(axis, self._facts(v, i), kind)
                    if rule is not None:
                        allowed[axis.name, kind] = rule
            self._allowed[v] = allowed
        return self._allowed[v]

    def by_rules(self, v: int, steps: Iterable[MeshStep]) -> tuple[MeshStep, ...]:
        """The steps of a conversion, each with its rule."""
        rules = self._collectives(v)
        return tuple(replace(s, rule=rules[s.axis, s.kind]) for s in steps)


@dataclass(frozen=True)
class Works:
    """Times of the members of a schedule's dispatches on one device of a mesh.

    The time of a dispatch, without its launch, is divided among its members by their arithmetic
    and their traffic at its border; each part shrinks with the share of the work and of the bytes
    that a device has. With one device the sum is the time of the schedule.
    """

    schedule: Schedule
    target: Target
    mesh: Mesh

    def time_ps(self, node: int, strategy: Strategy) -> int:
        """Picoseconds of a node on one device, in all dispatches that compute it."""
        total = 0.0
        for number, scale in self._scales.get(node, ()):
            total += scale * self._estimate_ps(self.schedule.dispatches[number], node, strategy)
        return math.ceil(total)

    @cached_property
    def launches_ps(self) -> int:
        """Picoseconds to start all dispatches."""
        return sum(min(d.time_ps, self.target.launch_ps) for d in self.schedule.dispatches)

    @cached_property
    def _scales(self) -> dict[int, list[tuple[int, float]]]:
        """Node → the dispatches that compute it, and the picoseconds there of one estimated."""
        scales: dict[int, list[tuple[int, float]]] = {}
        for number, d in enumerate(self.schedule.dispatches):
            estimates = [(m, self._estimate_ps(d, m, None)) for m in d.members]
            total = math.fsum(ps for _, ps in estimates)
            left = max(d.time_ps - self.target.launch_ps, 0)
            for m, ps in estimates:
                if ps and total:
                    scales.setdefault(m, []).append((number, left / total))
        return scales

    def _estimate_ps(self, d: Dispatch, node: int, strategy: Strategy | None) -> float:
        """The longer of arithmetic and of traffic over the border of a dispatch."""
        share = 1.0 if strategy is None else strategy.share
        traffic = self._border_bytes(d, node, strategy) / self._bandwidth
        return max(self._arithmetic[node] * share, traffic) * PS_PER_SECOND

    @cached_property
    def _bandwidth(self) -> float:
        return self.target.memory[-1].bandwidth

    @cached_property
    def _arithmetic(self) -> tuple[float, ...]:
        """Seconds of every node's arithmetic."""
        return tuple(map(self._seconds, range(len(self.schedule.program.nodes))))

    def _seconds(self, node: int) -> float:
        n, target = self.schedule.program.nodes[node], self.target
        if isinstance(n.attr, Custom):
            rate = target.rate(n.type.dtype)
            return 0.0 if rate is None else n.attr.operations * n.type.size / rate
        g = n.attr
        if not isinstance(g, Generic):
            return 0.0
        if g.has_precision:
            rate, share, operations = target.rate(g.dtypes[0], g.precision), target.untiled_rate, 2
        else:
            rate, share = target.rate(n.types[0].dtype), target.elementwise_rate
            operations = cost_all(tuple(y.body for y in g.yields)) + sum(
                bool(y.combine) for y in g.yields
            )
        return 0.0 if rate is None else operations * math.prod(g.sizes) / (rate * share)

    def _border_bytes(self, d: Dispatch, node: int, strategy: Strategy | None) -> int:
        """Bytes that a member reads and writes of buffers; a buffer is read by its first reader."""
        nodes = self.schedule.program.nodes
        n, nbytes = nodes[node], 0
        for i, o in enumerate(n.operands):
            base = self.schedule.program.behind_views(o)
            if base not in d.members and self._first_reader(d, base) == node:
                spread = None if strategy is None else strategy.taken[i]
                nbytes += self.local_bytes(nodes[o].types[0], spread)
        if node in d.writes:
            result_spread = None if strategy is None else strategy.made
            nbytes += sum(self.local_bytes(t, result_spread) for t in n.types)
        return nbytes

    def _first_reader(self, d: Dispatch, base: int) -> int:
        return self._readers[d.step, d.writes].get(base, -1)

    @cached_property
    def _readers(self) -> dict[tuple[int, tuple[int, ...]], dict[int, int]]:
        """Per dispatch: buffer → the member that reads it first."""
        program = self.schedule.program
        readers = {}
        for d in self.schedule.dispatches:
            first: dict[int, int] = {}
            for m in d.members:
                for o in program.nodes[m].operands:
                    first.setdefault(program.behind_views(o), m)
            readers[d.step, d.writes] = first
        return readers

    def local_bytes(self, t: TensorType, spread: Sequence[int | str] | None) -> int:
        """Bytes on one device; of the whole for None."""
        if spread is None:
            return t.nbytes
        return t.with_shape(self.mesh.local(tuple(spread), t.shape)).nbytes

    # ---- operands that an op gathers -----------------------------------------------------------
    def streams(self, node: int, s: Strategy, machine: MeshMachine) -> tuple[Stream, ...]:
        """The panels that an op gathers in each of its steps."""
        if not s.panels:
            return ()
        program, streams = self.schedule.program, []
        operands = program.nodes[node].operands
        for i, (read, whole) in enumerate(zip(s.reads, s.taken, strict=True)):
            if read != whole:
                dim = next(a for a, b in zip(read, whole, strict=True) if a != b)
                assert isinstance(dim, int)
                t = program.nodes[operands[i]].types[0]
                steps = panel_steps(t, read, whole, dim, s.panels, machine)
                streams.append(Stream(i, dim, steps))
        return tuple(streams)

    def panel_bytes(self, node: int, s: Strategy) -> int:
        """Bytes of one step: its panels, and a sum of floats in f32 that is not the result."""
        if not s.panels:
            return 0
        program, nbytes = self.schedule.program, 0
        n = program.nodes[node]
        for read, whole, o in zip(s.reads, s.taken, n.operands, strict=True):
            if read != whole:
                nbytes += math.ceil(self.local_bytes(program.nodes[o].types[0], whole) / s.panels)
        t = n.types[0]
        is_narrow = is_float(t.dtype) and t.nbytes < 4 * t.size
        whole_sum = replace(t, dtype="f32") if is_narrow else None
        return nbytes + (0 if whole_sum is None else self.local_bytes(whole_sum, s.made))
