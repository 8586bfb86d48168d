"""Dispatches of an encoder layer under the fusion legality of IREE (`targets/iree-like.yaml`)."""

from __future__ import annotations

from functools import cache

import pytest

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.ops.contractions.roles import kind
from eqsat.schedule import faults

IDENTITY = ("fusion.index_relation=identity",)
ONE_EACH = ("fusion.row_reductions=1",)
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
    run = searched(MERGED)
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


def test_a_dequantisation_is_computed_beside_its_contraction():
    """IREE clones ops that extend bits into the dispatch that reads them, and no other producer."""
    program = parse_program(QUANTISED)
    (one,) = eqsat.optimize(program, target="iree-like").schedule.dispatches
    assert one.ops == "elementwise+contraction"
    apart = eqsat.optimize(program, target="iree-like", settings=("fusion.clone=[fill]",))
    assert len(apart.schedule.dispatches) == 2
    narrow = parse_program(QUANTISED.replace("i8", "f32").replace("cast(x0, f32)", "x0"))
    assert len(eqsat.optimize(narrow, target="iree-like").schedule.dispatches) == 2
