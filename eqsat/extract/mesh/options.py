"""Choices for the ops and values of one schedule on a mesh, and their prices.

`Permitted` asks the spread rules: strategies of ops, spreads of values, collectives, and the rule
behind each. `Works` prices strategies by the times of the dispatches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.selected import graph_of_program
from eqsat.model.diag import fail
from eqsat.model.dispatch import Dispatch
from eqsat.model.mesh import COLLECTIVES, SLICE, Mesh, MeshStep, Spread, Stream
from eqsat.model.ops import VIEWS
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.sets import by_key
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType, is_float
from eqsat.ops.mesh.collectives import Allowed, MeshMachine, panel_steps
from eqsat.ops.mesh.cuts import OpCut
from eqsat.ops.mesh.gathers import batch_dims
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
        cuts = known_cuts(n.op, n.attr, shapes, self.mesh, batch_dims(self.program, m))
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
class MemberSides:
    """What a member adds to the arithmetic, the traffic and the relayout of a dispatch, in
    picoseconds; computes: whether the whole dispatch, on one device, is bound by arithmetic.

    traffic: by operand, -1 for the result.
    """

    arithmetic: float
    traffic: list[tuple[int, float]]
    relayout: float
    computes: bool


@dataclass(frozen=True)
class Works:
    """Times of the dispatches of a schedule on one device of a mesh.

    A dispatch takes as long as the search for one device says: the longer of its arithmetic and of
    its traffic. Both are sums over its members, and shrink with the share of the work, and of the
    bytes at its border, that a device has. With one device the sum is the time of the schedule.
    """

    schedule: Schedule
    target: Target
    mesh: Mesh

    def times_ps(self, strategies: Mapping[int, Strategy]) -> dict[int, int]:
        """Node → picoseconds on one device, in all dispatches that compute it."""
        times = dict.fromkeys(strategies, 0.0)
        for number, d in enumerate(self.schedule.dispatches):
            sides = {m: self.sides_ps(number, m, strategies[m]) for m in d.members}
            exceeds = math.fsum(excess for _, excess in sides.values()) > 0
            for m, (own, excess) in sides.items():
                times[m] += own + exceeds * excess
        return {m: math.ceil(ps) for m, ps in times.items()}

    def sides_ps(self, number: int, node: int, strategy: Strategy) -> tuple[float, float]:
        """The part of a member in a dispatch's longer side, that of one device; and what its part
        in the other side is more than that, which counts where the sum of these is positive."""
        sides = self._sides[number][node]
        work = sides.arithmetic * strategy.share
        moved = math.fsum(ps * self._part(node, i, strategy) for i, ps in sides.traffic)
        longer, shorter = (work, moved) if sides.computes else (moved, work)
        return longer + sides.relayout * strategy.share, shorter - longer

    @cached_property
    def launches_ps(self) -> int:
        """Picoseconds to start all dispatches."""
        return sum(min(d.time_ps, self.target.launch_ps) for d in self.schedule.dispatches)

    @cached_property
    def dispatches_of(self) -> dict[int, list[int]]:
        """Node → the dispatches that compute it."""
        dispatches = enumerate(self.schedule.dispatches)
        return by_key((m, number) for number, d in dispatches for m in d.members)

    def _part(self, node: int, operand: int, strategy: Strategy) -> float:
        """The part of an operand, or of the result for -1, that a device reads or writes."""
        n = self.schedule.program.nodes[node]
        spread = strategy.made if operand < 0 else strategy.taken[operand]
        t = self.schedule.program.nodes[node if operand < 0 else n.operands[operand]].types[0]
        return self.local_bytes(t, spread) / t.nbytes if t.nbytes else 1.0

    @cached_property
    def _sides(self) -> list[dict[int, MemberSides]]:
        """Per dispatch: member → its sides."""
        return [self._sides_of(d) for d in self.schedule.dispatches]

    def _sides_of(self, d: Dispatch) -> dict[int, MemberSides]:
        costs, total = self._costs, max(d.time_ps - self.target.launch_ps, 0)
        runs, moved = costs.runs(d.members), self._moved(d)
        work = {m: costs.compute_ps(m, runs[m]) for m in d.members}
        relayout = {m: float(costs.relayout_ps[m]) for m in d.members}
        wholes = costs.sides(d.members, d.reads, d.writes, pipeline=d.pipeline)
        parts = (
            work.values(),
            (ps for each in moved.values() for _, ps in each),
            relayout.values(),
        )
        # what is priced otherwise, such as a loop, is shared out like this as well
        scale = total / ((max(wholes[:2]) + wholes[2]) or 1)
        a, t, r = (scale * w / (math.fsum(ps) or 1) for w, ps in zip(wholes, parts, strict=True))
        return {
            m: MemberSides(
                work[m] * a, [(i, ps * t) for i, ps in moved[m]], relayout[m] * r,
                computes=wholes[0] > wholes[1],
            )
            for m in d.members
        }  # fmt: skip

    @cached_property
    def _costs(self) -> Costs:
        graph = graph_of_program(self.schedule.program)
        return Costs(Space(graph, self.target.padding), self.target)

    def _moved(self, d: Dispatch) -> dict[int, list[tuple[int, float]]]:
        """Per member what it moves of buffers: (operand or -1 for its result, picoseconds).

        A buffer is read by its first reader. Of what a gather takes rows of, as many are read as
        the gather makes.
        """
        program, costs, seen = self.schedule.program, self._costs, set[int]()
        moved: dict[int, list[tuple[int, float]]] = {}
        for m in d.members:
            moved[m] = [(-1, float(costs.class_ps[m]))] if m in d.writes else []
            if program.nodes[m].op in VIEWS:
                continue  # its reader reads
            for i, o in enumerate(program.nodes[m].operands):
                base = program.behind_views(o)
                if base in seen or base in d.members:
                    continue
                seen.add(base)
                rows = program.nodes[m].op == "gather" and i == 0
                read_ps = float(costs.reads_ps(d.members, (base,), d.writes))
                moved[m].append((-1 if rows else i, read_ps))
        return moved

    def local_bytes(self, t: TensorType, spread: Spread) -> int:
        """Bytes on one device."""
        return t.with_shape(self.mesh.local(spread, t.shape)).nbytes

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
