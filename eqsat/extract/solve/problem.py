"""ExtractionProblem: the choice of dispatches as plain integers, and what a choice is worth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from eqsat.extract.solve.linear import OWN, TIE_BREAK

if TYPE_CHECKING:
    from eqsat.extract.solve.kept import KeptRow

GOALS = ("time", "memory", "dispatches")
KEPT = ("resident", "load_peak")  # bytes of weights: kept, and at the most while they are packed
Answer = tuple[int, ...]  # chosen options, ascending
Supply = tuple[tuple[int, ...], tuple[int, ...]]  # options, and readers that need one of them
Tie = tuple[tuple[int, ...], tuple[int, ...]]  # options of one block, and of another


@dataclass(frozen=True)
class Option:
    """A dispatch with fixed results at a fixed step.

    `adds` is what it adds to each linear goal of the problem; `reads` are buffers an earlier step
    must write, `resident` weights it keeps in memory, `writes` the buffers it writes; `exclusive`
    are numbers only one chosen option may hold.
    """

    step: int
    adds: tuple[int, ...]
    reads: tuple[int, ...]
    resident: tuple[int, ...]
    writes: tuple[int, ...]
    exclusive: tuple[int, ...]


@dataclass(frozen=True)
class ExtractionProblem:
    """Choose options so that every root is written and every read was written before.

    Each buffer is written by at most one chosen option; what is written is not resident. `covers`:
    sets of options of which every answer holds one (redundant, they help the proof). `linear` names
    the goals that are sums over the chosen options; `memory` and those of `kept` are not. `forced`
    asks what another choice would cost: (option, buffers it writes) of which one has to be chosen,
    and one of its buffers read; then every chosen option has to serve a root.
    """

    is_ordered: ClassVar[bool] = True  # else steps say nothing (`anyorder`)

    options: tuple[Option, ...]
    nbytes: dict[int, int]  # per buffer
    roots: tuple[int, ...]  # buffers that must be written
    fixed_bytes: int  # arguments, results, and weights that are results
    covers: tuple[tuple[int, ...], ...]
    linear: tuple[str, ...] = tuple(OWN)
    forced: tuple[tuple[int, tuple[int, ...]], ...] | None = None
    barred: tuple[tuple[tuple[int, ...], int], ...] = ()  # (options, how many of them at most)
    # goals that are about bytes of weights, if asked for: the largest of these rows
    kept: dict[str, tuple[KeptRow, ...]] = field(default_factory=dict)
    tied: tuple[Tie, ...] = ()  # options of equal blocks: as many of the one are chosen
    repeats: dict[int, int] = field(default_factory=dict)  # weights that stand for so many

    @cached_property
    def supplies(self) -> tuple[Supply, ...]:
        """Sets of options of which readers need one; under an order, buffers say all of it."""
        return ()

    @cached_property
    def writers(self) -> dict[int, list[int]]:
        """Per buffer: options that write it, ascending."""
        return by_number((i, o.writes) for i, o in enumerate(self.options))

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """Per buffer: options that read it, ascending."""
        return by_number((i, o.reads) for i, o in enumerate(self.options))

    @cached_property
    def keepers(self) -> dict[int, list[int]]:
        """Per weight: options that keep it, ascending."""
        return by_number((i, o.resident) for i, o in enumerate(self.options))

    @cached_property
    def partners(self) -> dict[int, tuple[int, ...]]:
        """Per option of one of two equal blocks: the same of the other one."""
        sides = [*self.tied, *((two, one) for one, two in self.tied)]
        return {i: others for these, others in sides for i in these}

    def holders(self, options: Iterable[int]) -> dict[int, list[int]]:
        """Per exclusive number: those of the options that hold it."""
        return by_number((i, self.options[i].exclusive) for i in options)

    @cached_property
    def byte_unit(self) -> int:
        """Bytes that all sizes are multiples of."""
        return math.gcd(*self.nbytes.values(), self.fixed_bytes) or 1

    @property
    def most_bytes(self) -> int:
        """More than any answer needs."""
        return self.fixed_bytes + sum(map(self.kept_bytes, self.nbytes))

    def kept_bytes(self, buffer: int) -> int:
        """Of a weight that stays in memory, with those it stands for."""
        return self.nbytes[buffer] * self.repeats.get(buffer, 1)

    @cached_property
    def either(self) -> frozenset[int]:
        """Weights that are there from the start or made in the run: one or the other."""
        return frozenset(b for o in self.options for b in o.resident if b in self.writers)

    def coefficients(self, goal: str) -> list[int]:
        """Per option: what it adds to a linear goal."""
        at = self.linear.index(goal)
        return [o.adds[at] for o in self.options]

    def worths(self, weights: Mapping[str, int]) -> list[int]:
        """Per option: Σ weight · what it adds to a linear goal."""
        at = [(w, self.linear.index(goal)) for goal, w in weights.items()]
        return [sum(w * o.adds[k] for w, k in at) for o in self.options]

    def peak_bytes(self, answer: Answer) -> int:
        """Fixed and resident bytes plus the temporaries of the worst step."""
        first = {b: self.options[i].step for i in answer for b in self.options[i].writes}
        last = dict(first)
        for i in answer:
            for b in self.options[i].reads:
                last[b] = max(last[b], self.options[i].step)
        change: Counter[int] = Counter()
        for b in first.keys() - set(self.roots):
            change[first[b]] += self.nbytes[b]
            change[last[b] + 1] -= self.nbytes[b]
        live = worst = 0
        for step in sorted(change):
            live += change[step]
            worst = max(worst, live)
        resident = {b for i in answer for b in self.options[i].resident}
        return self.fixed_bytes + sum(map(self.kept_bytes, resident)) + worst

    def value(self, goal: str, answer: Answer) -> int:
        """What an answer is worth: picoseconds, bytes or a count."""
        if goal == "memory":
            return self.peak_bytes(answer)
        if goal in self.kept:
            kept = {b for i in answer for b in self.options[i].resident}
            return max(r.value(kept) for r in self.kept[goal])
        at = self.linear.index(goal)
        return sum(self.options[i].adds[at] for i in answer)

    def worth(self, answer: Answer, weights: Mapping[str, int]) -> int:
        """Σ weight · value."""
        return sum(w * self.value(g, answer) for g, w in weights.items())

    def keeps(self, answer: Answer, caps: Mapping[str, int]) -> bool:
        """Whether no goal is above its cap."""
        return all(self.value(g, answer) <= cap for g, cap in caps.items())

    def values(self, answer: Answer) -> dict[str, int]:
        """Every goal; what only breaks ties is none."""
        names = dict.fromkeys((*GOALS, *self.linear, *self.kept))
        return {goal: self.value(goal, answer) for goal in names if goal != TIE_BREAK}

    def is_legal(self, answer: Answer) -> bool:
        """Whether an answer keeps every rule of this problem, budgets aside."""
        if not self._is_disjoint(answer):
            return False
        options = [self.options[i] for i in answer]
        at = {b: o.step for o in options for b in o.writes}
        late = any(at.get(b, o.step) >= o.step for o in options for b in o.reads)
        is_whole = all(r in at for r in self.roots) and self._is_tied(answer)
        return not late and is_whole and self._has_forced(answer)

    def _is_tied(self, answer: Answer) -> bool:
        """Whether equal blocks are alike."""
        return all(
            len(set(one).intersection(answer)) == len(set(two).intersection(answer))
            for one, two in self.tied
        )

    def _is_disjoint(self, answer: Answer) -> bool:
        """Whether no buffer is there twice, and nothing is held twice that only one may hold."""
        writes = [b for i in answer for b in self.options[i].writes]
        held = [n for i in answer for n in self.options[i].exclusive]
        kept = {b for i in answer for b in self.options[i].resident}
        if not kept.isdisjoint(writes):
            return False
        return len(set(writes)) == len(writes) and len(set(held)) == len(held)

    def _has_forced(self, answer: Answer) -> bool:
        if self.forced is None:
            return True
        useful = self.pruned(answer)
        wanted = set(self.roots).union(*(self.options[i].reads for i in useful))
        return any(i in useful and not wanted.isdisjoint(b) for i, b in self.forced)

    def pruned(self, answer: Answer) -> Answer:
        """Without options that no root needs; no goal gets worse."""
        writer = {b: i for i in answer for b in self.options[i].writes}
        kept: set[int] = set()
        waiting = list(self.roots)
        while waiting:
            i = writer.get(waiting.pop())
            if i is not None and i not in kept:
                kept.add(i)
                waiting += self.options[i].reads
        return tuple(sorted(kept))

    def restricted(self, kept: tuple[int, ...]) -> ExtractionProblem:
        """The problem with these options only, numbered by their place in `kept`."""
        number = {i: n for n, i in enumerate(kept)}
        options = tuple(self.options[i] for i in kept)
        covers = tuple(tuple(number[i] for i in c if i in number) for c in self.covers)
        forced = self.forced
        if forced is not None:
            forced = tuple((number[i], b) for i, b in forced if i in number)
        barred = tuple(
            (tuple(number[i] for i in among if i in number), most) for among, most in self.barred
        )
        sides = (
            tuple(tuple(number[i] for i in side if i in number) for side in tie)
            for tie in self.tied
        )
        tied = tuple((one, two) for one, two in sides if one or two)
        return replace(
            self, options=options, covers=covers, forced=forced, barred=barred, tied=tied
        )


def by_number(sets: Iterable[tuple[int, Iterable[int]]]) -> dict[int, list[int]]:
    """Per number: those whose sets hold it, in their order."""
    found: dict[int, list[int]] = {}
    for owner, numbers in sets:
        for n in numbers:
            found.setdefault(n, []).append(owner)
    return found
