"""The search for the cheapest sharding: answers get better, bounds get higher, until they meet.

Small problems, and those that are nearly trees, are left to CP-SAT (`ExactModel`): it proves that
an answer is the best, or that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.extract.shard.presolve import ChoiceGraph, Network, network, reduced
from eqsat.model.deadline import (
    INTERRUPTED,
    OUT_OF_MEMORY,
    OUT_OF_TIME,
    OutOfTime,
    Stop,
    elapsed,
    gc_paused,
    is_over,
    limited,
    seconds_left,
    tick,
    until,
    whatever_it_takes,
)
from eqsat.model.diag import fail
from eqsat.model.sharding import FORBIDDEN, Sharding, ShardProblem

if TYPE_CHECKING:
    from eqsat.extract.shard.prices import Ascent


@dataclass(frozen=True)
class ShardEffort:
    """Limits of each step of a search; shares are of the time that is left when it begins."""

    small: int = 6_000  # pairs of strategies and entries of usage rows: CP-SAT is asked first
    exact: float = 0.3  # share, for CP-SAT on small networks
    bound: float = 0.25  # share, for the bound
    fitting: float = 0.25  # share then, for choices by prices; the rest is for regions
    bound_rates: tuple[float, float] = (1.0, 0.01)  # of changes of prices, at first and at last
    fit_rates: tuple[float, float] = (0.2, 0.02)
    tighter: tuple[float, ...] = (1.0, 0.98, 0.96)  # limits in turn: decoded choices exceed them
    first_answers: int = 3  # before the bound
    answers: int = 10_000  # behind it, at most
    turns: int = 20  # changes of prices between two answers
    repairs: int = 14  # descents for one answer, at most
    harder: float = 3.0  # by this penalties grow between two of them, where too much is used
    climbs: int = 10**6  # changes of prices for the bound, at most
    regions: int = 10**6  # calls for regions, at most
    trial_work: int = 2 * 10**6  # entries of arrays between two looks at the clock
    checks: tuple[float, float] = (0.3, 0.02)  # seconds and share of all, for the end


EFFORT = ShardEffort()


@dataclass
class _ShardSearch:
    problem: ShardProblem
    seed: int
    stop: Stop
    best: tuple[int, ...] | None = None
    cost: int | None = None
    bound: int | None = None
    infeasible: bool = False

    def pause(self) -> None:
        """The place to stop between two pieces of work."""
        tick()
        if self.is_done:
            raise OutOfTime

    @property
    def is_done(self) -> bool:
        return self.infeasible or (self.cost is not None and self.cost == self.bound)

    def offer(self, strategies: Sequence[int]) -> None:
        """Keep an answer if it is allowed and the best so far."""
        if not strategies or self.problem.faults(strategies):
            return
        cost = self.problem.cost(strategies)
        if self.cost is None or cost < self.cost:
            self.best, self.cost = tuple(strategies), cost
            self.stop.has_answer = True

    def choice(self, small: ChoiceGraph) -> np.ndarray | None:
        """The best answer, where the smaller problem still has it."""
        return None if self.best is None else small.taken(self.best)

    def raise_bound(self, bound: int) -> None:
        self.bound = bound if self.bound is None else max(self.bound, bound)


def solve_sharding(
    problem: ShardProblem,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    stop: Stop | None = None,
    initial: Sequence[int] = (),
    exact: bool = False,
) -> Sharding:
    """The cheapest strategies within the usage limit that are found in `time_limit` seconds.

    initial: strategies to start from. exact: CP-SAT has all of the time, as for problems that are
    nearly trees. The answer depends on the clock only where `stop` says `time`. EqsatError E907
    (our bug) if the checker objects.
    """
    start = elapsed()
    seconds, share = EFFORT.checks
    reserve = seconds + share * time_limit if time_limit > 2 * seconds else 0.0
    search = _ShardSearch(problem, seed, stop or Stop())
    search.offer(initial)
    ended = "work"
    with gc_paused(), whatever_it_takes(), until(start + time_limit - reserve, search.stop):
        try:
            _run(search, exact)
        except OutOfTime:
            ended = INTERRUPTED if search.stop.is_requested else OUT_OF_TIME
        except MemoryError:
            ended = OUT_OF_MEMORY
    return _sharding(search, ended)


def least_used(
    problem: ShardProblem,
    *,
    time_limit: float,
    seed: int = 0,
    most_cost: int | None = None,
    initial: Sequence[int] = (),
) -> Sharding:
    """The strategies that use least at the worst step, of those that cost at most so much.

    Its `status` speaks of what is used; a bound of the cost it has none.
    """
    small = reduced(problem)
    net = None if small is None else network(small)
    if small is None or net is None:
        return Sharding("infeasible", "proof", None, None)
    model = ExactModel(small, net)
    if most_cost is not None:
        model.model.add(model.cost <= most_cost)
    hint = small.taken(initial) if initial else None
    result = model.minimised(model.peak, time_limit, seed, Stop(), hint)
    if result.choice is None:
        return Sharding(result.status, OUT_OF_TIME, None, None)
    strategies = small.lifted(result.choice)
    return Sharding(result.status, OUT_OF_TIME, problem.cost(strategies), None, strategies)


def _run(search: _ShardSearch, exact: bool) -> None:
    small = reduced(search.problem)
    net = None if small is None else network(small)
    if small is None or net is None or net.base.max(initial=0) > net.limit:
        search.infeasible = True
        return
    search.raise_bound(net.least)
    if len(net.costs) == len(small.costs):
        search.offer(small.lifted(np.zeros(len(small.costs), np.int64)))
        return
    search.offer(small.lifted(_leanest(net)))
    search.pause()
    if (exact or _size(net) <= EFFORT.small) and _exactly(
        search, small, net, 1.0 if exact else EFFORT.exact
    ):
        return
    small, net = _pruned(search, small, net)
    _by_prices(search, small, net)


def _leanest(net: Network) -> np.ndarray:
    """The choice that uses least, summed over the steps: mostly allowed, and there at once."""
    total = net.priced(np.ones(len(net.base)))
    return np.array(
        [of_group.argmin() for of_group in np.split(total, net.offsets[1:-1])], np.int64
    )


def _size(net: Network) -> int:
    return len(net.graph[6]) // 2 + len(net.pieces[4])


def _exactly(search: _ShardSearch, small: ChoiceGraph, net: Network, share: float) -> bool:
    """Whether CP-SAT proved its answer, or that there is none."""
    model = ExactModel(small, net)
    if not model.is_exact:
        return False
    seconds, hint = share * seconds_left(), search.choice(small)
    result = model.minimised(model.cost, seconds, search.seed, search.stop, hint)
    search.infeasible = result.status == "infeasible"
    if result.choice is not None:
        search.offer(small.lifted(result.choice))
    if result.bound is not None:
        search.raise_bound(result.bound)
    return search.is_done


def _pruned(search: _ShardSearch, small: ChoiceGraph, net: Network) -> tuple[ChoiceGraph, Network]:
    """Without dominated strategies, until nothing more is."""
    from eqsat.extract.shard.prices import irreplaceable

    while True:
        search.pause()
        alive = irreplaceable(net)
        if all(a.all() for a in alive):
            return small, net
        small = small.restricted_to(alive)
        net = network(small)


# ---- prices --------------------------------------------------------------------------------------
def _by_prices(search: _ShardSearch, small: ChoiceGraph, net: Network) -> None:
    from eqsat.extract.shard.prices import Ascent, proven

    ascent = Ascent(net)
    _fitted(search, small, net, ascent, [EFFORT.fit_rates[0]] * EFFORT.first_answers)
    for rate in _rates(EFFORT.bound_rates, EFFORT.bound, EFFORT.climbs):
        ascent.raise_bound(rate)
    search.raise_bound(proven(net, *ascent.best[1:]))
    search.pause()
    _fitted(search, small, net, ascent, _rates(EFFORT.fit_rates, EFFORT.fitting, EFFORT.answers))
    _regions(search, small, net, ascent)


def _rates(ends: tuple[float, float], share: float, turns: int) -> Iterator[float]:
    """From one rate to the other, while this share of the time that is left goes by."""
    start, whole = elapsed(), share * seconds_left()
    for _ in range(turns):
        gone = elapsed() - start
        if gone >= whole or is_over():
            return
        yield ends[0] * (ends[1] / ends[0]) ** (gone / whole)


def _fitted(
    search: _ShardSearch, small: ChoiceGraph, net: Network, ascent: Ascent, rates: Iterable[float]
) -> None:
    """Answers from choices that prices lead to, put right by descent."""
    for turn, rate in enumerate(rates):
        limit = net.limit * EFFORT.tighter[turn % len(EFFORT.tighter)]
        for _ in range(EFFORT.turns):
            ascent.fit(rate, limit)
            search.pause()
        repaired = _repaired(search, net, ascent, ascent.choice.copy(), turn)
        if repaired is not None:
            search.offer(small.lifted(repaired))


def _penalty(prices: np.ndarray) -> np.ndarray:
    """More than the prices, which balance the limit; and something where a price is zero."""
    return 1.5 * prices + 1e-3 * prices.max(initial=0.0)


def _repaired(
    search: _ShardSearch, net: Network, ascent: Ascent, choice: np.ndarray, turn: int
) -> np.ndarray | None:
    """The choice after descents with growing penalties; None if it still uses too much."""
    from eqsat.extract.shard.descent import descend

    random = np.random.default_rng((search.seed, turn))
    use, penalty = net.used(choice), _penalty(ascent.prices)
    waiting, nowhere = np.zeros(len(choice), np.int8), np.full(len(choice), -1)
    for _ in range(EFFORT.repairs):
        queue = random.permutation(len(choice))
        waiting[queue] = 1
        descend(
            choice, use, penalty, net.limit, ascent.costs, ascent.floats, net.pieces, queue,
            waiting, nowhere,
        )  # fmt: skip
        search.pause()
        if use.max(initial=0) <= net.limit:
            return choice
        penalty = np.where(use > net.limit, EFFORT.harder * penalty, penalty)
    return None


def _regions(search: _ShardSearch, small: ChoiceGraph, net: Network, ascent: Ascent) -> None:
    """Large neighbourhoods of the best answer, until the time is over."""
    from eqsat.extract.shard.descent import search_regions

    choice = search.choice(small)
    if choice is None:
        return
    use = net.used(choice)
    hard = 1e6 * max(_penalty(ascent.prices).max(initial=0.0), 1.0)  # the answer fits and stays so
    penalty = np.full(len(use), hard)
    cost = float(search.cost or 0)
    size = len(use) + len(net.pieces[1]) + len(net.graph[3]) // 2 + len(choice)
    trials = min(max(EFFORT.trial_work // size, 5), 100)
    for turn in range(EFFORT.regions):
        search.pause()
        least_cost = search_regions(
            choice, cost, use, ascent.prices, penalty, net.limit, ascent.costs, ascent.floats,
            net.pieces, trials, search.seed * 1_000_003 + turn,
        )  # fmt: skip
        if least_cost < cost:
            search.offer(small.lifted(choice))
        cost = least_cost


# ---- the answer ----------------------------------------------------------------------------------
def _sharding(search: _ShardSearch, ended: str) -> Sharding:
    if search.infeasible:
        return Sharding("infeasible", "proof", None, None)
    if search.best is None:
        return Sharding("unknown", ended, None, search.bound)
    faults = search.problem.faults(search.best)
    cost = search.problem.cost(search.best)
    if search.bound is not None and search.bound > cost:
        faults = [*faults, f"it costs {cost}, the bound says {search.bound}"]
    if faults or cost != search.cost:
        why = "; ".join(faults[:3]) or f"it costs {cost}, the search says {search.cost}"
        raise fail("E907", f"the sharding is wrong: {why}", exit_code=4)
    if cost == search.bound:
        return Sharding("optimal", "proof", cost, cost, search.best)
    return Sharding("feasible", ended, cost, search.bound, search.best)


@dataclass(frozen=True)
class ExactResult:
    """status: optimal | infeasible | feasible | unknown; `bound` of every allowed choice."""

    status: str
    choice: np.ndarray | None = None
    bound: int | None = None


class ExactModel:
    """Variables and constraints; `cost` and `peak` are what may be minimised."""

    def __init__(self, small: ChoiceGraph, net: Network):
        from eqsat.extract import sat  # loads OR-Tools

        self.model = sat.CpModel()
        self.chosen = [[self.model.new_bool_var("") for _ in c] for c in small.costs]
        self.terms: list[tuple[Any, int]] = []
        self.constant = 0
        for literals, costs in zip(self.chosen, small.costs, strict=True):  # (S1) one strategy each
            self.model.add_exactly_one(literals)
            self.terms += zip(literals, costs.tolist(), strict=True)
        for (i, j), matrix in small.edges.items():
            self._add_edge(self.chosen[i], self.chosen[j], matrix)
        for excess in small.excesses:
            self._add_excess(excess)
        self.peak = self.model.new_int_var(0, net.limit, "")
        self._add_usages(net)
        sizes = abs(self.constant) + sum(abs(c) for _, c in self.terms)
        most_used = int(net.pieces[4].sum()) + int(net.base.max(initial=0))
        self.is_exact = max(sizes, most_used) < 2**52  # so are the solver's integers

    @property
    def cost(self) -> Any:
        return sum(c * x for x, c in self.terms) + self.constant

    def _add_edge(self, first: list[Any], second: list[Any], matrix: np.ndarray) -> None:
        """Strategies of equal costs are one line of the matrix, with the sum of their variables."""
        rows, row_of = np.unique(matrix, axis=0, return_inverse=True)
        lines, column_of = np.unique(rows, axis=1, return_inverse=True)
        by_row = _sums(first, row_of, len(lines))
        by_column = _sums(second, column_of, len(lines[0]))
        allowed = lines < FORBIDDEN
        least = int(lines[allowed].min())
        self.constant += least
        if (lines[allowed] == least).all():
            self._allow(by_row, by_column, allowed)
            return
        # (S2) a variable per pair of lines, whose sums are those of the lines: on a tree this
        # relaxation is exact
        pairs = np.full(lines.shape, None)
        for r, c in np.argwhere(allowed).tolist():
            pairs[r, c] = self.model.new_bool_var("")
            if lines[r, c] > least:
                self.terms.append((pairs[r, c], int(lines[r, c]) - least))
        for variable, line, ok in zip(
            by_row + by_column, [*pairs, *pairs.T], [*allowed, *allowed.T], strict=True
        ):
            self.model.add(sum(line[ok]) == variable)

    def _add_excess(self, excess: Mapping[int, np.ndarray]) -> None:
        """(S4) a cost of its own is at least the sum, and not negative."""
        pairs = [p for g, c in excess.items() for p in zip(self.chosen[g], c.tolist(), strict=True)]
        most = self.model.new_int_var(0, sum(int(c.max()) for c in excess.values()), "")
        self.model.add(sum(c * x for x, c in pairs) <= most)
        self.terms.append((most, 1))

    def _allow(self, rows: list[Any], columns: list[Any], allowed: np.ndarray) -> None:
        """(S2) of pairs that cost the same: a line needs one of those that it is allowed with."""
        for variable, line in zip(rows, allowed, strict=True):
            others = sum(c for c, ok in zip(columns, line, strict=True) if ok)
            if allowed[:, line].sum() == line.sum():
                self.model.add(variable == others)
            else:
                self.model.add(variable <= others)

    def _add_usages(self, net: Network) -> None:
        """(S3) what each step uses is at most the peak, each distinct row once."""
        start, lower, upper, at, usages = (x.tolist() for x in net.pieces)
        rows: list[list[tuple[int, int, int]]] = [[] for _ in range(len(net.base))]
        for i in range(len(self.chosen)):
            for p in range(start[i], start[i + 1]):
                piece_usages = usages[at[p] : at[p + 1]]
                entries = [(i, s, u) for s, u in enumerate(piece_usages) if u]
                for t in range(lower[p], upper[p]):
                    rows[t] += entries
        distinct = {(base, *row) for base, row in zip(net.base.tolist(), rows, strict=True)}
        for base, *row in sorted(distinct):
            used = sum(u * self.chosen[i][s] for i, s, u in row)
            self.model.add(used + base <= self.peak)

    def minimised(
        self, objective: Any, seconds: float, seed: int, stop: Stop, hint: np.ndarray | None
    ) -> ExactResult:
        """Search until it is proven, or for so long."""
        from eqsat.extract import sat

        self.model.minimize(objective)
        for literals, strategy in zip(
            self.chosen, [] if hint is None else hint.tolist(), strict=False
        ):
            for s, x in enumerate(literals):
                self.model.add_hint(x, s == strategy)
        solver = sat.CpSolver()
        solver.parameters.num_workers = 1  # the relaxation is exact, or nearly: one worker proves
        solver.parameters.cp_model_probing_level = 0
        with limited(solver, seconds, seed, stop):
            status = solver.solve(self.model)
        if status == sat.INFEASIBLE:
            return ExactResult("infeasible")
        if status not in (sat.OPTIMAL, sat.FEASIBLE):
            return ExactResult("unknown")
        word = "optimal" if status == sat.OPTIMAL else "feasible"
        values = [
            [solver.boolean_value(x) for x in literals].index(True) for literals in self.chosen
        ]
        bound = int(np.ceil(solver.best_objective_bound - 1e-6))
        return ExactResult(word, np.array(values, np.int64), bound)


def _sums(variables: list[Any], line_of: np.ndarray, lines: int) -> list[Any]:
    """Per line of a matrix the sum of the variables of its strategies."""
    sums: list[Any] = [0] * lines
    for x, line in zip(variables, line_of.ravel().tolist(), strict=True):
        sums[line] += x
    return sums
