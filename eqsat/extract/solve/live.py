"""What is live at each step, as integers: what the solver and its relaxation state alike.

A temporary is live from the step that writes it to the last step that reads it. "Still read at a
step" is one bit per buffer and step with readers, monotone over the steps; of the readers that hold
one exclusive number at most one is chosen, so their sum is at most the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.problem import ExtractionProblem, by_number
from eqsat.extract.solve.supply import largest
from eqsat.extract.solve.watch import FirstMaking
from eqsat.model.deadline import tick

Claims = tuple[tuple[int, ...], ...]  # options that exclude each other, each set at most a bit


@dataclass(frozen=True)
class Read:
    """Whether a buffer is read at some step or later: if one of the claims or `later` is true."""

    claims: Claims
    later: int | None  # number of the bit of the next step with readers


@dataclass(frozen=True)
class HeldSpan:
    """A buffer that may be written at several steps is held: read later, and written before."""

    read: int
    writers: tuple[int, ...]  # they exclude each other


@dataclass(frozen=True)
class LiveRow:
    """Bytes live at one step: what its options write, buffers still read, and spans."""

    written: tuple[tuple[int, int], ...]  # (bytes, option), one term per option
    read: tuple[tuple[int, int], ...]  # (bytes, number of a Read)
    spans: tuple[tuple[int, int], ...]  # (bytes, number of a Span)
    base: int = 0  # bytes whatever is chosen


@dataclass(frozen=True)
class Liveness:
    """peak bytes = fixed bytes + Σ weights + the largest row."""

    weights: tuple[tuple[int, Claims], ...]  # bytes of a weight, kept if one of its claims is true
    reads: tuple[Read, ...]
    spans: tuple[HeldSpan, ...]
    rows: tuple[LiveRow, ...]


def liveness(problem: ExtractionProblem) -> Liveness:
    """All that the peak bytes of an answer depend on; without an order, at least as much is live.

    What is live in some orders only is left out there.
    """
    builder = _LiveRows(problem)
    return builder.in_any_order() if isinstance(problem, AnyOrder) else builder.build()


def claims(problem: ExtractionProblem, options: Iterable[int], news: Iterable[int]) -> Claims:
    """Sets of options that exclude each other, without sets in which nothing is new."""
    holders, new = problem.holders(options), set(news)
    found = {tuple(h) for h in holders.values() if not new.isdisjoint(h)}
    found |= {(i,) for i in new if not problem.options[i].exclusive}
    return largest(found)


def kept_weights(problem: ExtractionProblem) -> tuple[tuple[int, Claims], ...]:
    """Bytes of every weight buffer, and the options that keep it if one of them is chosen."""
    nbytes = problem.kept_bytes
    keepers = problem.keepers.items()
    return tuple((nbytes(b), claims(problem, k, k)) for b, k in keepers if nbytes(b))


class _LiveRows:
    def __init__(self, problem: ExtractionProblem):
        self.problem = problem
        self.steps = sorted({o.step for o in problem.options})
        self.reads: list[Read] = []
        self.spans: list[HeldSpan] = []
        self.written: dict[int, dict[int, int]] = {s: {} for s in self.steps}
        self.held: dict[int, list[tuple[int, int]]] = {s: [] for s in self.steps}
        self.spanned: dict[int, list[tuple[int, int]]] = {s: [] for s in self.steps}

    def build(self) -> Liveness:
        roots = set(self.problem.roots)
        for b in self.problem.writers:
            if b not in roots and self.problem.nbytes[b]:
                self._buffer(b)
        rows = (
            LiveRow(
                tuple((size, i) for i, size in self.written[s].items()),
                tuple(self.held[s]),
                tuple(self.spanned[s]),
            )
            for s in self.steps
        )
        found = tuple(r for r in dict.fromkeys(rows) if r.written or r.read or r.spans)
        return Liveness(kept_weights(self.problem), tuple(self.reads), tuple(self.spans), found)

    def in_any_order(self) -> Liveness:
        problem = self.problem
        assert isinstance(problem, AnyOrder)
        own = [problem.own_bytes(i) for i in range(len(problem.options))]
        rows = [self._watched(w, own) for w in problem.watches if w.is_once]
        seen = {i for w in problem.watches if w.is_once for i in w.options}
        rows += [LiveRow(((n, i),), (), ()) for i, n in enumerate(own) if i not in seen and n]
        return Liveness(kept_weights(self.problem), tuple(self.reads), (), tuple(rows))

    def _watched(self, watch: FirstMaking, own: list[int]) -> LiveRow:
        """When an item is made: what its dispatch touches, and what is surely held meanwhile."""
        written = {i: own[i] for i in watch.options}
        read, base = [], 0
        for h in watch.held:
            tick()
            if not watch.is_after(h.item) or len(h.makers) > 1:
                continue
            if h.always:
                base += h.nbytes
                for i in written.keys() & set(h.touching):
                    written[i] -= h.nbytes
            elif h.readers and not h.touching:
                self.reads.append(Read(claims(self.problem, h.readers, h.readers), None))
                read.append((h.nbytes, len(self.reads) - 1))
        return LiveRow(tuple((n, i) for i, n in written.items()), tuple(read), (), base)

    def _still_read(self, buffer: int) -> dict[int, int]:
        """Per step with readers: the number of the bit "read here or later"."""
        options = self.problem.options
        by_step = by_number((h, (options[h].step,)) for h in self.problem.readers.get(buffer, []))
        found: dict[int, int] = {}
        seen: list[int] = []
        later: int | None = None
        for step in sorted(by_step, reverse=True):
            tick()
            seen = [*by_step[step], *seen]
            self.reads.append(Read(claims(self.problem, seen, by_step[step]), later))
            later = found[step] = len(self.reads) - 1
        return found

    def _buffer(self, buffer: int) -> None:
        options, size = self.problem.options, self.problem.nbytes[buffer]
        at = by_number((i, (options[i].step,)) for i in self.problem.writers[buffer])
        read = self._still_read(buffer)
        first, last_write = min(at), max(at)
        last = max(last_write, max(read, default=-1))
        reads = sorted(read)
        known: dict[tuple[int, int], int] = {}
        before: list[int] = []
        for step in self.steps[self.steps.index(first) :]:
            tick()
            if step > last:
                break
            for i in at.get(step, ()):
                self.written[step][i] = self.written[step].get(i, 0) + size
            later = next((read[s] for s in reads if s >= step), None)
            if later is not None and before:
                if step > last_write:
                    self.held[step].append((size, later))
                else:
                    key = (len(before), later)
                    if key not in known:
                        self.spans.append(HeldSpan(later, tuple(before)))
                        known[key] = len(self.spans) - 1
                    self.spanned[step].append((size, known[key]))
            before += at.get(step, ())
