"""The search for the cheapest sharding: answers get better, bounds get higher, until they meet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.shard.network import Network, network
from eqsat.extract.shard.presolve import ChoiceGraph, reduced
from eqsat.model.cycles import uncollected
from eqsat.model.diag import fail
from eqsat.model.sharding import Sharding, ShardProblem
from eqsat.model.stopping import INTERRUPTED, OUT_OF_MEMORY, Stop

if TYPE_CHECKING:
    from eqsat.extract.shard.prices import Ascent

SMALL = 6_000  # pairs of strategies and entries of usage rows: CP-SAT is asked first
EXACT_SHARE = 0.3  # of the time that is left, for CP-SAT on small networks
BOUND_SHARE = 0.25  # of the time that is left, for the bound
FIT_SHARE = 0.25  # of what is left then, for choices by prices; the rest is for regions
BOUND_RATES, FIT_RATES = (1.0, 0.01), (0.2, 0.02)
TIGHTER = (1.0, 0.98, 0.96)  # limits for prices, in turn: what is decoded mostly exceeds them
FIRST_ANSWERS, MOST_ANSWERS = 3, 10_000  # before the bound; and after it
TURNS = 20  # changes of prices between two answers
PENALTY, LEAST_PENALTY = 1.5, 1e-3  # of a price; of the highest price
HARDER, MOST_REPAIRS = 3.0, 14  # penalties grow by this where too much is used; so many times
HARD = 1e6  # of the highest penalty, once an answer fits
FEW_TRIALS, MANY_TRIALS = 5, 100  # regions between two looks at the clock
TRIAL_WORK = 2 * 10**6  # of these, in entries of arrays
MOST_CLIMBS, MOST_REGIONS = 10**6, 10**6  # changes of prices for the bound; calls for regions
LAST_SECONDS, LAST_SHARE = 0.3, 0.02  # kept for the checks at the end


class _ShardTimeError(Exception):
    pass


@dataclass
class _ShardSearch:
    problem: ShardProblem
    deadline: float  # of time.monotonic
    seed: int
    stop: Stop
    best: tuple[int, ...] | None = None
    cost: int | None = None
    bound: int | None = None
    infeasible: bool = False

    def seconds(self) -> float:
        return 0.0 if self.stop.is_requested else self.deadline - time.monotonic()

    def pause(self) -> None:
        """The place to stop between two pieces of work."""
        if self.seconds() <= 0 or self.is_done:
            raise _ShardTimeError

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
    known: Sequence[int] = (),
    exact: bool = False,
) -> Sharding:
    """The cheapest strategies within the usage limit that are found in `time_limit` seconds.

    known: strategies to start from. exact: CP-SAT has all of the time, as for problems that are
    nearly trees. The answer depends on the clock only where `stop` says `wall`. EqsatError E907
    (our bug) if the checker objects.
    """
    start = time.monotonic()
    kept = LAST_SECONDS + LAST_SHARE * time_limit if time_limit > 2 * LAST_SECONDS else 0.0
    search = _ShardSearch(problem, start + time_limit - kept, seed, stop or Stop())
    search.offer(known)
    ended = "work"
    with uncollected():
        try:
            _run(search, exact)
        except _ShardTimeError:
            ended = INTERRUPTED if search.stop.is_requested else "wall"
        except MemoryError:
            ended = OUT_OF_MEMORY
    return _sharding(search, ended)


def least_used(
    problem: ShardProblem,
    *,
    time_limit: float,
    seed: int = 0,
    most_cost: int | None = None,
    known: Sequence[int] = (),
) -> Sharding:
    """The strategies that use least at the worst step, of those that cost at most so much.

    Its `status` speaks of what is used; a bound of the cost it has none.
    """
    small = reduced(problem)
    net = None if small is None else network(small)
    if small is None or net is None:
        return Sharding("infeasible", "proof", None, None)
    from eqsat.extract.shard.exact import ExactModel

    model = ExactModel(small, net)
    if most_cost is not None:
        model.model.add(model.cost <= most_cost)
    hint = small.taken(known) if known else None
    found = model.minimised(model.peak, time_limit, seed, Stop(), hint)
    if found.choice is None:
        return Sharding(found.status, "wall", None, None)
    strategies = small.lifted(found.choice)
    return Sharding(found.status, "wall", problem.cost(strategies), None, strategies)


def _run(search: _ShardSearch, exact: bool) -> None:
    small = reduced(search.problem)
    net = None if small is None else network(small)
    if small is None or net is None or net.base.max(initial=0) > net.limit:
        search.infeasible = True
        return
    search.raise_bound(sum(int(c.min()) for c in small.costs) + _least_pairs(small))
    if len(net.costs) == len(small.costs):
        search.offer(small.lifted(np.zeros(len(small.costs), np.int64)))
        return
    search.offer(small.lifted(_leanest(net)))
    search.pause()
    if (exact or _size(net) <= SMALL) and _exactly(
        search, small, net, 1.0 if exact else EXACT_SHARE
    ):
        return
    small, net = _pruned(search, small, net)
    _by_prices(search, small, net)


def _leanest(net: Network) -> np.ndarray:
    """The choice that uses least, summed over the steps: mostly allowed, and there at once."""
    _, lower, upper, at, usages = net.pieces
    total = np.zeros(len(net.costs))
    first = net.offsets[net.node_of_piece]
    for p, o in enumerate(first.tolist()):
        own = usages[at[p] : at[p + 1]]
        total[o : o + len(own)] += own * float(upper[p] - lower[p])
    ends = zip(net.offsets[:-1].tolist(), net.offsets[1:].tolist(), strict=True)
    return np.array([int(total[a:b].argmin()) for a, b in ends], np.int64)


def _size(net: Network) -> int:
    return len(net.graph[4]) + len(net.pieces[4])


def _least_pairs(small: ChoiceGraph) -> int:
    return sum(int(m.min()) for m in small.edges.values())


def _exactly(search: _ShardSearch, small: ChoiceGraph, net: Network, share: float) -> bool:
    """Whether CP-SAT proved its answer, or that there is none."""
    from eqsat.extract.shard.exact import ExactModel

    model = ExactModel(small, net)
    if not model.is_exact:
        return False
    seconds, hint = share * search.seconds(), search.choice(small)
    found = model.minimised(model.cost, seconds, search.seed, search.stop, hint)
    search.infeasible = found.status == "infeasible"
    if found.choice is not None:
        search.offer(small.lifted(found.choice))
    if found.bound is not None:
        search.raise_bound(found.bound)
    return search.is_done


def _pruned(search: _ShardSearch, small: ChoiceGraph, net: Network) -> tuple[ChoiceGraph, Network]:
    """Without dominated strategies, until nothing more is."""
    from eqsat.extract.shard.dominance import irreplaceable

    while True:
        search.pause()
        alive = irreplaceable(net)
        if all(a.all() for a in alive):
            return small, net
        small = small.kept(alive)
        net = network(small)


# ---- prices --------------------------------------------------------------------------------------
def _by_prices(search: _ShardSearch, small: ChoiceGraph, net: Network) -> None:
    from eqsat.extract.shard.prices import Ascent, climb, proven

    ascent = Ascent(net)

    def more() -> bool:
        return search.seconds() > 0 and not search.is_done

    _fitted(search, small, net, ascent, 0.0)
    climb(ascent, BOUND_RATES, BOUND_SHARE * search.seconds(), MOST_CLIMBS, more)
    if ascent.best is not None:
        search.raise_bound(proven(net, *ascent.best[1:]))
    search.pause()
    _fitted(search, small, net, ascent, FIT_SHARE)
    _regions(search, small, net, ascent)


def _fitted(
    search: _ShardSearch, small: ChoiceGraph, net: Network, ascent: Ascent, share: float
) -> None:
    """Answers from choices that prices lead to, put right by descent; a few if share is 0."""
    start, whole = time.monotonic(), share * search.seconds()
    for turn in range(FIRST_ANSWERS if share == 0 else MOST_ANSWERS):
        gone = min((time.monotonic() - start) / whole, 1.0) if share else 0.0
        if gone == 1.0:
            return
        limit = net.limit * TIGHTER[turn % len(TIGHTER)]
        rate = FIT_RATES[0] * (FIT_RATES[1] / FIT_RATES[0]) ** gone
        for _ in range(TURNS):
            ascent.fit(rate, limit)
            search.pause()
        repaired = _repaired(search, net, ascent, ascent.choice.copy(), turn)
        if repaired is not None:
            search.offer(small.lifted(repaired))


def _penalty(prices: np.ndarray) -> np.ndarray:
    return PENALTY * prices + LEAST_PENALTY * prices.max(initial=0.0)


def _repaired(
    search: _ShardSearch, net: Network, ascent: Ascent, choice: np.ndarray, turn: int
) -> np.ndarray | None:
    """The choice after descents with growing penalties; None if it still uses too much."""
    from eqsat.extract.shard.descent import descend, used

    random = np.random.default_rng((search.seed, turn))
    use = np.zeros(len(net.base), np.int64)
    used(net.base, net.pieces, choice, use)
    penalty = _penalty(ascent.prices)
    waiting = np.zeros(len(choice), np.int8)
    for _ in range(MOST_REPAIRS):
        queue = random.permutation(len(choice))
        waiting[queue] = 1
        descend(
            choice, use, penalty, net.limit, ascent.costs, ascent.floats, net.pieces, queue, waiting
        )
        search.pause()
        if use.max(initial=0) <= net.limit:
            return choice
        penalty = np.where(use > net.limit, HARDER * penalty, penalty)
    return None


def _regions(search: _ShardSearch, small: ChoiceGraph, net: Network, ascent: Ascent) -> None:
    """Large neighbourhoods of the best answer, until the time is over."""
    from eqsat.extract.shard.descent import used
    from eqsat.extract.shard.regions import search_regions

    choice, use = search.choice(small), np.zeros(len(net.base), np.int64)
    if choice is None:
        return
    used(net.base, net.pieces, choice, use)
    penalty = np.full(len(use), HARD * max(_penalty(ascent.prices).max(initial=0.0), 1.0))
    cost = float(search.cost or 0)
    size = len(use) + len(net.pieces[1]) + len(net.graph[1]) + len(choice)
    trials = min(max(TRIAL_WORK // size, FEW_TRIALS), MANY_TRIALS)
    for turn in range(MOST_REGIONS):
        search.pause()
        found = search_regions(
            choice, cost, use, ascent.prices, penalty, net.limit, ascent.costs, ascent.floats,
            net.pieces, trials, search.seed * 1_000_003 + turn,
        )  # fmt: skip
        if found < cost:
            search.offer(small.lifted(choice))
        cost = found


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
        said = "; ".join(faults[:3]) or f"it costs {cost}, the search says {search.cost}"
        raise fail("E907", f"the sharding is wrong: {said}", exit_code=4)
    if cost == search.bound:
        return Sharding("optimal", "proof", cost, cost, search.best)
    return Sharding("feasible", ended, cost, search.bound, search.best)
