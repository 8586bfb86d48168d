"""Options that cannot be part of any best answer are dropped before the solver sees them."""

from __future__ import annotations

from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Moment
from eqsat.extract.candidates.timetable import BEGIN
from eqsat.extract.candidates.variants import Variant
from eqsat.model.deadline import tick

_END: Moment = (1 << 61, 0, 0, 0)  # behind NEVER


def possible(pool: Pool, variants: list[Variant]) -> list[Variant]:
    """Leave what can get its reads in time and what something later may read, in order."""
    first: dict[int, Moment] = {}  # buffer -> when it is written first
    written: set[tuple[int, Moment]] = set()
    in_time = []
    for v in sorted(variants, key=lambda v: v.key):
        tick()
        if any(first.get(r, _END) >= v.moment for r in v.reads):
            continue
        if v.is_conversion and not _has_news(pool, v, written):
            continue
        in_time.append(v)
        for b in v.writes:
            first.setdefault(b, v.moment)
            written.add((b, v.moment))
    wanted = dict.fromkeys(pool.space.roots, _END)
    useful = []
    for v in reversed(in_time):
        if any(wanted.get(b, BEGIN) > v.moment for b in v.writes):
            useful.append(v)
            for r in v.reads:
                wanted.setdefault(r, v.moment)
    return useful[::-1]


def _has_news(pool: Pool, v: Variant, written: set[tuple[int, Moment]]) -> bool:
    """A conversion is tried again at a later level only if something it reads came just now."""
    position, depth, tie, level = v.moment
    value = pool.space.value[v.writes[0]]
    first = -pool.space.levels(value) if pool.space.is_source(value) else 1
    before = (position, depth, tie, level - 1)
    return level == first or any((r, before) in written for r in v.reads)
