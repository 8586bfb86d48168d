"""Layouts that are converted in a circle: what keeps them from that holds for every answer."""

from __future__ import annotations

import random
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

import pytest

from eqsat.extract.solve.anyorder import AnyOrder, any_order
from eqsat.extract.solve.problem import Answer, ExtractionProblem, Option
from eqsat.extract.solve.relax import relaxation
from eqsat.extract.solve.supply import availabilities

# value 1 has the layouts 10, 11 and 12; results of ops, 20, 30 and 40, are made from it
VALUE = {10: 1, 11: 1, 12: 1, 20: 2, 30: 3, 40: 4}


def option(time: int, reads: tuple[int, ...], writes: tuple[int, ...], *held: int) -> Option:
    return Option(0, (time,), reads, (), writes, held)


def problem(
    options: list[Option], computes: list[tuple[int, ...]], roots: tuple[int, ...]
) -> AnyOrder:
    known = ExtractionProblem(tuple(options), dict.fromkeys(VALUE, 4), roots, 0, (), ("time",))
    return any_order(known, tuple(computes), VALUE, frozenset())


def test_two_dispatches_do_not_write_what_each_other_reads():
    options, computes = [option(1, (), (12,), 1)], [(1,)]
    for result in (20, 30, 40):
        for time, read, *more in ((5, 12), (5, 12, 10), (1, 10), (1, 11), (1, 10, 11), (1, 11, 10)):
            options.append(option(time, (read,), (result, *more), VALUE[result]))
            computes.append((VALUE[result],))
    found = problem(options, computes, (20, 30, 40))
    relaxed = relaxation(found, {"time": 1})
    assert relaxed is not None
    assert relaxed.bound == 1 + 5 + 1 + 1  # in a circle nobody would have to read 12


def answers(found: AnyOrder) -> list[Answer]:
    """Every choice that keeps the rules and has an order."""
    number = len(found.options)
    sets = (c for n in range(number + 1) for c in combinations(range(number), n))
    return [c for c in sets if found.is_legal(c) and has_order(found, c)]


def has_order(found: AnyOrder, answer: Answer) -> bool:
    writer = {b: i for i in answer for b in found.options[i].writes}
    before = {i: {writer[b] for b in found.options[i].reads} for i in answer}
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return False
    return True


@pytest.mark.parametrize("seed", range(6))
def test_no_answer_is_ruled_out(seed: int):
    draw = random.Random(seed)
    options = [option(1, (), (draw.choice((10, 11, 12)),), 1) for _ in range(2)]
    computes: list[tuple[int, ...]] = [(1,), (1,)]
    for result in (20, 20, 20, 30, 30, 30, 0, 0):
        reads = tuple(sorted(draw.sample((10, 11, 12), draw.choice((1, 1, 2)))))
        more = [b for b in (10, 11, 12) if b not in reads and draw.random() < 0.5]
        if result or more:
            writes = ((result,) if result else ()) + tuple(more)
            held = (VALUE[result],) if result else ()
            options.append(option(draw.randint(1, 9), reads, writes, *held))
            computes.append(held)
    found = problem(options, computes, (20, 30))
    known = answers(found)
    relaxed = relaxation(found, {"time": 1})
    least = min((found.value("time", a) for a in known), default=None)
    assert relaxed is not None or least is None
    for level in availabilities(found):
        for answer in known:
            chosen = set(answer)
            there = not chosen.isdisjoint(level.writers) or level.before is not None
            assert all(len(chosen.intersection(c)) <= there for c in level.claims)
    if relaxed is not None and least is not None:
        assert relaxed.bound <= least
        near = set(relaxed.within(least))
        assert all(near >= set(a) for a in known if found.value("time", a) == least)
