"""What a gather reads of its table is what it takes, unless somebody reads all of it."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.lang.programs import parse_program

TABLE, ROWS, INDICES = 1000 * 8 * 4, 4 * 8 * 4, 4 * 4
HEAD = "program rows\ninput i: i32[4]\ninput t: f32[1000, 8]\ny = gather(t, i, axis=0)\n"


@pytest.mark.parametrize(
    ("rest", "nbytes"),
    [
        ("return y\n", INDICES + 2 * ROWS),
        ("z = tanh(y)\nreturn z\n", INDICES + 2 * ROWS),
        ("z = tanh(t)\nreturn y, z\n", INDICES + 2 * ROWS + 2 * TABLE),
    ],
    ids=["alone", "fused", "the-table-is-read-elsewhere"],
)
def test_a_gather_reads_the_rows_it_takes(rest: str, nbytes: int):
    run = eqsat.optimize(parse_program(HEAD + rest), target="reference", goals=["time"])
    assert run.schedule is not None
    assert run.schedule.bytes_moved == nbytes
    assert run.schedule.time_ps == 1000 * nbytes  # one byte takes 1 ns
    assert run.verify(samples=1).ok


def test_more_rows_than_the_table_has_cost_the_table():
    text = "program all\ninput i: i32[64]\ninput t: f32[8, 8]\ny = gather(t, i, axis=0)\nreturn y\n"
    run = eqsat.optimize(parse_program(text), target="reference", goals=["time"])
    assert run.schedule is not None
    assert run.schedule.bytes_moved == 64 * 4 + 8 * 8 * 4 + 64 * 8 * 4
