"""Merges of all small groups: pairs that share a node or a buffer, without dominated ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.merge import Key, Merger
from eqsat.extract.candidates.pairs import MergePairs
from eqsat.extract.ragged import Ints, distinct
from eqsat.model.deadline import OutOfTime, tick

AT_ONCE = 1 << 19  # pairs among which dominated ones are looked for


def merges(merger: Merger, candidates: Sequence[Candidate]) -> list[Candidate]:
    """All legal merges of these, or those that were found in time."""
    found: dict[Key, Candidate] = {}
    if merger.is_on:
        try:
            _add(merger, candidates, found)
        except OutOfTime:
            merger.cut_short(found)
    return list(found.values())


def _add(merger: Merger, candidates: Sequence[Candidate], found: dict[Key, Candidate]) -> None:
    small = sorted(
        (c for c in candidates if merger.is_small(c)),
        key=lambda c: (len(c.members), c.members, c.reads),
    )
    parts = [merger.part(c) for c in small]
    pairs, prune = merger.pairs(parts), merger.prune(parts)
    for paired in _in_lots(_pairs(merger, pairs, small)):
        first, second = paired // len(small), paired % len(small)
        leaders = np.arange(len(paired))
        if prune is not None:
            leaders = prune.leaders(first, second)
        for n in np.flatnonzero(leaders == np.arange(len(paired))).tolist():
            tick()
            merger.merge(found, parts[first[n]], parts[second[n]])


def _pairs(merger: Merger, pairs: MergePairs, small: Sequence[Candidate]) -> Iterator[Ints]:
    """Pairs of parts, as one number each, by what they share: a node, then a buffer."""
    sides = (
        (merger.nodes_inside, merger.around_node),
        (merger.operands, merger.around_operand),
    )
    for keys_of, around in sides:
        buckets: dict[int, list[int]] = {}
        for i, c in enumerate(small):
            for key in keys_of(c):
                buckets.setdefault(key, []).append(i)
        for key, bucket in buckets.items():
            if len(bucket) > 1:
                one, two = around(pairs, bucket, key)
                yield one * len(small) + two


def _in_lots(found: Iterator[Ints]) -> Iterator[Ints]:
    """The same, each once, many at a time: what is dominated is looked for among these."""
    waiting: list[Ints] = []
    for pairs in found:
        waiting.append(pairs)
        if sum(map(len, waiting)) > AT_ONCE:
            yield distinct(np.concatenate(waiting))
            waiting.clear()
    if waiting:
        yield distinct(np.concatenate(waiting))
