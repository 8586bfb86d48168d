"""Placement: the offset of every buffer in one arena, and how far it is proven."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eqsat.model.restore import restored


@dataclass(frozen=True)
class Lifetime:
    """A buffer to place: `size` bytes, live from step `lower` up to, not including, `upper`."""

    name: str
    lower: int
    upper: int
    size: int


@dataclass(frozen=True)
class Placement:
    """One offset per buffer, in the order of the request.

    status: optimal (no placement is lower) | feasible | infeasible (nothing fits the capacity,
    proven) | unknown (nothing found that fits it). stop: proof | capacity (it fits, so the search
    ended) | work | wall | interrupted | memory. `height` is of these offsets, in bytes, whether
    they fit or not; no placement is lower than `bound`.
    """

    offsets: tuple[int, ...]
    height: int
    bound: int
    status: str
    stop: str

    def faults(self, buffers: Sequence[Lifetime]) -> list[str]:
        """Faults of the placement, each a sentence. One sweep, nothing shared with the search."""
        if len(buffers) != len(self.offsets):
            return [f"{len(self.offsets)} offsets for {len(buffers)} buffers"]
        placed = list(zip(buffers, self.offsets, strict=True))
        faults = [f"`{b.name}` lies at {o}" for b, o in placed if o < 0]
        top = max((o + b.size for b, o in placed), default=0)
        if top != self.height:
            faults.append(f"the height is {top}, not {self.height}")
        faults += self._overlaps(buffers)
        most, _ = busiest_step((b.lower, b.upper, b.size) for b in buffers)
        if not most <= self.bound <= self.height:
            bound = f"the bound is {self.bound}, the height {self.height}"
            faults.append(f"{most} bytes are live at once, {bound}")
        return faults

    def _overlaps(self, buffers: Sequence[Lifetime]) -> list[str]:
        """Live buffers are kept in the order of their offsets, so a new one has to be held against
        its two neighbours only. At one step, what ends goes before what begins."""
        ends = [(b.upper, 0, i) for i, b in enumerate(buffers) if b.size]
        begins = [(b.lower, 1, i) for i, b in enumerate(buffers) if b.size]
        live: list[tuple[int, int]] = []  # (offset, buffer)
        faults: list[str] = []
        for _, starts, i in sorted(ends + begins):
            entry = (self.offsets[i], i)
            at = bisect_left(live, entry)
            if not starts:
                del live[at]
                continue
            for other in live[max(at - 1, 0) : at + 1]:
                (start, low), (above, high) = sorted((entry, other))
                if start + buffers[low].size > above:
                    faults.append(f"`{buffers[low].name}` and `{buffers[high].name}` overlap")
            live.insert(at, entry)
        return faults

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"offsets": list(self.offsets)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Placement:
        return restored(cls, data)


def busiest_step(lives: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """The largest sum of amounts (lower, upper, amount) that are live in one step, and the first
    such step; what is empty or ends where it begins counts nowhere."""
    changes: dict[int, int] = {}
    for lower, upper, amount in lives:
        if lower < upper:
            changes[lower] = changes.get(lower, 0) + amount
            changes[upper] = changes.get(upper, 0) - amount
    live = most = at = 0
    for step in sorted(changes):
        live += changes[step]
        if live > most:
            most, at = live, step
    return most, at
