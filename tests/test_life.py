"""How weights live: there from the start, or packed in every run, alone or where they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.execute.weights import packed_per_run, resident
from eqsat.execute.xla import build
from eqsat.model.diag import EqsatError

FORCED = ("tiles_forced=true", "tiles={matmul: [{mnk: [16, 16, 4], rate: 1}]}")
KIB = 1024


def tied(*settings: str, **options: Any) -> eqsat.Run:
    """A table that is gathered from, and packed for a product."""
    program = eqsat.read("tied_table")
    return eqsat.optimize(program, target="reference", settings=(*FORCED, *settings), **options)


def value(run: eqsat.Run, goal: str) -> int:
    assert run.selection is not None
    return run.selection.goal(goal).value


@pytest.fixture(scope="module")
def small() -> eqsat.Run:
    return tied(goals=("memory",))


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


def test_what_is_packed_in_every_run_is_packed_by_what_is_compiled(small: eqsat.Run):
    run = small
    w = np.random.default_rng(0).standard_normal((512, 128)).astype("f4")
    ids = np.arange(16, dtype=np.int32)
    made = build(run.schedule, {}, {"w": w})
    assert packed_per_run(run.schedule) == resident(run.schedule)
    assert np.allclose(made(ids)[0], w[ids] @ w.T, atol=1e-4)
    text = made.flat.lower(ids).compile().as_text()
    assert "f32[32,4,32,16]" in text and text.count("f32[512,128]{1,0} constant") == 1
