"""Spread rules asked about one schedule: strategies of ops, spreads of values, collectives.

What comes in are the rules; what goes out are the admissible ones, and the rule behind each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from eqsat.model.diag import fail
from eqsat.model.mesh import Mesh, Spread
from eqsat.model.meshplan import COLLECTIVES, SLICE, MeshStep
from eqsat.model.program import Program
from eqsat.ops.mesh.collectives import Allowed
from eqsat.ops.mesh.cuts import OpCut
from eqsat.ops.mesh.origins import NOWHERE, Origin, Origins, origin_of, origins
from eqsat.ops.mesh.permits import Facts, Permits, cut_facts, value_facts
from eqsat.ops.mesh.strategies import Strategy, known_cuts

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
        """Those of an op that rules permit; EqsatError E233 if there are none."""
        found = tuple(s for s in every if all(self.cut_rules(m, s)))
        if not found:
            what = f"no rule of spreads permits a way to run `{self._name(m)}` on the mesh"
            raise fail("E233", what, help=HELP)
        return found

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
        known = known_cuts(n.op, n.attr, shapes, self.mesh)
        sizes = [self.mesh.sizes[i], *known]
        return next(known[size][name] for size in sizes if name in known[size])

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
            found = {}
            for i, axis in enumerate(self.mesh.axes):
                for kind in (*COLLECTIVES, SLICE):
                    rule = self.permits.convert(axis, self._facts(v, i), kind)
                    if rule is not None:
                        found[axis.name, kind] = rule
            self._allowed[v] = found
        return self._allowed[v]

    def by_rules(self, v: int, steps: Iterable[MeshStep]) -> tuple[MeshStep, ...]:
        """The steps of a conversion, each with its rule."""
        rules = self._collectives(v)
        return tuple(replace(s, rule=rules[s.axis, s.kind]) for s in steps)
