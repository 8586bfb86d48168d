"""Options that cannot be part of any best answer are dropped before the solver sees them."""

from __future__ import annotations

from operator import le

from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Moment
from eqsat.extract.candidates.timetable import BEGIN
from eqsat.extract.candidates.variants import Variant
from eqsat.extract.solve.linear import OWN, TIE_BREAK
from eqsat.model.deadline import tick

OTHERS = [*OWN].index(TIE_BREAK) + 1  # time comes first, and ties do not make a dispatch better
_END: Moment = (1 << 61, 0, 0, 0)


def undominated(variants: list[Variant]) -> list[Variant]:
    """Drop an option if another at its moment writes the same, reads no more, and is as good."""
    buckets: dict[tuple[Moment, frozenset[int]], list[Variant]] = {}
    for v in variants:
        buckets.setdefault((v.moment, frozenset(v.writes)), []).append(v)
    found = []
    for bucket in buckets.values():
        tick()
        found += bucket if len(bucket) == 1 else _best(bucket)
    return found


def _best(bucket: list[Variant]) -> list[Variant]:
    """Of options that write the same at one moment: those no other one dominates.

    One dominates another if it needs no more, blocks no more and costs no more. Needs are bits of
    one number here, and in the order of this list an earlier one is known to be as fast; of equals
    the one of fewest ops is kept.
    """
    bucket.sort(key=lambda v: (v.adds, len(v.candidate.reads), len(v.candidate.members), v.key))
    # of buffers, made in the run or there as weights; of exclusive numbers
    bits: dict[tuple[str, int], int] = {}
    kept: dict[tuple[int, tuple[int, ...]], Variant] = {}
    for v in bucket:
        tick()
        mask = 0
        for what, numbers in (("made", v.reads), ("kept", v.resident), ("held", v.exclusive)):
            for n in numbers:
                mask |= bits.setdefault((what, n), 1 << len(bits))
        costs = v.adds[OTHERS:]
        if (mask, costs) in kept:
            continue
        if not any(m | mask == mask and (c == costs or all(map(le, c, costs))) for m, c in kept):
            kept[mask, costs] = v
    return list(kept.values())


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


def obtainable(pool: Pool, variants: list[Variant]) -> list[Variant]:
    """Leave what can get its reads in some order and what something may read, in a fixed order."""
    found = _readable(sorted(variants, key=lambda v: v.key))
    writers: dict[int, list[int]] = {}
    for n, v in enumerate(found):
        for b in v.writes:
            writers.setdefault(b, []).append(n)
    waiting = list(pool.space.roots)
    wanted, useful = set(waiting), [False] * len(found)
    while waiting:
        for n in writers.get(waiting.pop(), ()):
            news = () if useful[n] else found[n].reads - wanted
            useful[n] = True
            wanted.update(news)
            waiting += news
    return [v for n, v in enumerate(found) if useful[n]]


def _readable(variants: list[Variant]) -> list[Variant]:
    """Those whose reads others of them may write, in rounds: a round reads what came before it."""
    missing = [len(v.reads) for v in variants]
    readers: dict[int, list[int]] = {}
    for n, v in enumerate(variants):
        for b in v.reads:
            readers.setdefault(b, []).append(n)
    ready = [n for n, count in enumerate(missing) if not count]
    written: set[int] = set()
    found: list[Variant] = []
    while ready:
        tick()
        found += [variants[n] for n in ready]
        news = {b for n in ready for b in variants[n].writes} - written
        written |= news
        ready = []
        for b in news:
            for n in readers.get(b, ()):
                missing[n] -= 1
                if not missing[n]:
                    ready.append(n)
        ready.sort()
    return found


def _has_news(pool: Pool, v: Variant, written: set[tuple[int, Moment]]) -> bool:
    """A conversion is tried again at a later level only if something it reads came just now."""
    position, depth, tie, level = v.moment
    value = pool.space.value[v.writes[0]]
    first = -pool.space.levels(value) if pool.space.is_source(value) else 1
    before = (position, depth, tie, level - 1)
    return level == first or any((r, before) in written for r in v.reads)
