"""Functions that share weights, searched as one: one copy of a weight, chosen by calls."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import jax
import numpy as np
import pytest

import eqsat
from eqsat.api.together import Together
from eqsat.execute.weights import content_key
from eqsat.extract import check
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.rules import Devices
from eqsat.model.diag import EqsatError
from eqsat.model.target import Target, Tile
from eqsat.ops.programs.placement import ANYWHERE
from eqsat.schedule import faults

ROWS = jax.ShapeDtypeStruct((64, 64), "float32")
ROW = jax.ShapeDtypeStruct((2, 64), "float32")
WEIGHT = jax.ShapeDtypeStruct((64, 64), "float32")
MANY = 1000


def prefill(x, w):
    return jax.nn.relu(x @ w)


def decode(x, w):
    return x @ w + 1.0


def two_tiles() -> Target:
    """A square tile for many rows, and a flat one for few; packs are dispatches."""
    square = Tile((("m", 16), ("n", 16), ("k", 16)), 0.68)
    flat = Tile((("m", 1), ("n", 32), ("k", 16)), 0.1)
    plain = eqsat.target("separate-conversions")
    return replace(plain, tiles=(("matmul", (square, flat)),), rates=(("f32", 1e9),))


@lru_cache
def together(calls: int) -> Together:
    parts = {
        "prefill": eqsat.Called(prefill, (ROWS, WEIGHT)),
        "decode": eqsat.Called(decode, (ROW, WEIGHT), calls=calls),
    }
    return eqsat.optimize_together(parts, weights=("w",), target=two_tiles())


def kept(run: eqsat.Run) -> set[str]:
    """What a run keeps of its weights: how each array follows from them."""
    assert run.schedule is not None
    return {content_key(run.schedule.program, i) for i in run.schedule.kept}


def time_of(run: eqsat.Run) -> int:
    assert run.schedule is not None
    return run.schedule.time_ps


def test_calls_decide_which_layout_is_kept() -> None:
    alone = [
        eqsat.optimize(f, x, WEIGHT, weights=("w",), target=two_tiles())
        for f, x in ((prefill, ROWS), (decode, ROW))
    ]
    layouts = [kept(run) for run in alone]
    assert layouts[0] != layouts[1]
    few, many = together(1), together(MANY)
    assert kept(few["prefill"]) == layouts[0] and kept(many["decode"]) == layouts[1]
    for found in (few, many):
        assert len(kept(found["prefill"]) | kept(found["decode"])) == 1
        assert found.resident_bytes == WEIGHT.size * 4
    # with the layout of the other answer each is slower
    for found, other, calls in ((few, many, 1), (many, few, MANY)):
        assert found.time_ps == time_of(found["prefill"]) + calls * time_of(found["decode"])
        assert found.time_ps < time_of(other["prefill"]) + calls * time_of(other["decode"])


def test_the_whole_is_proven_and_each_part_legal() -> None:
    found = together(MANY)
    whole = found.whole
    assert whole.selection is not None and whole.egraph is not None
    assert whole.selection.stop == "optimal"
    assert whole.selection.goal("time").value == found.time_ps
    assert check(whole.egraph, whole.target, whole.selection) == []
    for run in found.runs.values():
        assert run.egraph is not None and run.selection is not None and run.schedule is not None
        assert check(run.egraph, run.target, run.selection) == []
        assert faults(run.schedule, run.target, run.canonical) == []


def test_the_checker_counts_the_calls() -> None:
    whole = together(MANY).whole
    assert whole.selection is not None and whole.egraph is not None
    (at,) = [i for i, (name, _) in enumerate(whole.target.devices) if name == "decode"]
    devices = list(whole.target.devices)
    devices[at] = "decode", replace(devices[at][1], calls=MANY + 1)
    other = replace(whole.target, devices=tuple(devices))
    assert any("ps, not" in fault for fault in check(whole.egraph, other, whole.selection))


def test_no_dispatch_computes_for_two_parts() -> None:
    whole = together(2).whole
    assert whole.selection is not None and whole.egraph is not None
    held = Devices(Space(whole.egraph), whole.target).classes
    of = [
        {held[whole.egraph.nodes[m].eclass] for m in g.members} - {ANYWHERE}
        for g in whole.selection.groups
    ]
    assert all(len(parts) == 1 for parts in of)
    assert set().union(*of) == {"prefill", "decode"}


def test_the_part_of_fewest_calls_may_pack_in_every_call() -> None:
    few_rows_plain = replace(two_tiles(), tiles_forced=False, untiled_rate=0.2)
    parts = {
        "decode": eqsat.Called(decode, (ROW, WEIGHT), calls=MANY),
        "prefill": eqsat.Called(prefill, (ROWS, WEIGHT)),
    }
    alone = eqsat.optimize(prefill, ROWS, WEIGHT, weights=("w",), target=few_rows_plain)
    found = eqsat.optimize_together(parts, weights=("w",), target=few_rows_plain)
    assert found.resident_bytes == WEIGHT.size * 4
    assert kept(found["prefill"]) == kept(found["decode"]) != kept(alone)
    schedule = found["prefill"].schedule
    assert schedule is not None
    (weight,) = schedule.kept
    first = next(d for d in schedule.dispatches if weight in d.reads)
    assert first.ops == "pack" and time_of(alone) < time_of(found["prefill"])
    assert found.whole.selection is not None
    assert found.whole.selection.goal("time").value == found.time_ps
    assert all(run.verify(samples=1).ok for run in found.runs.values())


@pytest.mark.parametrize("calls", [1, MANY])
def test_both_executables_read_the_same_arrays(calls: int) -> None:
    rng = np.random.default_rng(0)
    rows, weight = (rng.normal(size=s.shape).astype("f4") for s in (ROWS, WEIGHT))
    found = together(calls)
    found.use_weights({"w": weight})
    first, second = (run.executable.packed for run in found.runs.values())
    assert {id(x) for x in first.values()} == {id(x) for x in second.values()}
    calls_of = found.compile()
    for name, function, x in (("prefill", prefill, rows), ("decode", decode, rows[:2])):
        wanted = function(x.astype("f8"), weight.astype("f8"))
        np.testing.assert_allclose(calls_of[name](x, weight), wanted, rtol=1e-5, atol=1e-5)
        verified = found[name].verify()
        assert verified.ok and verified.samples


def test_kernels_are_priced_by_the_bytes_of_their_own_part() -> None:
    parts = {
        "prefill": eqsat.Called(prefill, (ROWS, WEIGHT)),
        "decode": eqsat.Called(decode, (ROW, WEIGHT), calls=8),
    }
    found = eqsat.optimize_together(parts, weights=("w",), target="avx512")
    assert found.whole.selection is not None
    assert found.whole.selection.goal("time").value == found.time_ps
    assert found.resident_bytes == WEIGHT.size * 4
    for name, run in found.runs.items():
        part = parts[name]
        alone = eqsat.optimize(part.function, *part.args, weights=("w",), target="avx512")
        assert time_of(alone) <= time_of(run)


def test_weights_that_are_closed_over_are_one_by_content() -> None:
    weight = np.random.default_rng(1).normal(size=(64, 64)).astype("f4")
    again = weight.copy()
    parts = {
        "a": eqsat.Called(lambda x: x @ weight, (ROWS,)),
        "b": eqsat.Called(lambda x: jax.numpy.tanh(x @ again), (ROWS,)),
    }
    found = eqsat.optimize_together(parts, target=two_tiles())
    assert len(found.whole.program.weights) == 1
    assert len(found.share_weights()) == 1
    assert all(run.verify(samples=1).ok for run in found.runs.values())


def test_a_constant_that_both_parts_compute_is_no_border() -> None:
    def masked(x, w):
        places = jax.numpy.arange(64)
        return jax.numpy.where(places[:, None] >= places[None, :], x @ w, 0.0)

    def first(x, w):
        return (x @ w) * (jax.numpy.arange(64) < 3)

    parts = {
        "masked": eqsat.Called(masked, (ROWS, WEIGHT)),
        "first": eqsat.Called(first, (ROW, WEIGHT), calls=5),
    }
    found = eqsat.optimize_together(parts, weights=("w",), target=two_tiles())
    assert all(run.verify(samples=1).ok for run in found.runs.values())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, "there are no parts"),
        ({"a b": eqsat.Called(prefill, (ROWS, WEIGHT))}, "no name of a part"),
        ({"a": eqsat.Called(prefill, (ROWS, WEIGHT), calls=0)}, "called 0 times"),
        ({"a": prefill}, "no `eqsat.Called`"),
        (
            {"a": eqsat.Called(lambda x: jax.lax.fori_loop(0, x, lambda i, y: y + i, 1), (3,))},
            "loops or branches",
        ),
    ],
)
def test_what_cannot_be_searched_so_is_refused(parts: dict[str, eqsat.Called], said: str) -> None:
    with pytest.raises(EqsatError, match=said) as error:
        eqsat.optimize_together(parts, target=two_tiles())
    assert "E419" in str(error.value)


def test_a_weight_that_no_part_has_is_refused() -> None:
    found = together(1)
    with pytest.raises(EqsatError, match="no part has a weight `v`"):
        found.use_weights({"v": np.zeros((64, 64), "f4")})
    with pytest.raises(EqsatError, match="no part `decoder`"):
        found["decoder"]
