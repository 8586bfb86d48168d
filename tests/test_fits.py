"""Chosen cut by bytes, in any order: what is cut is in no answer that fits, by brute force."""

from __future__ import annotations

import random

import pytest
from drawnprograms import Maker
from problems import (
    Chosen,
    Column,
    bytes_of,
    choice_of,
    every_answer,
    peak,
    questions,
    value,
)
from seeds import seeds

from eqsat.extract.choice.columns import Answer, Columns
from eqsat.extract.choice.statement import Effort, Statement, solve
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.memory.items import MemoryItems
from eqsat.extract.memory.memoryfilter import Fits, least_fitting
from eqsat.extract.session import prepare
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.selection import GoalRequest
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

SIZES = (4, 8, 64, 100)


def free_choice(seed: int) -> Columns:
    """A few values in one or two layouts each; some are computed inside of others' dispatches."""
    rng = random.Random(seed)
    values = range(rng.randint(3, 5))
    layouts = {v: [10 * v + k for k in range(rng.choice((1, 1, 2)))] for v in values}
    once = {v: rng.random() < 0.6 for v in values}
    weights = [60, 61, 70]
    columns: list[Column] = []

    def add(reads: set[int], writes: set[int], computed: set[int]) -> None:
        resident = tuple(sorted(rng.sample(weights, rng.choice((0, 0, 1, 1, 2)))))
        held = tuple(sorted(v for v in computed if once[v]))
        adds = (rng.randint(1, 20), rng.randint(0, 3), 1)
        sides = tuple(sorted(reads)), tuple(sorted(writes)), held, resident
        columns.append(Column(adds, *sides, tuple(sorted(computed))))

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
    nbytes = {b: rng.choice(SIZES) for v in values for b in layouts[v]}
    nbytes |= {w: rng.choice(SIZES) for w in weights}
    last = layouts[values[-1]][0]
    return choice_of(columns, nbytes, (last,), 16, value_of={b: b // 10 for b in nbytes})


def peaks(choice: Columns) -> dict[Chosen, int]:
    """Per answer: its peak in the best order."""
    return {a: peak(choice, a) for a in every_answer(choice)}


@pytest.mark.parametrize("part", seeds(1, 3))
def test_no_column_of_an_answer_that_fits_is_cut(part: int):
    proven = cut = asked = 0
    for seed in range(2400 + part * 60, 2460 + part * 60):
        choice = free_choice(seed)
        known = peaks(choice)
        if not known:
            continue
        least, fits = min(known.values()), Fits(choice)
        assert fits.least_bytes <= least, seed
        asked += 1
        proven += fits.excludes(least - 1)
        for cap in sorted(set(known.values())):
            kept = set(fits.within(cap).tolist())
            assert all(kept.issuperset(a) for a, n in known.items() if n <= cap), (seed, cap)
            cut += len(choice) - len(kept)
    assert asked > 40
    assert proven > asked / 2
    assert cut > asked


def answer_of(choice: Columns, columns: Chosen) -> Answer:
    found = in_best_order(choice, columns)
    assert found is not None
    return found


def test_the_least_peak_within_a_time_is_that_of_brute_force():
    """From the worst answer that is known, and from none."""
    asked = proven = 0
    for seed in range(2600, 2612):
        choice = free_choice(seed)
        known = peaks(choice)
        for cap in sorted({value(choice, "time", a) for a in known})[:2]:
            within = {a: n for a, n in known.items() if value(choice, "time", a) <= cap}
            worst = answer_of(choice, max(within, key=lambda a: (within[a], a)))
            for best in (None, worst):
                found = questions(choice).least({"memory": 1}, {"time": cap}, best=best)
                assert found.best is not None
                assert found.bound <= min(within.values()) <= found.best.peak_bytes, (seed, cap)
                assert set(found.best.columns) in map(set, within)
                proven += found.status == "optimal" and found.best.peak_bytes == found.bound
                assert found.status != "optimal" or found.best.peak_bytes == found.bound
                asked += 1
    assert asked > 25
    assert proven > 0.9 * asked


@pytest.mark.parametrize("goal", seeds(1, ["time", "dispatches"]))
def test_the_least_sum_within_bytes_is_that_of_brute_force(goal: str):
    asked = proven = 0
    for seed in range(2640, 2660):
        choice = free_choice(seed)
        known = peaks(choice)
        for cap in sorted(set(known.values()))[:3]:
            least = min(value(choice, goal, a) for a, n in known.items() if n <= cap)
            found = questions(choice).least({goal: 1}, {"memory": cap})
            assert found.bound <= least, (seed, cap)
            if found.best is not None:
                assert choice.value(goal, found.best) >= least and found.best.peak_bytes <= cap
            proven += found.status == "optimal" and found.bound == least
            assert found.status in ("optimal", "gap")
            asked += 1
    assert asked > 30
    assert proven > 0.9 * asked


def test_a_weighted_sum_with_memory_is_that_of_brute_force():
    weights, asked, proven = {"time": 7, "memory": 1}, 0, 0
    for seed in range(2680, 2700):
        choice = free_choice(seed)
        known = {a: 7 * value(choice, "time", a) + n for a, n in peaks(choice).items()}
        if not known:
            continue
        found, least = questions(choice).least(weights, {}), min(known.values())
        assert found.best is not None
        assert found.bound <= least <= choice.worth(found.best, weights), seed
        proven += found.status == "optimal" and found.bound == least
        asked += 1
    assert asked > 12
    assert proven > 0.9 * asked


def far_behind(steps: int) -> Columns:
    """x is read before the largest moment and behind it; made again, it takes a chain of steps."""
    x, large, larger, result = steps - 1, steps, steps + 1, steps + 2

    def column(reads: tuple[int, ...], write: int, *exclusive: int) -> Column:
        return Column((1, 0, 1), reads, (write,), exclusive, (), (write % 100,))

    chain = [column((n - 1,) if n else (), n) for n in range(steps)]
    again = [column((n - 1 + 100,) if n else (), n + 100) for n in range(steps)]
    once = [
        column((x,), large, large),
        column((large,), larger, larger),
        column((x, larger), result, result),
        column((larger, x + 100), result, result),
    ]
    nbytes = {n: 8 for n in range(steps + 3)} | {n + 100: 8 for n in range(steps)}
    nbytes |= {large: 500, larger: 500}
    return choice_of(
        (*chain, *again, *once), nbytes, (result,), value_of={n: n % 100 for n in nbytes}
    )


@pytest.mark.parametrize("steps", [2, 3, 5, 7])
def test_what_is_made_again_from_far_behind_need_not_be_carried(steps: int):
    choice = far_behind(steps)
    assert min(peaks(choice).values()) == 1_000
    assert len(Fits(choice).within(1_000))
    assert not len(Fits(choice).within(999))


def chain(carried: int) -> Columns:
    """x is read by the first and by the last of three; made again, it is read from a larger y."""

    def column(reads: tuple[int, ...], write: int, *exclusive: int, computes=None) -> Column:
        return Column((1, 0, 1), reads, (write,), exclusive, (), computes)

    y, x, a, b, c = range(5)
    columns = (
        column((), y, y),
        column((y,), x),
        column((x,), a, a),
        column((a,), b, b),
        column((x, b), c, c),
        column((y, b), c, c, computes=(x, c)),
    )
    return choice_of(columns, {y: 2 * carried, x: carried, a: 100, b: 100, c: 100}, (c,))


def test_what_is_carried_is_one_of_several_items():
    choice = chain(16)
    fits = Fits(choice)
    # no single item is carried in every answer: x may be made again, from y
    assert fits.least_bytes == 200
    assert min(peaks(choice).values()) == 216
    assert fits.within(215).tolist() == []
    assert fits.within(216).tolist() == [0, 1, 2, 3, 4]
    assert fits.within(232).tolist() == [0, 1, 2, 3, 4, 5]
    assert least_fitting(fits, 1_000) == 216
    assert least_fitting(fits, 216) == 216
    assert least_fitting(fits, 215) is None


def test_where_nearly_all_fit_into_fewer_bytes_all_fit_into_more():
    choice = chain(16)
    assert Fits(choice).within(217).tolist() == [0, 1, 2, 3, 4]
    fits = Fits(choice)
    assert len(fits.within(216)) == 5
    assert fits.within(217).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("pairs", [False, True])
def test_peaks_are_bounded_with_and_without_the_order_of_items(pairs: bool):
    """Literals for pairs may lift the bound."""
    met = asked = 0
    for seed in range(2700, 2730):
        choice = free_choice(seed)
        known = peaks(choice)
        if known:
            told = Statement(choice)
            bytes_of(choice, {}, pairs=pairs)(told)
            bound = solve(told, {"memory": 1}, Effort(10.0, 0)).bound
            assert bound <= min(known.values()), seed
            asked, met = asked + 1, met + (bound == min(known.values()))
    assert met > asked / 2


def test_a_question_is_asked_of_what_fits():
    asked = questions(chain(16))
    assert asked.least({"memory": 1}, {"memory": 215}).status == "infeasible"
    least = asked.least({"time": 1}, {"memory": 216})
    assert least.status == "optimal" and least.places is not None
    assert least.places.tolist() == [0, 1, 2, 3, 4]


def test_memory_that_no_order_gets_below_is_not_searched_for(monkeypatch: pytest.MonkeyPatch):
    choice = chain(16)
    answer = answer_of(choice, (0, 1, 2, 3, 4))
    assert answer.peak_bytes == 216
    for name in ("minimisation.relaxation", "minimisation.solve", "memory.leastpeak.relaxation"):
        monkeypatch.setattr(f"eqsat.extract.{name}", lambda *_: pytest.fail("was asked"))
    found = questions(choice).least({"memory": 1}, {"time": 5}, best=answer)
    assert (found.status, found.best, found.bound) == ("optimal", answer, 216)


def test_what_necessity_says_of_items_holds_in_every_order():
    """Items that every answer makes are made by all, and behind what is said to come before."""
    asked = 0
    for seed in range(2730, 2760):
        choice = free_choice(seed)
        items = MemoryItems(choice)
        for answer in peaks(choice):
            found = answer_of(choice, answer)
            first: dict[int, int] = {}
            for n, i in enumerate(found.columns):
                for item in items.outputs[i]:
                    first.setdefault(item, n)
            assert first.keys() >= set(items.needed), seed
            for n, watch in zip(items.needed, items.watches, strict=True):
                assert set(watch.options) & set(answer)
                makers = [i for i in answer if n in items.outputs[i]]
                assert len(makers) == 1 or not watch.is_once
                for k, other in enumerate(items.needed):
                    assert not watch.is_after(k) or first[other] <= first[n], (seed, answer)
                    asked += watch.is_after(k)
    assert asked > 100


@pytest.mark.parametrize("seed", [4, 11])
@pytest.mark.parametrize("within", [0.0, 0.1])
def test_memory_first_finds_among_what_fits_what_it_finds_among_all(seed: int, within: float):
    program, target = Maker(seed).program(6), load_target("avx512-xla")
    egraph = saturate(merge_elementwise(program), load_rulesets(["default"]), target)
    goals = (GoalRequest("memory", within=within), GoalRequest("time"), GoalRequest("dispatches"))
    found, sizes = [], []
    for whole in (False, True):
        session = prepare(egraph, target, goals, whole=whole)
        sizes.append(len(session.assembly.choice))
        selection = session.selection(session.answer(goals, 20.0), goals)
        found.append((selection.stop, selection.goals))
    assert found[0] == found[1]
    assert sizes[0] <= sizes[1]
