"""The search for the cheapest DAG: answers get better, bounds get higher, until they meet.

Large-neighbourhood search: all but a neighbourhood keeps its options, which is solved exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

from eqsat.dag.check import WrongChoiceError, cost_of_choice
from eqsat.dag.greedy import by_sets, by_tree, cheap_choice, waiting_of
from eqsat.dag.model import Improved, solve_dag
from eqsat.dag.presolve import apart, smaller, trim
from eqsat.dag.problem import (
    Derivation,
    Problem,
    Reduced,
    build_problem,
    connected_parts,
    dag_cost,
    derivable,
    reached,
    successors,
)
from eqsat.model.deadline import INTERRUPTED, OUT_OF_MEMORY, OUT_OF_TIME, Stop, elapsed, gc_paused
from eqsat.model.diag import fail
from eqsat.model.serialized import Extraction, SerializedEGraph

# ---- large neighbourhoods ------------------------------------------------------------------------
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

    `deadline` is of `elapsed`; `improved` is told of every better selection.
    """
    near = _neighbours(part)
    spare = by_sets(waiting_of(part))[0]
    chosen_by = {o.origins[0]: (c, o) for c, options in part.classes.items() for o in options}
    shaken = random.Random(seed)
    count = FIRST_CLASSES
    for _ in range(ROUNDS):
        if elapsed() > deadline or stopped():
            break
        free = _ball(near, shaken.choice(sorted(selection)), count, shaken)
        restricted = {
            c: options if c in free else (selection.get(c, spare[c]),)
            for c, options in part.classes.items()
        }
        cost = dag_cost(selection, part.roots)
        numbers, proven = _solved(Reduced(restricted, part.roots), cost, seed, deadline)
        count = min(count * 5 // 4, len(near)) if proven else max(count * 3 // 4, FEWEST_CLASSES)
        solved = dict(chosen_by[n] for n in numbers if n in chosen_by)
        if solved and dag_cost(solved, part.roots) <= cost:
            selection = {c: solved[c] for c in reached(solved, part.roots)}
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
    ball, now = {start}, [start]
    while now and len(ball) < count:
        after = []
        for c in now:
            for d in near[c]:
                if d not in ball and len(ball) < count and shaken.random() < 0.9:
                    ball.add(d)
                    after.append(d)
        now = after
    return ball


def _solved(
    neighbourhood: Reduced, cost: int, seed: int, deadline: float
) -> tuple[list[int], bool]:
    """Nodes of the best answer (none if there was no time for it), and whether it is proven."""
    reduced = smaller(neighbourhood, lambda: deadline - elapsed(), cost)
    if reduced is None:
        return [], True
    numbers = list(reduced.fixed)
    if not reduced.classes:
        return numbers, True
    hint = cheap_choice(reduced, seed, lambda: deadline - elapsed(), passes=1)
    answer = solve_dag(reduced, hint, deadline=deadline, seed=seed, work_limit=WORK)
    best = hint if answer.selection is None else answer.selection
    for c in reached(best, reduced.roots):
        numbers += best[c].origins
    return numbers, answer.status == "optimal"


# ---- the search ----------------------------------------------------------------------------------
PROVEN = Fraction(1, 10**9)  # of the cost: a gap below this is the rounding of the solver's costs
FEW_PASSES, MANY_PASSES = 4, 30  # of greedy search before and after the presolve that uses it
MOST_CLASSES = 20_000  # dominators are a bit per pair of classes: beyond, greedy has to do
SMALL = 1000  # options: here a tree search closes what the portfolio leaves open
LARGE = 3000  # and here the portfolio's workers get too little done each
FIRST_WORK = 4.0  # of the portfolio, for most it is enough; in CP-SAT's deterministic time
LAST_SECONDS = 0.3  # kept for what follows the solver, which also looks at its clock late
LAST_PER_OPTION = 1.5e-4  # and for each option: larger models are slower to end


@dataclass
class _Answers:
    """A reduced problem in independent parts, the best selection and bound of each."""

    reduced: Reduced
    parts: list[Reduced]
    selections: list[dict[int, Derivation]]
    bounds: list[int]

    def cost(self) -> int:
        pairs = zip(self.selections, self.parts, strict=True)
        return self.reduced.base + sum(dag_cost(s, p.roots) for s, p in pairs)

    def bound(self) -> int:
        return self.reduced.base + sum(self.bounds)

    def offer(self, i: int, selection: dict[int, Derivation]) -> None:
        roots = self.parts[i].roots
        if dag_cost(selection, roots) < dag_cost(self.selections[i], roots):
            self.selections[i] = selection


@dataclass
class _DagSearch:
    """The search so far: every step leaves it whole."""

    egraph: SerializedEGraph
    deadline: float  # of time.monotonic
    seed: int
    stop: Stop
    problem: Problem | None = None
    best: _Answers | None = None
    bound: int | None = None
    out_of_memory: bool = False
    too_large: bool = False

    def seconds(self) -> float:
        return 0.0 if self.stop.is_requested else self.deadline - elapsed()

    def keep(self, answers: _Answers) -> None:
        """Keep an answer if it is the best, and its bound, which holds for all."""
        if self.best is None or answers.cost() < self.best.cost():
            self.best = answers
        self.bound = answers.bound() if self.bound is None else max(self.bound, answers.bound())
        self.stop.has_answer = True


def extract_dag(
    egraph: SerializedEGraph, *, deadline: float, seed: int = 0, stop: Stop | None = None
) -> Extraction:
    """The cheapest choice of nodes that provides the roots, each node paid once.

    `deadline` is of `elapsed`. The answer is the same for the same seed unless the clock
    ended the search. EqsatError E906 (our bug) if the checker objects.
    """
    search = _DagSearch(egraph, deadline, seed, stop or Stop())
    with _memory(search), gc_paused():
        search.problem = build_problem(egraph)
        whole = search.problem.whole
        lacking = sorted(whole.roots - derivable(whole.classes).keys())
        if lacking:
            names = tuple(search.problem.names[c] for c in lacking)
            return Extraction("infeasible", "proof", lacking=names)
        _run(search, whole)
    return _extraction(search)


@contextmanager
def _memory(search: _DagSearch) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        search.out_of_memory = True


def _run(search: _DagSearch, whole: Reduced) -> None:
    first = by_tree(waiting_of(whole))
    lowest = sum(min(o.cost, 0) for options in whole.classes.values() for o in options)
    only = {c: first[c] for c in reached(first, whole.roots)}
    search.keep(_Answers(whole, [whole], [only], [lowest]))
    trimmed = trim(whole)
    search.keep(_Answers(trimmed, [trimmed], [only], [_floor(trimmed)]))
    search.too_large = len(trimmed.classes) > MOST_CLASSES
    if search.too_large or search.seconds() <= 0:
        return
    reduced = smaller(trimmed, search.seconds)
    if reduced is None:
        raise AssertionError("presolve lost a finite choice")
    answers = _parts(search, reduced, FEW_PASSES)
    search.keep(answers)
    again = smaller(reduced, search.seconds, answers.cost()) if search.seconds() > 0 else None
    if again is None:
        return
    answers = _parts(search, again, MANY_PASSES)
    search.keep(answers)
    _solve(search, answers)


def _parts(search: _DagSearch, reduced: Reduced, passes: int) -> _Answers:
    parts = apart(reduced, connected_parts(successors(reduced.classes)))
    parts.sort(key=lambda p: (p.size, min(p.classes)))
    answers = [cheap_choice(p, search.seed, search.seconds, passes) for p in parts]
    return _Answers(reduced, parts, answers, [_floor(p) for p in parts])


def _floor(part: Reduced) -> int:
    """The roots cost at least their cheapest options; what is negative may all be earned."""
    if not part.negative:
        return sum(min(o.cost for o in part.classes[r]) for r in part.roots)
    least = {c: min(o.cost for o in options) for c, options in part.classes.items()}
    return sum(cost if c in part.roots else min(cost, 0) for c, cost in least.items())


def _solve(search: _DagSearch, answers: _Answers) -> None:
    """Small parts first: what they leave of the time is for the large ones."""
    sizes = [p.size for p in answers.parts]
    for i, size in enumerate(sizes):
        until = search.deadline - search.seconds() * (1 - max(size / sum(sizes[i:]), 0.1))
        part = answers.parts[i]
        if size <= LARGE and _solve_part(search, answers, i, until, work_limit=FIRST_WORK):
            continue
        if size > SMALL:
            _improve_part(search, answers, i, elapsed() * 2 / 3 + until / 3)
        by_tree = size <= SMALL or (size > LARGE and not part.negative)
        _solve_part(search, answers, i, until, by_tree=by_tree)


def _improved(search: _DagSearch, answers: _Answers, i: int) -> Improved:
    """Keeps what is found for a part, at once."""

    def improved(selection: dict[int, Derivation]) -> None:
        answers.offer(i, selection)
        search.keep(answers)

    return improved


def _improve_part(search: _DagSearch, answers: _Answers, i: int, until: float) -> None:
    improve(
        answers.parts[i],
        answers.selections[i],
        seed=search.seed,
        deadline=min(until, search.deadline - LAST_SECONDS),
        improved=_improved(search, answers, i),
        stopped=lambda: search.stop.is_requested,
    )


def _solve_part(
    search: _DagSearch,
    answers: _Answers,
    i: int,
    until: float,
    work_limit: float | None = None,
    by_tree: bool = False,
) -> bool:
    """Raise the bound of a part and look for better answers; whether there is nothing left to do.

    `until` is of `elapsed`.
    """
    deadline = min(until, search.deadline) - LAST_SECONDS - answers.parts[i].size * LAST_PER_OPTION
    if deadline <= elapsed() or search.stop.is_requested:
        return True
    answer = solve_dag(
        answers.parts[i],
        answers.selections[i],
        deadline=deadline,
        seed=search.seed,
        work_limit=work_limit,
        by_tree=by_tree,
        improved=_improved(search, answers, i),
        stop=search.stop,
    )
    if answer.selection is not None:
        answers.offer(i, answer.selection)
    if answer.bound is not None:
        answers.bounds[i] = max(answers.bounds[i], answer.bound)
    search.keep(answers)
    return answer.status == "optimal"


# ---- the answer ----------------------------------------------------------------------------------
def _extraction(search: _DagSearch) -> Extraction:
    if search.problem is None or search.best is None or search.bound is None:
        raise fail("E413", "out of memory before any extraction was found", exit_code=3)
    choices = _choices(search.problem, search.best)
    try:
        cost = cost_of_choice(search.egraph, choices)
    except WrongChoiceError as e:
        raise fail("E906", f"the extraction fails its check: {e}", exit_code=4) from None
    scale = search.problem.scale
    if cost * scale > search.best.cost():
        stated = Fraction(search.best.cost(), scale)
        message = f"the extraction costs {float(cost)}, the search says {float(stated)}"
        raise fail("E906", message, exit_code=4)
    bound = Fraction(search.bound, scale)
    if cost < bound:
        message = f"the extraction costs {float(cost)}, the bound says {float(bound)}"
        raise fail("E906", message, exit_code=4)
    if cost - bound <= abs(cost) * PROVEN:
        return Extraction("optimal", "proof", cost, cost, choices)
    word = OUT_OF_TIME
    if search.out_of_memory:
        word = OUT_OF_MEMORY
    elif search.stop.is_requested:
        word = INTERRUPTED
    elif search.too_large:
        word = "size"
    return Extraction("feasible", word, cost, bound, choices)


def _choices(problem: Problem, answers: _Answers) -> dict[str, str]:
    """Back to the file: the node chosen for every class that is reachable from the roots."""
    numbers = list(answers.reduced.fixed)
    for selection, part in zip(answers.selections, answers.parts, strict=True):
        for c in reached(selection, part.roots):
            numbers += selection[c].origins
    chosen = {problem.eclass[n]: problem.options[n] for n in numbers}
    live = reached(chosen, problem.whole.roots)
    return {problem.names[c]: problem.nodes[chosen[c].origins[0]] for c in live}
