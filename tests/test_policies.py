"""What experiments/policies.yaml must show, row by row."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from seeds import seeds

import eqsat
from eqsat.lab.results import CellResult

GREEDY = ("always-fold", "fold-single-use", "never-clone", "keep-and-fuse")


@cache
def policies() -> eqsat.Experiment:
    """Rows are searched, not executed: the encoder and the MLPs are by tests of their own."""
    experiment = eqsat.Experiment.read("experiments/policies.yaml")
    experiment.plan = replace(experiment.plan, runs=0, verify=False)
    return experiment


@cache
def row(name: str) -> CellResult:
    (found,) = policies().run(rows=[name]).outcomes
    return found


def figures(name: str) -> dict:
    return row(name).to_json()


@pytest.mark.slow  # 15 s; below are the rows that say something
def test_every_row_is_as_expected_and_proven():
    names = [c.name for c in policies().plan.cells if not c.name.startswith("encoder")]
    results = policies().run(rows=names)
    assert results.problems() == ()
    assert {r["stop"] for r in results.rows() if r["status"] == "found"} == {"optimal"}


@pytest.mark.parametrize("target", seeds(1, ["reference", "avx512-xla"]))
def test_eqsat_is_never_worse_than_a_greedy_policy(target: str):
    mine = row(f"eqsat@{target}/time")
    for policy in GREEDY:
        other = row(f"{policy}@{target}/time")
        assert mine.to_json()["time_us"] <= other.to_json()["time_us"]
        # their program is one of those eqsat chose from
        assert mine.run.egraph.holds(other.run.schedule.program)
    assert {o.cell.set[:2] for o in (mine, other)} == {mine.cell.set[:2]}  # one tile, forced


@pytest.mark.parametrize("target", seeds(1, ["reference", "avx512-xla"]))
def test_always_folding_costs_a_dispatch_and_time(target: str):
    fold, best = (figures(f"{p}@{target}/time") for p in ("always-fold", "eqsat"))
    assert (fold["dispatches"], best["dispatches"]) == (4, 3)
    assert fold["time_us"] > best["time_us"]
    assert fold["bytes_moved"] - best["bytes_moved"] == 512 * 256 * 4  # `a` is read once more
    assert best["gap"] == 0.0


def test_reference_figures_by_hand():
    """A pack moves 1 MiB, as does transpose+add+pack 2 MiB, the matmul 1.25 MiB; 1 ns a byte."""
    best = figures("eqsat@reference/time")
    assert best["bytes_moved"] == (1 << 20) + (2 << 20) + (5 << 18)
    assert best["time_us"] == best["bytes_moved"] / 1000


def test_the_rows_differ_and_policies_are_not_copies():
    times = [figures(f"{p}@reference/time")["time_us"] for p in GREEDY]
    assert len(set(times)) >= 3
    free = figures("eqsat-free-tile@reference/time")
    assert free["time_us"] <= min(times)


def test_no_fixed_policy_finds_what_three_readers_want():
    """A policy writes the transpose for one reader and pays for it with the others."""
    joint = figures("eqsat@three-readers")
    for policy in ("always-fold", "fold-single-use", "keep"):
        other = figures(f"{policy}@three-readers")
        assert joint["time_us"] < other["time_us"]
        assert other["dispatches"] > joint["dispatches"]


def test_kernels_have_no_fixed_policy_that_is_best():
    joint = figures("eqsat@three-readers/kernels")
    for policy in ("always-fold", "fold-single-use", "keep"):
        other = figures(f"{policy}@three-readers/kernels")
        assert joint["time_us"] < other["time_us"]
        assert joint["dispatches"] < other["dispatches"]


def test_an_unfused_transpose_breaks_the_vector_limit():
    fold = row("always-fold@vector-limit")
    assert fold.run is None
    (diagnostic,) = fold.record.diagnostics
    assert diagnostic.code == "E410"
    assert "524,288" in diagnostic.message
    assert "8,192" in diagnostic.message
    assert "transpose" in diagnostic.message
    fits = figures("eqsat@vector-limit")
    assert fits["dispatches"] <= dict(fold.cell.budget)["dispatches"]
