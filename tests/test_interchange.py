"""The order of loops as part of the answer: who asks for one, what it allows, and who sees it."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.affine import dim
from eqsat.model.attr import ShapeError
from eqsat.model.diag import EqsatError
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Program
from eqsat.ops.generics.access import access
from eqsat.ops.generics.interchange import as_read, as_written, executed_map
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.targets.kernels import misread, miswrites
from eqsat.schedule import faults

IDENTITY = "fusion.index_relation=identity"
CANONICAL = "fusion.result_relation=identity"
BY_MAP = """
program permuted
input a: f32[128, 256]
input b: f32[256, 64]
y = matmul(a, b) : f32[128, 64]
r = generic(y, loops=[64, 128], maps=[[d1, d0]], body=max(x0, 0.0))
return r
"""
BY_TRANSPOSE = """
program permuted
input a: f32[128, 256]
input b: f32[256, 64]
y = matmul(a, b) : f32[128, 64]
t = transpose(y, perm=[1, 0]) : f32[64, 128]
r = relu(t) : f32[64, 128]
return r
"""


def searched(text: str, *settings: str, **how: Any) -> eqsat.Run:
    how = {"target": "no-data-tiling", "goals": ("time",)} | how
    return eqsat.optimize(parse_program(text), settings=settings, **how)


def generics(run: eqsat.Run) -> list[Generic]:
    """The chosen ones, in the order of the program."""
    return [n.attr for n in run.schedule.program.nodes if isinstance(n.attr, Generic)]


def orders(run: eqsat.Run) -> list[tuple[int, ...]]:
    return [g.order for g in generics(run)]


# ---- what walks alike ----------------------------------------------------------------------------
def with_order(g: Generic, order: tuple[int, ...]) -> Generic:
    """The generic with its loops executed in this order; () is the canonical one."""
    return replace(g, order=() if order == tuple(range(len(order))) else order)


def copies(sizes: tuple[int, ...], loops: list[int], rank: int) -> Generic:
    """A generic over these loops that reads one operand, a dim per loop of the list."""
    shape = tuple(sizes[d] for d in loops)
    body = Yield(arg(0), "f32", "" if rank == len(sizes) else "add")
    return Generic(sizes, rank, (tuple(map(dim, loops)),), (shape,), (body,), (), ("f32",))


def steps(g: Generic, loops: list[int]) -> list[tuple[int, ...]]:
    """The elements of a tensor with a dim per loop of the list, as the loops come to them."""
    found = []
    for at in itertools.product(*(range(g.sizes[d]) for d in g.executed)):
        place = dict(zip(g.executed, at, strict=True))
        found.append(tuple(place[d] for d in loops))
    return found


def walks_alike(made: Generic, reader: Generic, operand: int) -> bool:
    """Whether a reader wants one element after another as they are computed."""
    found = access("generic", reader, operand, made.result_shape)
    assert found is not None
    return found.is_in_step(reader.executed, made.executed[: made.rank])


def drawn(seed: int) -> tuple[Generic, Generic]:
    """A producer and its reader, each in some order; the reader may reduce its last loop."""
    rng = random.Random(seed)
    sizes = (2, 3, 4)
    made = copies(sizes, [0, 1, 2], 3)
    loops = rng.sample(range(3), 3)
    rank = rng.choice((2, 3, 3))
    reader = copies(tuple(sizes[loops.index(d)] for d in range(3)), loops, rank)
    chosen = [with_order(g, tuple(rng.sample(range(3), 3))) for g in (made, reader)]
    return chosen[0], chosen[1]


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_two_ops_walk_alike_if_they_come_to_the_elements_in_one_order(seed: int):
    made, reader = drawn(seed)
    loops = [e.dim for e in reader.maps[0] if e.dim is not None]
    alike = steps(made, [0, 1, 2]) == steps(reader, loops)
    assert walks_alike(made, reader, 0) == alike


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_an_order_that_is_asked_for_walks_alike(seed: int):
    made, reader = drawn(seed)
    plain = with_order(made, ()), with_order(reader, ())
    found = as_written(plain[1], 0, made)
    if found is not None:
        assert walks_alike(made, found, 0)
    else:
        assert walks_alike(made, plain[1], 0)
    upwards = as_read(plain[0], reader, 0)
    assert walks_alike(made=upwards or plain[0], reader=reader, operand=0)


def test_nobody_follows_a_reader_of_a_part():
    made = copies((4, 6), [0, 1], 2)
    spread = copies((4, 6, 3), [1, 0], 3)
    other = replace(spread, shapes=((4, 6),))
    assert as_written(other, 0, made) is None
    assert as_read(made, other, 0) is None


def test_an_order_decides_what_is_read_across_the_innermost_loop():
    across = copies((64, 32), [1, 0], 2)
    along = with_order(across, (1, 0))
    assert (list(misread(across)), miswrites(across)) == ([0], False)
    assert (list(misread(along)), miswrites(along)) == ([], True)
    assert executed_map(along, along.maps[0]) == (dim(0), dim(1))
    assert executed_map(along, (dim(0), dim(1))) == (dim(1), dim(0))


def test_an_element_of_a_sum_is_there_when_the_sum_is_done():
    rows, scaled = copies((4, 6), [0, 1], 1), copies((4,), [0], 1)
    assert walks_alike(rows, scaled, 0)
    by_columns = with_order(rows, (1, 0))
    assert not walks_alike(by_columns, scaled, 0)
    assert as_written(scaled, 0, by_columns) is None


def test_an_order_is_a_permutation_of_the_loops():
    g = copies((4, 6), [0, 1], 1)
    replace(g, order=(1, 0)).verify()
    for wrong in ((0, 1), (0,), (0, 0)):
        with pytest.raises(ShapeError, match="order"):
            replace(g, order=wrong).verify()


# ---- the answer ----------------------------------------------------------------------------------
@pytest.mark.parametrize("text", [BY_MAP, BY_TRANSPOSE])
def test_a_permuted_consumer_is_one_dispatch_under_either_relation(text: str):
    wide, narrow = searched(text), searched(text, IDENTITY)
    assert len(wide.schedule.dispatches) == len(narrow.schedule.dispatches) == 1
    assert wide.selection.goal("time") == narrow.selection.goal("time")
    assert wide.summary()["counts"]["interchanged"] == 0
    assert faults(narrow.schedule, narrow.target) == []


def test_a_bias_that_writes_transposed_shares_the_dispatch_of_its_product():
    how = {"target": "no-data-tiling", "goals": ("time",), "settings": [IDENTITY]}
    mlir = eqsat.read("experiments/programs/permuted_consumer.mlir")
    on, off = (eqsat.optimize(mlir, without=w, **how) for w in ([], ["interchange"]))
    assert (len(on.schedule.dispatches), len(off.schedule.dispatches)) == (1, 2)
    assert on.selection.goal("time").value < off.selection.goal("time").value


def test_the_interchange_is_what_joins_them():
    """Without the transposes that would turn the product instead."""
    rules, without = ["layout/interchange"], ["interchange-contraction"]  # as good, by the product
    run = searched(BY_MAP, IDENTITY, rules=rules, without=without, verify=True)
    assert run.verification.ok
    assert (len(run.schedule.dispatches), orders(run)) == (1, [(), (1, 0)])
    assert run.summary()["counts"]["interchanged"] == 1
    assert "generic in loop order [1, 0]" in str(run.schedule)
    assert "max in loop order [1, 0]" in str(run.explain())
    assert faults(run.schedule, run.target) == []
    apart = searched(BY_MAP, IDENTITY, rules=rules, without=["interchange"])
    assert len(apart.schedule.dispatches) == 2
    assert apart.selection.goal("time").value > run.selection.goal("time").value
    told = str(eqsat.compare(run, apart))
    assert "max in loop order [1, 0]" in told
    assert "interchange-reader" in told


def test_contractions_can_be_kept_as_they_are():
    rules = ["layout/interchange"]
    by_product = searched(
        BY_MAP, IDENTITY, rules=rules, without=["interchange-reader", "interchange-producer"]
    )
    assert (len(by_product.schedule.dispatches), orders(by_product)) == (1, [(1, 0, 2), ()])
    kept = searched(BY_MAP, IDENTITY, rules=rules, without=["interchange-contraction"])
    assert orders(kept) == [(), (1, 0)]


def test_who_cannot_write_permuted_gets_another_answer():
    run = searched(BY_MAP, IDENTITY, CANONICAL, rules=["layout/interchange"])
    assert (len(run.schedule.dispatches), orders(run)) == (2, [(), ()])
    told = str(run.explain())
    assert "interchanged generic %y: writes permuted, fusion.result_relation is identity" in told
    assert "--set fusion.result_relation" in told
    other = searched(BY_MAP, IDENTITY, rules=["layout/interchange"])
    assert [f for f in faults(other.schedule, run.target) if "writes its result permuted" in f]


def test_readers_of_readers_follow():
    text = BY_MAP.replace("return r", "") + (
        "q = generic(r, loops=[64, 128], maps=[[d0, d1]], body=exp(x0))\n"
        "s = generic(r, q, loops=[64, 128], maps=[[d0, d1], [d0, d1]], body=mul(x0, x1))\n"
        "return s, r\n"
    )
    how = {"rules": ["layout/interchange"], "without": ["interchange-contraction"]}
    run = searched(text, IDENTITY, "fusion.multi_result=true", **how)
    assert len(run.schedule.dispatches) == 1
    assert set(orders(run)) == {(), (1, 0)}
    assert faults(run.schedule, run.target) == []


def test_nothing_is_tried_where_no_order_matters():
    graph = searched(BY_MAP, rules=["layout/interchange"]).egraph
    assert len(graph.nodes) == len(parse_program(BY_MAP).nodes)


ENCODER_LIKE = """
program heads
input x: f32[8, 16]
input q: f32[16, 16]
input k: f32[16, 16]
a = matmul(x, q) : f32[8, 16]
b = matmul(x, k) : f32[8, 16]
c = reshape(a, shape=[8, 2, 8])
d = reshape(b, shape=[8, 2, 8])
e = transpose(c, perm=[1, 0, 2])
f = transpose(d, perm=[1, 2, 0])
s = generic(e, f, loops=[2, 8, 8, 8], maps=[[d0, d1, d3], [d0, d3, d2]], BODY) : f32[2, 8, 8]
return s
""".replace("BODY", "body=mul(x0, x1), combine=add")


def test_heads_are_turned_where_they_are_computed():
    """Contractions as they are: a transpose writes permuted, and is none of its own."""
    how = {"target": "iree-like", "rules": "keep-contractions", "goals": ("dispatches", "time")}
    run = searched(ENCODER_LIKE, IDENTITY, "fusion.reshaped=true", **how)
    assert (len(run.schedule.dispatches), run.summary()["counts"]["interchanged"]) == (3, 2)
    assert faults(run.schedule, run.target) == []
    program = run.schedule.program
    assert parse_program(str(program)) == program
    assert Program.from_json(program.to_json()) == program
    text = run.export("mlir").data.decode()
    assert "linalg.transpose" not in text
    moves = re.findall(
        r"maps = \[affine_map<\((.*?)\) -> \(\1\)>, affine_map<\(\1\) -> (.*?)>\]", text
    )
    assert len(moves) == 2 and all(f"({read})" != written for read, written in moves)
    off = searched(ENCODER_LIKE, IDENTITY, without=["interchange"], **how)
    assert len(off.schedule.dispatches) == 5
    narrow = searched(ENCODER_LIKE, IDENTITY, CANONICAL, **how)
    assert len(narrow.schedule.dispatches) == 5


# ---- what others see of it -----------------------------------------------------------------------
@pytest.fixture(scope="module")
def interchanged() -> eqsat.Run:
    how = {"rules": ["layout/interchange"], "without": ["interchange-contraction"]}
    return searched(BY_MAP, IDENTITY, **how)


def test_text_and_json_are_read_back(interchanged: eqsat.Run):
    program = interchanged.schedule.program
    assert "order=[1, 0]" in str(program)
    assert parse_program(str(program)) == program
    assert Program.from_json(program.to_json()) == program
    plain = parse_program(BY_MAP).to_json()
    assert not any("order" in n["attr"] for n in plain["nodes"])


def test_an_order_that_is_no_permutation_is_refused():
    text = BY_MAP.replace("body=max(x0, 0.0)", "body=max(x0, 0.0), order=[1, 1]")
    with pytest.raises(EqsatError, match="`order` names loops"):
        parse_program(text)


def test_an_order_that_was_written_is_decided_again(interchanged: eqsat.Run):
    again = eqsat.optimize(interchanged.schedule.program, target="no-data-tiling", rules=[])
    assert orders(again) == [(), ()]


def test_the_export_is_in_that_order_and_read_back_as_the_same_function(
    interchanged: eqsat.Run, tmp_path: Any
):
    path = tmp_path / "permuted.mlir"
    interchanged.export("mlir", path)
    text = path.read_text(encoding="utf-8")
    maps = "[affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>]"
    assert maps in text
    again = eqsat.read(str(path)).program
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(s).astype(np.float32) for s in ((128, 256), (256, 64))]
    (mine,) = evaluate_program(parse_program(BY_MAP), given, {})
    (theirs,) = evaluate_program(again, given, {})
    np.testing.assert_array_equal(mine, theirs)


def test_a_value_read_twice_is_asked_for_every_reader() -> None:
    """What a concat reads as it is, its slice of the same value reads by no identity."""
    run = searched(
        """program p
        input x: f32[24, 16]
        input y: f32[16, 48]
        z = matmul(x, y)
        first = slice(z, start=[0, 0], limit=[1, 48], stride=[1, 1])
        last = slice(z, start=[23, 0], limit=[24, 48], stride=[1, 1])
        return concat(first, z, last, axis=0)""",
        IDENTITY,
        target="avx2",
    )
    assert run.schedule is not None and faults(run.schedule, run.target) == []


# ---- what ties -----------------------------------------------------------------------------------
@pytest.mark.parametrize("text", [BY_MAP, BY_TRANSPOSE])
def test_a_tie_keeps_the_contraction_as_it_is_written(text):
    """Either op may be interchanged in one dispatch: upstream wants its matmul as it is."""
    kept = searched(text, IDENTITY)
    free = searched(text, IDENTITY, "fusion.contraction_order=any")
    products = [next(g for g in generics(r) if g.reductions) for r in (kept, free)]
    assert [(p.order, p.result_shape) == ((), (128, 64)) for p in products] == [True, False]
    assert orders(kept) == [(), (1, 0)]
    assert kept.selection.goals == free.selection.goals, "a tie changes no value and no proof"
