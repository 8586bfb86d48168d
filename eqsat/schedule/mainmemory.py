"""Main memory a chosen schedule needs once its target's compiler has placed temporaries.

The search counts every temporary as bytes of main memory, each with its own. A compiler knows more
once all is chosen (`placing` of a target): docs/accelerators.md, "Where temporaries lie".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from eqsat.model.dispatch import Buffer, Dispatch
from eqsat.model.schedule import Schedule
from eqsat.model.target import CompilerPlacing, Target
from eqsat.schedule.fused import OneDispatch


def placed_peak_bytes(schedule: Schedule, target: Target) -> int:
    """Arguments, results, weights, and the temporaries of the worst step that lie beside them.

    At most the schedule's `peak_bytes`, and equal to it where the target has no `placing`.
    """
    return _PlacedTemporaries(schedule, target).peak_bytes


@dataclass(frozen=True)
class _PlacedTemporaries:
    schedule: Schedule
    target: Target

    @property
    def peak_bytes(self) -> int:
        fixed = sum(b.nbytes for b in self.schedule.buffers if b.role != "temporary")
        moved = [b for b in self.schedule.temporaries if b.node in self.in_main]
        owners = self.overwritten(moved) if self._placing.in_place else {}
        live = []
        for step in self._steps:
            here = {owners.get(b.node, b.node): b.nbytes for b in moved if _is_live(b, step)}
            live.append(sum(here.values()))
        return fixed + max(live, default=0)

    @property
    def _placing(self) -> CompilerPlacing:
        return self.target.placing

    @cached_property
    def _steps(self) -> list[int]:
        return sorted({d.step for d in self.schedule.dispatches})

    # ---- the scratchpad ------------------------------------------------------------------------
    @cached_property
    def in_main(self) -> frozenset[int]:
        """Temporaries for which there is no room beside main memory.

        From a step without room the one goes that takes the most off all such steps, of equal
        ones the first.
        """
        most, left = self._placing.scratchpad_bytes, list(self.schedule.temporaries)
        brought = {s: self._brought_bytes(s, most) for s in self._steps}
        gone: list[int] = []
        while most:
            full = [s for s in self._steps if self._held(left, s) + brought[s] >= most]
            relief = {b.node: b.nbytes * sum(_is_live(b, s) for s in full) for b in left}
            node = max(relief, key=relief.__getitem__, default=-1)
            if node < 0 or not relief[node]:
                return frozenset(gone)
            gone.append(node)
            left = [b for b in left if b.node != node]
        return frozenset(b.node for b in left)

    def _held(self, buffers: list[Buffer], step: int) -> int:
        return sum(b.nbytes for b in buffers if _is_live(b, step))

    def _brought_bytes(self, step: int, most: int) -> int:
        """Buffers copied there for a step: what its dispatches read of the caller's, if it fits.

        The largest of it that the first step reads stays for the next call.
        """
        read = set[int]()
        for d in self.schedule.dispatches:
            read |= set(d.reads) if d.step == step else set()
        sizes = self._callers_bytes
        stays = self._staying(most)
        return sum(sizes[i] for i in {*read, *stays} if sizes.get(i, most) < most)

    def _staying(self, most: int) -> list[int]:
        sizes, first = self._callers_bytes, self.schedule.dispatches[:1]
        fits = [i for d in first for i in d.reads if sizes.get(i, most) < most]
        return sorted(fits, key=lambda i: -sizes[i])[:1]

    @cached_property
    def _callers_bytes(self) -> dict[int, int]:
        roles = ("argument", "weight")
        return {b.node: b.nbytes for b in self.schedule.buffers if b.role in roles}

    # ---- results in place of operands ----------------------------------------------------------
    def overwritten(self, moved: Collection[Buffer]) -> dict[int, int]:
        """Per temporary that lies where others lay: the first one that lay there."""
        buffers, first_at = {b.node: b for b in moved}, dict[int, int]()
        for i, d in enumerate(self.schedule.dispatches):
            free = {r for r in d.reads if r in buffers and buffers[r].last == d.step}
            for w in (w for w in d.writes if w in buffers):
                place = next((r for r in sorted(free) if self._fits(i, d, w, r)), None)
                if place is not None:
                    free.remove(place)
                    first_at[w] = first_at.get(place, place)
        return first_at

    def _fits(self, index: int, d: Dispatch, written: int, read: int) -> bool:
        """Whether a result has the type and bytes of an operand, and every element that is read
        of it is that which is written."""
        s = self.schedule
        types = {s.program.nodes[n].type for n in (written, read)}
        if len(types) > 1 or s.nbytes(written) != s.nbytes(read):
            return False
        one = OneDispatch(index, d, s.program, self.target)
        return all(_is_in_step(one, reader, written) for reader in _readers(one, read))


def _is_live(b: Buffer, step: int) -> bool:
    return b.first <= step <= b.last


def _readers(one: OneDispatch, node: int) -> Iterator[tuple[int, bool]]:
    """Ops inside that use a node, and whether they take one element of it after another."""
    for p in one.paths:
        if p.below == node:
            yield p.reader, p.relation == "identity" and not p.steps


def _is_in_step(one: OneDispatch, reader: tuple[int, bool], written: int) -> bool:
    """Whether an op, and all that is computed from it, walks the elements of what is written."""
    op, along = reader
    if not along or one.what(op) != "elementwise":
        return False
    above = list(_readers(one, op))
    if op != one.program.behind_views(written) and not above:
        return False
    return all(_is_in_step(one, r, written) for r in above)
