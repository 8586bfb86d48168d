"""A step of training is a program like any other: searched whole, its weights kept as state."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from library import module

import eqsat
import eqsat.entry.jit
from eqsat.model.diag import EqsatError

FORCED = ["tiles.matmul=[{mnk: [16, 16, 16], rate: 0.9}]", "tiles_forced=true"]


@pytest.fixture(scope="module")
def arguments() -> list[np.ndarray]:
    shapes = [s.shape for s in module("train").step_example()]
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(s) / 8).astype(np.float32) for s in shapes]


def test_a_step_is_read_with_both_passes_and_runs(arguments):
    run = eqsat.optimize(
        eqsat.read("train.py:step"), settings=FORCED, rules="policy/keep", target="reference"
    )
    products = [n for n in run.program.nodes if n.op == "generic" and len(n.attr.maps) > 1]
    forward, of_weights, of_hidden = 2, 2, 1
    assert sum(bool(n.attr.reductions) for n in products) == forward + of_weights + of_hidden
    assert run.schedule is not None
    assert {n.op for n in run.schedule.program.nodes} >= {"pack", "unpack"}
    assert not any(n.op == "opaque" for n in run.program.nodes)
    for got, want in zip(run.compile()(*arguments), module("train").step(*arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_its_weights_are_states_of_the_loop_around_it():
    from eqsat.reading import read_state

    assert read_state("train.py:step") == {"w1": 0, "w2": 1}
    kept = eqsat.keep_state(
        eqsat.read("train.py:step"), state={"w2": 1}, settings=FORCED, rules="policy/keep"
    )
    assert len(kept.alternatives) > 1
    assert kept.best.values <= kept.alternatives[0].values


@pytest.mark.slow
def test_no_policy_beats_the_search_of_a_step():
    times = []
    for rules in ("default", "policy/keep", "policy/always-fold"):
        run = eqsat.optimize(
            eqsat.read("train.py:step"),
            settings=FORCED,
            rules=rules,
            goals=["time"],
            target="reference",
        )
        assert run.selection is not None
        times.append(run.selection.goal("time").value)
    assert times[0] <= min(times)


# ---- derivatives of what is jitted ---------------------------------------------------------------
X = np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)
W = np.random.default_rng(2).standard_normal((8, 12)).astype(np.float32)


Y = np.random.default_rng(3).standard_normal((16, 12)).astype(np.float32)


def _layer(x, w):
    return jax.nn.relu(x @ w)


def test_both_passes_of_a_gradient_are_searched(monkeypatch):
    made = []

    @functools.wraps(eqsat.entry.jit.optimize)
    def optimize(*args, **kwargs):
        made.append(eqsat.optimize(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(eqsat.entry.jit, "optimize", optimize)
    fast = eqsat.jit(
        _layer, rules="policy/keep", settings=FORCED, derivatives="searched", target="reference"
    )
    (got,) = jax.vjp(fast, X, W)[1](Y)[1:]
    np.testing.assert_allclose(got, X.T @ (Y * (X @ W > 0)), rtol=1e-4, atol=1e-5)
    products = [sum(n.op == "generic" and len(n.attr.maps) > 1 and bool(n.attr.reductions)
                    for n in run.program.nodes) for run in made]  # fmt: skip
    assert sorted(products) == [1, 1, 2]  # the layer itself, its forward and its backward pass
    packed = [{n.op for n in run.schedule.program.nodes} >= {"pack", "unpack"} for run in made]
    assert packed == [True] * 3


def test_searched_derivatives_of_weights_trees_integers_and_keywords():
    def f(p, ids, *, scale=2.0):
        return {"y": jax.nn.relu(p["table"][ids] @ p["w"]) * scale}

    options = {
        "rules": "policy/keep",
        "goals": ["time"],
        "weights": ("p",),
        "derivatives": "searched",
        "target": "reference",
    }
    fast = eqsat.jit(f, **options)
    p, ids = {"table": X, "w": W}, np.array([3, 1, 3], np.int32)

    def loss(g):
        return lambda p: (g(p, ids, scale=2.0)["y"] ** 2).sum()

    got, want = jax.grad(loss(fast))(p), jax.grad(loss(f))(p)
    for name in p:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda p: fast(p, ids)["y"], (p,), (p,))
    with pytest.raises(EqsatError, match="E400"):
        eqsat.jit(f, derivatives="serched", target="reference")
