"""`targets/iree-like.yaml`: an encoder layer under it, and IREE's own dispatches beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from ireedispatches import Cut, as_arguments, dispatches_of, row
from seeds import one_in

import eqsat
from eqsat.frontends.source import Source
from eqsat.lang.programs import parse_program
from eqsat.ops.contractions.roles import kind
from eqsat.schedule import faults

IDENTITY = ("fusion.index_relation=identity",)
ONE_EACH = ("fusion.row_reductions=1",)
RESHAPED = ("fusion.reshaped=true",)
MERGED = ("default", "algebra/merge")


@cache
def searched(rules: tuple[str, ...] = ("default",), settings: tuple[str, ...] = ()) -> eqsat.Run:
    return eqsat.optimize(
        eqsat.read("encoder"),
        target="iree-like",
        rules=rules,
        settings=settings,
        goals=["dispatches", "time"],
    )


def dispatches(run: eqsat.Run) -> int:
    goal = run.summary()["goals"]["dispatches"]
    assert goal["value"] == goal["bound"]
    return goal["value"]


def test_a_layer_is_eleven_dispatches():
    """Queries, keys, values, scores, softmax, their mix, output, norm, up, down, norm."""
    assert dispatches(searched()) == 11


def test_projections_with_their_biases_become_one():
    """Where what reads them in heads may slice and reshape them; IREE clones no reshape."""
    assert dispatches(searched(MERGED)) == 11
    run = searched(MERGED, RESHAPED)
    assert dispatches(run) == 9
    widths = [
        run.schedule.program.nodes[w].type.shape[-1]
        for d in run.schedule.dispatches
        for w in d.writes
    ]
    assert 3 * 384 in widths


def test_without_interchange_and_rows_there_are_more():
    assert dispatches(searched(settings=IDENTITY)) >= 11 + 2
    assert dispatches(searched(settings=ONE_EACH)) == 17


@pytest.mark.parametrize("rules", [("default",), MERGED])
def test_no_dispatch_only_moves_data(rules):
    run = searched(rules)
    assert faults(run.schedule, run.target) == []
    nodes = run.schedule.program.nodes
    work = {"elementwise", "reduction", "contraction"}
    for d in run.schedule.dispatches:
        assert work & {kind(nodes[m].op, nodes[m].attr) for m in d.members}


QUANTISED = """program quantised
input x: f32[1, 256]
input q: i8[256, 512]
input s: f32[512]
d = generic(q, s, loops=[256, 512], maps=[[d0, d1], [d1]], body=mul(cast(x0, f32), x1))
y = matmul(x, d) : f32[1, 512]
return y
"""


DEEP = QUANTISED.replace("[1, ", "[64, ")
CONVOLVED = """program convolved
input x: i8[1, 16, 16, 32]
input w: f32[3, 3, 32, 64]
d = generic(x, loops=[1, 16, 16, 32], maps=[[d0, d1, d2, d3]], body=mul(cast(x0, f32), 0.5))
y = generic(d, w, loops=[1, 14, 14, 64, 3, 3, 32], maps=MAPS, body=mul(x0, x1), combine=add, rank=4)
return y
""".replace("MAPS", "[[d0, d1 + d4, d2 + d5, d6], [d4, d5, d6, d3]]")
BROADCAST = """program broadcast
input a: f32[128, 256]
input b: f32[256]
e = exp(b)
y = generic(a, e, loops=[128, 256], maps=[[d0, d1], [d1]], body=add(x0, x1), combine=add, rank=1)
return y
"""
ROWS = BROADCAST.replace("exp(b)", "exp(a)").replace("[d1]]", "[d0, d1]]")
SLICED = """program sliced
input a: f32[128, 256]
BEFORE
s = slice(e, start=[0, 0], limit=[64, 256])
t = slice(e, start=[64, 0], limit=[128, 256])
y = generic(s, t, loops=[64, 256], maps=[[d0, d1], [d0, d1]], body=mul(x0, exp(x1)))
return y
"""
CUT = SLICED.replace("BEFORE\n", "").replace("(e,", "(a,")
COMPUTED = SLICED.replace("BEFORE", "e = exp(a)")
PADDED = """program padded
input a: f32[32, 64]
r = generic(a, loops=[32, 64], maps=[[d0, d1]], body=x0, combine=add, rank=1)
p = pad(r, low=[1], high=[1], value=0.0)
return p
"""
PAD_READ = """program pad_read
input a: f32[32, 64]
p = pad(a, low=[1, 1], high=[1, 1], value=0.0)
y = generic(p, loops=[34, 66], maps=[[d0, d1]], body=x0, combine=add, rank=1)
return y
"""
LOOKED_UP = """program looked_up
input t: f32[1000, 64]
input i: i32[32]
BEFORE
g = gather(e, i, axis=0)
y = generic(g, loops=[32, 64], maps=[[d0, d1]], body=x0, combine=add, rank=1)
return y
"""
HELD = LOOKED_UP.replace("BEFORE\n", "").replace("(e,", "(t,")
TABLE = LOOKED_UP.replace("BEFORE", "e = exp(t)")
HEADS = """program heads
input a: f32[32, 64]
input w: f32[64, 64]
m = matmul(a, w)
h = reshape(m, shape=[32, 8, 8])
y = generic(h, loops=[32, 8, 8], maps=[[d0, d1, d2]], body=exp(x0), combine=add, rank=2)
z = reshape(y, shape=[32, 8])
return z
"""
SMALL = [  # what IREE 3.13 makes of each
    (QUANTISED, 1), (QUANTISED.replace("i8", "f32").replace("cast(x0, f32)", "exp(x0)"), 1),
    (DEEP, 2), (BROADCAST, 2), (ROWS, 1), (CUT, 1), (COMPUTED, 2), (PADDED, 1), (PAD_READ, 2),
    (HELD, 1), (HEADS, 2),
]  # fmt: skip
# a dequantisation is computed anew for every window, which takes longer; rules look up first
OTHERWISE = [(CONVOLVED, 1), (TABLE, 2)]


@pytest.mark.parametrize(("text", "count"), SMALL)
def test_least_dispatches_are_those_of_iree(text: str, count: int):
    """By who reads: rows of its own or shared ones, from memory, through a pad or a reshape."""
    run = eqsat.optimize(parse_program(text), target="iree-like", goals=["dispatches", "time"])
    assert dispatches(run) == count
    assert faults(run.schedule, run.target) == []


LIBRARY = [
    pytest.param("encoder", 11), pytest.param("bottlenecks", 13),
    pytest.param("sites.py:gpt2_layer", 17, marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize(("text", "count"), one_in(3, [*OTHERWISE, *SMALL]))
def test_iree_makes_the_dispatches_that_are_legal(text: str, count: int):
    pytest.importorskip("iree.compiler")
    _agrees(Source(parse_program(text)), count)


@pytest.mark.parametrize(("name", "count"), LIBRARY)
def test_dispatches_of_iree_are_legal(name: str, count: int):
    pytest.importorskip("iree.compiler")
    _agrees(as_arguments(eqsat.read(name)), count)


def _agrees(source: Source, count: int) -> None:
    cut = Cut(dispatches_of(source), eqsat.target("iree-like"))
    assert len(cut.schedule.dispatches) == count
    assert cut.illegal() == {}
    assert list(cut.apart()) == []


def test_what_iree_keeps_apart_has_a_reason():
    """A dispatch that the target refuses is told, and so is why IREE keeps a legal pair apart."""
    pytest.importorskip("iree.compiler")
    found = row("train.py:step", seconds=0)
    assert (found["iree"], found["illegal"]) == (8, {})
    assert [why.partition(":")[0] for why in found["apart"].values()] == [
        "an op of one element", "it reads what stands in front of the root",
    ]  # fmt: skip
    apart = eqsat.target("iree-like")
    apart = replace(apart, fusion=replace(apart.fusion, members=1))
    cut = Cut(dispatches_of(as_arguments(eqsat.read("tied_table"))), apart)
    assert {i: says[0].count("fusion.members is 1") for i, says in cut.illegal().items()} == {0: 1}
