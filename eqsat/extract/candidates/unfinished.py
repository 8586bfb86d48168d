"""Groups in the making that lead to kernels which another one leads to as well.

Where `alike` keeps one group of each kernel, most groups are made in vain: each op has a node per
layout, inside of a kernel layouts are strides, and of 55,000 groups behind one op of UNet's
attention 77 kernels are left. So groups are compared while they grow. Two that compute the same
values by the same bodies, read the same buffers, and have the same ones open, used in the same
way, grow into the same kernels. The one found first that has no more conversions goes on: what is
left of it is what `alike` would keep.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from eqsat.extract.candidates.alike import Alike
from eqsat.extract.candidates.checks import Checks, Grown

Cost = tuple[int, int, int]  # conversions, nodes inside, ops


@dataclass(frozen=True)
class Unfinished:
    """What was found so far behind one op. `alike` is of the whole e-graph."""

    checks: Checks
    alike: Alike
    found: dict[Hashable, list[Cost]] = field(default_factory=dict)

    @staticmethod
    def may_ask(checks: Checks) -> bool:
        """Whether groups are one kernel whatever their layouts inside, and which may join is a
        question of kinds alone."""
        legality = checks.legality
        target, is_any = legality.target, legality.fusion.index_relation == "any"
        return target.is_planned and is_any and not target.pipelines and not checks.pool.keeps_all

    def is_known(self, state: Grown) -> bool:
        """Whether another group leads to all that this one does; if not, it is known now."""
        nodes = state.inside.values()
        is_own, is_root = self.checks.space.is_own, self.checks.legality.is_root
        if state.met or all([is_own[n] for n in nodes]):
            return False
        roots = [n for n in nodes if is_root(n)]
        if len(roots) > 1 and any(map(self.checks.legality.is_contraction, roots)):
            return False  # how one reads the other's rows is a question of layouts
        key = frozenset(roots), self.alike.key(state), self._open(state)
        cost = self.alike.conversions(nodes), len(state.inside), state.members
        known = self.found.setdefault(key, [])
        if any([k[0] <= cost[0] and k[1] <= cost[1] and k[2] <= cost[2] for k in known]):
            return True
        known.append(cost)
        return False

    def _open(self, state: Grown) -> Hashable:
        """The buffers to decide, with what is asked of an op that computes one of them inside."""
        checks = self.checks
        uses = checks.legality.uses
        found: list[Hashable] = []
        for b in state.queue[state.at :]:
            above = checks.above(state, b)
            kinds = {uses.kind(u) for u in uses.of(state.readers, b)}
            turned = checks.is_turned(state, above.readers)
            found.append((b, above.runs, above.is_repeated, frozenset(kinds), turned))
        return frozenset(found)
