"""Floors are below every answer, and not far below where little can be avoided."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache

import pytest
from drawnprograms import Maker
from seeds import one_in, seeds

import eqsat
from eqsat.extract import extract
from eqsat.extract.candidates.dominators import PricedWay, PricedWays, least_ps, needed_of
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.floors import floors
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.egraph import EGraph
from eqsat.model.program import Program
from eqsat.model.selection import GoalRequest, short_of_time
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_late_plans import PARTS, floored_times

GOALS = ("time", "memory", "dispatches")
TARGETS = ("avx512", "avx512-vnni", "avx2", "arm64", "avx512-xla", "reference", "sm_90", "tpu-v5e")
# x0 (x1 (x2 …)): every product may come first, so no value but the result is needed
PRODUCTS = """program chain
input x: f32[8, 512]
weight a: f32[512, 512]
weight b: f32[512, 512]
weight c: f32[512, 8]
xa = matmul(x, a) : f32[8, 512]
xb = matmul(xa, b) : f32[8, 512]
xc = matmul(xb, c) : f32[8, 8]
return xc
"""
# no plan of i8 products takes as many multiply-adds as there are products
BYTES = """program bytes
input x: i8[64, 512]
weight w: i8[512, 256]
s = generic(x, w, loops=[64, 256, 512], maps=[[d0, d2], [d2, d1]], \
body=mul(cast(x0, i32), cast(x1, i32)), combine=add) : i32[64, 256]
y = generic(s, loops=[64, 256], maps=[[d0, d1]], body=cast(x0, f32)) : f32[64, 256]
return y
"""

# windows of an image as small as they are: a seventh of all products reads pads alone
PADDED = """program padded
input x: f32[1, 64, 7, 7]
weight w: f32[64, 64, 3, 3]
p = pad(x, low=[0, 0, 1, 1], high=[0, 0, 1, 1], value=0.0) : f32[1, 64, 9, 9]
y = generic(p, w, loops=[1, 64, 7, 7, 64, 3, 3], \
maps=[[d0, d4, d2 + d5, d3 + d6], [d1, d4, d5, d6]], body=mul(x0, x1), combine=add) \
: f32[1, 64, 7, 7]
return y
"""


def graph_of(program: Program, target: eqsat.Target) -> EGraph:
    return saturate(merge_elementwise(program), load_rulesets(["default"]), target)


def floors_of(egraph: EGraph, target: eqsat.Target) -> dict[str, int]:
    space = Space(egraph, target.padding)
    return floors(Pool(Legality(space, target), False, frozenset(GOALS)), Costs(space, target))


@cache
def drawn(seed: int) -> Program:
    return parse_program(PARTS) if seed < 0 else Maker(seed).program(7)


@pytest.mark.parametrize("name", one_in(8, TARGETS))
@pytest.mark.parametrize("seed", seeds(1, (-1, 3, 4, 8)))
def test_no_answer_is_below_the_floors(name: str, seed: int) -> None:
    target = load_target(name)
    egraph = graph_of(drawn(seed), target)
    found = floors_of(egraph, target)
    assert found["time"] > 0 and found["dispatches"] > 0
    for goal in ("time", "dispatches"):
        best, baseline = extract(egraph, target, (GoalRequest(goal),))
        assert baseline is not None
        assert found[goal] <= best.goal(goal).value <= baseline.goal(goal).value


@pytest.mark.parametrize("name", ["avx512", "reference"])
def test_a_chain_of_products_has_a_floor_though_no_product_is_needed(name: str) -> None:
    target = load_target(name)
    egraph = graph_of(parse_program(PRODUCTS), target)
    best, _ = extract(egraph, target, (GoalRequest("time"),))
    time_ps = best.goal("time").value
    assert time_ps / 4 < floors_of(egraph, target)["time"] <= time_ps


@pytest.mark.parametrize("name", ["avx512-vnni", "avx512", "avx2"])
def test_no_plan_of_integer_products_is_below_its_floor(name: str) -> None:
    least, times = floored_times(parse_program(BYTES), load_target(name))
    assert (least <= times).all() and (least > times / 4).any()


def test_no_plan_that_leaves_pads_out_is_below_its_floor() -> None:
    least, times = floored_times(parse_program(PADDED), load_target("avx512"))
    assert (least <= times).all() and (least > times / 2).any()


def test_a_search_without_time_says_what_nothing_avoids() -> None:
    run = eqsat.optimize(eqsat.read("residual"), target="avx512", time_limit=0.0)
    assert run.egraph is not None and run.selection is not None
    time = run.selection.goal("time")
    assert time.bound == floors_of(run.egraph, run.target)["time"] < time.value
    assert short_of_time(run.selection.cuts)


# ---- the sum that no choice of ways goes below -------------------------------------------------
def drawn_ways(rng: random.Random) -> tuple[PricedWays, list[int]]:
    """Up to seven values; a way reads some with smaller numbers, or (in circles) any."""
    count = rng.randint(2, 7)
    ways: dict[int, list[PricedWay]] = {}
    for v in range(count):
        below = [u for u in range(count) if u != v and (u < v or rng.random() < 0.2)]
        ways[v] = [PricedWay(float(rng.randint(5, 30)), frozenset(range(min(v, 1))))]
        for _ in range(rng.randint(1, 3)):
            reads = frozenset(rng.sample(below, rng.randint(0, len(below))))
            ways[v].append(PricedWay(float(rng.randint(0, 9)), reads))
    return ways, rng.sample(range(count), rng.randint(1, 2))


def derivations(ways: PricedWays, results: list[int]) -> Iterator[dict[int, PricedWay]]:
    """Every choice of one way per value that gives the results without a circle."""
    for chosen in itertools.product(*(ways[v] for v in ways)):
        of = dict(zip(ways, chosen, strict=True))
        used = set(results)
        for _ in ways:
            used |= {r for v in used for r in of[v].reads}
        made: set[int] = set()
        for _ in ways:
            made |= {v for v in used if of[v].reads <= made}
        if used <= made:
            yield {v: of[v] for v in used}


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_no_derivation_is_cheaper_or_lacks_what_is_needed(seed: int) -> None:
    ways, results = drawn_ways(random.Random(seed))
    every = list(derivations(ways, results))
    least = min(sum(w.cost_ps for w in d.values()) for d in every)
    assert 0 <= least_ps(ways, results) <= least
    common = frozenset.intersection(*(frozenset(d) for d in every))
    assert set(results) <= needed_of(ways, results) <= common


def test_what_every_derivation_needs_counts_once_and_the_dearest_chain_beside_it() -> None:
    """1 is needed by both ways to 3, for 5; of the others the cheaper chain has 2 and takes 4."""
    ways = {
        0: [PricedWay(0.0, frozenset())],
        1: [PricedWay(5.0, frozenset({0})), PricedWay(8.0, frozenset())],
        2: [PricedWay(4.0, frozenset({1}))],
        3: [PricedWay(1.0, frozenset({1, 2})), PricedWay(6.0, frozenset({1}))],
    }
    assert needed_of(ways, [3]) == {0, 1, 3} or needed_of(ways, [3]) == {1, 3}
    assert least_ps(ways, [3]) == 5 + 1 + 4
