"""What a gather reads of its table is what it takes, unless somebody reads all of it."""

from __future__ import annotations

import pytest
from seeds import seeds

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


# ---- what is turned or changed on its way to a gather, and tables beyond the nearest level -------
NEAR, FAR = "size: 4 KiB, bandwidth: 10 GB/s", "size: 1 GiB, bandwidth: 1 GB/s"
SMALL_CACHE = f"memory=[{{name: near, {NEAR}}}, {{name: far, {FAR}}}]"
TAKEN = 2000 * 8 * 4  # 2,000 rows of a table of 1,000


@pytest.mark.parametrize(
    "text",
    [
        "y = gather(t, i, axis=0)\nreturn y\n",
        "u = tanh(t)\ny = gather(u, i, axis=0)\nreturn y\n",
        "u = transpose(t, perm=[1, 0])\nv = exp(u)\nw = transpose(v, perm=[1, 0])\n"
        "y = gather(w, i, axis=0)\nreturn y\n",
    ],
    ids=["as-it-lies", "changed", "turned"],
)
@pytest.mark.parametrize("near", [False, True], ids=["far", "near"])
def test_rows_beyond_the_nearest_level_are_read_as_often_as_they_are_taken(text: str, near: bool):
    head = "program rows\ninput i: i32[2000]\ninput t: f32[1000, 8]\n"
    settings = () if near else (SMALL_CACHE,)
    run = eqsat.optimize(
        parse_program(head + text), target="reference", goals=["dispatches"], settings=settings
    )
    assert run.selection is not None
    (group,) = run.selection.groups
    read = TABLE if near else TAKEN
    assert group.time_ps == 1000 * (2000 * 4 + read + TAKEN)


EXPERTS = """program experts
input x: f32[32, 128]
input i: i32[32]
input w: f32[8, 128, 64]
g = gather(w, i, axis=0) : f32[32, 128, 64]
{more}y = generic(x, {read}, loops=[32, 64, 128], maps=[[d0, d2], {map}], body=mul(x0, x1), \
combine=add, rank=2) : f32[32, 64]
return y
"""


@pytest.mark.parametrize("target", seeds(1, ["sm_90", "reference", "gfx942"]))
def test_experts_are_one_dispatch_however_their_rows_are_read(target: str):
    found = set()
    for more, read, by in (
        ("", "g", "[d0, d2, d1]"),
        ("p = transpose(g, perm=[0, 2, 1])\n", "p", "[d0, d1, d2]"),
        ("p = neg(g)\nq = neg(p)\n", "q", "[d0, d2, d1]"),
    ):
        text = EXPERTS.format(more=more, read=read, map=by)
        run = eqsat.optimize(parse_program(text), target=target, stop_after="selection")
        assert run.selection is not None
        assert run.baseline is not None
        assert len(run.selection.groups) == 1
        found.add((run.selection.goal("time").value, run.selection.goal("memory").value))
        if not more:
            assert run.baseline.goal("time").value == run.selection.goal("time").value
    assert len(found) == 1
