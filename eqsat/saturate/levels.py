"""The level of every class of a program with few blocks: the block that it belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from eqsat.saturate.blocks import Blocks, Short
from eqsat.saturate.snapshot import Raw, Tables

NOWHERE = -2  # level of what belongs to no block


class NotPeriodic(Exception):
    """The blocks are not alike; the text says how, for a reader of reports."""


@dataclass(frozen=True)
class Levels:
    """Level per class, and per node the lowest and the highest level it touches."""

    of: dict[int, int]
    spans: list[tuple[int, int]]


def levels_of(blocks: Blocks, short: Short, found: Tables) -> Levels:
    given = _given(blocks, short, found)
    level = _spread(found.nodes, given)
    while _pull_near(found.nodes, level, given):
        pass
    spans = [_span(n, level) for n in found.nodes]
    for (low, high), n in zip(spans, found.nodes, strict=True):
        if high - low > 1:
            raise NotPeriodic(f"a `{n[0]}` reaches across {high - low + 1} blocks")
    return Levels(level, spans)


def _span(node: Raw, level: Mapping[int, int]) -> tuple[int, int]:
    """The lowest and the highest level that a node touches."""
    touched = [at for c in (node[3], *node[2]) if (at := level[c]) != NOWHERE]
    return (min(touched), max(touched)) if touched else (NOWHERE, NOWHERE)


def _pull_near(nodes: list[Raw], level: dict[int, int], given: Collection[int]) -> bool:
    """Put classes that are no values of the program down to what they are computed from.

    The value that is nearest may stand behind them: a slice of the last block's value goes up
    through the block, and the slices of what is inside are near to the first one alone. Only
    classes of nodes that reach too far are moved; whether any was.
    """
    moved = False
    for node in nodes:
        low, high = _span(node, level)
        if high - low > 1 and node[3] not in given:
            under = max(level[c] for c in node[2])
            moved |= under < level[node[3]]
            level[node[3]] = min(under, level[node[3]])
    return moved


def _given(blocks: Blocks, short: Short, found: Tables) -> dict[int, int]:
    """Levels of the program's values; a class with values of many blocks belongs to none."""
    given: dict[int, set[int]] = defaultdict(set)
    placed: dict[int, int] = {}
    for column in blocks.columns:
        for b in range(short.kept):
            placed[short.number[column[short.full(b)]]] = b
    placed |= {short.number[o]: NOWHERE for o in blocks.shared}
    placed |= {short.number[o]: short.kept for o in blocks.suffix}
    for i, cls in enumerate(found.values):
        is_fill = short.program.nodes[i].op == "fill"
        given[cls].add(NOWHERE if is_fill else placed.get(i, -1))
    return {c: min(at) if max(at) - min(at) < 2 else NOWHERE for c, at in given.items()}


def _spread(nodes: list[Raw], given: dict[int, int]) -> dict[int, int]:
    """Every other class has the level of the nearest value of the program, the highest of several.

    What is made of shared values alone belongs to no block.
    """
    level = dict(given)
    _spread_shared(nodes, level)
    near: dict[int, set[int]] = defaultdict(set)
    for _, _, children, cls, _ in nodes:
        for c in children:
            near[cls].add(c)
            near[c].add(cls)
    ring = [c for c, at in level.items() if at != NOWHERE]
    while ring:
        found: dict[int, int] = {}
        for c in ring:
            for d in near[c]:
                if d not in level:
                    found[d] = max(found.get(d, NOWHERE), level[c])
        level |= found
        ring = list(found)
    for n in nodes:
        level.setdefault(n[3], NOWHERE)
    return level


def _spread_shared(nodes: list[Raw], level: dict[int, int]) -> None:
    """What is made of shared values alone; but not what is made of a carried value as well."""
    given = set(level)
    shared = _upward(nodes, {c for c, at in level.items() if at == NOWHERE}, given)
    leaves = {n[3] for n in nodes if not n[2]}
    front = {c for c in given if level[c] == -1}
    made = {n[3] for n in nodes if front & set(n[2])} & shared - given - leaves
    while made:
        shared -= made
        front = made
        made = {n[3] for n in nodes if front & set(n[2])} & shared - given - leaves
    level |= dict.fromkeys(shared - given, NOWHERE)


def _upward(nodes: list[Raw], start: set[int], given: set[int]) -> set[int]:
    """The classes that nodes over classes in `start` make, and so on; not those in `given`."""
    missing = [len(set(n[2])) for n in nodes]
    readers: dict[int, list[int]] = defaultdict(list)
    for i, n in enumerate(nodes):
        for c in set(n[2]):
            readers[c].append(i)
    found = set(start)
    waiting = list(start)
    ready = [i for i, count in enumerate(missing) if not count]
    while ready or waiting:
        for c in (nodes[i][3] for i in ready):
            if c not in found and c not in given:
                found.add(c)
                waiting.append(c)
        ready = []
        while waiting:
            for i in readers[waiting.pop()]:
                missing[i] -= 1
                if not missing[i]:
                    ready.append(i)
    return found
