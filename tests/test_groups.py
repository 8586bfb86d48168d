"""Candidate dispatches: what may share one, what it costs, and what a limit takes away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import (
    ALL,
    Graph,
    chain,
    elementwise,
    matmul,
    reference,
    run,
    transposed_pack,
    values,
    weighted_matmul,
)

from eqsat.extract import check, extract
from eqsat.model.affine import dim
from eqsat.model.diag import EqsatError
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Result, Yield
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill, Opaque
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.selection import Group, Removed
from eqsat.model.target import DispatchLimits, Fusion, Memory
from eqsat.model.tensor import TensorType


def test_time_on_the_reference_is_the_bytes_moved():
    found = run(chain(3), reference(Fusion(members=1)))
    assert values(found) == (3 * 2 * 256 * 1000, 4 * 256, 3)
    fused = run(chain(3), reference())
    assert values(fused) == (2 * 256 * 1000, 2 * 256, 1)
    assert [g.members for g in fused.groups] == [(1, 2, 3)]


def test_a_dispatch_takes_the_longer_of_arithmetic_and_traffic_plus_its_launch():
    g = Graph()
    x, w = g.leaf("input", "x", 32, 64), g.leaf("input", "w", 64, 48)
    graph = g.build(g.add("generic", matmul(32, 48, 64), x, w))
    target = replace(
        reference(), launch_ps=7, rates=(("f32", 1e9),), untiled_rate=0.5, memory=(
            Memory("cache", 10_000, 1e12), Memory("ram", 1 << 40, 1e9)
        ),
    )  # fmt: skip
    compute = 2 * 32 * 48 * 64 * 1000 * 2
    assert run(graph, target).groups[0].time_ps == compute + 7
    slow = replace(target, rates=(("f32", 1e15),))
    # x and the result fit the cache (1 byte = 1 ps), w does not (1 byte = 1 ns)
    assert run(graph, slow).groups[0].time_ps == 4 * (32 * 64 + 32 * 48) + 4 * 64 * 48 * 1000 + 7


def test_the_transposed_pack_needs_several_results_to_share_its_transpose():
    one = 512 * 256 * 4
    single = run(transposed_pack(), reference(Fusion()))
    assert values(single) == (6 * one * 1000, 4 * one, 3)
    multi = run(transposed_pack(), reference(Fusion(multi_result=True)))
    assert values(multi) == (4 * one * 1000, 4 * one, 1)
    (group,) = multi.groups
    assert set(group.members) == {1, 2, 3}  # the transpose, pack(t), the add
    assert set(group.writes) == {1, 2, 3}


@pytest.mark.parametrize(
    ("keys", "shared", "held", "read"),
    [({}, 2, 2, 2), ({"multi_result": True}, 2, 1, 1),
     ({"multi_result": True, "siblings": True}, 1, 1, 1)],
)  # fmt: skip
def test_a_value_in_another_layout_is_another_result(
    keys: dict[str, bool], shared: int, held: int, read: int
):
    """Of what is read, of what is held, and of what is read and turned inside."""
    for count, (operand, reads) in {shared: ("x", "x"), held: ("y", "x"), read: ("x", "t")}.items():
        g = Graph()
        at = {"x": g.leaf("input", "x", 32, 64)}
        turn = Transpose((32, 64), (1, 0))
        if reads == "t":
            at["t"] = g.add("transpose", turn, at["x"])
        at["y"] = g.add(
            "generic", elementwise((64, 32) if reads == "t" else (32, 64), 1, "neg"), at[reads]
        )
        if reads != "t":
            at["t"] = g.add("transpose", turn, at[operand])
        found = run(g.build(at["y"], at["t"]), reference(Fusion(**keys)))
        assert len(found.groups) == count


def test_an_unfused_sibling_larger_than_a_vector_is_removed_and_recorded():
    fusion = Fusion(multi_result=True, siblings=True)
    places = (("limits.vector", "toy.yaml:9:3"),)
    limited = reference(fusion, limits=DispatchLimits(vector_bytes=8192), places=places)
    found = run(transposed_pack(), limited)
    (group,) = found.groups
    assert 4 not in group.members  # pack(a) beside transpose(a)
    assert Removed("transpose %1", 524288, 8192, "vector", "toy.yaml:9:3", 524288) in found.removed
    assert run(transposed_pack(), reference(fusion)).removed == ()
    beside = Group((1, 3, 4), (0,), (1, 2, 3), 4 * 524288 * 1000, 0)
    forged = replace(found, groups=(beside,))
    assert check(transposed_pack(), reference(fusion), forged) == []
    faults = check(transposed_pack(), limited, forged)
    assert faults == ["group 0: an unfused member is larger than the vector limit"]


def test_a_tile_larger_than_a_limit_is_no_candidate():
    graph = weighted_matmul()
    free = reference(tiles_forced=True)
    scratch = 4 * (16 * 16 + 16 + 16)
    assert run(graph, replace(free, limits=DispatchLimits(scratch_bytes=scratch)))
    with pytest.raises(EqsatError, match=r"scratch limit is 1,151") as e:
        extract(graph, replace(free, limits=DispatchLimits(scratch_bytes=scratch - 1)), ALL)
    assert "1,152 bytes" in str(e.value)
    with pytest.raises(EqsatError, match="vector limit is 1,000"):
        extract(graph, replace(free, limits=DispatchLimits(vector_bytes=1000)), ALL)


def test_contractions_are_never_computed_twice_and_cheap_ops_only_if_the_target_says():
    g = Graph()
    x, w = g.leaf("input", "x", 32, 64), g.leaf("input", "w", 64, 48)
    y = g.add("generic", matmul(32, 48, 64), x, w)
    a = g.add("generic", elementwise((32, 48), 1, "exp"), y)
    b = g.add("generic", elementwise((32, 48), 1, "tanh"), y)
    graph = g.build(a, b)
    found = run(graph, reference(Fusion(clone=("all",))))
    assert len(found.groups) == 3 or len({m for gr in found.groups for m in gr.members}) == 3
    assert sum(2 in gr.members for gr in found.groups) == 1
    chained = Graph()
    x = chained.leaf("input", "x", 64)
    v = chained.add("generic", elementwise((64,), 1, "exp"), x)
    a = chained.add("generic", elementwise((64,), 1, "tanh"), v)
    b = chained.add("generic", elementwise((64,), 1, "neg"), v)
    graph = chained.build(a, b)
    assert len(run(graph, reference(Fusion())).groups) == 3
    assert len(run(graph, reference(Fusion(clone=("elementwise",)))).groups) == 2
    assert len(run(graph, reference(Fusion(multi_result=True))).groups) == 1


def test_index_relations_decide_what_joins():
    g = Graph()
    x = g.leaf("input", "x", 32, 64)
    t = g.add("transpose", Transpose((32, 64), (1, 0)), x)
    graph = g.build(g.add("generic", elementwise((64, 32), 1, "exp"), t))
    assert len(run(graph, reference(Fusion(index_relation="identity"))).groups) == 2
    assert len(run(graph, reference(Fusion(index_relation="permutation"))).groups) == 1


def test_with_no_root_allowed_a_reduction_or_contraction_is_a_dispatch_of_its_own():
    g = Graph()
    x, w = g.leaf("input", "x", 32, 64), g.leaf("input", "w", 64, 48)
    e = g.add("generic", elementwise((32, 64), 1, "exp"), x)
    graph = g.build(g.add("generic", matmul(32, 48, 64), e, w))
    assert len(run(graph, reference(Fusion(roots=1))).groups) == 1
    assert len(run(graph, reference(Fusion(roots=0))).groups) == 2


def test_a_reduction_is_not_repeated_by_a_broadcast():
    g = Graph()
    x = g.leaf("input", "x", 32, 64)
    rows = (dim(0), dim(1))
    total = Generic((32, 64), 1, (rows,), ((32, 64),), (Yield(arg(0), "f32", "add"),), (), ("f32",))
    s = g.add("generic", total, x)
    spread = Generic(
        (32, 64), 2, (rows, (dim(0),)), ((32, 64), (32,)),
        (Yield(call("sub", arg(0), arg(1)), "f32"),), (), ("f32", "f32"),
    )  # fmt: skip
    graph = g.build(g.add("generic", spread, x, s))
    assert len(run(graph, reference(Fusion(index_relation="any"))).groups) == 2


def test_reshapes_are_free_and_need_no_dispatch():
    g = Graph()
    x = g.leaf("input", "x", 32, 64)
    flat = g.add("reshape", Reshape((32, 64), (2048,)), x)
    e = g.add("generic", elementwise((2048,), 1, "exp"), flat)
    back = g.add("reshape", Reshape((2048,), (64, 32)), e)
    only_view = g.build(flat)
    found = run(only_view, reference())
    assert (found.groups, values(found)) == ((), (0, 32 * 64 * 4, 0))
    found = run(g.build(back, e), reference())
    assert values(found) == (2 * 8192 * 1000, 2 * 8192, 1)


def test_relaxed_layouts_are_read_through():
    g = Graph()
    x = g.leaf("input", "x", 30)
    zeros = Layout((30,), (0,), (16,), (0,), ("0",))
    anything = Layout((30,), (0,), (16,), (0,), ("?",))
    p = g.add("pack", zeros, x)
    r = g.add("relax", anything, p)
    e = g.add("generic", elementwise((2, 16), 1, "exp"), r)
    graph = g.build(p, g.add("unpack", anything, e))
    found = run(graph, reference(Fusion(members=1)))
    reader = next(gr for gr in found.groups if 3 in gr.members)
    assert reader.members == (2, 3)
    assert reader.reads == (p,)
    assert len(found.groups) == 3


def test_fills_are_inlined_and_only_a_result_is_written():
    g = Graph()
    x = g.leaf("input", "x", 64)
    f = g.add("fill", Fill(1.0, TensorType("f32", (64,))))
    s = g.add("generic", elementwise((64,), 2), x, f)
    found = run(g.build(s), reference())
    assert [(gr.members, gr.reads) for gr in found.groups] == [((1, 2), (x,))]
    assert values(run(g.build(s, f), reference())) == (3 * 256 * 1000, 3 * 256, 2)


def test_ops_with_several_results_are_one_unit():
    g = Graph()
    x = g.leaf("input", "x", 64)
    t = TensorType("f32", (64,))
    o = g.add("opaque", Opaque("sort", "k", (t,), (t, t)), x)
    first, second = (g.add("result", Result(i), o) for i in range(2))
    e = g.add("generic", elementwise((64,), 2), first, second)
    found = run(g.build(e), reference())
    assert [gr.members for gr in found.groups] == [(1, 2, 3), (4,)]
    assert set(found.groups[0].writes) == {first, second}
    assert values(found) == (6 * 256 * 1000, 4 * 256, 2)
