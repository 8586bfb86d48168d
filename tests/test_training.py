"""A step of training is a program like any other: searched whole, its weights kept as state."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from library import module
from seeds import seeds

import eqsat
import eqsat.api.jit
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


@pytest.mark.slow  # states are kept in test_state, steps searched above
def test_its_weights_are_states_of_the_loop_around_it():
    from eqsat.api.reading import read_state

    assert read_state("train.py:step") == {"w1": 0, "w2": 1}
    kept = eqsat.keep_state(
        eqsat.read("train.py:step"), state={"w2": 1}, settings=FORCED, rules="policy/keep",
        target="avx512-xla",
    )  # fmt: skip
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


# ---- both passes and the update of a convolution net ---------------------------------------------
STEPS = ("sgd", "adam")


def small_step(name, monkeypatch):
    """A step of the convolution net over small images, and arguments for it."""
    net = module("trainconv")
    for key, value in {"BATCH": 2, "SIZE": 7, "INPUTS": 3, "FIRST": 4, "SECOND": 5}.items():
        monkeypatch.setattr(net, key, value)
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(s.shape).astype("f4") for s in getattr(net, f"{name}_example")()]
    arguments = getattr(net, name).__code__.co_varnames
    pairs = zip(arguments, drawn, strict=False)
    return getattr(net, name), [abs(x) if k.startswith("v") else x for k, x in pairs]


@pytest.mark.slow  # 4 s; the step of an MLP is above
@pytest.mark.parametrize("name", seeds(1, STEPS))
def test_a_step_of_a_convolution_net_is_what_jax_computes(name, monkeypatch):
    step, arguments = small_step(name, monkeypatch)
    run = eqsat.optimize(step, *arguments, target="reference", time_limit=5, goals=["time"])
    assert not any(n.op == "opaque" for n in run.program.nodes)
    for got, want in zip(run.compile()(*arguments), step(*arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_the_backward_pass_of_a_stride_multiplies_no_zeros(monkeypatch):
    """Five products of nine taps, of which the one by stride 2 has four phases of four taps."""
    step, arguments = small_step("sgd", monkeypatch)
    program = eqsat.optimize(step, *arguments, target="reference", stop_after="program").program
    sums = [n.attr for n in program.nodes if n.op == "generic" and len(n.attr.maps) > 1]
    work = sorted(np.prod(g.sizes) for g in sums if g.reductions and g.rank > 2)
    first, second = 2 * 7 * 7 * 3 * 4 * 9, 2 * 4 * 4 * 4 * 5 * 9
    assert work == sorted([first, first, second, second, 2 * 8 * 8 * 4 * 5 * 4])


def readers_without_products(run):
    """Argument → how many dispatches read it that do no products: they lay it out."""
    program, found = run.schedule.program, {}
    for d in run.schedule.dispatches:
        attrs = [program.nodes[i].attr for i in run.schedule.inside(d)]
        if any(len(getattr(a, "maps", ())) > 1 and a.reductions for a in attrs):
            continue
        for i in d.reads:
            if program.nodes[i].op == "input":
                found[program.leaf(i).name] = found.get(program.leaf(i).name, 0) + 1
    return found


@pytest.mark.slow  # it searches seconds; orders have test_orders
def test_weights_of_a_step_are_read_as_they_are_by_both_passes():
    run = eqsat.optimize(eqsat.read("train.py:step"), target="avx512", goals=["time"])
    assert run.schedule is not None
    assert not {"w1", "w2"} & readers_without_products(run).keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_filters_of_a_step_are_laid_out_once_at_most(name):
    """The filters that images are multiplied with in both passes, and what the update makes."""
    run = eqsat.optimize(eqsat.read(f"trainconv.py:{name}"), target="avx512", time_limit=60)
    assert run.schedule is not None
    found = readers_without_products(run)
    assert all(found.get(w, 0) <= 1 for w in ("w1", "w2", "w3")), found
    updated = run.schedule.program.results[:3]
    for d in run.schedule.dispatches:
        assert not set(updated) & set(d.reads), "what is updated is not converted again"


# ---- derivatives of what is jitted ---------------------------------------------------------------
X = np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)
W = np.random.default_rng(2).standard_normal((8, 12)).astype(np.float32)


Y = np.random.default_rng(3).standard_normal((16, 12)).astype(np.float32)


def _layer(x, w):
    return jax.nn.relu(x @ w)


def test_both_passes_of_a_gradient_are_searched(monkeypatch):
    made = []

    @functools.wraps(eqsat.api.jit.optimize)
    def optimize(*args, **kwargs):
        made.append(eqsat.optimize(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(eqsat.api.jit, "optimize", optimize)
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
