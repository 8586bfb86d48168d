"""Templates: one contraction or reduction with its whole prologue and epilogue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import (
    Graph,
    assembled,
    chain,
    elementwise,
    layout,
    matmul,
    reference,
    run,
    values,
)

from eqsat.extract import check
from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.groups.grow import Candidate
from eqsat.model.affine import dim
from eqsat.model.egraph import EGraph
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Result, Yield
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Transpose
from eqsat.model.target import Fusion, Target


def long_epilogue(ops: int, *used_twice: int) -> EGraph:
    """matmul, then so many elementwise ops in a row; those numbered here are results as well."""
    g = Graph()
    x, w = g.leaf("input", "x", 32, 64), g.leaf("input", "w", 64, 48)
    y = g.add("generic", matmul(32, 48, 64), x, w)
    results = []
    for i in range(ops):
        y = g.add("generic", elementwise((32, 48), 1, "tanh"), y)
        if i in used_twice:
            results.append(y)
    return g.build(y, *results)


def candidates(assembly: Assembly) -> tuple[Candidate, ...]:
    return assembly.sources.candidates.candidates


def sizes(graph: EGraph, target: Target) -> set[int]:
    """How many ops the candidates have."""
    assembly = assembled(graph, target, keeps_all=True)
    is_op = assembly.pool.space.is_op
    return {sum(is_op[m] for m in c.members) for c in candidates(assembly)}


def largest_at(graph: EGraph, target: Target, node: int) -> int:
    """The most ops of a candidate whose result is this node's."""
    assembly = assembled(graph, target, keeps_all=True)
    return max(len(c.members) for c in candidates(assembly) if c.members[-1] == node)


def test_a_contraction_takes_its_whole_epilogue_into_one_dispatch():
    graph, small = long_epilogue(7), Fusion(members=3, template=0)
    assert len(run(graph, reference(small)).groups) == 3
    found = run(graph, reference(replace(small, template=32)))
    assert [g.members for g in found.groups] == [tuple(range(2, 10))]
    assert values(found) == (4 * (32 * 64 + 64 * 48 + 32 * 48) * 1000, 26624, 1)


def test_a_contraction_takes_its_whole_prologue_into_one_dispatch():
    g = Graph()
    sides = [g.leaf("input", "x", 32, 64), g.leaf("input", "w", 64, 48)]
    for i, shape in enumerate(((32, 64), (64, 48))):
        for _ in range(3):
            sides[i] = g.add("generic", elementwise(shape, 1, "tanh"), sides[i])
    graph = g.build(g.add("generic", matmul(32, 48, 64), *sides))
    assert len(run(graph, reference(Fusion(members=3, template=0))).groups) == 3
    assert len(run(graph, reference(Fusion(members=3))).groups) == 1


@pytest.mark.parametrize(
    ("fusion", "most"),
    [
        (Fusion(members=3, template=0), 3),
        (Fusion(members=3, template=2), 3),
        (Fusion(members=3, template=5), 5),
        (Fusion(members=3, template=32), 8),
        (Fusion(members=3, template=32, operands=2), 2),
        (Fusion(members=1, template=32), 1),
        (Fusion(members=3, template=32, roots=0), 3),
        (Fusion(members=3, template=32, join=()), 1),
    ],
)
def test_a_template_holds_so_many_ops(fusion: Fusion, most: int):
    expected = most if fusion.operands > 2 else 3  # x and w are two operands already
    assert max(sizes(long_epilogue(7), reference(fusion))) == expected


def test_a_chain_without_contraction_or_reduction_is_no_template():
    assert max(sizes(chain(6), reference(Fusion(members=3, template=32)))) == 3


@pytest.mark.parametrize("roots", [1, 2])
def test_a_template_holds_one_contraction(roots: int):
    g = Graph()
    x = g.leaf("input", "x", 32, 32)
    y = g.add("generic", matmul(32, 32, 32), x, x)
    z = g.add("generic", matmul(32, 32, 32), x, x)
    for _ in range(3):
        y = g.add("generic", elementwise((32, 32), 1, "tanh"), y)
        z = g.add("generic", elementwise((32, 32), 1, "tanh"), z)
    graph = g.build(g.add("generic", elementwise((32, 32), 2), y, z))
    target = reference(Fusion(members=3, template=32, roots=roots))
    assembly = assembled(graph, target, keeps_all=True)
    legality, is_op = assembly.pool.legality, assembly.pool.space.is_op
    large = [c.members for c in candidates(assembly) if sum(is_op[m] for m in c.members) > 3]
    assert {sum(map(legality.is_root, members)) for members in large} == {1}
    assert max(map(len, large)) == 8  # one matmul and all that is elementwise


def test_what_others_need_stays_outside_unless_it_may_be_cloned():
    graph = long_epilogue(7, 4)
    exact = reference(Fusion(members=2, template=32))
    cheap = reference(Fusion(members=2, template=32, clone=("elementwise",)))
    assert [largest_at(graph, exact, n) for n in (7, 8, 9)] == [6, 7, 2]
    assert [largest_at(graph, cheap, n) for n in (7, 8, 9)] == [6, 7, 2]
    assert values(run(graph, exact))[2] == 2
    found = run(graph, cheap)
    assert sum(2 in g.members for g in found.groups) == 1  # the matmul is still computed once
    assert values(found)[2] == 2


def test_of_two_operands_only_the_own_one_is_absorbed():
    g = Graph()
    x, w = g.leaf("input", "x", 32, 64), g.leaf("input", "w", 64, 48)
    sides = [g.add("generic", matmul(32, 48, 64), x, w), g.leaf("input", "other", 32, 48)]
    for i in range(2):
        for _ in range(3):
            sides[i] = g.add("generic", elementwise((32, 48), 1, "tanh"), sides[i])
    last = g.add("generic", elementwise((32, 48), 2), *sides)
    graph = g.build(g.add("generic", elementwise((32, 48), 1, "exp"), last), sides[1])
    target = reference(Fusion(members=2, template=32))
    assert largest_at(graph, target, 11) == 6  # matmul and its three, the sum and exp


def test_all_candidates_of_the_program_are_candidates_of_its_egraph():
    """Else the answer could be worse than the baseline."""
    g = Graph()
    x = g.leaf("input", "x", 32, 64)
    packing, shape = layout((32, 64), (0, 1), 8, 8), (4, 8, 8, 8)
    first = g.add("generic", elementwise((32, 64), 1, "exp"), x)
    inner = g.add("generic", elementwise(shape, 1, "tanh"), g.add("pack", packing, first))
    back = g.add("unpack", packing, inner)
    last = g.add("generic", elementwise((32, 64), 1, "neg"), back)
    yields = (Yield(arg(0), "f32", "add"),)
    total = Generic((32, 64), 1, ((dim(0), dim(1)),), ((32, 64),), yields, (), ("f32",))
    root = g.add("generic", total, last)
    g.also(back, "generic", elementwise((32, 64), 1, "tanh"), first)
    target = reference(Fusion(members=2, template=32))
    own, every = (
        {c.members for c in candidates(assembled(g.build(root), target, input_only=only))}
        for only in (True, False)
    )
    assert (1, 2, 3, 4, 5, 6) in own
    assert own <= every


def test_recomputing_a_cloned_chain_is_a_choice_with_a_price():
    """Two reductions of one long chain: each computes the chain again, or one writes it down."""
    g = Graph()
    x = g.leaf("input", "x", 32, 64)
    shared = x
    for _ in range(4):
        shared = g.add("generic", elementwise((32, 64), 1, "exp"), shared)
    rows, results = (dim(0), dim(1)), []
    for how in ("add", "max"):
        y = shared
        for _ in range(2):
            y = g.add("generic", elementwise((32, 64), 1, "tanh"), y)
        yields = (Yield(arg(0), "f32", how),)
        total = Generic((32, 64), 1, (rows,), ((32, 64),), yields, (), ("f32",))
        results.append(g.add("generic", total, y))
    graph = g.build(*results)
    free = reference(Fusion(members=3, template=32, clone=("elementwise",)))
    assert [len(gr.members) for gr in run(graph, free).groups] == [7, 7]
    # so slow that computing the chain twice takes longer than writing it down and reading it
    slow = replace(free, rates=(("f32", 1e9),), elementwise_rate=0.1)
    assert sorted(len(gr.members) for gr in run(graph, slow).groups) != [7, 7]


def test_the_checker_knows_templates():
    graph, target = long_epilogue(7), reference(Fusion(members=3, template=32))
    found = run(graph, target)
    assert check(graph, target, found) == []
    for fusion in (Fusion(members=3, template=0), Fusion(members=3, template=7)):
        faults = check(graph, reference(fusion), found)
        assert any("has 8 members" in f for f in faults)
    flat = run(chain(4), reference(Fusion(members=4)))  # no contraction, no reduction
    assert check(chain(4), reference(Fusion(members=3)), flat)
    two = two_matmuls_added()
    wide = run(two, reference(Fusion(members=4, roots=2)))
    assert len(wide.groups) == 1
    assert check(two, reference(Fusion(members=3, roots=2)), wide)
    moved = padded_matmul()
    whole = run(moved, reference(Fusion(members=4)))
    assert len(whole.groups) == 1
    assert check(moved, reference(Fusion(members=3)), whole)


def two_matmuls_added() -> EGraph:
    g = Graph()
    x, w, v = (g.leaf("input", name, 32, 32) for name in "xwv")
    sides = [g.add("generic", matmul(32, 32, 32), x, other) for other in (w, v)]
    y = g.add("generic", elementwise((32, 32), 2), *sides)
    return g.build(g.add("generic", elementwise((32, 32), 1, "exp"), y))


def padded_matmul() -> EGraph:
    g = Graph()
    x, w = g.leaf("input", "x", 30, 32), g.leaf("input", "w", 32, 32)
    y = g.add("pad", Move("pad", ((30, 32),), ((2, 0), (0, 0), "0.0"), (32, 32)), x)
    for _ in range(2):
        y = g.add("generic", elementwise((32, 32), 1, "tanh"), y)
    return g.build(g.add("generic", matmul(32, 32, 32), y, w))


def test_every_candidate_has_the_price_of_its_members():
    """An op first read by something narrow, then by something that runs more often."""
    g = Graph()
    x, wide = g.leaf("input", "x", 32), g.leaf("input", "wide", 32, 64)
    e = g.add("generic", elementwise((32,), 1, "exp"), x)
    maps = ((dim(0), dim(1)), (dim(0),))
    yields = (Yield(call("mul", arg(0), arg(1)), "f32", "add"),)
    total = Generic((32, 64), 1, maps, ((32, 64), (32,)), yields, (), ("f32", "f32"))
    r = g.add("generic", total, wide, e)
    graph = g.build(g.add("generic", elementwise((32,), 2), e, r))
    target = reference(Fusion(clone=("all",)), rates=(("f32", 1e6),))
    assembly = assembled(graph, target, keeps_all=True)
    costs = assembly.sources.costs
    found = candidates(assembly)
    assert any(len(c.members) == 3 for c in found)
    assert [c.time_ps for c in found] == [
        costs.group_ps(c.members, c.reads, c.writes) for c in found
    ]


def test_results_of_an_op_with_several_count_as_operands():
    g = Graph()
    x, w = g.leaf("input", "x", 32, 64), g.leaf("input", "w", 64, 48)
    y = g.add("generic", matmul(32, 48, 64), x, w)
    rows = (dim(0), dim(1))
    both = tuple(Yield(call(fn, arg(0)), "f32") for fn in ("exp", "tanh"))
    pair = g.add("generic", Generic((32, 48), 2, (rows,), ((32, 48),), both, (), ("f32",)), y)
    graph = g.build(*(g.add("result", Result(i), pair) for i in range(2)))
    assert len(run(graph, reference(Fusion(operands=4))).groups) == 1
    assert len(run(graph, reference(Fusion(operands=3))).groups) == 2


def test_views_of_one_another_do_not_make_a_cycle():
    """`buf <- relax(other)` and `other <- retype(buf)` in one group would wait for each other."""
    g = Graph()
    x = g.leaf("input", "x", 30)
    zeros = Layout((30,), (0,), (16,), (0,), ("0",))
    anything = Layout((30,), (0,), (16,), (0,), ("?",))
    p = g.add("pack", zeros, x)
    r = g.add("relax", anything, p)
    g.also(p, "pack", zeros, g.add("unpack", anything, r))
    graph = g.build(g.add("generic", elementwise((2, 16), 2), r, p))
    found = run(graph, reference(Fusion(clone=("all",))))
    assert check(graph, reference(Fusion(clone=("all",))), found) == []


def test_what_a_view_inside_shows_is_read_by_all_who_read_the_view():
    """The second reader comes in behind the view, and may not have the pack inside."""
    g = Graph()
    x, w = g.leaf("input", "x", 30, 32), g.leaf("input", "w", 32, 32)
    p = g.add("pack", Layout((30, 32), (0,), (16,), (0, 1), ("0",)), x)
    r = g.add("relax", Layout((30, 32), (0,), (16,), (0, 1), ("?",)), p)
    maps = ((dim(0), dim(3), dim(2)), (dim(3), dim(1)))
    yields = (Yield(call("mul", arg(0), arg(1)), "f32", "add"),)
    packed = Generic((2, 32, 16, 32), 3, maps, ((2, 32, 16), (32, 32)), yields, (), ("f32",) * 2)
    y = g.add("generic", packed, r, w)
    e = g.add("generic", elementwise((2, 32, 16), 1, "exp"), y)
    graph = g.build(g.add("generic", elementwise((2, 32, 16), 2), e, r))
    every = dict(Fusion().join)
    every["conversion"] = tuple(k for k in every["conversion"] if k != "contraction")
    fusion = Fusion(join=tuple(every.items()))
    assembly = assembled(graph, reference(fusion), keeps_all=True)
    pack, relax, contraction, exp, add = range(2, 7)
    found = {frozenset(c.members) for c in candidates(assembly)}
    assert frozenset((relax, contraction, exp, add)) in found
    assert frozenset((pack, relax, exp, add)) in found
    assert not any({pack, contraction} <= members for members in found)


@pytest.mark.parametrize("turned_first", [False, True])
def test_of_groups_that_differ_inside_one_makes_the_results(turned_first: bool):
    """Computed by columns, a value that is a result is there in a layout that nobody wants."""
    g = Graph()
    x = g.leaf("input", "x", 32, 64)
    before = g.add("generic", elementwise((32, 64), 1, "tanh"), x)
    first = g.add("generic", elementwise((32, 64), 1, "exp"), before)
    turned = g.add("transpose", Transpose((32, 64), (1, 0)), first)
    columns = replace(elementwise((64, 32), 1, "exp"), maps=((dim(1), dim(0)),), shapes=((32, 64),))
    g.also(turned, "generic", columns, before)
    rows = elementwise((32, 64), 1, "neg")
    by_columns = replace(rows, maps=((dim(1), dim(0)),), shapes=((64, 32),))
    ways = [("generic", rows, first), ("generic", by_columns, turned)]
    second = g.add(*ways[turned_first])
    g.also(second, *ways[not turned_first])
    yields = (Yield(arg(0), "f32", "add"),)
    total = Generic((32, 64), 1, ((dim(0), dim(1)),), ((32, 64),), yields, (), ("f32",))
    root = g.add("generic", total, second)
    found = run(g.build(root, first), reference(Fusion(members=3, template=32, multi_result=True)))
    assert len(found.groups) == 1
