"""What no answer can hold, found before any solver: options that contradict what they need.

An exclusive number is held by one chosen option at most. If every way to provide what an option
reads holds one of the option's own numbers, the option is in no answer. On encoder layers this
takes a quarter of the options away, and the same knowledge is what makes the linear relaxation
exact there (`docs/decisions.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from eqsat.extract.solve.problem import ExtractionProblem
from eqsat.model.deadline import tick

ROUNDS = 8  # each takes options away, or it was the last


@dataclass(frozen=True)
class Needs:
    """Exclusive numbers as bits: those each option holds, and those it needs somebody to hold.

    `needs` are the numbers held by the option itself or by its chosen ancestors, whichever they
    are. `impossible` options are in no answer.
    """

    bit: dict[int, int]
    own: tuple[int, ...]
    needs: tuple[int, ...]
    impossible: frozenset[int]

    def contradict(self, reader: int, writer: int) -> bool:
        """Whether a reader holds what the writer of its operand needs others to hold."""
        return bool(self.own[reader] & self.needs[writer])


def needs(problem: ExtractionProblem) -> Needs:
    """Must-analysis over the steps: the meet over the writers of a buffer, the union over reads."""
    numbers = dict.fromkeys(n for o in problem.options for n in o.exclusive)
    bit = {n: 1 << i for i, n in enumerate(numbers)}
    own = tuple(sum(bit[n] for n in o.exclusive) for o in problem.options)
    if not problem.is_ordered:
        return _needs_in_any_order(problem, bit, own)
    needed = list(own)
    impossible: set[int] = set()
    held: dict[int, int] = {}  # buffer -> what every writer so far needs
    options = problem.options
    for _, step in groupby(range(len(options)), key=lambda i: options[i].step):
        alive = []
        tick()
        for i in step:
            reads = options[i].reads
            before = 0
            for b in reads:
                before |= held.get(b, 0)
            if before & own[i] or any(b not in held for b in reads):
                impossible.add(i)
                continue
            needed[i] |= before
            alive.append(i)
        for i in alive:
            for b in options[i].writes:
                held[b] = held[b] & needed[i] if b in held else needed[i]
    return Needs(bit, own, tuple(needed), frozenset(impossible))


def _needs_in_any_order(
    problem: ExtractionProblem, bit: dict[int, int], own: tuple[int, ...]
) -> Needs:
    """The same without steps: the greatest fixpoint, as no derivation waits for itself."""
    before = made_before(problem, own, sum(bit.values()))
    needed = tuple(a | b for a, b in zip(before, own, strict=True))
    impossible = frozenset(i for i in range(len(own)) if before[i] & own[i])
    return Needs(bit, own, needed, impossible)


def made_before(problem: ExtractionProblem, own: Sequence[int], everything: int) -> list[int]:
    """Per option the bits that, in every derivation of what it reads, some option has made.

    `own` are the bits each option makes itself. What nothing can write has `everything`.
    """
    held = dict.fromkeys(problem.writers, everything)
    before = [everything] * len(own)
    waiting = bytearray(b"\1") * len(own)  # options of which a read has changed
    i = waiting.find(1)
    while i >= 0:
        waiting[i] = 0
        option, new = problem.options[i], 0
        for b in option.reads:
            new |= held.get(b, everything)
        before[i] = new
        given = new | own[i]
        for b in option.writes:
            if held[b] & ~given:
                held[b] &= given
                for h in problem.readers.get(b, ()):
                    waiting[h] = 1
        following = waiting.find(1, i + 1)
        if following < 0:
            tick()
            following = waiting.find(1)
        i = following
    return before


def presolve(problem: ExtractionProblem) -> tuple[int, ...]:
    """Options that some answer may need, ascending; nobody misses the others."""
    kept = tuple(range(len(problem.options)))
    for _ in range(ROUNDS):
        small = problem.restricted(kept)
        found = _useful(small, needs(small))
        alone = {i for one, two in small.tied if not (one and two) for i in (*one, *two)}
        found = [i for i in found if i not in alone]
        if len(found) == len(kept):
            break
        kept = tuple(kept[i] for i in found)
    return kept


def _useful(problem: ExtractionProblem, known: Needs) -> list[int]:
    """Possible options that write a result, or something a later option may read from them."""
    if not problem.is_ordered:
        return _useful_in_any_order(problem, known)
    options = problem.options
    roots = set(problem.roots)
    wanted: dict[int, list[int]] = {}  # buffer -> useful readers, the last step first
    found: list[int] = []
    for i in reversed(range(len(options))):
        if i in known.impossible:
            continue
        tick()
        step = options[i].step
        if any(
            b in roots
            or any(options[h].step > step and not known.contradict(h, i) for h in wanted.get(b, ()))
            for b in options[i].writes
        ):
            found.append(i)
            for b in options[i].reads:
                wanted.setdefault(b, []).append(i)
    return found[::-1]


def _useful_in_any_order(problem: ExtractionProblem, known: Needs) -> list[int]:
    """Options of which all reads can be written, and that a result may be made from."""
    wanted, useful = list(problem.roots), set()
    seen = set(wanted)
    while wanted:
        for i in problem.writers.get(wanted.pop(), ()):
            reads = problem.options[i].reads
            if i in useful or i in known.impossible or any(b not in problem.writers for b in reads):
                continue
            useful.add(i)
            wanted += [b for b in reads if b not in seen]
            seen.update(reads)
    return sorted(useful)
