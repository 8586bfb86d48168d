"""Large-neighbourhood search: all but a neighbourhood keeps its options, which is solved exactly.

Presolve contracts what has one option only, so that a neighbourhood is a small problem.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from eqsat.dag.components import successors
from eqsat.dag.greedy import by_sets, cheap_choice, waiting_of
from eqsat.dag.model import solve_dag
from eqsat.dag.presolve import smaller
from eqsat.dag.problem import Derivation, Reduced, dag_cost, reached

ROUNDS = 200  # neighbourhoods at most: an end that does not depend on the clock
FIRST_CLASSES, FEWEST_CLASSES = 40, 10  # that are free in a neighbourhood
WORK = 0.3  # of one neighbourhood, in CP-SAT's deterministic time
Selections = dict[int, Derivation]


def improve(
    part: Reduced,
    selection: Selections,
    *,
    seed: int,
    deadline: float,
    improved: Callable[[Selections], None],
    stopped: Callable[[], bool],
) -> Selections:
    """A selection that is no dearer, the same for the same seed unless the clock ended it.

    `deadline` is of `time.monotonic`; `improved` is told of every better selection.
    """
    near = _neighbours(part)
    spare = by_sets(waiting_of(part))[0]
    chosen_by = {o.origins[0]: (c, o) for c, options in part.classes.items() for o in options}
    shaken = random.Random(seed)
    count = FIRST_CLASSES
    for _ in range(ROUNDS):
        if time.monotonic() > deadline or stopped():
            break
        free = _ball(near, shaken.choice(sorted(selection)), count, shaken)
        kept = {
            c: options if c in free else (selection.get(c, spare[c]),)
            for c, options in part.classes.items()
        }
        cost = dag_cost(selection, part.roots)
        numbers, proven = _solved(Reduced(kept, part.roots), cost, seed, deadline)
        count = min(count * 5 // 4, len(near)) if proven else max(count * 3 // 4, FEWEST_CLASSES)
        found = dict(chosen_by[n] for n in numbers if n in chosen_by)
        if found and dag_cost(found, part.roots) <= cost:
            selection = {c: found[c] for c in reached(found, part.roots)}
            if dag_cost(selection, part.roots) < cost:
                improved(selection)
    return selection


def _neighbours(part: Reduced) -> dict[int, list[int]]:
    near: dict[int, set[int]] = {c: set() for c in part.classes}
    for c, below in successors(part.classes).items():
        for d in below:
            near[c].add(d)
            near[d].add(c)
    return {c: sorted(around) for c, around in near.items()}


def _ball(near: Mapping[int, list[int]], start: int, count: int, shaken: random.Random) -> set[int]:
    """About `count` classes around one, a random tenth of the ways left out."""
    found, now = {start}, [start]
    while now and len(found) < count:
        after = []
        for c in now:
            for d in near[c]:
                if d not in found and len(found) < count and shaken.random() < 0.9:
                    found.add(d)
                    after.append(d)
        now = after
    return found


def _solved(
    neighbourhood: Reduced, cost: int, seed: int, deadline: float
) -> tuple[list[int], bool]:
    """Nodes of the best answer (none if there was no time for it), and whether it is proven."""
    reduced = smaller(neighbourhood, lambda: deadline - time.monotonic(), cost)
    if reduced is None:
        return [], True
    numbers = list(reduced.fixed)
    if not reduced.classes:
        return numbers, True
    hint = cheap_choice(reduced, seed, lambda: deadline - time.monotonic(), passes=1)
    answer = solve_dag(reduced, hint, deadline=deadline, seed=seed, work_limit=WORK)
    best = hint if answer.selection is None else answer.selection
    for c in reached(best, reduced.roots):
        numbers += best[c].origins
    return numbers, answer.status == "optimal"
