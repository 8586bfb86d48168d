"""The execution order: least peak, proven; choices under an order; bounds for all orders."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from drawnprograms import SETTINGS, Maker
from graphs import assembled
from problems import keeps_the_rules, peak, solved
from seeds import seeds

from eqsat.extract import check, extract
from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.choice.columns import Answer
from eqsat.extract.choice.legal import greedy
from eqsat.extract.choice.statement import Effort
from eqsat.extract.memory.bestorder import (
    DispatchGraph,
    Order,
    best_order,
    blocks,
    graph_of,
    in_best_order,
    peak_bytes,
)
from eqsat.extract.minimiser import Minimiser, SearchLimits
from eqsat.extract.session import prepare
from eqsat.lang.requests import override
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.affine import dim
from eqsat.model.deadline import elapsed
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.expr import arg, call
from eqsat.model.generic import Yield
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Buffer, Schedule
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.sets import bits, mask
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.canonical import generic_node, identity
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

GOALS = tuple(GoalRequest(g) for g in ("time", "memory", "dispatches"))
EFFORT = Effort(seconds=10.0, seed=0)
MEMORY = "memory"


def random_work(seed: int, dispatches: int) -> DispatchGraph:
    """Dispatches in a legal order, each reading some of what earlier ones wrote."""
    rng = random.Random(seed)
    reads, writes, nbytes = [], [], {}
    for _ in range(dispatches):
        chance = 1 / max(3, len(nbytes))
        reads.append(tuple(b for b in nbytes if rng.random() < chance))
        new = range(len(nbytes), len(nbytes) + rng.choice([1, 1, 2]))
        nbytes |= {b: rng.choice([0, 1, 2, 5, 10, 30]) for b in new}
        writes.append(tuple(new))
    return DispatchGraph(tuple(reads), tuple(writes), nbytes, rng.choice([0, 7]))


def live_bytes(work: DispatchGraph, order: tuple[int, ...]) -> int:
    """The peak of an order by simulation; shares nothing with `peak_bytes`."""
    worst, written = 0, set()
    for n, i in enumerate(order):
        written |= set(work.writes[i])
        later = {b for j in order[n:] for b in work.reads[j]}
        worst = max(worst, sum(work.nbytes[b] for b in written & later | set(work.writes[i])))
    return work.fixed_bytes + worst


def legal_orders(work: DispatchGraph):
    owner = {b: i for i, written in enumerate(work.writes) for b in written}
    for order in itertools.permutations(range(len(work.writes))):
        place = {i: n for n, i in enumerate(order)}
        if all(place[owner[b]] < place[i] for i in order for b in work.reads[i] if b in owner):
            yield order


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_the_best_order_is_that_of_brute_force(seed: int):
    work = random_work(seed, 2 + seed % 6)
    found = best_order(work)
    least = min(live_bytes(work, order) for order in legal_orders(work))
    assert found.is_proven and found.peak_bytes == least == live_bytes(work, found.order)
    assert peak_bytes(work, found.order) == least


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_a_search_that_is_cut_off_has_a_bound_below_and_an_order_above(seed: int):
    work = random_work(1000 + seed, 14)
    whole, part = best_order(work), best_order(work, states=2)
    assert whole.is_proven
    assert part.bound_bytes <= whole.peak_bytes <= part.peak_bytes
    assert part.peak_bytes == live_bytes(work, part.order)
    assert best_order(work, states=2) == part


def chain(blocks: int) -> DispatchGraph:
    """Blocks of five: one result is read by two branches that each end in something small."""
    reads: list[tuple[int, ...]] = [()]
    writes: list[tuple[int, ...]] = [(0,)]
    nbytes = {0: 4}
    for _ in range(blocks):
        first = len(nbytes)
        nbytes |= dict(zip(range(first, first + 5), (50, 70, 3, 3, 4), strict=True))
        big, bigger, small, other, end = range(first, first + 5)
        reads += [(first - 1,), (first - 1,), (big,), (bigger,), (small, other)]
        writes += [(big,), (bigger,), (small,), (other,), (end,)]
    return DispatchGraph(tuple(reads), tuple(writes), nbytes)


def test_chains_of_blocks_are_split_and_proven():
    work = chain(80)
    found = best_order(work, states=50)  # per block: the whole has no such small search
    assert len(work.writes) == 401 and len(blocks(work)) > 80
    assert found == Order(found.order, 4 + 3 + 70, 4 + 3 + 70)
    assert peak_bytes(work, tuple(range(401))) == 4 + 50 + 70


def test_dispatches_that_wait_for_each_other_have_no_order():
    work = DispatchGraph(((1,), (0,)), ((0,), (1,)), {0: 1, 1: 1})
    with pytest.raises(ValueError, match="wait for each other"):
        best_order(work)
    with pytest.raises(ValueError, match="before it is written"):
        peak_bytes(work, (0, 1))


# ---- problems of real programs -------------------------------------------------------------------
def two_branches(width: int = 512, height: int = 16) -> Program:
    """x @ A @ B + x @ C @ D, both wide values computed before either is used."""
    b = Builder("branches")

    def weight(name: str, *shape: int) -> int:
        return b.add("weight", (), Leaf(name, TensorType("f32", shape), -1, name))

    def matmul(x: int, w: int) -> int:
        (m, k), (_, n) = b.type(x).shape, b.type(w).shape
        reads = [(x, (dim(0), dim(2))), (w, (dim(2), dim(1)))]
        y = Yield(call("mul", arg(0), arg(1)), "f32", "add")
        return generic_node(b, (m, n, k), range(2), reads, [y], precision="default")

    x = b.add("input", (), Leaf("x", TensorType("f32", (height, height)), 0, ""))
    wide = [matmul(x, weight(f"a{i}", height, width)) for i in range(2)]
    narrow = [matmul(w, weight(f"b{i}", width, height)) for i, w in enumerate(wide)]
    y = Yield(call("add", arg(0), arg(1)), "f32")
    both = [(n, identity(2)) for n in narrow]
    return b.build([generic_node(b, (height, height), range(2), both, [y], precision="default")])


@cache
def egraph_of(seed: int) -> tuple[EGraph, Target]:
    """A random program of 5 to 9 ops, searched with the default rules; -1 are two branches."""
    target = load_target("avx512-xla" if seed % 2 else "reference")
    target = override(target, list(SETTINGS[list(SETTINGS)[seed % 4]])) if seed >= 0 else target
    program = two_branches() if seed < 0 else Maker(seed).program(5 + seed % 5)
    return saturate(merge_elementwise(program), load_rulesets(["default"]), target), target


@cache
def assembly_of(seed: int) -> Assembly:
    return assembled(*egraph_of(seed))


def some_answers(assembly: Assembly, seed: int) -> list[Answer]:
    """Greedy answers, and those of least time, memory or dispatches among random columns."""
    rng, choice = random.Random(seed), assembly.choice
    first = greedy(choice, assembly.single_ops, "time")
    found = [in_best_order(choice, a) for a in first]
    for goal in ("time", MEMORY, "dispatches"):
        must = set(first[0]) if first else set(range(len(choice)))
        kept = [i for i in range(len(choice)) if i in must or rng.random() < 0.5]
        limits = SearchLimits(elapsed() + 10, 0)
        asked = Minimiser(choice, limits)
        found.append(asked.least({goal: 1}, {}, among=np.array(kept), is_look=True).best)
    return [a for a in found if a is not None]


SEEDS = (-1, *range(12))


@pytest.mark.parametrize("seed", seeds(6, SEEDS))
def test_an_answer_is_found_again_by_its_groups(seed: int):
    """Its peak is that of the best order of its dispatches."""
    assembly = assembly_of(seed)
    answers = some_answers(assembly, seed)
    assert len(answers) > 2
    for answer in answers:
        assert keeps_the_rules(assembly.choice, answer.columns)
        assert answer.peak_bytes == peak(assembly.choice, answer.columns)
        again = assembly.locate(assembly.groups(answer))
        assert again is not None
        assert assembly.choice.value("time", again) <= assembly.choice.value("time", answer)
        assert again.peak_bytes <= answer.peak_bytes


@pytest.mark.parametrize("seed", seeds(6, SEEDS))
def test_no_order_of_any_answer_gets_below_the_bound_for_all_orders(seed: int):
    assembly = assembly_of(seed)
    choice = assembly.choice
    whole = solved(choice, {MEMORY: 1})
    fits = Minimiser(choice, SearchLimits(math.inf, 0)).fits
    for answer in some_answers(assembly, seed):
        least = best_order(graph_of(choice, answer.columns))
        assert least.is_proven
        assert max(whole.bound, fits.least_bytes) <= least.peak_bytes
        few = choice.take(np.array(answer.columns))
        alone = solved(few, {MEMORY: 1})
        assert alone.status == "optimal" and alone.bound <= least.peak_bytes


def searched(seed: int) -> Selection:
    egraph, target = egraph_of(seed)
    found, baseline = extract(egraph, target, GOALS, time_limit=20.0)
    assert check(egraph, target, found) == []
    assert baseline is None or found.goal("time").value <= baseline.goal("time").value
    return found


def test_the_order_is_chosen_and_the_bound_holds_in_every_order():
    found = searched(-1)
    wide, narrow = 16 * 512 * 4, 16 * 16 * 4
    fixed = 2 * narrow + 2 * 2 * wide  # argument, result, four weights
    assert found.goal("memory").value == found.goal("memory").bound == fixed + wide + narrow
    assert found.stop == "optimal"


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5, 7])
def test_peaks_are_no_higher_than_that_of_the_program(seed: int):
    found = searched(seed)
    baseline = prepare(*egraph_of(seed), GOALS).baseline
    assert baseline is not None
    assert found.goal(MEMORY).bound <= found.goal(MEMORY).value
    if found.goal("time").value == baseline.goal("time").value:
        assert found.goal(MEMORY).value <= baseline.goal(MEMORY).value


def test_a_budget_only_another_order_keeps_is_kept():
    egraph, target = egraph_of(-1)
    least = searched(-1).goal("memory").value
    tight = replace(target, budget=(("memory", least),))
    found, _ = extract(egraph, tight, GOALS[:1], time_limit=20.0)
    assert found.goal("memory").value <= least
    with pytest.raises(EqsatError, match="no choice is admissible \\(proven\\)"):
        extract(egraph, replace(target, budget=(("memory", least - 1),)), GOALS, time_limit=20.0)


# ---- bytes while weights are packed --------------------------------------------------------------
def loading(*packed: int, reshaped: bool = False) -> Schedule:
    """Weights of 8 x 8 floats, each packed in so many layouts, all read by the schedule."""
    b, ahead, buffers = Builder("loading"), [], []
    x = b.add("input", (), Leaf("x", TensorType("f32", (8, 8)), 0, ""))
    for n, layouts in enumerate(packed):
        shape = (64,) if reshaped else (8, 8)
        w = b.add("weight", (), Leaf(f"w{n}", TensorType("f32", shape), -1, f"w{n}"))
        if reshaped:
            w = b.add("reshape", (w,), Reshape((64,), (8, 8)))
            ahead.append(w)
        for tile in (2, 4, 8)[:layouts]:
            ahead.append(b.add("pack", (w,), Layout((8, 8), (0,), (tile,), (0, 1), ("-",))))
            buffers.append(Buffer(ahead[-1], 256, "weight", 0, 0))
        if not layouts:
            buffers.append(Buffer(w, 256, "weight", 0, 0))
    return Schedule(b.build([x]), (), tuple(buffers), tuple(ahead), "toy")


@pytest.mark.parametrize("reshaped", [False, True])
def test_loading_a_packed_weight_takes_the_original_and_a_copy_per_layout(reshaped: bool):
    one = 8 * 8 * 4
    found = loading(1, reshaped=reshaped)
    assert (found.resident_bytes, found.load_peak_bytes) == (one, 2 * one)  # Y later, 2Y at load
    found = loading(2, reshaped=reshaped)
    assert (found.resident_bytes, found.load_peak_bytes) == (2 * one, 3 * one)  # X + 2Y
    assert found.load_peak_held_bytes == 3 * one


def test_originals_that_are_dropped_make_room_for_the_next_copy():
    one = 8 * 8 * 4
    found = loading(1, 1)
    assert found.load_peak_bytes == 3 * one  # both originals, then one copy more at a time
    assert found.load_peak_held_bytes == 4 * one
    found = loading(0, 1)  # the first is read as it is: it stays, and is no copy
    assert found.load_peak_bytes == found.load_peak_held_bytes == 3 * one
    assert found.resident_bytes == 2 * one


@pytest.mark.parametrize("length", [1, 70, 511, 512, 513, 3000])
def test_bits_of_short_and_long_numbers(length: int) -> None:
    rng = random.Random(length)
    positions = sorted({*rng.sample(range(length), length // 3), length - 1})
    number = sum(1 << p for p in positions)
    assert bits(number) == positions
    assert mask(reversed(positions)) == number
    assert (bits(0), mask(())) == ([], 0)
