"""What experiments/layouts.yaml must show, on its small program."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eqsat
from eqsat.lab.results import Results

SIZE = 28  # of the image in front of the first stride


@pytest.fixture(scope="module")
def results() -> Results:
    experiment = eqsat.Experiment.read("experiments/layouts.yaml")
    small = tuple(c for c in experiment.plan.cells if c.name.startswith("bottlenecks/"))
    experiment.plan = replace(experiment.plan, cells=small, runs=0, verify=False)
    return experiment.run()


def shapes(results: Results, name: str) -> set[tuple[int, ...]]:
    """Of what dispatches write."""
    (found,) = (o for o in results.outcomes if o.cell.name == f"bottlenecks/{name}")
    schedule = found.run.schedule
    nodes = schedule.program.nodes
    return {nodes[w].type.shape for d in schedule.dispatches for w in d.writes}


def test_no_forced_layout_is_quicker_than_the_free_choice(results: Results):
    assert results.problems() == ()
    rows = {r["name"]: r for r in results.rows()}
    assert {r["stop"] for r in rows.values()} == {"optimal"}
    free = rows.pop("bottlenecks/free")
    assert len(rows) == 3
    for row in rows.values():
        assert free["time_us"] <= row["time_us"]


def test_each_forced_layout_is_the_one_it_is_called(results: Results):
    after = SIZE // 2
    assert (1, 128, after, after) in shapes(results, "NCHW")
    assert all(len(s) <= 4 for s in shapes(results, "NCHW"))
    assert any(s[-1] == 32 and s[:3] == (1, after, after) for s in shapes(results, "NHWC"))
    assert any(s[-1] == 16 and s[2:4] == (after, after) for s in shapes(results, "NCHWc"))
