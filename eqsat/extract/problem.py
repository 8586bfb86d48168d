"""ExtractionProblem: the choice of dispatches as plain integers, and what a choice is worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

GOALS = ("time", "memory", "dispatches")
Answer = dict[int, tuple[int, ...]]  # chosen option -> extra buffers it writes


@dataclass(frozen=True)
class Option:
    """A dispatch at a fixed step.

    `reads` are buffers an earlier step must write; `resident` are weights it keeps in memory;
    `writes` are always written, `extras` (buffer, ps) may be, at most `slack` of them;
    `exclusive` are nodes that only one chosen option may compute.
    """

    step: int
    time_ps: int
    reads: tuple[int, ...]
    resident: tuple[int, ...]
    writes: tuple[int, ...]
    extras: tuple[tuple[int, int], ...]
    slack: int
    exclusive: tuple[int, ...]


@dataclass(frozen=True)
class ExtractionProblem:
    """Choose options so that every root is written and every read was written before.

    `covers`: sets of options of which every answer holds one (redundant, they help the proof).
    Each buffer is written by at most one chosen option.
    """

    options: tuple[Option, ...]
    nbytes: dict[int, int]  # per buffer
    roots: tuple[int, ...]  # buffers that must be written
    fixed_bytes: int  # arguments, results, and weights that are results
    covers: tuple[tuple[int, ...], ...]

    @cached_property
    def writers(self) -> dict[int, list[int]]:
        """Per buffer: options that can write it, as a result or as an extra."""
        found: dict[int, list[int]] = {}
        for i, o in enumerate(self.options):
            for b in (*o.writes, *(b for b, _ in o.extras)):
                found.setdefault(b, []).append(i)
        return found

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for i, o in enumerate(self.options):
            for b in o.reads:
                found.setdefault(b, []).append(i)
        return found

    def written(self, answer: Answer) -> dict[int, int]:
        """Per written buffer: the option that writes it."""
        return {b: i for i, extra in answer.items() for b in (*self.options[i].writes, *extra)}

    def time_ps(self, answer: Answer) -> int:
        total = 0
        for i, extra in answer.items():
            prices = dict(self.options[i].extras)
            total += self.options[i].time_ps + sum(prices[b] for b in extra)
        return total

    def peak_bytes(self, answer: Answer) -> int:
        """Fixed and resident bytes plus the temporaries of the worst step."""
        last = {b: self.options[i].step for b, i in self.written(answer).items()}
        first = dict(last)
        for i in answer:
            for b in self.options[i].reads:
                last[b] = max(last[b], self.options[i].step)
        change: dict[int, int] = {}
        for b in first.keys() - set(self.roots):
            change[first[b]] = change.get(first[b], 0) + self.nbytes[b]
            change[last[b] + 1] = change.get(last[b] + 1, 0) - self.nbytes[b]
        live = worst = 0
        for step in sorted(change):
            live += change[step]
            worst = max(worst, live)
        resident = {b for i in answer for b in self.options[i].resident}
        return self.fixed_bytes + sum(self.nbytes[b] for b in resident) + worst

    def value(self, goal: str, answer: Answer) -> int:
        """What an answer is worth: picoseconds, bytes or a count."""
        if goal == "time":
            return self.time_ps(answer)
        return self.peak_bytes(answer) if goal == "memory" else len(answer)

    def values(self, answer: Answer) -> dict[str, int]:
        return {goal: self.value(goal, answer) for goal in GOALS}

    def is_legal(self, answer: Answer) -> bool:
        """Whether an answer keeps every rule of this problem, budgets aside."""
        writes = [b for i, extra in answer.items() for b in (*self.options[i].writes, *extra)]
        nodes = [n for i in answer for n in self.options[i].exclusive]
        if len(set(writes)) < len(writes) or len(set(nodes)) < len(nodes):
            return False
        if any(len(extra) > self.options[i].slack for i, extra in answer.items()):
            return False
        at = {b: self.options[i].step for b, i in self.written(answer).items()}
        late = (
            at.get(b, 1 << 60) >= self.options[i].step
            for i in answer
            for b in self.options[i].reads
        )
        return all(r in at for r in self.roots) and not any(late)

    def pruned(self, answer: Answer) -> Answer:
        """Without options and extras that no root needs; no goal gets worse."""
        needed = set(self.roots)
        kept: Answer = {}
        for i in sorted(answer, key=lambda i: (-self.options[i].step, i)):
            extra = tuple(b for b in answer[i] if b in needed)
            if extra or not needed.isdisjoint(self.options[i].writes):
                kept[i] = extra
                needed.update(self.options[i].reads)
        return dict(sorted(kept.items()))
