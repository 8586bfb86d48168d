"""Options that cannot be part of any best answer are dropped before the solver sees them."""

from __future__ import annotations

from eqsat.extract.linear import OWN, TIE_BREAK
from eqsat.extract.pool import Pool
from eqsat.extract.space import Moment
from eqsat.extract.variants import BEGIN, Variant

OTHERS = [*OWN].index(TIE_BREAK) + 1  # time comes first, and ties do not make a dispatch better
_END: Moment = (1 << 61, 0, 0, 0)


def undominated(variants: list[Variant]) -> list[Variant]:
    """Drop an option if another at its moment writes the same, reads no more, and is as good."""
    buckets: dict[tuple[Moment, frozenset[int]], list[Variant]] = {}
    for v in variants:
        buckets.setdefault((v.moment, frozenset(v.writes)), []).append(v)
    found = []
    for bucket in buckets.values():
        bucket.sort(key=lambda v: (v.adds, len(v.candidate.reads), v.key))
        kept: list[Variant] = []
        for v in bucket:
            if not any(_dominates(k, v) for k in kept):
                kept.append(v)
        found += kept
    return found


def _dominates(a: Variant, b: Variant) -> bool:
    """a needs no more than b, blocks no more and costs no more; it is known to be as fast."""
    if not (a.reads <= b.reads and a.resident <= b.resident and a.exclusive <= b.exclusive):
        return False
    return all(x <= y for x, y in zip(a.adds[OTHERS:], b.adds[OTHERS:], strict=True))


def possible(pool: Pool, variants: list[Variant]) -> list[Variant]:
    """Leave what can get its reads in time and what something later may read, in order."""
    written: dict[int, list[Moment]] = {}
    in_time = []
    for v in sorted(variants, key=lambda v: v.key):
        if any(all(m >= v.moment for m in written.get(r, ())) for r in v.reads):
            continue
        if v.is_conversion and not _has_news(pool, v, written):
            continue
        in_time.append(v)
        for b in v.writes:
            written.setdefault(b, []).append(v.moment)
    wanted = dict.fromkeys(pool.space.roots, _END)
    useful = []
    for v in reversed(in_time):
        if any(wanted.get(b, BEGIN) > v.moment for b in v.writes):
            useful.append(v)
            for r in v.reads:
                wanted.setdefault(r, v.moment)
    return useful[::-1]


def _has_news(pool: Pool, v: Variant, written: dict[int, list[Moment]]) -> bool:
    """A conversion is tried again at a later level only if something it reads came just now."""
    position, depth, tie, level = v.moment
    value = pool.space.value[v.writes[0]]
    first = -pool.space.levels(value) if pool.space.is_source(value) else 1
    before = (position, depth, tie, level - 1)
    return level == first or any(before in written.get(r, ()) for r in v.reads)
