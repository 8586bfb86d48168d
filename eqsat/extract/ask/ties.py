"""Programs as good as the chosen one by the first goal: why they are, and what decided else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.choice.columns import Answer
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.model.selection import BYTES, COMPUTE, SPELLING, SUMS, UNPACKED, Group, Selection, Tied

Vector = tuple[int, ...]


@dataclass(frozen=True)
class TiedAnswers:
    """Answers of one choice beside the chosen selection; `later`: goals behind the first one."""

    assembly: Assembly
    chosen: Selection
    later: tuple[str, ...]

    def tie(self, answers: Sequence[Answer]) -> Tied:
        """The tie of answers of equal value, of which there is one at least."""
        nearest = min(answers, key=lambda a: (self.distance(a), a.columns))
        why = self.why(nearest)
        if why == SPELLING:  # so all that goals are about is the same
            return Tied(why)
        best = min(map(self.values, answers))
        for goal, value in zip(self.later, best, strict=True):
            delta = value - self.chosen.goal(goal).value
            if delta:
                return Tied(why, goal, delta)
        return Tied(why)

    @cached_property
    def _values(self) -> dict[Answer, Vector]:
        return {}

    def values(self, answer: Answer) -> Vector:
        """The later goals in the best order found for these dispatches."""
        if answer not in self._values:
            choice = self.assembly.choice
            ordered = in_best_order(choice, answer.columns)
            assert ordered is not None, "an answer has an order"
            self._values[answer] = tuple(choice.value(g, ordered) for g in self.later)
        return self._values[answer]

    # ---- why they tie ------------------------------------------------------------------------
    def distance(self, answer: Answer) -> int:
        """How many dispatches differ."""
        here, there = self._changed(answer)
        return len(here) + len(there)

    def why(self, answer: Answer) -> str:
        """The reason why dispatches that differ take as long all together."""
        here, there = self._changed(answer)
        if Counter(map(self._borders, here)) == Counter(map(self._borders, there)):
            return SPELLING
        if not self._is_read_packed(here, there):
            return UNPACKED
        if all(map(self._is_compute_bound, (*here, *there))):
            return COMPUTE
        if len(here) == len(there) and self._moved(here) == self._moved(there):
            return BYTES
        return SUMS

    def _changed(self, answer: Answer) -> tuple[list[Group], list[Group]]:
        """Dispatches of the chosen selection that the answer has not, and those that it has."""
        chosen = {self._key(g): g for g in self.chosen.groups}
        other = {self._key(g): g for g in self.assembly.groups(answer)}
        here = [g for key, g in chosen.items() if key not in other]
        return here, [g for key, g in other.items() if key not in chosen]

    def _key(self, g: Group) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
        return (frozenset(g.members), *self._borders(g))

    def _borders(self, g: Group) -> tuple[frozenset[int], frozenset[int]]:
        return self._buffers(g.reads), self._buffers(g.writes)

    def _buffers(self, classes: Iterable[int]) -> frozenset[int]:
        buffer = self.assembly.pool.space.buffer
        return frozenset(buffer[c] for c in classes)

    def _is_read_packed(self, here: list[Group], there: list[Group]) -> bool:
        """Whether a contraction reads a buffer that only one of both sides writes."""
        space = self.assembly.pool.space
        sides = [{b for g in side for b in self._buffers(g.writes)} for side in (here, there)]
        moved = sides[0] ^ sides[1]
        if not moved or {space.value[b] for b in moved & sides[0]} != {
            space.value[b] for b in moved & sides[1]
        }:
            return True  # other values are kept, not other layouts of them
        kinds = space.kinds
        read = (
            o for g in (*here, *there) for m in g.members if kinds[m] == "contraction"
            for o in space.operands[m]
        )  # fmt: skip
        return not moved.isdisjoint(read)

    def _is_compute_bound(self, g: Group) -> bool:
        return self._costs.of(g.members).is_compute_bound(g)

    @cached_property
    def _costs(self) -> Costs:
        space = self.assembly.pool.space
        return Costs(space, self.assembly.pool.legality.target)

    def _moved(self, groups: list[Group]) -> int:
        nbytes = self.assembly.pool.space.nbytes
        return sum(nbytes(c) for g in groups for c in (*g.reads, *g.writes))
