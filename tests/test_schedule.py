"""Schedules: the chosen nodes as a program, its dispatches, buffers and figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eqsat.extract import extract
from eqsat.lang.programs import parse_program
from eqsat.model.attrs import Leaf
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalRequest, GoalResult, Selection
from eqsat.model.target import Fusion, Memory, Target
from eqsat.ops.meaning import evaluate_node
from eqsat.schedule import build

GOALS = tuple(GoalRequest(g) for g in ("time", "memory", "dispatches"))

TRANSPOSED_PACK = """
program transposed_pack
input a: f32[64, 32]
t = transpose(a, perm=[1, 0])
p = pack(t, pos=[0, 1], tiles=[16, 16], outer=[0, 1])
s = add(t, t)
return t, s, p
"""

# the weight is used as it is and packed; the argument `z` is not used at all
WEIGHTS = """
program weights
input x: f32[16, 32]
input z: f32[7]
weight w: f32[16, 32]
weight v: f32[16, 32]
p = pack(w, pos=[0, 1], tiles=[8, 8], outer=[0, 1])
q = pack(v, pos=[0, 1], tiles=[8, 8], outer=[0, 1])
y = pack(x, pos=[0, 1], tiles=[8, 8], outer=[0, 1])
m = mul(y, p)
n = mul(m, q)
o = add(x, w)
return n, o
"""

RESHAPED = """
program reshaped
input x: f32[8, 6]
f = reshape(x, shape=[48])
e = exp(f)
g = reshape(e, shape=[6, 8])
h = tanh(g)
i = reshape(h, shape=[2, 24])
j = reshape(x, shape=[4, 12])
return i, e, j
"""

SHARED = """
program shared
input x: f32[64]
v = exp(x)
a = tanh(v)
b = neg(v)
return a, b, v
"""


def reference(fusion: Fusion) -> Target:
    memory = (Memory("ram", 1 << 40, 1e9),)
    return Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, (), fusion=fusion)


def egraph(program: Program) -> EGraph:
    """The e-graph of a program before any rule."""
    nodes = tuple(ENode(n.op, n.attr, n.operands, i) for i, n in enumerate(program.nodes))
    types = tuple(n.types for n in program.nodes)
    every = tuple(range(len(nodes)))
    return EGraph(nodes, types, program.results, every, (), 0, "saturated", 0.0)


def schedule(text: str, fusion: Fusion | None = None) -> tuple[Program, Selection, Schedule]:
    program = parse_program(text)
    target = reference(fusion or Fusion())
    graph = egraph(program)
    selection, _ = extract(graph, target, GOALS)
    return program, selection, build(graph, selection, target)


def evaluate(program: Program) -> list[np.ndarray]:
    """The results on inputs and weights that depend on their names only."""
    values: list[np.ndarray] = []
    for n in program.nodes:
        if isinstance(n.attr, Leaf):
            rng = np.random.default_rng(sum(map(ord, n.attr.name)))
            values.append(rng.standard_normal(n.type.shape))
        else:
            values.append(evaluate_node(n.op, n.attr, [values[o] for o in n.operands])[0])
    return [values[r] for r in program.results]


FUSIONS = {
    "plain": Fusion(),
    "none": Fusion(members=1),
    "multi": Fusion(multi_result=True),
    "clone": Fusion(clone=("all",)),
}
PROGRAMS = {"pack": TRANSPOSED_PACK, "weights": WEIGHTS, "reshaped": RESHAPED, "shared": SHARED}


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("text", PROGRAMS)
def test_a_schedule_computes_the_program_and_keeps_its_promises(text: str, fusion: str):
    program, selection, found = schedule(PROGRAMS[text], FUSIONS[fusion])
    found.program.verify()
    for got, want in zip(evaluate(found.program), evaluate(program), strict=True):
        np.testing.assert_array_equal(got, want)
    assert found.time_ps == selection.goal("time").value
    assert found.peak_bytes == selection.goal("memory").value
    assert len(found.dispatches) == selection.goal("dispatches").value
    assert found.bytes_moved * 1000 == found.time_ps  # one byte is 1 ns, and nothing else costs
    assert Schedule.from_json(found.to_json()) == found


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("text", PROGRAMS)
def test_every_dispatch_can_run_alone(text: str, fusion: str):
    _, _, found = schedule(PROGRAMS[text], FUSIONS[fusion])
    nodes = found.program.nodes
    there = {*found.program.inputs, *found.program.weights, *found.ahead}
    buffers = {b.node: b for b in found.buffers}
    for d in found.dispatches:
        assert set(d.reads) <= there
        inside = set(d.reads)
        for m in d.members:
            assert set(nodes[m].operands) <= inside, (d, m)
            inside.add(m)
        assert set(d.writes) <= set(d.members)
        assert all(buffers[b].first <= d.step <= buffers[b].last for b in (*d.reads, *d.writes))
        there |= set(d.writes)


def test_buffers_have_the_roles_the_caller_sees():
    program, _, found = schedule(WEIGHTS)
    roles = {b.node: b.role for b in found.buffers}
    assert [roles[i] for i in found.program.inputs] == ["argument", "argument"]
    assert len(found.program.inputs) == len(program.inputs)
    weights = [b for b in found.buffers if b.role == "weight"]
    # w as it is, w packed, v packed; v itself is not kept
    assert [found.program.nodes[b.node].op for b in weights].count("weight") == 1
    assert found.resident_bytes == 3 * 16 * 32 * 4
    assert [b.role for b in found.buffers].count("result") == 2


def test_loading_needs_the_originals_and_one_copy_after_another():
    _, _, found = schedule(WEIGHTS)
    one = 16 * 32 * 4
    # both originals and both copies: v goes only after its copy is made
    assert found.load_peak_bytes == 4 * one


def test_conversions_are_counted_where_they_stand():
    _, _, alone = schedule(WEIGHTS, Fusion(members=1))
    counts = alone.counts()
    assert counts["dispatches"] == 4
    assert (counts["packs"], counts["fused_conversions"], counts["weight_packs"]) == (1, 0, 2)
    assert alone.relayout_bytes == 16 * 32 * 4
    _, _, fused = schedule(WEIGHTS)
    counts = fused.counts()
    assert (counts["packs"], counts["fused_conversions"], counts["weight_packs"]) == (0, 1, 2)
    assert fused.relayout_bytes == 16 * 32 * 4
    assert sorted(d.name.split("+")[0] for d in fused.dispatches) == ["elementwise", "pack"]
    _, _, transposed = schedule(TRANSPOSED_PACK, Fusion(members=1))
    counts = transposed.counts()
    assert (counts["packs"], counts["transposes"], counts["unpacks"]) == (1, 1, 0)


def test_views_of_arguments_are_results_without_a_dispatch():
    _, _, found = schedule(
        "program view\ninput x: f32[8, 6]\ny = reshape(x, shape=[48])\nreturn y\n"
    )
    assert found.dispatches == ()
    assert [b.role for b in found.buffers] == ["argument"]
    assert found.peak_bytes == 8 * 6 * 4
    assert found.program.nodes[found.program.results[0]].type.shape == (48,)


def test_a_promise_that_is_not_kept_is_our_error():
    program = parse_program(SHARED)
    target = reference(Fusion())
    selection, _ = extract(egraph(program), target, GOALS)
    goals = tuple((n, GoalResult(r.value + 1, r.bound)) for n, r in selection.goals)
    with pytest.raises(EqsatError) as e:
        build(egraph(program), replace(selection, goals=goals), target)
    assert e.value.exit_code == 4
    assert e.value.diagnostics[0].code.startswith("E9")
