"""Programs of one search that may each be the answer: the best, those near it, and the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.model.compiled import CHOSEN, INPUT, INPUT_BY_XLA, NEAR
from eqsat.model.generic import Generic
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.run import Run
from eqsat.run.schedules import schedule_of

XLA = "xla"
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Contender:
    """A program that is admissible, as it was found and as it runs."""

    name: str
    origin: str
    selection: Selection
    schedule: Schedule


def near_contenders(run: Run, count: int, seconds: float) -> Iterator[Contender]:
    """At most so many programs other than the chosen one, nearly as good, the best first."""
    from eqsat.extract.ask.near import near_optimal

    assert run.egraph is not None and run.selection is not None
    selections = near_optimal(
        run.egraph, run.target, run.goals, run.selection, run.baseline,
        count=count, seconds=seconds, seed=run.search["seed"],
    )  # fmt: skip
    for i, s in enumerate(selections, 1):
        yield Contender(f"{NEAR} {i}", NEAR, s, schedule_of(run, s))


def input_contenders(run: Run, *, by_xla: bool) -> Iterator[Contender]:
    """The input's own fusion, unless it is what was chosen; by_xla: also as XLA compiles it."""
    assert run.schedule is not None
    if run.baseline is None or run.baseline_schedule is None:
        return
    same = run.baseline_schedule.program == run.schedule.program
    sides = run.baseline, run.baseline_schedule
    if not (same and run.baseline_schedule.dispatches == run.schedule.dispatches):
        yield Contender(INPUT, INPUT, *sides)
    if by_xla:
        yield Contender(INPUT_BY_XLA, INPUT_BY_XLA, *sides)


def chosen_contender(run: Run) -> Contender:
    """The program that the search chose."""
    assert run.selection is not None and run.schedule is not None
    return Contender(CHOSEN, CHOSEN, run.selection, run.schedule)


# ---- which of them a compiler sees as others -----------------------------------------------------
def diverse(candidates: Sequence[Contender], asked_anyway: Sequence[Contender]) -> list[Contender]:
    """First those whose contractions no other one has, then those whose moves none has, the rest.

    A compiler fuses as it likes and lays out inner values itself, but computes the contractions
    that it is given; so programs that differ in these are the ones worth its time. Each keeps its
    place among equals: the best first. asked_anyway: programs that are no candidates.
    """
    products = {_contractions(k) for k in asked_anyway}
    moves = {(_contractions(k), _moves(k)) for k in asked_anyway}
    ranks: list[tuple[int, int]] = []
    for i, one in enumerate(candidates):
        both = _contractions(one), _moves(one)
        ranks.append((0 if both[0] not in products else 1 if both not in moves else 2, i))
        products.add(both[0])
        moves.add(both)
    return [candidates[i] for _, i in sorted(ranks)]


def _contractions(one: Contender) -> Key:
    """Sums of products: the extents of result and sums, and how many there are of each."""
    generics = (n.attr for n in one.schedule.program.nodes if isinstance(n.attr, Generic))
    extents = (
        (tuple(sorted(g.sizes[: g.rank])), tuple(sorted(g.sizes[g.rank :])))
        for g in generics if g.reductions and len(g.maps) > 1
    )  # fmt: skip
    return tuple(sorted(Counter(extents).items()))


def _moves(one: Contender) -> Key:
    """Everything else, by op and type of the result."""
    nodes = one.schedule.program.nodes
    moves = ((n.op, str(n.types[0])) for n in nodes if not isinstance(n.attr, Generic))
    return tuple(sorted(Counter(moves).items()))
