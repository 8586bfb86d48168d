"""Constants of plans from measured dispatches: found again, and judged by what was left out."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from eqsat.lab.calibrate.fit import Observed, fit, predict, quality
from eqsat.lang.targets import load_target
from eqsat.model.dispatch import Work
from eqsat.plan.price import Rates, rates

START = rates(load_target("avx512"))
TRUE = replace(
    START,
    constants=replace(START.constants, fma_ps=70.0, scalar_ps=150.0, tile_ps=9000.0, overlap=0.6),
    memory=tuple(replace(m, bandwidth=m.bandwidth * 1.7) for m in START.memory),
    launch_ps=450_000,
)


def drawn(count: int, truth: Rates, seed: int = 0) -> list[Observed]:
    """Dispatches of all sorts, with the times these constants give, 1 % off at random."""
    rng = Random(seed)
    found = []
    for i in range(count):
        kind = i % 4
        size = 10 ** rng.uniform(3, 7)
        work = Work(
            fma=size if kind < 2 else 0,
            loads=size * rng.uniform(0.2, 1.5) if kind < 2 else 0,
            scalar=size * rng.uniform(0, 0.3) if kind != 3 else 0,
            tiles=size / 500 if kind < 2 else 0,
            copied=size if kind == 1 else 0,
            strided=size / 10 if kind == 3 else 0,
        )
        first = ((64.0 * size, 4 * size),) if kind else ((8e3, 4e3),)
        o = Observed(f"d{i}", f"g{i // 8}", work, first, 1.0)
        found.append(replace(o, time_ps=predict(o, truth) * rng.uniform(0.99, 1.01)))
    return found


def test_constants_are_found_again_and_predict_what_was_left_out():
    got = fit(drawn(48, TRUE), START)
    assert got.unseen.median_error < 0.03
    assert got.unseen.kendall_tau > 0.97
    assert got.rates.constants.fma_ps == pytest.approx(70, rel=0.05)
    assert got.rates.launch_ps == pytest.approx(450_000, rel=0.2)
    others = drawn(30, TRUE, seed=1)
    assert quality(others, [predict(o, got.rates) for o in others]).median_error < 0.03
    assert quality(others, [predict(o, START) for o in others]).median_error > 0.1


def test_one_disturbed_measurement_changes_little():
    seen = [replace(o, group="one") for o in drawn(48, TRUE)]
    disturbed = [replace(seen[0], time_ps=seen[0].time_ps * 20), *seen[1:]]
    assert fit(disturbed, START).rates.constants.fma_ps == pytest.approx(70, rel=0.1)


def test_a_constant_nobody_saw_stays():
    seen = [replace(o, group="one") for o in drawn(24, TRUE) if not o.work.strided]
    got = fit(seen, START)
    assert got.rates.constants.strided_ps == pytest.approx(START.constants.strided_ps, rel=1e-3)
    assert got.rates.constants.page_ps == pytest.approx(START.constants.page_ps, rel=1e-3)


def test_pairs_of_one_group_are_to_be_ordered():
    made = [Observed(str(i), "g", Work(), (), t) for i, t in enumerate((1.0, 2.0, 2.02, 4.0))]
    found = quality(made, [1.0, 3.0, 2.0, 2.5])
    assert (found.ordered, found.pairs) == (4, 5)  # 2.0 and 2.02 tie
    assert found.median_error == pytest.approx(0.19, abs=0.2)
