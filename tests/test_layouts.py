"""What experiments/layouts.yaml must show, on its two small programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eqsat
from eqsat.lab.results import Results

pytestmark = pytest.mark.slow  # its rows take half a minute
SIZE = 28  # of the image in front of the first stride


@pytest.fixture(scope="module")
def results() -> Results:
    experiment = eqsat.Experiment.read("experiments/layouts.yaml")
    small = tuple(c for c in experiment.plan.cells if not c.name.startswith("resnet50/"))
    experiment.plan = replace(experiment.plan, cells=small, runs=0, verify=False)
    return experiment.run()


def shapes(results: Results, name: str, program: str = "bottlenecks") -> set[tuple[int, ...]]:
    """Of what dispatches write."""
    (found,) = (o for o in results.outcomes if o.cell.name == f"{program}/{name}")
    schedule = found.run.schedule
    nodes = schedule.program.nodes
    return {nodes[w].type.shape for d in schedule.dispatches for w in d.writes}


@pytest.mark.parametrize("program", ["bottlenecks", "denoise"])
def test_no_forced_layout_is_quicker_than_the_free_choice(results: Results, program: str):
    assert results.problems() == ()
    rows = {r["name"]: r for r in results.rows() if r["name"].startswith(f"{program}/")}
    assert {r["stop"] for r in rows.values()} == {"optimal"}
    free = rows.pop(f"{program}/free")
    assert len(rows) == 3
    for row in rows.values():
        assert free["time_us"] <= row["time_us"]


def test_the_chosen_layouts_differ_between_models(results: Results):
    """Both are imported as NCHW; of few channels, vectors along a row of pixels are better."""
    after = SIZE // 2
    assert any(s[-1] == 32 and s[:3] == (1, after, after) for s in shapes(results, "free"))
    assert {s[-2:] for s in shapes(results, "free", "denoise")} <= {(128, 128), (130, 130)}
    times = {r["name"]: r["time_us"] for r in results.rows()}
    assert times["denoise/NHWC"] > 1.5 * times["denoise/free"]
    assert times["bottlenecks/NCHW"] > 1.02 * times["bottlenecks/free"]


def test_few_channels_lie_first_however_they_are_imported(results: Results):
    times = {r["name"]: r["time_us"] for r in results.rows()}
    assert times["denoise_nhwc/free"] < 1.05 * times["denoise/free"]
    assert (1, 6, 128, 128) in shapes(results, "free", "denoise_nhwc")


def test_each_forced_layout_is_the_one_it_is_called(results: Results):
    after = SIZE // 2
    assert (1, 128, after, after) in shapes(results, "NCHW")
    assert all(len(s) <= 4 for s in shapes(results, "NCHW"))
    assert any(s[-1] == 32 and s[:3] == (1, after, after) for s in shapes(results, "NHWC"))
    assert any(s[-1] == 16 and s[2:4] == (after, after) for s in shapes(results, "NCHWc"))
