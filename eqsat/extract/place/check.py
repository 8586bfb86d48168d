"""The independent checker of a placement: one sweep over time, nothing shared with the search."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from eqsat.model.placement import Lifetime


def placement_faults(
    buffers: Sequence[Lifetime], offsets: Sequence[int], height: int, bound: int
) -> list[str]:
    """What is wrong with this placement; empty if nothing is.

    Live buffers are kept in the order of their offsets, so a new one has to be held against its two
    neighbours only. At one step, what ends goes before what begins.
    """
    if len(buffers) != len(offsets):
        return [f"{len(offsets)} offsets for {len(buffers)} buffers"]
    found = [f"`{b.name}` lies at {o}" for b, o in zip(buffers, offsets, strict=True) if o < 0]
    top = max((o + b.size for b, o in zip(buffers, offsets, strict=True)), default=0)
    if top != height:
        found.append(f"the height is {top}, not {height}")
    found += _overlaps(buffers, offsets)
    most = _most_live(buffers)
    if not most <= bound <= height:
        found.append(f"{most} bytes are live at once, the bound is {bound}, the height {height}")
    return found


def _overlaps(buffers: Sequence[Lifetime], offsets: Sequence[int]) -> list[str]:
    ends = [(b.upper, 0, i) for i, b in enumerate(buffers) if b.size]
    begins = [(b.lower, 1, i) for i, b in enumerate(buffers) if b.size]
    live: list[tuple[int, int]] = []  # (offset, buffer)
    found: list[str] = []
    for _, starts, i in sorted(ends + begins):
        if not starts:
            del live[bisect_left(live, (offsets[i], i))]
            continue
        at = bisect_left(live, (offsets[i], i))
        for _, j in live[max(at - 1, 0) : at + 1]:
            low, high = sorted((i, j), key=lambda k: (offsets[k], k))
            if offsets[low] + buffers[low].size > offsets[high]:
                found.append(f"`{buffers[low].name}` and `{buffers[high].name}` overlap")
        insort(live, (offsets[i], i))
    return found


def _most_live(buffers: Sequence[Lifetime]) -> int:
    changes: dict[int, int] = {}
    for b in buffers:
        changes[b.lower] = changes.get(b.lower, 0) + b.size
        changes[b.upper] = changes.get(b.upper, 0) - b.size
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most
