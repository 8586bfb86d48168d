"""Which pairs of equal terms the rules prove equal already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from eqsat.lab.discover.pool import SIZES, Pair
from eqsat.lab.discover.terms import Leaves, spelled_apart
from eqsat.model.limits import Limits
from eqsat.model.rules import Rule, RuleSet
from eqsat.model.target import Target
from eqsat.saturate import saturate

AT_ONCE = 40  # pairs in one e-graph: loading the rules costs as much as searching that many


class Prover:
    """The rules that are given, and those that were found since."""

    def __init__(self, rules: RuleSet, target: Target, limits: Limits):
        self.rules, self.limits = rules, limits
        # no tiles: packing what is multiplied proves nothing here and takes most of the time
        self.target = replace(target, tiles={})

    def add(self, rule: Rule) -> None:
        """Prove with this rule, too."""
        self.rules = replace(self.rules, rules=(*self.rules.rules, rule))

    def unproven(
        self, pairs: Sequence[Pair], leaves: Leaves, is_over: Callable[[], bool]
    ) -> Iterator[Pair]:
        """The pairs that reading and the rules leave apart; none any more once it is over."""
        for at in range(0, len(pairs), AT_ONCE):
            if is_over():
                return
            yield from self._apart(pairs[at : at + AT_ONCE], leaves)

    def proves(self, pair: Pair, leaves: Leaves) -> bool:
        """Whether the rules prove a pair by itself, where no other term uses what it is made of."""
        return not self._apart([pair], leaves)

    def _apart(self, pairs: Sequence[Pair], leaves: Leaves) -> list[Pair]:
        """Of a few pairs, whose terms are all put into one e-graph."""
        program = spelled_apart(tuple(t for p in pairs for t in p), leaves, SIZES)
        graph = saturate(program, self.rules, self.target, self.limits)
        roots = iter(graph.roots)
        return [p for p in pairs if next(roots) != next(roots)]
