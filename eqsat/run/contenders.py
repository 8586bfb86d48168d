"""Programs of one search that may each be the answer: the best, those near it, and the input.

`--measure N` times them beside each other and keeps the fastest.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.execute.timing import interleave, interval
from eqsat.model.compiled import CHOSEN, INPUT, INPUT_BY_XLA, NEAR, Measured, Timed
from eqsat.model.deadline import tick
from eqsat.model.diag import fail
from eqsat.model.generic import Generic
from eqsat.model.layout import Border
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.ops.movement.lists import inverse
from eqsat.run import Run
from eqsat.run.phases import schedule_of

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


def measured(run: Run, count: int, seconds: float) -> Run:
    """Time `count` programs, the chosen one and the input among them, and keep the fastest.

    seconds: for finding the others. The selection and schedule are those of the fastest. EqsatError
    E426 for a program with loops or branches, whose bodies were searched for one answer alone.
    """
    if run.bodies:
        message = f"`{run.program.name}` has loops or branches, which were searched for one answer"
        raise fail("E426", message, help="leave `--measure` out")
    contenders = list(_candidates(run, count, seconds))
    tick()  # somebody may have asked to stop
    calls = [_call(run, c) for c in contenders]
    inputs = _inputs(run)
    sides = {c.name: _bound(f, inputs) for c, f in zip(contenders, calls, strict=True)}
    per_batch, times = interleave(sides)
    timed = tuple(_timed(c, times, per_batch) for c in contenders)
    winner = _fastest(timed)
    best = contenders[winner]
    result = Measured(timed, len(times[CHOSEN]), per_batch, winner, count)
    return replace(run, selection=best.selection, schedule=best.schedule, measured=result)


def slower_in_orders(run: Run, plain: Run) -> float:
    """How many times as long as the plain one this answer takes, by the clock; 1 if not surely.

    Both are called as a caller would, with arrays that lie in their orders.
    """
    inputs = _plainly(plain, _inputs(plain))
    sides: dict[str, Callable[[], Any]] = {}
    for name, each in (("orders", run), ("plain", plain)):
        call = _in_orders(each)
        put = getattr(call, "put", None)
        sides[name] = _bound(call, list(put(*inputs)) if put else inputs)
    _, times = interleave(sides)
    pairs = zip(times["orders"], times["plain"], strict=True)
    middle, low, _ = interval([a[0] / b[0] for a, b in pairs])
    return middle if low > 1 else 1.0


def _in_orders(run: Run) -> Callable[..., Any]:
    """The answer as a function of flat arguments that have the caller's shapes."""
    from eqsat.execute.calls import PLAINLY, Callee, Positional, compiled
    from eqsat.execute.executors import build_executable

    assert run.schedule is not None
    weights = {**run.weights, **_drawn(run)}
    executable = build_executable(run.schedule, run.source.opaque, weights, run.target)
    orders = run.orders or PLAINLY
    return compiled(Callee(executable, Positional(executable, orders), False, orders=orders))


def _plainly(run: Run, inputs: list[Any]) -> list[Any]:
    """Arguments in the caller's shapes, from those that the program has."""
    orders = {} if run.orders is None else run.orders.by_border
    turned = [orders.get(Border("input", i)) for i in range(len(inputs))]
    pairs = zip(inputs, turned, strict=True)
    return [x if order is None else x.transpose(inverse(order)) for x, order in pairs]


def _candidates(run: Run, count: int, seconds: float) -> Iterator[Contender]:
    """The chosen program, those near it, and the input as the target's executor and XLA have it."""
    yield chosen_contender(run)
    inputs = list(input_contenders(run, by_xla=run.target.executor != XLA))
    wanted = max(count - 1 - len(inputs), 0)
    if wanted:
        yield from near_contenders(run, wanted, seconds)
    yield from inputs[: max(count - 1, 0)]


def _call(run: Run, c: Contender) -> Callable[..., Any]:
    """A candidate as the function that a run with it would call."""
    from eqsat.execute.executors import build_executable

    target = replace(run.target, executor=XLA) if c.origin == INPUT_BY_XLA else run.target
    return build_executable(
        c.schedule, run.source.opaque, {**run.weights, **_drawn(run)}, target
    ).flat


def _drawn(run: Run) -> dict[str, Any]:
    """Weights of which only the shape is known: any values take the same time."""
    from eqsat.execute.draw import drawn_weights

    return drawn_weights(run.program, run.weights)


def _inputs(run: Run) -> list[Any]:
    import jax

    from eqsat.execute.draw import random_inputs

    drawn = random_inputs(run.program, np.random.default_rng(run.search["seed"]))
    return list(jax.device_put(drawn))


def _bound(call: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    return lambda: call(*inputs)


def _timed(c: Contender, times: dict[str, Any], per_batch: int) -> Timed:
    samples, chosen = times[c.name], times[CHOSEN]
    wall, cpu = (statistics.median(s[at] for s in samples) / per_batch * 1e6 for at in (0, 1))
    middle, low, high = interval([a[0] / b[0] for a, b in zip(chosen, samples, strict=True)])
    predicted = None if c.origin == INPUT_BY_XLA else round(c.schedule.time_ps / 1e6, 3)
    ratio = (round(middle, 4), round(low, 4), round(high, 4))
    return Timed(c.name, c.origin, predicted, round(wall, 2), round(cpu, 2), ratio)


def _fastest(timed: tuple[Timed, ...]) -> int:
    """The number of the fastest program; the chosen one unless another is surely faster."""
    faster = [i for i, t in enumerate(timed) if i and t.ratio[1] > 1]
    return max(faster, key=lambda i: timed[i].ratio[0], default=0)
