"""How weights live: there from the start, or packed in every run, alone or where they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.execute.executable import xla_executable
from eqsat.execute.weights import packed_per_run, resident
from eqsat.model.diag import EqsatError
from eqsat.report.page.runpage import page
from eqsat.report.text import summary_text

FORCED = ("tiles_forced=true", "tiles={matmul: [{mnk: [16, 16, 4], rate: 1}]}")
KIB = 1024
OUTSIDE = """
target: outside
doc: Contractions read packed operands; nothing is packed inside of them.
extends: reference
tiles_forced: true
tiles:
  matmul:
    - {mnk: [16, 16, 4], rate: 1.0}
fusion:
  join:
    elementwise: []
    reduction: []
    contraction: [conversion]
    conversion: [move, conversion]
    move: [conversion]
"""


def tied(*settings: str, **options: Any) -> eqsat.Run:
    """A table that is gathered from, and packed for a product."""
    program = eqsat.read("tied_table")
    return eqsat.optimize(program, target="reference", settings=(*FORCED, *settings), **options)


def value(run: eqsat.Run, goal: str) -> int:
    assert run.selection is not None
    return run.selection.goal(goal).value


@pytest.fixture(scope="module")
def small() -> eqsat.Run:
    return tied(goals=("memory", "time"))


def test_a_tied_table_is_kept_once_where_memory_counts(small: eqsat.Run):
    run, ids, packed_rows, result = small, 64, 8 * KIB, 32 * KIB
    least = 256 * KIB + ids + packed_rows + result
    assert value(run, "memory") == run.selection.goal("memory").bound == least
    assert run.schedule.resident_bytes == 512 * 128 * 4  # the table as it is, and nothing else
    assert run.schedule.counts()["weight_packs"] == 0
    assert "pack+contraction" in run.schedule.to_text()


def test_a_budget_that_only_run_time_packing_keeps_is_kept():
    assert value(tied(budget={"memory": 400 * KIB}), "memory") <= 400 * KIB
    with pytest.raises(EqsatError, match=r"\(proven\).*303,168 bytes"):
        tied(budget={"memory": 200 * KIB})


TWO = """
program two_tables
input ids: i32[16]
weight w: f32[256, 128] key=w
weight v: f32[128, 64] key=v
e = gather(w, ids, axis=0)
t = transpose(w, perm=[1, 0])
y = matmul(e, t)
f = gather(v, ids, axis=0)
u = transpose(v, perm=[1, 0])
z = matmul(f, u)
return y, z
"""


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("life") / "two_tables.eqs"
    path.write_text(TWO)
    return str(path)


def test_the_front_of_resident_bytes_and_time_has_a_point_per_table(two_tables: str):
    front = eqsat.pareto(
        eqsat.read(two_tables), target="reference", settings=FORCED, goals=("resident", "time")
    )
    w, v = 256 * 128 * 4, 128 * 64 * 4
    kept = [value(p, "resident") for p in front.points]
    assert front.complete and kept == [w + v, w + 2 * v, 2 * w + v, 2 * w + 2 * v]
    assert [p.schedule.resident_bytes for p in front.points] == kept
    times = [value(p, "time") for p in front.points]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("goals", "originals", "resident", "load_peak"),
    [
        (("resident", "time"), "dropped", 256, 256),
        (("load_peak", "time"), "dropped", 256, 256),
        (("time",), "dropped", 512, 512),  # the table and its copy, made beside it
        (("time",), "stored", 512, 512),
        (("memory",), "held", 256, 256),
    ],
)
def test_bytes_of_weights_are_goals(
    goals: tuple[str, ...], originals: str, resident: int, load_peak: int
):
    run = tied(f"originals={originals}", goals=goals)
    found = run.schedule
    assert (found.resident_bytes, found.load_peak_bytes) == (resident * KIB, load_peak * KIB)
    assert run.summary()["bytes"]["resident_bytes"] == resident * KIB
    for goal in goals:
        assert run.selection.goal(goal).gap == 0


def packed_alone(originals: str, **options: Any) -> eqsat.Run:
    """One product whose weight has to be packed."""
    return eqsat.optimize(
        lambda x, w: x @ w,
        *(np.ones((16, 64), "f4"), np.ones((64, 32), "f4")),
        weights=("w",),
        target="reference",
        settings=(*FORCED, f"originals={originals}"),
        **options,
    )


def test_load_peak_is_that_of_the_setting():
    one = 64 * 32 * 4
    assert packed_alone("stored").schedule.load_peak_bytes == one
    ahead = packed_alone("dropped", goals=("time", "relayout"))
    assert (ahead.schedule.resident_bytes, ahead.schedule.load_peak_bytes) == (one, 2 * one)
    late = packed_alone("dropped", goals=("load_peak",))
    assert (late.schedule.resident_bytes, late.schedule.load_peak_bytes) == (one, one)
    held = packed_alone("held", goals=("memory",))  # packed where it is read: no copy stays
    assert (held.schedule.resident_bytes, held.schedule.load_peak_bytes) == (one, one)
    both = packed_alone("held", goals=("relayout",))
    assert both.schedule.resident_bytes == both.schedule.load_peak_bytes == 2 * one


@pytest.mark.parametrize("goal", ["resident", "load_peak"])
def test_a_budget_of_weights_below_the_originals_is_refused(goal: str):
    assert value(tied(budget={goal: 256 * KIB}), goal) == 256 * KIB
    with pytest.raises(EqsatError, match=rf"\(proven\).*least {goal} any choice needs is 262,144"):
        tied(budget={goal: 255 * KIB})


def test_rows_are_gathered_from_the_packed_table_where_nothing_is_packed_inside(tmp_path: Path):
    path = tmp_path / "outside.yaml"
    path.write_text(OUTSIDE)
    found = {
        rules: eqsat.optimize(
            eqsat.read("tied_table"), target=str(path), goals=("resident", "time"),
            rules=rules,
        )
        for rules in (("default", "layout/tied"), ("default",))
    }  # fmt: skip
    packed, apart = found.values()
    assert [r.schedule.resident_bytes for r in found.values()] == [256 * KIB] * 2
    lives = [r.summary()["weights"][0]["lives"] for r in found.values()]
    assert lives == [
        ["packed at load", "unpacked where it is read"],
        ["as it is", "packed per run"],
    ]
    blocks = 16 * 16 * 128 * 4  # 16 rows, each in 16 that are packed together
    assert value(packed, "time") == (blocks + 64 + 2 * 8 * KIB + 256 * KIB + 32 * KIB) * 1000
    assert value(apart, "time") > value(packed, "time")


def test_a_plan_tells_how_its_weights_live(small: eqsat.Run, two_tables: str):
    (table,) = small.summary()["weights"]
    assert table["lives"] == ["as it is", "packed where it is read"]
    assert (table["original_bytes"], table["copies_bytes"]) == (256 * KIB, 0)
    assert (table["resident_bytes"], table["load_bytes"]) == (256 * KIB, 256 * KIB)
    assert table["run_bytes"] == 256 * KIB
    assert "weights 256 KiB (X): resident 256 KiB (1.00X), at load 256 KiB" in summary_text(small)
    assert "as it is; packed where it is read" in small.explain().to_text()
    assert "as it is; packed where it is read" in page(small)
    run = eqsat.optimize(
        eqsat.read(two_tables), target="reference", settings=FORCED, goals=("time",)
    )
    lives = run.summary()["weights"]
    assert [w["lives"] for w in lives] == [["as it is", "packed at load"]] * 2
    assert sum(w["resident_bytes"] for w in lives) == run.schedule.resident_bytes
    apart = eqsat.optimize(
        eqsat.read(two_tables), target="reference", goals=("resident", "time"),
        settings=(*FORCED, "fusion.members=1"),
    )  # fmt: skip
    for w in apart.summary()["weights"]:
        assert w["lives"] == ["as it is", "packed per run"] and w["run_time_us"] > 0


def test_what_is_packed_in_every_run_is_packed_by_what_is_compiled(small: eqsat.Run):
    run = small
    w = np.random.default_rng(0).standard_normal((512, 128)).astype("f4")
    ids = np.arange(16, dtype=np.int32)
    made = xla_executable(run.schedule, {}, {"w": w})
    assert packed_per_run(run.schedule) == resident(run.schedule)
    assert np.allclose(made(ids)[0], w[ids] @ w.T, atol=1e-4)
    text = made.flat.lower(ids).compile().as_text()
    assert "f32[32,4,32,16]" in text and text.count("f32[512,128]{1,0} constant") == 1
