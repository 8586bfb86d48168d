"""Extraction: legal dispatches, exact goals, proofs, budgets, and a checker that is not fooled."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import pytest

from eqsat.extract import check, extract
from eqsat.extract.assemble import assemble
from eqsat.extract.cpsat import Request, solve
from eqsat.extract.greedy import greedy
from eqsat.extract.problem import GOALS, Answer, ExtractionProblem
from eqsat.extract.relax import relaxation
from eqsat.extract.space import Space
from eqsat.model.attrs import (
    Attr,
    Fill,
    Generic,
    Layout,
    Leaf,
    Opaque,
    Reshape,
    Result,
    Transpose,
    Yield,
    dim,
)
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.expr import arg, call
from eqsat.model.program import infer
from eqsat.model.selection import GoalRequest, GoalResult, Group, Removed, Selection
from eqsat.model.target import Fusion, Limits, Memory, Target, Tile
from eqsat.model.tensor import TensorType

TIME, MEMORY, DISPATCHES = (GoalRequest(g) for g in GOALS)
ALL = (TIME, MEMORY, DISPATCHES)
MiB = 1 << 20


class Graph:
    """An e-graph by hand: `add` is the input program, `also` a node some rule would have made."""

    def __init__(self) -> None:
        self.nodes: list[ENode] = []
        self.types: list[tuple[TensorType, ...]] = []
        self.values: list[int] = []

    def add(self, op: str, attr: Attr, *children: int) -> int:
        self.types.append(infer(op, attr, [self.types[c] for c in children]))
        self.nodes.append(ENode(op, attr, children, len(self.types) - 1))
        self.values.append(len(self.types) - 1)
        return len(self.types) - 1

    def also(self, eclass: int | None, op: str, attr: Attr, *children: int) -> int:
        if eclass is None:
            self.types.append(infer(op, attr, [self.types[c] for c in children]))
            eclass = len(self.types) - 1
        self.nodes.append(ENode(op, attr, children, eclass, rule=0))
        return eclass

    def leaf(self, op: str, name: str, *shape: int) -> int:
        index = sum(n.op == "input" for n in self.nodes) if op == "input" else -1
        key = name if op == "weight" else ""
        return self.add(op, Leaf(name, TensorType("f32", shape), index, key))

    def build(self, *roots: int) -> EGraph:
        graph = EGraph(
            tuple(self.nodes), tuple(self.types), roots, tuple(self.values), (), 1, "saturated", 0.0
        )
        graph.verify()
        return graph


def elementwise(shape: tuple[int, ...], operands: int, fn: str = "add") -> Generic:
    every = tuple(dim(d) for d in range(len(shape)))
    body = call(fn, *map(arg, range(operands)))
    dtypes = ("f32",) * operands
    yields = (Yield(body, "f32"),)
    return Generic(shape, len(shape), (every,) * operands, (shape,) * operands, yields, (), dtypes)


def matmul(m: int, n: int, k: int) -> Generic:
    maps = ((dim(0), dim(2)), (dim(2), dim(1)))
    yields = (Yield(call("mul", arg(0), arg(1)), "f32", "add"),)
    return Generic((m, n, k), 2, maps, ((m, k), (k, n)), yields, (), ("f32", "f32"))


def packed_matmul(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Generic:
    """lhs packed to [m/tm, k, tm], rhs to [n/tn, k, tn], the result to [m/tm, n/tn, tm, tn]."""
    tm, tn, _ = tile
    sizes = (m // tm, n // tn, tm, tn, k)
    maps = ((dim(0), dim(4), dim(2)), (dim(1), dim(4), dim(3)))
    shapes = ((m // tm, k, tm), (n // tn, k, tn))
    yields = (Yield(call("mul", arg(0), arg(1)), "f32", "add"),)
    return Generic(sizes, 4, maps, shapes, yields, tile, ("f32", "f32"))


def layout(source: tuple[int, ...], pos: tuple[int, ...], *tiles: int, outer=(0, 1)) -> Layout:
    return Layout(source, pos, tiles, outer, ("-",) * len(tiles))


def reference(fusion: Fusion | None = None, **changes: object) -> Target:
    """One byte is 1 ns; no launch cost, computing is free."""
    memory = (Memory("ram", 1 << 40, 1e9),)
    target = Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, (), file="toy.yaml")
    return replace(target, fusion=fusion or Fusion(), **changes)


def transposed_pack() -> EGraph:
    """a; results t = transpose(a), add(t, t), pack(t); a rule folds the transpose: pack(a)."""
    g = Graph()
    a = g.leaf("input", "a", 512, 256)
    t = g.add("transpose", Transpose((512, 256), (1, 0)), a)
    p = g.add("pack", layout((256, 512), (0, 1), 16, 16), t)
    s = g.add("generic", elementwise((256, 512), 2), t, t)
    g.also(p, "pack", layout((512, 256), (1, 0), 16, 16, outer=(1, 0)), a)
    return g.build(t, s, p)


def weighted_matmul(rules: bool = True) -> EGraph:
    """relu(x @ w), with the packed form a rule would make: both operands and the result packed."""
    g = Graph()
    x, w = g.leaf("input", "x", 32, 64), g.leaf("weight", "w", 64, 48)
    y = g.add("generic", matmul(32, 48, 64), x, w)
    r = g.add("generic", elementwise((32, 48), 1, "tanh"), y)
    if rules:
        tile = (16, 16, 1)
        px = g.also(None, "pack", layout((32, 64), (0,), 16), x)
        pw = g.also(None, "pack", layout((64, 48), (1,), 16, outer=(1, 0)), w)
        py = g.also(None, "generic", packed_matmul(32, 48, 64, tile), px, pw)
        g.also(y, "unpack", layout((32, 48), (0, 1), 16, 16), py)
    return g.build(r)


def diamond() -> EGraph:
    """Two consumers of one value that meet again, the value itself a result."""
    g = Graph()
    x = g.leaf("input", "x", 64)
    v = g.add("generic", elementwise((64,), 1, "exp"), x)
    a = g.add("generic", elementwise((64,), 1, "tanh"), v)
    b = g.add("generic", elementwise((64,), 2, "mul"), v, x)
    c = g.add("generic", elementwise((64,), 2, "add"), a, b)
    return g.build(c, v)


def chain(length: int, size: int = 64) -> EGraph:
    g = Graph()
    x = g.leaf("input", "x", size)
    for _ in range(length):
        x = g.add("generic", elementwise((size,), 1, "exp"), x)
    return g.build(x)


GRAPHS = {
    "transposed_pack": transposed_pack,
    "weighted_matmul": weighted_matmul,
    "diamond": diamond,
    "chain": lambda: chain(4),
}
FUSIONS = {
    "plain": Fusion(members=3),
    "none": Fusion(members=1),
    "multi": Fusion(members=3, multi_result=True),
    "clone": Fusion(members=3, clone=("all",)),
    "siblings": Fusion(members=4, multi_result=True, siblings=True),
}


def run(graph: EGraph, target: Target, *goals: GoalRequest) -> Selection:
    found, _ = extract(graph, target, goals or ALL)
    assert found.stop == "optimal"
    return found


def values(selection: Selection) -> tuple[int, ...]:
    return tuple(selection.goal(g).value for g in GOALS)


def every_answer(problem: ExtractionProblem) -> set[Answer]:
    """All legal answers without useless options, by trying every writer of what is needed."""
    found: set[Answer] = set()

    def extend(chosen: frozenset[int]) -> None:
        written = {b for i in chosen for b in problem.options[i].writes}
        reads = {b for i in chosen for b in problem.options[i].reads}
        missing = sorted((reads | set(problem.roots)) - written)
        if not missing:
            if problem.is_legal(tuple(sorted(chosen))):
                found.add(tuple(sorted(chosen)))
            return
        for w in problem.writers.get(missing[0], []):
            extend(chosen | {w})

    extend(frozenset())
    return found


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_solver_agrees_with_brute_force(graph: str, fusion: str):
    problem = assemble(Space(GRAPHS[graph]()), reference(FUSIONS[fusion]), False).problem
    answers = every_answer(problem)
    assert answers
    for goal in GOALS:
        least = min(problem.value(goal, a) for a in answers)
        solved = solve(problem, Request({goal: 1}, {}), time_limit=20, seed=0)
        assert (solved.status, solved.value, solved.bound) == ("optimal", least, least)
    for first, second in itertools.permutations(GOALS, 2):
        best = min(problem.value(first, a) for a in answers)
        tied = [a for a in answers if problem.value(first, a) == best]
        least = min(problem.value(second, a) for a in tied)
        solved = solve(problem, Request({second: 1}, {first: best}), time_limit=20, seed=0)
        assert solved.value == least


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_relaxation_bounds_every_answer_and_keeps_the_best(graph: str, fusion: str):
    problem = assemble(Space(GRAPHS[graph]()), reference(FUSIONS[fusion]), False).problem
    answers = every_answer(problem)
    for goal in ("time", "dispatches"):
        relaxed = relaxation(problem, goal)
        assert relaxed is not None
        least = min(problem.value(goal, a) for a in answers)
        assert relaxed.bound <= least * (1 + 1e-6)
        for cap in {problem.value(goal, a) for a in answers}:
            kept = set(relaxed.within(cap))
            assert all(kept.issuperset(a) for a in answers if problem.value(goal, a) <= cap)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_greedy_answers_are_legal_and_there_is_one(graph: str, fusion: str):
    assembly = assemble(Space(GRAPHS[graph]()), reference(FUSIONS[fusion]), False)
    kinds = assembly.pool.space.kinds
    singles = frozenset(
        i
        for i, c in enumerate(assembly.candidates)
        if sum(kinds[m] not in ("leaf", "view") for m in c.members) == 1
    )
    answers = greedy(assembly.problem, singles, "time")
    assert answers
    assert all(assembly.problem.is_legal(a) for a in answers)


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


def test_an_unfused_sibling_larger_than_a_vector_is_removed_and_recorded():
    fusion = Fusion(multi_result=True, siblings=True)
    places = (("limits.vector", "toy.yaml:9:3"),)
    limited = reference(fusion, limits=Limits(vector_bytes=8192), places=places)
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


def test_ahead_weights_are_packed_once_and_stay_in_memory():
    tiles = (("matmul", (Tile((("m", 16), ("n", 16), ("k", 1)), 1.0),)),)
    target = reference(rates=(("f32", 1e9),), untiled_rate=0.1, tiles=tiles)
    graph = weighted_matmul()
    found, baseline = extract(graph, target, ALL)
    assert [graph.nodes[i].op for i in found.ahead] == ["weight", "pack"]
    assert baseline is not None
    assert [graph.nodes[i].op for i in baseline.ahead] == ["weight"]
    assert found.goal("time").value < baseline.goal("time").value
    weight, x, y = 64 * 48 * 4, 32 * 64 * 4, 32 * 48 * 4
    assert baseline.goal("memory").value == x + weight + y
    assert all(graph.nodes[m].op != "weight" for g in found.groups for m in g.members)


def test_forced_tiles_leave_no_unpacked_contraction():
    target = reference(tiles_forced=True)
    found, baseline = extract(weighted_matmul(), target, ALL)
    assert baseline is None
    assert {m for g in found.groups for m in g.members} >= {6, 7}
    with pytest.raises(EqsatError) as e:
        extract(weighted_matmul(rules=False), target, ALL)
    assert e.value.exit_code == 3
    assert "`tiles: forced`" in str(e.value)
    assert "generic %2" in str(e.value)


def test_a_tile_larger_than_a_limit_is_no_candidate():
    graph = weighted_matmul()
    free = reference(tiles_forced=True)
    scratch = 4 * (16 * 16 + 16 + 16)
    assert run(graph, replace(free, limits=Limits(scratch_bytes=scratch)))
    with pytest.raises(EqsatError, match=r"scratch limit is 1,151") as e:
        extract(graph, replace(free, limits=Limits(scratch_bytes=scratch - 1)), ALL)
    assert "1,152 bytes" in str(e.value)
    with pytest.raises(EqsatError, match="vector limit is 1,000"):
        extract(graph, replace(free, limits=Limits(vector_bytes=1000)), ALL)


def test_subsumed_nodes_serve_the_baseline_only():
    graph = weighted_matmul()
    nodes = tuple(replace(n, subsumed=i == 2) for i, n in enumerate(graph.nodes))
    found, baseline = extract(replace(graph, nodes=nodes), reference(), ALL)
    assert baseline is not None
    assert 2 in {m for g in baseline.groups for m in g.members}
    assert 2 not in {m for g in found.groups for m in g.members}


def test_the_answer_is_never_worse_than_the_baseline_whatever_the_tolerance():
    target = reference(Fusion(members=1))
    loose = GoalRequest("time", within=10.0)
    for graph in (transposed_pack(), weighted_matmul(), diamond()):
        found, baseline = extract(graph, target, (loose, MEMORY))
        assert baseline is not None
        assert found.goal("time").value <= baseline.goal("time").value


def test_a_looser_first_goal_makes_room_for_the_second():
    g = Graph()
    x = g.leaf("input", "x", 1024)
    a = g.add("generic", elementwise((1024,), 1, "exp"), x)
    b = g.add("generic", elementwise((1024,), 2, "add"), a, x)
    c = g.add("generic", elementwise((1024,), 2, "mul"), a, b)
    # a shared value: either kept beside, or computed again in a larger dispatch
    graph = g.build(c, b)
    target = reference(Fusion(members=2, clone=("all",)))
    tight = run(graph, target, TIME, DISPATCHES)
    loose = run(graph, target, GoalRequest("time", within=1.0), DISPATCHES)
    assert loose.goal("dispatches").value <= tight.goal("dispatches").value
    assert loose.goal("time").value >= tight.goal("time").value
    assert tight.goal("time").bound == tight.goal("time").value


def test_weighted_goals_weigh_against_the_baseline():
    goals = (GoalRequest("time", 1.0), GoalRequest("dispatches", 1.0))
    found, baseline = extract(diamond(), reference(Fusion(members=2)), goals)
    assert baseline is not None
    problem = assemble(Space(diamond()), reference(Fusion(members=2)), False).problem

    def worth(time: int, dispatches: int) -> float:
        t, d = baseline.goal("time").value, baseline.goal("dispatches").value
        return time / t + dispatches / d

    best = min(
        worth(problem.value("time", a), problem.value("dispatches", a))
        for a in every_answer(problem)
    )
    assert worth(found.goal("time").value, found.goal("dispatches").value) == pytest.approx(best)


@pytest.mark.parametrize(
    "goals",
    [
        (GoalRequest("time"), GoalRequest("memory", 1.0)),
        (GoalRequest("speed"),),
        (),
        (TIME, TIME),
        (GoalRequest("time", -1.0),),
    ],
)
def test_goals_that_make_no_sense_are_refused(goals: tuple[GoalRequest, ...]):
    with pytest.raises(EqsatError) as e:
        extract(chain(1), reference(), goals)
    assert e.value.diagnostics[0].code == "E404"


def test_an_infeasible_budget_names_itself_its_place_and_the_least_needed():
    places = (("budget.memory", "toy.yaml:4:10"), ("budget.dispatches", "toy.yaml:5:10"))
    budget = (("memory", 500), ("dispatches", 5))
    with pytest.raises(EqsatError) as e:
        extract(chain(2), reference(budget=budget, places=places), ALL)
    assert e.value.exit_code == 3
    (found,) = e.value.diagnostics
    assert found.code == "E410"
    for words in ("proven", "memory <= 500 bytes", "toy.yaml:4:10", "toy.yaml:5:10",
                  "the least memory any choice needs is 512 bytes",
                  "the least dispatches any choice needs is 1 dispatches"):  # fmt: skip
        assert words in found.message


def test_an_infeasible_budget_names_the_group_a_limit_removed():
    fusion = Fusion(multi_result=True, siblings=True)
    target = reference(fusion, limits=Limits(vector_bytes=8192), budget=(("time", 1000),))
    with pytest.raises(EqsatError, match="the unfused transpose %1 needs 524,288 bytes") as e:
        extract(transposed_pack(), target, ALL)
    assert "the vector limit is 8,192" in str(e.value)


def test_a_budget_is_kept_and_may_rule_out_the_baseline():
    graph, target = transposed_pack(), reference(Fusion(multi_result=True))
    limited = replace(target, budget=(("dispatches", 1),))
    found, baseline = extract(graph, limited, ALL)
    assert found.goal("dispatches").value == 1
    nodes = tuple(n for i, n in enumerate(graph.nodes) if i != 2)  # no pack(t) in the program
    assert baseline is not None
    one_op = replace(limited, fusion=Fusion(members=1), budget=(("dispatches", 2),))
    with pytest.raises(EqsatError, match="dispatches <= 2"):
        extract(replace(graph, nodes=nodes), one_op, ALL)


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


def test_memory_counts_what_is_live_together():
    g = Graph()
    x = g.leaf("input", "x", 64)
    a = g.add("generic", elementwise((64,), 1, "exp"), x)
    b = g.add("generic", elementwise((64,), 1, "tanh"), a)
    c = g.add("generic", elementwise((64,), 2), a, b)
    d = g.add("generic", elementwise((64,), 1, "neg"), c)
    found = run(g.build(d), reference(Fusion(members=1)))
    # x and d all the time; a, b and c are live together while c is computed
    assert found.goal("memory").value == (2 + 3) * 256


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_same_request_gives_the_same_selection(graph: str, fusion: str):
    target = reference(FUSIONS[fusion])
    first, second = (extract(GRAPHS[graph](), target, ALL, seed=3)[0] for _ in range(2))
    assert replace(first, seconds=0) == replace(second, seconds=0)
    assert Selection.from_json(first.to_json()) == first


def broken(s: Selection) -> dict[str, Selection]:
    """Selections with one field wrong."""
    at = max(range(len(s.groups)), key=lambda i: len(s.groups[i].members))
    first = s.groups[at]
    time = s.goal("time")
    wrong = {
        "no_member": replace(first, members=first.members[1:]),
        "unknown_member": replace(first, members=(*first.members, 99)),
        "twice": replace(first, members=(*first.members, first.members[-1])),
        "reversed": replace(first, members=first.members[::-1]),
        "input_member": replace(first, members=(0, *first.members)),
        "no_read": replace(first, reads=()),
        "other_read": replace(first, reads=(first.writes[-1],)),
        "unknown_read": replace(first, reads=(*first.reads, 99)),
        "no_write": replace(first, writes=()),
        "other_write": replace(first, writes=(*first.reads,)),
        "write_order": replace(first, writes=(first.writes[-1], *first.reads)),
        "price": replace(first, time_ps=first.time_ps + 1),
        "step": replace(first, step=5),
    }
    found = {
        k: replace(s, groups=(*s.groups[:at], g, *s.groups[at + 1 :])) for k, g in wrong.items()
    }
    found |= {
        "missing_group": replace(s, groups=s.groups[:-1]),
        "doubled_group": replace(s, groups=(*s.groups, s.groups[-1])),
        "no_groups": replace(s, groups=()),
        "ahead_input": replace(s, ahead=(0,)),
        "ahead_unknown": replace(s, ahead=(99,)),
        "stop": replace(s, stop="bored"),
        "removed": replace(s, removed=(Removed("x", 1, 2, "vector", ""),)),
        "bound": replace(s, goals=(("time", replace(time, bound=time.value + 1)), *s.goals[1:])),
        "no_goal": replace(s, goals=s.goals[1:]),
    }
    for name, result in s.goals:
        others = tuple((n, r) for n, r in s.goals if n != name)
        value = GoalResult(result.value + 1, result.bound)
        found[f"goal_{name}"] = replace(s, goals=((name, value), *others))
    return found


BROKEN = sorted(broken(extract(diamond(), reference(Fusion(members=2)), ALL)[0]))


@pytest.mark.parametrize("what", BROKEN)
def test_the_checker_is_not_fooled(what: str):
    target = reference(Fusion(members=2))
    found, _ = extract(diamond(), target, ALL)
    assert check(diamond(), target, found) == []
    assert check(diamond(), target, broken(found)[what])


def test_every_field_of_a_selection_is_tampered_with_above():
    covered = {"groups", "ahead", "goals", "stop", "removed"}
    assert {f.name for f in fields(Selection)} - covered == {"seconds"}


@pytest.mark.parametrize(
    ("strict", "fault"),
    [
        (Fusion(members=2), "members, the target allows 2"),
        (Fusion(members=4), "the target allows one"),
        (Fusion(members=4, multi_result=True, operands=2), "more operands"),
        (Fusion(members=4, multi_result=True, join=()), "may not be computed inside"),
    ],
)
def test_the_checker_knows_what_may_fuse(strict: Fusion, fault: str):
    found, _ = extract(diamond(), reference(Fusion(members=4, multi_result=True)), ALL)
    assert len(found.groups) == 1
    faults = check(diamond(), reference(strict), found)
    assert any(fault in f for f in faults)
