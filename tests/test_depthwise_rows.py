"""Convolutions of every channel along one loop, either way round, between guard pages."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from seeds import one_in

pytest.importorskip("llvmlite")

from contracted import AVX2, AVX512
from rownests import check
from runnable import needs

from eqsat.model.dispatch import Plan
from eqsat.model.expr import arg, call
from eqsat.model.nest import Access, Bound, Nest, Stage, Store
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.planner import plan

MACHINES = {"avx512": AVX512, "avx2": AVX2}
LONG = [2, 7, 8, 15, 16, 17, 47, 49, 191, 193, 208, 421]  # of rows: vectors and panels ± 1
TAPS = [(2, 1), (3, 5), (16, 1), (17, 1), (31, 1), (33, 1), (9, 2), (20, 3), (3, 15), (64, 1)]


def convolved(channels, length, taps, step, *, image="ct", result="ct", low=None):
    """y[c, t] = Σ x[c, t + step · k] · w[c, k]; low: elements of the border before t = 0."""
    reach = length + step * (taps - 1) if low is None else length
    x = (reach, 1) if image == "ct" else (1, channels)
    y = (length, 1) if result == "ct" else (1, channels)
    bounds = () if low is None else (Bound((0, 1, step), -low, length),)
    read = Access(0, "f32", (*x, step * x[1]), -(low or 0) * x[1], bounds, 0.0 if bounds else None)
    body = call("mul", arg(0), arg(1))
    factors = read, Access(1, "f32", (taps, 0, 1))
    stage = Stage(2, (0, 1), body, factors, "f32", "add", (2,))
    store = Store(Access(2, "f32", (*y, 0)), 0, (0, 1))
    return Nest((channels, length, taps), (stage,), (store,))


def run(nest, machine, chosen=None, **options):
    needs(MACHINES[machine])
    chosen = chosen or plan(nest, MACHINES[machine])
    assert list(plan_faults(nest, chosen)) == []
    name = f"depthwise{abs(hash(nest))}"
    return check(nest, name, MACHINES[machine], plan=chosen, within=1e-5, **options)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("length", "shape"), [*product(LONG, TAPS[:1]), *product((49,), TAPS[1:])])
def test_rows_of_every_channel(length, shape, machine):
    chosen = run(convolved(3, length, *shape), machine)
    assert chosen.shifted == (machine == "avx512")
    assert ("columns shifted" in chosen.to_text()) == chosen.shifted
    assert Plan.from_json(chosen.to_json()) == chosen


@pytest.mark.parametrize("channels", one_in(2, [2, 15, 16, 17, 65, 33]))
@pytest.mark.parametrize("machine", MACHINES)
def test_channels_whose_taps_lie_the_other_way_are_vectors(channels, machine):
    """x[t, c] and w[c, k]: as it lies, neither is a vector of the other's loop."""
    for length, taps, low in [(2, 2, 1), (6, 3, None), (29, 31, 15), (40, 5, 4), (14, 17, None)]:
        nest = convolved(channels, length, taps, 1, image="tc", result="tc", low=low)
        chosen = run(nest, machine, sizes={0: length * channels} if low else None)
        if channels > 16:
            assert chosen.vector_rows and chosen.copied[1] and not chosen.work.strided


@pytest.mark.parametrize("image", ["ct", "tc"])
@pytest.mark.parametrize("result", ["ct", "tc"])
def test_results_either_way(image, result):
    run(convolved(34, 37, 5, 1, image=image, result=result), "avx512")


def test_what_may_not_be_shifted_is_refused():
    nest = convolved(3, 49, 5, 1)
    chosen = plan(nest, AVX512)
    assert chosen.shifted
    for wrong in [
        replace(chosen, copied=(False, True)), replace(chosen, lanes=8), replace(chosen, fused=2),
        replace(chosen, chain=(0, 3)), replace(chosen, k_block=3, k_blocks=2),
    ]:  # fmt: skip
        assert any("shifted" in x for x in plan_faults(nest, wrong))
    apart = convolved(3, 49, 5, 16)
    own = plan(apart, AVX512)
    assert not own.shifted
    assert any("overlap" in x for x in plan_faults(apart, replace(own, shifted=True)))
