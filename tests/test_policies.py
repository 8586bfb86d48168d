"""What experiments/policies.yaml must show, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from seeds import seeds

import eqsat
from eqsat.lab.results import CellResult, Results

GREEDY = ("always-fold", "fold-single-use", "never-clone", "keep-and-fuse")


def searched(kind: Callable[[str], bool]) -> Results:
    """Some rows, searched; the encoder and the MLPs are executed by tests of their own."""
    experiment = eqsat.Experiment.read("experiments/policies.yaml")
    experiment.plan = replace(experiment.plan, runs=0, verify=False)
    return experiment.run(rows=[c.name for c in experiment.plan.cells if kind(c.name)])


@pytest.fixture(scope="module")
def results() -> Results:
    return searched(lambda name: not name.startswith("encoder"))


def row(results: Results, name: str) -> CellResult:
    (found,) = (o for o in results.outcomes if o.cell.name == name)
    return found


def figures(results: Results, name: str) -> dict:
    return row(results, name).to_json()


def test_every_row_is_as_expected_and_proven(results: Results):
    assert results.problems() == ()
    assert {r["stop"] for r in results.rows() if r["status"] == "found"} == {"optimal"}


@pytest.mark.parametrize("target", seeds(1, ["avx512-xla", "reference"]))
def test_eqsat_is_never_worse_than_a_greedy_policy(results: Results, target: str):
    mine = row(results, f"eqsat@{target}/time")
    for policy in GREEDY:
        other = row(results, f"{policy}@{target}/time")
        assert mine.to_json()["time_us"] <= other.to_json()["time_us"]
        # their program is one of those eqsat chose from
        assert mine.run.egraph.holds(other.run.schedule.program)
    assert {o.cell.set[:2] for o in (mine, other)} == {mine.cell.set[:2]}  # one tile, forced


@pytest.mark.parametrize("target", ["reference", "avx512-xla"])
def test_always_folding_costs_a_dispatch_and_time(results: Results, target: str):
    fold, best = (figures(results, f"{p}@{target}/time") for p in ("always-fold", "eqsat"))
    assert (fold["dispatches"], best["dispatches"]) == (4, 3)
    assert fold["time_us"] > best["time_us"]
    assert fold["bytes_moved"] - best["bytes_moved"] == 512 * 256 * 4  # `a` is read once more
    assert best["gap"] == 0.0


def test_reference_figures_by_hand(results: Results):
    """A pack moves 1 MiB, as does transpose+add+pack 2 MiB, the matmul 1.25 MiB; 1 ns a byte."""
    best = figures(results, "eqsat@reference/time")
    assert best["bytes_moved"] == (1 << 20) + (2 << 20) + (5 << 18)
    assert best["time_us"] == best["bytes_moved"] / 1000


def test_the_rows_differ_and_policies_are_not_copies(results: Results):
    times = [figures(results, f"{p}@reference/time")["time_us"] for p in GREEDY]
    assert len(set(times)) >= 3
    free = figures(results, "eqsat-free-tile@reference/time")
    assert free["time_us"] <= min(times)


def test_no_fixed_policy_finds_what_three_readers_want(results: Results):
    """A policy writes the transpose for one reader and pays for it with the others."""
    joint = figures(results, "eqsat@three-readers")
    for policy in ("always-fold", "fold-single-use", "keep"):
        other = figures(results, f"{policy}@three-readers")
        assert joint["time_us"] < other["time_us"]
        assert other["dispatches"] > joint["dispatches"]


def test_kernels_have_no_fixed_policy_that_is_best(results: Results):
    joint = figures(results, "eqsat@three-readers/kernels")
    for policy in ("always-fold", "fold-single-use", "keep"):
        other = figures(results, f"{policy}@three-readers/kernels")
        assert joint["time_us"] < other["time_us"]
        assert joint["dispatches"] < other["dispatches"]


def test_an_unfused_transpose_breaks_the_vector_limit(results: Results):
    fold = row(results, "always-fold@vector-limit")
    assert fold.run is None
    (diagnostic,) = fold.record.diagnostics
    assert diagnostic.code == "E410"
    assert "524,288" in diagnostic.message
    assert "8,192" in diagnostic.message
    assert "transpose" in diagnostic.message
    fits = figures(results, "eqsat@vector-limit")
    assert fits["dispatches"] <= dict(fold.cell.budget)["dispatches"]


def test_both_packs_are_folded_and_the_transpose_is_gone(results: Results):
    both = row(results, "eqsat@two-packs")
    ops = [n.op for n in both.run.schedule.program.nodes]
    assert "transpose" not in ops
    assert ops.count("pack") >= 2


def forced_weights(results: Results, name: str) -> list[dict]:
    return row(results, f"{name}-forced").run.summary()["weights"]


@pytest.mark.parametrize("name", ["mlp_784", "mlp_1024"])
def test_a_forced_mlp_converts_at_its_borders_only(results: Results, name: str):
    forced = figures(results, f"{name}-forced")
    ops = [n.op for n in row(results, f"{name}-forced").run.schedule.program.nodes]
    ahead = row(results, f"{name}-forced").run.schedule.ahead
    # 10 columns would be kept as 16: these are packed where they are read
    inside = sum("packed where it is read" in w["lives"] for w in forced_weights(results, name))
    assert inside == (name == "mlp_784")
    assert ops.count("pack") - sum(ops[i] == "pack" for i in ahead) - inside <= 1
    assert ops.count("unpack") <= 1
    assert forced["weight_packs"] + inside >= 3
    free = figures(results, f"{name}@reference")
    kinds = ("packs", "unpacks", "transposes", "fused_conversions", "weight_packs")
    assert [free[k] for k in kinds] == [0] * len(kinds)


def test_the_permuted_consumer_is_one_dispatch(results: Results):
    assert figures(results, "permuted-consumer")["dispatches"] == 1
