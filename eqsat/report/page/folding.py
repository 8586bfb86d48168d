"""Layers that do the same work, found by the names of weights, or by what repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from eqsat.report.page.data import Fold, PageLayer
from eqsat.report.page.labels import Scope

FEW = 30  # dispatches that are drawn as they are, unless layers repeat
LEAST_REPEATED = 6  # dispatches that a repeat covers at least
MOST_FOLDS = 12  # that are looked for where nothing has names


@dataclass(frozen=True)
class DispatchWork:
    """The facts of a dispatch that folding compares.

    what: the work it does, whatever the layouts. exactly: the same with layouts and plan. scopes:
    the numbered parts of the model that it belongs to by name, the outermost first.
    """

    what: Hashable
    exactly: Hashable
    scopes: tuple[Scope, ...] = ()
    reads: tuple[int, ...] = ()  # dispatches it reads from
    is_relayout: bool = False


def folds(works: Sequence[DispatchWork]) -> tuple[Fold, ...]:
    """Layers by name where there are at least two, else whatever repeats.

    Where parts of a model have numbered parts themselves, those of which most are alike.
    """
    depth = max((len(w.scopes) for w in works), default=0)
    named = [_by_name(works, n) for n in range(1, depth + 1)]
    named = [repeats for repeats in named if sum(len(f.layers) for f in repeats) > 1]
    repeats = max(named, key=_spared) if named else _by_repeats(works)
    return tuple(f for f in repeats if _is_worth_it(f, len(works)))


def _spared(repeats: list[Fold]) -> int:
    """Dispatches that need not be drawn."""
    return sum((len(f.layers) - 1) * len(f.layers[0].dispatches) for f in repeats)


def _is_worth_it(fold: Fold, dispatches: int) -> bool:
    first, *others = fold.layers
    return bool(others) or (dispatches > FEW and len(first.dispatches) > 1)


# ---- by name -------------------------------------------------------------------------------------
def _by_name(works: Sequence[DispatchWork], depth: int) -> list[Fold]:
    """Layers by the so many-th numbered part of a name, or by the last there is."""
    members: dict[Scope, list[int]] = {}
    for i, scope in enumerate(_scopes(works, depth)):
        if scope is not None:
            members.setdefault(scope, []).append(i)
    layers = [
        PageLayer(f"{part or 'layer '}{n}", tuple(ds), f"{part}{n}.")
        for (part, n), ds in members.items()
    ]
    alike = [
        (part, frozenset(_done(layer, works).items()))
        for (part, _), layer in zip(members, layers, strict=True)
    ]
    runs = groupby(range(len(layers)), key=lambda n: alike[n])
    return [_fold([layers[n] for n in run], works) for _, run in runs]


def _done(layer: PageLayer, works: Sequence[DispatchWork]) -> Counter[Hashable]:
    """The work of a layer; relayouts do none."""
    return Counter(works[i].what for i in layer.dispatches if not works[i].is_relayout)


def _scopes(works: Sequence[DispatchWork], depth: int) -> list[Scope | None]:
    """Part of each dispatch; one without a name is of what it reads, up to the part's last one."""
    by_name = [w.scopes[min(depth, len(w.scopes)) - 1] if w.scopes else None for w in works]
    last = {scope: i for i, scope in enumerate(by_name) if scope is not None}
    order = {scope: n for n, scope in enumerate(dict.fromkeys(s for s in by_name if s is not None))}
    scopes: list[Scope | None] = []
    for i, w in enumerate(works):
        before = [s for r in w.reads if (s := scopes[r]) is not None and i < last[s]]
        scopes.append(by_name[i] or max(before, key=lambda s: order[s], default=None))
    return _with_lead_in(works, scopes)


def _with_lead_in(works: Sequence[DispatchWork], scopes: list[Scope | None]) -> list[Scope | None]:
    """Parts where a dispatch between two layers that only the second reads belongs to that one."""
    readers: dict[int, set[Scope | None]] = {}
    for i in reversed(range(len(works))):
        follows = any(scopes[r] is not None for r in works[i].reads)
        if scopes[i] is None and follows and len(readers.get(i, ())) == 1:
            scopes[i] = next(iter(readers[i]))
        for r in works[i].reads:
            readers.setdefault(r, set()).add(scopes[i])
    return scopes


def _fold(layers: list[PageLayer], works: Sequence[DispatchWork]) -> Fold:
    numbers: dict[Hashable, int] = {}
    done = [tuple(works[i].exactly for i in layer.dispatches) for layer in layers]
    return Fold(tuple(layers), tuple(numbers.setdefault(d, len(numbers)) for d in done))


# ---- by what repeats -----------------------------------------------------------------------------
def _by_repeats(works: Sequence[DispatchWork]) -> list[Fold]:
    """Equal sequences, one behind the other; relayouts go with the dispatch behind them."""
    working = [i for i, w in enumerate(works) if not w.is_relayout]
    number: dict[Hashable, int] = {}
    sequence = [number.setdefault(works[i].what, len(number)) for i in working]
    repeats = []
    for start, period, count in sorted(_repeats(sequence)):
        cuts = [start + n * period for n in range(count + 1)]
        first = [working[c - 1] + 1 if c else 0 for c in cuts]
        ranges = enumerate(pairwise(first))
        layers = [PageLayer(f"part {n}", tuple(range(a, b))) for n, (a, b) in ranges]
        repeats.append(_fold(layers, works))
    return repeats


def _repeats(sequence: list[int]) -> list[tuple[int, int, int]]:
    """(first, period, count) of the repeats that cover most; then of what is left around them."""
    repeats: list[tuple[int, int, int]] = []
    waiting = [(0, len(sequence))]
    while waiting and len(repeats) < MOST_FOLDS:
        begin, end = waiting.pop(0)
        best = _longest_repeat(sequence[begin:end])
        if best is not None:
            first, period, count = best
            repeats.append((begin + first, period, count))
            waiting += [(begin, begin + first), (begin + first + period * count, end)]
    return repeats


def _longest_repeat(sequence: list[int]) -> tuple[int, int, int] | None:
    """The repeat that covers most, of the shortest period; None if all are short."""
    best, covered = None, LEAST_REPEATED - 1
    for period in range(1, len(sequence) // 2 + 1):
        equal = [a == b for a, b in zip(sequence, sequence[period:], strict=False)]
        at = 0
        for is_equal, run in groupby(equal):
            length = sum(1 for _ in run)
            count = length // period + 1 if is_equal else 1
            if count > 1 and count * period > covered:
                best, covered = (at, period, count), count * period
            at += length
        if covered == len(sequence):
            break
    return best
