"""Options cut by bytes, in any order: what is cut is in no answer that fits, by brute force."""

from __future__ import annotations

import math
import random
from dataclasses import fields, replace

import pytest
from problems import every_answer

from eqsat.extract.order import best_order, graph_of
from eqsat.extract.session import prepare
from eqsat.extract.solve.anyorder import AnyOrder, any_order
from eqsat.extract.solve.cpsat import Effort, Request, solve
from eqsat.extract.solve.fewest import Fewest
from eqsat.extract.solve.fits import Fits, fitting, least_fitting
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.problem import Answer, ExtractionProblem, Option
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.selection import GoalRequest
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_fuzz import Maker

SIZES = (4, 8, 64, 100)


def free_problem(seed: int) -> AnyOrder:
    """A few values in one or two layouts each; some are computed inside of others' dispatches."""
    rng = random.Random(seed)
    values = range(rng.randint(3, 5))
    layouts = {v: [10 * v + k for k in range(rng.choice((1, 1, 2)))] for v in values}
    once = {v: rng.random() < 0.6 for v in values}
    weights = [1000, 1001, 1010]
    options: list[Option] = []
    computes: list[tuple[int, ...]] = []

    def add(reads: set[int], writes: set[int], computed: set[int]) -> None:
        resident = tuple(sorted(rng.sample(weights, rng.choice((0, 0, 1, 1, 2)))))
        held = tuple(sorted(100 + v for v in computed if once[v]))
        adds = (rng.randint(1, 20), rng.randint(0, 3), 1)
        options.append(Option(0, adds, tuple(sorted(reads)), resident, tuple(sorted(writes)), held))
        computes.append(tuple(sorted(computed)))

    for v in values:
        for _ in range(rng.randint(1, 2)):
            computed, earlier = {v}, rng.sample(range(v), rng.randint(min(v, 1), min(v, 2)))
            if earlier and rng.random() < 0.4:  # the last of them inside of it
                inside = earlier.pop()
                computed.add(inside)
                earlier = [u for u in {*earlier, *range(inside)} if u != inside][:2]
            written = {rng.choice(layouts[u]) for u in computed if u == v or rng.random() < 0.3}
            add({rng.choice(layouts[u]) for u in earlier}, written, computed)
        for a in layouts[v]:
            for b in layouts[v]:
                if a != b:
                    add({a}, {b}, set())
    last = [layouts[values[-1]][0]]
    nbytes = {b: rng.choice(SIZES) for v in values for b in layouts[v]}
    nbytes |= {w: rng.choice(SIZES) for w in weights}
    value_of = {b: b // 10 for b in nbytes}
    problem = ExtractionProblem(tuple(options), nbytes, tuple(last), 16, ())
    return any_order(problem, tuple(computes), value_of, frozenset({100, 101}))


def peaks(problem: AnyOrder) -> dict[Answer, int]:
    """Per answer that has an order: its peak in the best one."""
    found = {}
    for a in every_answer(problem):
        try:
            best = best_order(graph_of(problem, a))
        except ValueError:
            continue
        assert best.is_proven
        found[a] = best.peak_bytes
    return found


@pytest.mark.parametrize("part", range(3))
def test_no_option_of_an_answer_that_fits_is_cut(part: int):
    proven = cut = asked = 0
    for seed in range(2400 + part * 60, 2460 + part * 60):
        problem = free_problem(seed)
        known = peaks(problem)
        if not known:
            continue
        least = min(known.values())
        assert Fits(problem).least_bytes <= least, seed
        asked += 1
        proven += not fitting(problem, least - 1)
        for cap in sorted(set(known.values())):
            kept = set(fitting(problem, cap))
            assert all(kept.issuperset(a) for a, peak in known.items() if peak <= cap), (seed, cap)
            cut += len(problem.options) - len(kept)
    assert asked > 40
    assert proven > asked / 2
    assert cut > asked


def test_what_is_plainly_least_is_least_and_few_options_hold_what_fits():
    plain = few = asked = 0
    for seed in range(2600, 2680):
        problem = free_problem(seed)
        known = peaks(problem)
        for time in sorted({problem.value("time", a) for a in known}):
            within = [p for a, p in known.items() if problem.value("time", a) <= time]
            told, value = Fewest(problem, problem, {"time": time}), min(within)
            assert not told.is_least(value + 1), (seed, time)
            asked += 1
            plain += told.is_least(value)
            lowest = set(told.lowest(value + 1))
            few += bool(lowest)
            assert lowest < set(range(len(problem.options)))
            assert set(told.within(value)) == set(fitting(problem, value))
    assert asked > 100
    assert plain > asked / 3
    assert few


def far_behind(steps: int) -> AnyOrder:
    """x is read before the largest moment and behind it; made again, it takes a chain of steps."""
    x, large, larger, result = steps - 1, steps, steps + 1, steps + 2
    chain = [Option(0, (1, 0, 1), (n - 1,) if n else (), (), (n,), ()) for n in range(steps)]
    again = [
        Option(0, (1, 0, 1), (n - 1 + 100,) if n else (), (), (n + 100,), ()) for n in range(steps)
    ]
    once = [
        Option(0, (1, 0, 1), (x,), (), (large,), (large,)),
        Option(0, (1, 0, 1), (large,), (), (larger,), (larger,)),
        Option(0, (1, 0, 1), (larger, x), (), (result,), (result,)),
        Option(0, (1, 0, 1), (larger, x + 100), (), (result,), (result,)),
    ]
    options = (*chain, *again, *once)
    nbytes = {n: 8 for n in range(steps + 3)} | {n + 100: 8 for n in range(steps)}
    nbytes |= {large: 500, larger: 500}
    problem = ExtractionProblem(options, nbytes, (result,), 0, ())
    value = {n: n % 100 for n in nbytes}
    computes = tuple((value[o.writes[0]],) for o in options)
    return any_order(problem, computes, value, frozenset())


@pytest.mark.parametrize("steps", [2, 3, 5, 7])
def test_what_is_made_again_from_far_behind_need_not_be_carried(steps: int):
    problem = far_behind(steps)
    assert min(peaks(problem).values()) == 1_000
    assert fitting(problem, 1_000)
    assert not fitting(problem, 999)


def chain(carried: int) -> AnyOrder:
    """x is read by the first and by the last of three; made again, it is read from a larger y."""

    def option(reads: tuple[int, ...], write: int, *exclusive: int) -> Option:
        return Option(0, (1, 0, 1), reads, (), (write,), exclusive)

    y, x, a, b, c = range(5)
    options = (
        option((), y, y),
        option((y,), x),
        option((x,), a, a),
        option((a,), b, b),
        option((b, x), c, c),
        option((b, y), c, c),
    )
    nbytes = {y: 2 * carried, x: carried, a: 100, b: 100, c: 100}
    problem = ExtractionProblem(options, nbytes, (c,), 0, ())
    computes = ((y,), (x,), (a,), (b,), (c,), (x, c))
    return any_order(problem, computes, {n: n for n in range(5)}, frozenset())


def test_what_is_carried_is_one_of_several_items():
    problem = chain(16)
    # no single item is carried in every answer: x may be made again, from y
    assert Fits(problem).least_bytes == 200
    assert min(peaks(problem).values()) == 216
    assert fitting(problem, 215) == ()
    assert fitting(problem, 216) == (0, 1, 2, 3, 4)
    assert fitting(problem, 232) == (0, 1, 2, 3, 4, 5)
    assert least_fitting(problem, 1_000) == 216
    assert least_fitting(problem, 216) == 216
    assert least_fitting(problem, 215) is None


@pytest.mark.parametrize("pairs", [False, True])
def test_peaks_are_bounded_with_and_without_the_order_of_items(pairs: bool):
    """Literals for pairs may lift the bound, and bars keep what is known of bytes."""
    met = asked = 0
    for seed in range(2700, 2730):
        problem = free_problem(seed)
        known = peaks(problem)
        if known:
            request = Request({"memory": 1}, {}, pairs=pairs)
            bound = solve(problem, request, Effort(10.0, 0)).bound
            assert bound <= min(known.values()), seed
            assert problem.without(((0, 1), 1)).watches is problem.watches
            asked, met = asked + 1, met + (bound == min(known.values()))
    assert met > asked / 2


def test_a_search_without_an_order_asks_what_fits():
    search = Search(chain(16), {}, math.inf, 0)
    below = search.minimise(Objective({"memory": 1}, {"memory": 215}), None, 10.0)
    assert below.status == "infeasible"
    least = search.minimise(Objective({"time": 1}, {"memory": 216}), None, 10.0)
    assert least.stage is not None
    assert least.stage.kept == (0, 1, 2, 3, 4)


def test_memory_that_no_order_gets_below_is_not_searched_for(monkeypatch: pytest.MonkeyPatch):
    free, steps = chain(16), (0, 1, 2, 3, 4, 4)
    known = {f.name: getattr(free, f.name) for f in fields(ExtractionProblem)}
    known["options"] = tuple(replace(o, step=s) for o, s in zip(free.options, steps, strict=True))
    problem, answer = ExtractionProblem(**known), (0, 1, 2, 3, 4)
    assert problem.peak_bytes(answer) == 216
    for name in ("relaxation", "solve"):
        monkeypatch.setattr(
            f"eqsat.extract.solve.goals.{name}", lambda *_: pytest.fail("was asked")
        )
    search = Search(problem, {}, math.inf, 0, (answer,), free=lambda: free)
    found = search.minimise(Objective({"memory": 1}, {"time": 5}), None, 10.0)
    assert (found.status, found.answer, found.bound) == ("optimal", answer, 216)


@pytest.mark.parametrize("seed", [4, 11])
@pytest.mark.parametrize("within", [0.0, 0.1])
def test_memory_first_finds_among_what_fits_what_it_finds_among_all(seed: int, within: float):
    program, target = Maker(seed).program(6), load_target("avx512-xla")
    egraph = saturate(merge_elementwise(program), load_rulesets(["default"]), target)
    goals = (GoalRequest("memory", within=within), GoalRequest("time"), GoalRequest("dispatches"))
    found, sizes = [], []
    for whole in (False, True):
        session = prepare(egraph, target, goals, whole=whole)
        sizes.append(len(set(session.assembly.candidates)))  # not once per moment of an order
        session, _, outcome = session.answer(goals, 20.0)
        session, outcome = session.ordered(outcome, goals, 20.0)
        selection = session.selection(outcome, goals)
        found.append((selection.stop, selection.goals))
    assert found[0] == found[1]
    assert sizes[0] <= sizes[1]
