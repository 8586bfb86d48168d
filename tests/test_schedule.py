"""Schedules: the chosen nodes as a program, its dispatches, buffers and figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from seeds import one_in

import eqsat
from eqsat.extract import extract
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.leaves import Leaf
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalRequest, GoalResult, Selection
from eqsat.model.target import Fusion, Memory, Target
from eqsat.ops.meaning.programs import evaluate_node
from eqsat.report.text import summary_text
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
@pytest.mark.parametrize("text", one_in(2, PROGRAMS))
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
@pytest.mark.parametrize("text", one_in(2, PROGRAMS))
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
    # w as it is, which the product packs where it reads it, and v packed; v itself is not kept
    assert [found.program.nodes[b.node].op for b in weights].count("weight") == 1
    assert found.resident_bytes == 2 * 16 * 32 * 4
    assert [b.role for b in found.buffers].count("result") == 2


def test_loading_needs_the_originals_and_one_copy_after_another():
    _, _, found = schedule(WEIGHTS)
    one = 16 * 32 * 4
    # both originals and the copy of v, which goes only after that is made
    assert found.load_peak_bytes == 3 * one


def test_conversions_are_counted_where_they_stand():
    _, _, alone = schedule(WEIGHTS, Fusion(members=1))
    counts = alone.counts()
    assert counts["dispatches"] == 4
    assert (counts["packs"], counts["fused_conversions"], counts["weight_packs"]) == (1, 0, 2)
    assert alone.relayout_bytes == 16 * 32 * 4
    _, _, fused = schedule(WEIGHTS)
    counts = fused.counts()
    assert (counts["packs"], counts["fused_conversions"], counts["weight_packs"]) == (0, 2, 1)
    assert fused.relayout_bytes == 2 * 16 * 32 * 4  # w is packed in every run
    assert sorted(d.ops.split("+")[0] for d in fused.dispatches) == ["elementwise", "pack"]
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


CHAIN = """
program chain
input x: f32[64, 8]
weight w: f32[64, 64]
a = exp(x)
b = matmul(w, a)
c = tanh(b)
d = add(b, c)
e = matmul(w, d)
f = add(e, a)
return f
"""


def scheduled(text: str) -> Schedule:
    """Every op a dispatch of its own, so that there are temporaries; with their offsets."""
    from eqsat.run.phases import place_temporaries

    return place_temporaries(schedule(text, Fusion(members=1))[2])


def test_temporaries_lie_in_one_arena_and_nothing_else_does():
    found = scheduled(CHAIN)
    assert [b.role for b in found.buffers if b.offset is not None] == ["temporary"] * 5
    found.verify()
    by_step = [
        sum(b.nbytes for b in found.temporaries if b.first <= step <= b.last)
        for step in range(1 + max(d.step for d in found.dispatches))
    ]
    assert found.arena_bytes == found.arena_bound == max(by_step)
    assert found.arena_bytes < sum(b.nbytes for b in found.temporaries)
    assert Schedule.from_json(found.to_json()) == found
    assert f"steps {found.temporaries[0].first}" in found.to_text()
    assert found.to_text().count(", offset ") == 5


def test_a_schedule_without_offsets_still_loads():
    found = scheduled(CHAIN)
    data = found.to_json()
    for b in data["buffers"]:
        del b["offset"]
    older = Schedule.from_json(data)
    older.verify()
    assert older.arena_bytes is None
    assert older.arena_bound == found.arena_bound
    assert ", offset " not in older.to_text()


def test_an_arena_that_cannot_be_is_refused():
    found = scheduled(CHAIN)
    together = [0] * len(found.temporaries)
    with pytest.raises(ValueError, match="overlap in the arena"):
        found.placed(together)
    with pytest.raises(ValueError, match="in front of the arena"):
        found.placed([i * 10**6 - 1 for i in range(len(found.temporaries))])
    first, *others = found.buffers
    wrong = {
        "only temporaries": replace(found, buffers=(replace(first, offset=0), *others)),
        "others do not": replace(found, buffers=(first, *_without_one_offset(others))),
    }
    for said, bad in wrong.items():
        with pytest.raises(ValueError, match=said):
            bad.verify()


def _without_one_offset(buffers):
    last = max(i for i, b in enumerate(buffers) if b.offset is not None)
    return [replace(b, offset=None) if i == last else b for i, b in enumerate(buffers)]


def test_a_run_tells_the_size_of_its_arena():
    program = parse_program(CHAIN)
    run = eqsat.optimize(program, target=reference(Fusion(members=1)), rules=("policy/keep",))
    found = run.summary()["bytes"]
    assert found["arena_bytes"] == found["arena_bound"] == run.schedule.arena_bytes > 0
    assert f"arena of the temporaries {found['arena_bytes']} bytes" in run.schedule.to_text()
    assert "arena" not in summary_text(run)
    apart = [i * 2**20 for i in range(len(run.schedule.temporaries))]
    run = replace(run, schedule=run.schedule.placed(apart))
    assert run.summary()["bytes"]["arena_bytes"] > found["arena_bound"]
    assert "temporaries lie in an arena of" in summary_text(run)
