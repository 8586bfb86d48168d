"""Feasibility of groups: what one may still hold, and whether it is a dispatch as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from eqsat.extract.candidates.pool import DevicePool
from eqsat.extract.dispatch.fusedaccess import Reader
from eqsat.model.movement import Move


class PartialGroup(NamedTuple):
    """A group in the making: operands up to `at` are decided (read, or computed inside).

    A tuple, and never changed: thousands are made per layer, and they share their parts.
    """

    inside: dict[int, int]  # buffer -> node that computes it here
    reads: dict[int, int]  # buffer -> class, as its first reader sees it
    readers: dict[int, tuple[Reader, ...]]
    queue: tuple[int, ...]  # buffers to decide
    views: tuple[int, ...]
    repeated: frozenset[int]  # nodes below a broadcast: they run more often than needed
    runs: dict[int, int]  # how often each node runs
    at: int = 0
    members: int = 0
    roots: int = 0
    met: bool = False  # something inside is read again from further down: `runs` may be too low

    def reading(self, reads: dict[int, int], decided: int) -> PartialGroup:
        """The group with these reads, and so many more operands decided."""
        at = self.at + decided
        return PartialGroup(
            self.inside, reads, self.readers, self.queue, self.views, self.repeated, self.runs,
            at, self.members, self.roots, self.met,
        )  # fmt: skip


EMPTY = PartialGroup({}, {}, {}, (), (), frozenset(), {})


# of operands: (operand, buffer, class) if held, fills, and (operand, buffer) of all others
Sides = tuple[tuple[tuple[int, int, int], ...], tuple[int, ...], tuple[Reader, ...]]


@dataclass(slots=True)
class UseContext:
    """The context of a buffer's users: what they ask of any node that computes it inside."""

    readers: tuple[Reader, ...]
    runs: int = 0  # how often the most frequent reader runs, of those that keep nothing in scratch
    is_repeated: bool = False  # a reader is below a broadcast, or is one
    # how often the readers need a value at least, and picoseconds of arithmetic that hide behind
    # the traffic of the group; -1: nobody has asked yet
    evaluations: int = -1
    hidden_ps: float = -1.0


@dataclass(frozen=True)
class Checks(DevicePool):
    """Asked about groups in the making, on one device."""

    @cached_property
    def held(self) -> frozenset[int]:
        return self.pool.held

    @cached_property
    def sides(self) -> tuple[Sides, ...]:
        """Per node its operands by where they come from: held, fills, and those to decide."""
        return tuple(map(self._sides_of, range(len(self.space.kinds))))

    def _sides_of(self, node: int) -> Sides:
        children = self.space.egraph.nodes[node].children
        sides = tuple(enumerate(self.space.operands[node]))
        held = tuple((i, b, children[i]) for i, b in sides if b in self.held)
        rest = [(i, b) for i, b in sides if b not in self.held]
        fills = self.pool.fills
        filled = tuple(fills[b] for _, b in rest if b in fills)
        return held, filled, tuple((i, b) for i, b in rest if b not in fills)

    def joined(self, state: PartialGroup, buffer: int) -> tuple[int, ...]:
        """Producers of a buffer that may be computed inside of all who use it here."""
        return self.joining(buffer, self.legality.uses.numbers(state.readers, buffer))

    def joining(self, buffer: int, uses: tuple[int, ...]) -> tuple[int, ...]:
        """Producers of a buffer that may be computed inside of the users of these numbers."""
        key = buffer, uses
        if key not in self._joining:
            joins, producers = self.legality.uses.joins, self.pool.producers.get(buffer, ())
            self._joining[key] = tuple(p for p in producers if all([joins(p, u) for u in uses]))
        return self._joining[key]

    @cached_property
    def _joining(self) -> dict[tuple[int, tuple[int, ...]], tuple[int, ...]]:
        return {}

    def may_read(self, state: PartialGroup, buffer: int) -> bool:
        """Whether a buffer is where its readers are, and is read by a map the target allows."""
        return self._is_here(state, buffer) and self._is_read_well(state, buffer)

    def _is_read_well(self, state: PartialGroup, buffer: int) -> bool:
        if not self._reads_in_step:
            return True
        uses = self.legality.uses
        return all(map(uses.may_read, uses.of(state.readers, buffer)))

    @cached_property
    def _reads_in_step(self) -> bool:
        return self.legality.fusion.index_relation == "identity"

    def _is_here(self, state: PartialGroup, buffer: int) -> bool:
        """Whether a buffer is on the device of its readers; a transfer reads from elsewhere."""
        if not self.device:
            return True
        kinds = self.space.kinds
        crosses = any(kinds[q] == "transfer" for q, _ in state.readers[buffer])
        if self.pool.legality.target.has_parts and buffer in self.pool.resident:
            return True
        return crosses or self.pool.legality.devices.may_read(self.device, buffer)

    def above(self, state: PartialGroup, buffer: int) -> UseContext:
        """The demands of a buffer's readers on everything that may compute it."""
        readers, runs, is_repeated = state.readers[buffer], 0, False
        keeps, repeats = self._keeps, self.legality.repeats
        for q, i in readers:
            if keeps[q]:
                continue
            wanted = self.legality.staged_runs(q, i) if self._stages[q] else state.runs[q]
            runs = max(runs, wanted)
            is_repeated = is_repeated or q in state.repeated or repeats(q, i)
        return UseContext(readers, runs, is_repeated)

    @cached_property
    def _keeps(self) -> tuple[bool, ...]:
        """Per node: whether it has what it reads inside in scratch."""
        return tuple(map(self.legality.row_blocks.keeps, range(len(self.space.kinds))))

    @cached_property
    def _stages(self) -> tuple[bool, ...]:
        """Per node: whether what it reads is computed by blocks."""
        return tuple(map(self.legality.stages, range(len(self.space.kinds))))

    @cached_property
    def _iterations(self) -> tuple[int, ...]:
        return self.costs.iterations

    @cached_property
    def _run_ps(self) -> tuple[float, ...]:
        return self.costs.least_run_ps

    @cached_property
    def _launch_ps(self) -> int:
        return self.costs.target.launch_ps

    def recomputes(self, state: PartialGroup, node: int, above: UseContext) -> bool:
        """Whether computing an op again for each run of its reader certainly takes longer.

        Than writing its buffer and reading it: arithmetic that hides behind the traffic of the
        group, or of the op by itself, is free.
        """
        points, run_ps = self._iterations[node], self._run_ps[node]
        extra = run_ps * (above.runs - points)
        if extra <= self._launch_ps:
            return False
        if above.hidden_ps < 0:
            above.hidden_ps = sum([self._slack[n] for n in {*state.inside.values()}])
        most = self._launch_ps + above.hidden_ps
        if node not in state.inside.values():
            most += self._slack[node]
        if extra <= most:
            return False
        if above.evaluations < 0:
            above.evaluations = self._evaluations(state, above.readers)
        return run_ps * (min(above.runs, above.evaluations) - points) > most

    def _evaluations(self, state: PartialGroup, readers: Iterable[Reader]) -> int:
        """How often these readers need a value at least: an index once per row it takes."""
        most = 0
        for q, i in readers:
            attr = self.space.egraph.nodes[q].attr
            if i == 1 and isinstance(attr, Move) and attr.op == "gather":
                most = max(most, math.prod(attr.sources[1]))
                continue
            above = [r for b in self.space.output_buffers[q] for r in state.readers.get(b, ())]
            most = max(most, self.costs.iterations[q], self._evaluations(state, above))
        return most

    @cached_property
    def _slack(self) -> tuple[float, ...]:
        """Per node: picoseconds its own traffic takes longer than its arithmetic."""
        costs, slack = self.costs, list[float]()
        for i, n in enumerate(self.space.egraph.nodes):
            traffic = sum([costs.class_ps[c] for c in (*n.children, *self.space.outputs[i])])
            slack.append(max(0.0, traffic - costs.least_ps(i, costs.iterations[i])))
        return tuple(slack)

    def _reads_itself(self, state: PartialGroup, node: int, readers: tuple[Reader, ...]) -> bool:
        """Whether a node reads what is computed from its own result."""
        inside = state.inside
        below = {inside[b] for b in self.space.operands[node] if b in inside}
        work = list(readers) if below else []
        while work:
            q, _ = work.pop()
            if q in below:
                return True
            for b in self.space.output_buffers[q]:
                work += state.readers.get(b, ())
        return False

    def _turns_inside(self, state: PartialGroup, node: int, readers: tuple[Reader, ...]) -> bool:
        """Whether a rule's conversion would stand between two elementwise ops of one group.

        The same group with the conversion at its rim exists too: every op has its own layout.
        """
        return self.space.kinds[node] == "elementwise" and self.is_turned(state, readers)

    def is_turned(self, state: PartialGroup, readers: tuple[Reader, ...]) -> bool:
        """Whether these readers are a rule's conversions which an elementwise op reads."""
        kinds, nodes = self.space.kinds, self.space.egraph.nodes
        work = [q for q, _ in readers if kinds[q] == "conversion" and nodes[q].rule != -1]
        while work:
            q = work.pop()
            above = [r for r, _ in state.readers.get(self.space.output_buffers[q][0], ())]
            if any(kinds[r] == "elementwise" for r in above):
                return True
            work += [r for r in above if kinds[r] == "conversion" and nodes[r].rule != -1]
        return False

    def _joins_roots(
        self, state: PartialGroup, root: int, runs: int, roots: int, is_repeated: bool
    ) -> bool:
        """Whether a contraction or reduction may be one root more."""
        if is_repeated and self._recomputes_root(state, root, runs):
            return False
        return roots <= self.legality.fusion.roots and not self._crowds(state, (root,))

    def fits(self, state: PartialGroup, sink: int) -> bool:
        if len(state.inside) > 1 and self._has_twice(state):
            return False
        inside = state.inside.values()
        legality = self.legality
        if state.roots > 1 and self._crowds(state, filter(legality.is_root, inside)):
            return False
        fusion, blocks = legality.fusion, legality.row_blocks
        if self._reads_rows_too_often(state):
            return False
        if blocks.is_on and state.members > 1:
            again = any(n in state.repeated for n in inside if legality.is_contraction(n))
            if not blocks.is_legal(state.inside, by_rows=again):
                return False
        if fusion.output_reductions and legality.count_inside(state.inside) > fusion.roots:
            return state.members == 1
        operands = len(state.reads) + len(self.space.outputs[sink])
        return state.members == 1 or (operands <= fusion.operands and state.roots <= fusion.roots)

    def still_fits(self, state: PartialGroup, sink: int) -> bool:
        """`fits` of a group that fitted without one of its ops: no root, and it reads no other."""
        operands = len(state.reads) + len(self.space.outputs[sink])
        return operands <= self.legality.fusion.operands and not self._has_twice(state)

    def _reads_rows_too_often(self, state: PartialGroup) -> bool:
        """Whether a reduction is computed again for a reader that is longer than its rows.

        Such as a packed one, with pads behind each row, that reads the sums of plain rows.
        """
        iterations, kinds = self._iterations, self.space.kinds
        return any(
            n in state.repeated and state.runs[n] > iterations[n] and self._is_repeated_by(state, n)
            for n in state.inside.values()
            if kinds[n] == "reduction"
        )

    def _is_repeated_by(self, state: PartialGroup, reduction: int) -> bool:
        """Whether a reader of a reduction, or of what is computed from it, runs more often."""
        iterations, repeats = self._iterations, self.legality.repeats
        seen, work = {reduction}, [reduction]
        while work:
            readers = [
                r for b in self.space.output_buffers[work.pop()] for r in state.readers.get(b, ())
            ]
            for q, i in readers:
                if self._keeps[q]:
                    continue
                if repeats(q, i) and iterations[q] > iterations[reduction]:
                    return True
                if q not in seen:
                    seen.add(q)
                    work.append(q)
        return False

    def _has_twice(self, state: PartialGroup) -> bool:
        """Whether a value is computed twice, or computed and read."""
        value, is_new = self.space.value, self._is_new
        computed = [value[b] for b, n in state.inside.items() if is_new[n]]
        distinct = set(computed)
        if len(distinct) < len(computed):
            return True
        return not distinct.isdisjoint([value[b] for b in state.reads])

    @cached_property
    def _is_new(self) -> tuple[bool, ...]:
        """Per node: whether it computes a value, and not a layout of one."""
        return tuple(k not in ("view", "conversion") for k in self.space.kinds)

    def _recomputes_root(self, state: PartialGroup, root: int, runs: int) -> bool:
        """Whether a root below a broadcast is computed again, and not kept by rows either."""
        legality = self.legality
        if not legality.recomputes_root(root, runs):
            return False
        roots = {n for n in (root, *state.inside.values()) if legality.is_root(n)}
        return not legality.row_blocks.may_be(roots)

    def _crowds(self, state: PartialGroup, roots: Iterable[int]) -> bool:
        """Whether these roots together break the scratch limit, read as they are read here."""
        legality = self.legality
        return legality.crowds(legality.inside(n, state.readers) for n in roots)
