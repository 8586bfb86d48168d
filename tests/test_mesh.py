"""Values spread over a mesh: cuts of ops, conversions and their prices, the choice, the plan."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.meshresults import verdict
from seeds import seeds

import eqsat
from eqsat.cli import run as command
from eqsat.execute.draw import drawn_weights
from eqsat.extract.mesh.spreads import PairTable, SpreadChoice
from eqsat.extract.shard import least_used, solve_sharding
from eqsat.extract.shard import search as sharding
from eqsat.frontends.source import Source
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.mesh import REPLICATED, Axis, Mesh, MeshPlan, Spread, is_partial
from eqsat.model.program import Node, Program
from eqsat.model.sharding import FORBIDDEN, ShardNode
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import evaluate_node, evaluate_program, is_iota
from eqsat.ops.mesh.apart import with_parts_apart
from eqsat.ops.mesh.collectives import MeshMachine, conversion
from eqsat.ops.mesh.gathers import MASKED, batch_dims, cuts_rows, own_index
from eqsat.ops.mesh.strategies import Strategy, local_attr, strategies
from eqsat.report.mesh import mesh_told

RULES = ("layout/fill", "spread")  # the search before the mesh is not what is tested
LINK = (45e9, 1_000_000)
MESH = Mesh((Axis("data", 4, *LINK), Axis("model", 2, *LINK)))
MACHINE = MeshMachine(MESH, 1_000_000, 819e9)
MLP = """program mlp
input x: f32[64, 128]
weight w1: f32[128, 256]
weight w2: f32[256, 128]
y = matmul(relu(matmul(x, w1)), w2)
return y
"""
PRODUCT = """program product
input a: {dtype}[32, 512]
input b: {dtype}[512, 32]
y = matmul(a, b)
return y
"""
# one of every kind of op that is cut: reductions, movements, an add of two products
OPS = """program ops
input x: f32[8, 4, 16]
input i: i32[8]
weight w: f32[16, 8]
weight u: f32[8, 4, 8]
weight line: i32[8] key=c8803f8b703ad6c5
s = generic(x, loops=[8, 16, 4], maps=[[d0, d2, d1]], body=x0, combine=add, rank=2)
h = generic(x, w, loops=[8, 4, 8, 16], maps=[[d0, d1, d3], [d3, d2]], {product}, rank=3)
g = add(mul(h, 2.0), u)
r = reshape(g, shape=[32, 8])
t = transpose(r, perm=[1, 0])
c = concat(t, t, axis=1)
k = slice(c, start=[0, 0], limit=[8, 32], stride=[1, 1])
p = pad(k, low=[0, 0], high=[0, 8], value=0.0)
m = generic(p, loops=[40, 8], maps=[[d1, d0]], body=x0, combine=max, rank=1)
z = gather(m, i, axis=0)
j = generic(line, i, loops=[8], maps=[[d0], [d0]], body=add(mul(x0, 4), clamp(0, x1, 3)))
b = gather(r, j, axis=0)
return s, z, t, b
""".replace("{product}", "body=mul(x0, x1), combine=add")


def source(text: str) -> Source:
    program = parse_program(text)
    return Source(program, drawn_weights(program))


def search(text: str, **request) -> eqsat.Run:
    return eqsat.optimize(source(text), target="tpu-v5e-4x2", rules=RULES, **request)


def plan_of(run: eqsat.Run) -> MeshPlan:
    assert run.mesh_plan is not None
    return run.mesh_plan


# ---- merged bodies -------------------------------------------------------------------------------
CHAIN = """program chain
input a: f32[64, 64]
input b: f32[64, 64]
input c: f32[64, 64]
return add(c, add(a, b))
"""
CUT_OTHERWISE = {"a": "[data, -]", "b": "[data, -]", "c": "[-, data]", "result0": "[-, data]"}


def test_the_cut_may_change_inside_a_merged_body():
    """a + b is sent once, not a and b; it is in no memory, and what runs is verified."""
    run = search(CHAIN, mesh="data=4", shards=CUT_OTHERWISE)
    (sent,) = plan_of(run).reshards
    assert [s.kind for s in sent.steps] == ["all-to-all"]
    program = run.cut_schedule.program
    assert [program.nodes[o].op for o in program.nodes[sent.node].operands] == ["input"] * 2
    assert len(run.need_schedule().dispatches) == len(run.cut_schedule.dispatches) == 1
    more = CHAIN.replace("return add(c, add(a, b))", "d = add(a, b)\nreturn add(c, d), d")
    both = search(more, mesh="data=4", shards=CUT_OTHERWISE | {"result1": "free"})
    assert plan_of(run).time_ps <= plan_of(both).time_ps


def test_parts_apart_compute_what_the_body_does():
    text = """input x: f32[8, 6]
input y: f32[8, 6]
input r: f32[8]
s = add(x, y)
g = mul(s, tanh(mul(s, y)))
t = generic(g, r, loops=[8, 6], maps=[[d0, d1], [d0]], body=sub(x0, x1))
return generic(t, x, loops=[8, 6], maps=[[d0, d1], [d0, d1]], body=max(x0, x1), combine=max, rank=1)
"""
    schedule = search(text, mesh="data=2").need_schedule()
    apart = with_parts_apart(schedule)
    apart.verify()
    inside = [m for d in apart.dispatches for m in d.members]
    assert len(inside) > len([m for d in schedule.dispatches for m in d.members])
    assert set(range(len(apart.program.nodes))) == {*inside, *apart.program.inputs}
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n).astype("f4") for n in [(8, 6), (8, 6), (8,)]]
    found, wanted = (evaluate_program(s.program, arrays, {}) for s in (apart, schedule))
    np.testing.assert_array_equal(found[0], wanted[0])


@pytest.mark.parametrize("seed", seeds(2, (2, 0, 4, 12, 20, 33)))
def test_one_more_result_is_never_quicker(seed: int):
    """A share of the gate `meshresults`."""
    found = verdict(seed)
    assert found is not None
    assert not found.is_worse, found.to_json()


# ---- gathers -------------------------------------------------------------------------------------
GATHERS = """program gathers
input x: f32[8, 16, 4]
input i: i32[8, 2]
weight line: i32[8] key=c8803f8b703ad6c5
weight table: f32[16, 4]
rows = reshape(x, shape=[128, 4])
j = generic(line, i, loops=[8, 2], maps=[[d0], [d0, d1]], {index})
b = gather(rows, j, axis=0)
e = gather(table, i, axis=0)
return b, e
"""
OWN = "body=add(mul(clamp(0, x0, 7), 16), clamp(0, x1, 15))"
BATCH = {
    "x": "[data, -, -]",
    "i": "[data, -]",
    "result0": "[data, -, -]",
    "result1": "[data, -, -]",
}


def gathers(index: str = OWN, **request) -> eqsat.Run:
    request = {"mesh": "data=4,model=2", "shards": BATCH} | request
    return search(GATHERS.replace("{index}", index), **request)


def test_rows_of_a_cut_batch_are_gathered_without_a_collective() -> None:
    """Also tokens of a table that is on every device."""
    plan = plan_of(gathers())
    assert (plan.collectives, plan.sent_bytes) == ({}, 0)
    assert [v.cuts[0] for v in plan.values if "rows of 0" in v.cuts] == ["rows of 0"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: jnp.take_along_axis(x, i[:, :, None], axis=1),
        jax.vmap(lambda x, i: x[i]),
        lambda x, i: jax.nn.one_hot(i, 16) @ x,
    ],
)
def test_lookups_of_jax_in_a_cut_batch_send_nothing(function: Callable[..., object]) -> None:
    x, i = (jax.ShapeDtypeStruct(s, t) for s, t in [((8, 16, 32), "f4"), ((8, 4), "i4")])
    shards = {"x": "[data, -, -]", "i": "[data, -]", "result0": "[data, -, -]"}
    run = eqsat.optimize(
        function, x, i, target="tpu-v5e-4x2", mesh="data=4,model=2", shards=shards, rules=RULES
    )
    assert plan_of(run).sent_bytes == 0


@pytest.mark.parametrize(
    "body",
    [
        "add(mul(x0, 16), x1)",  # an index may be of the next item
        "add(mul(clamp(0, x0, 7), 16), clamp(0, x1, 16))",
        "add(mul(clamp(0, x0, 7), 8), clamp(0, x1, 15))",
        "add(mul(clamp(0, x1, 7), 16), clamp(0, x0, 7))",
        "add(mul(sub(7, x0), 16), clamp(0, x1, 15))",
        "add(add(mul(x0, 2147483632), clamp(0, x1, 15)), mul(x0, -2147483616))",  # it wraps
    ],
)
def test_indices_that_may_be_of_other_items_are_not_cut_with_the_rows(body: str) -> None:
    program = parse_program(GATHERS.replace("{index}", f"body={body}"))
    assert not any(batch_dims(program, i) for i in range(len(program.nodes)))
    found = parse_program(GATHERS.replace("{index}", OWN))
    assert [batch_dims(found, i) for i, n in enumerate(found.nodes) if n.op == "gather"] == [
        (0,),
        (),
    ]


def test_a_table_that_fits_on_no_device_is_gathered_in_parts() -> None:
    """A block of the rows on each device, and one all-reduce or reduce-scatter behind it."""
    shards = BATCH | {"table": "[model, -]"}
    plan = plan_of(gathers(shards=shards, without=["all-gather"]))
    assert set(plan.collectives) <= {"all-reduce", "reduce-scatter"}
    (taken,) = (v for v in plan.values if "rows" in v.cuts)
    assert (taken.cuts, taken.made) == (("dim 0", "rows"), (0, "add"))


# ---- cuts: every strategy computes what the whole op does ----------------------------------------
def blocks(x: np.ndarray, spread: Spread, at: tuple[int, ...], mesh: Mesh) -> np.ndarray:
    """What the device at these coordinates holds of an array that is cut."""
    for d in range(x.ndim):
        axes = [i for i, k in enumerate(spread) if k == d]
        sizes = [mesh.sizes[i] for i in axes]
        if axes:
            number = int(np.ravel_multi_index([at[i] for i in axes], sizes))
            x = np.split(x, int(np.prod(sizes)), d)[number]
    return x


def parts(x: np.ndarray, spread: Spread, at: tuple[int, ...], mesh: Mesh) -> np.ndarray:
    """As `blocks`; of parts of a sum the first device of the axis holds all, the others nothing."""
    cut = blocks(x, spread, at, mesh)
    rest = any(k == "add" and at[i] for i, k in enumerate(spread))
    return np.zeros_like(cut) if rest else cut


def whole(pieces: dict[tuple[int, ...], np.ndarray], spread: Spread, mesh: Mesh) -> np.ndarray:
    """The value that devices hold together; ranges of an axis that hold the same have to agree."""
    combine = {"add": np.add, "max": np.maximum, "min": np.minimum}
    for i in reversed(range(len(mesh.axes))):
        merged: dict[tuple[int, ...], np.ndarray] = {}
        for rest in {at[:i] for at in pieces}:
            along = [pieces[(*rest, n)] for n in range(mesh.sizes[i])]
            kind = spread[i]
            if isinstance(kind, int):
                merged[rest] = np.concatenate(along, kind)
            elif kind == REPLICATED:
                assert all(np.array_equal(a, along[0]) for a in along)
                merged[rest] = along[0]
            else:
                merged[rest] = combine[kind].reduce(along)
        pieces = merged
    return pieces[()]


def gathered(
    x: np.ndarray, read: Spread, whole: Spread, at: tuple[int, ...], mesh: Mesh
) -> np.ndarray:
    """What a device computes on: blocks of all devices of the axes that its op gathers over."""
    axes = [i for i, (a, b) in enumerate(zip(read, whole, strict=True)) if a != b]
    if not axes:
        return parts(x, read, at, mesh)
    found = []
    for there in itertools.product(*(range(mesh.sizes[i]) for i in axes)):
        other = [there[axes.index(i)] if i in axes else n for i, n in enumerate(at)]
        found.append(parts(x, read, tuple(other), mesh))
    dim = read[axes[0]]
    assert isinstance(dim, int)
    return np.concatenate(found, dim)


def run_cut(n: Node, s: Strategy, xs: list[np.ndarray], mesh: Mesh) -> np.ndarray:
    pieces = {}
    for at in itertools.product(*map(range, mesh.sizes)):
        local = [
            gathered(x, read, whole, at, mesh)
            for x, read, whole in zip(xs, s.reads, s.taken, strict=True)
        ]
        cut = tuple(k if isinstance(k, int) else REPLICATED for k in s.made)
        result = mesh.local(cut, n.type.shape)
        attr = local_attr(n.attr, [x.shape for x in local], result, s.cuts, mesh)
        rows = [i for i, name in enumerate(s.cuts) if n.op == "gather" and cuts_rows(name)]
        inside = np.True_
        if rows:
            sizes, (axis,) = [mesh.sizes[i] for i in rows], n.attr.args
            block = np.ravel_multi_index([at[i] for i in rows], sizes)
            local[1], found = own_index(np, local[1], block, local[0].shape[axis], np.prod(sizes))
            assert found.all() or MASKED in s.cuts
            inside = np.expand_dims(found, tuple(range(axis + found.ndim, len(result))))
            local[1] = np.where(found, local[1], 0)
        pieces[at] = np.where(inside, np.asarray(evaluate_node(n.op, attr, local)[0]), 0)
    return whole(pieces, s.made, mesh)


def values_of(program: Program) -> list[np.ndarray]:
    rng, found = np.random.default_rng(0), []
    for n in program.nodes:
        shape = n.type.shape
        if n.op == "input" and n.type.dtype == "i32":
            found.append(rng.integers(0, 8, shape))
        elif n.op == "weight" and is_iota(n.attr):
            found.append(np.arange(*shape))
        elif not n.operands:
            found.append(rng.integers(-8, 8, shape).astype(float))
        else:
            found.append(np.asarray(evaluate_node(n.op, n.attr, [found[o] for o in n.operands])[0]))
    return found


def test_every_strategy_of_every_op_computes_what_the_op_does() -> None:
    program, mesh = parse_program(OPS), Mesh((Axis("a", 2, *LINK), Axis("b", 2, *LINK)))
    values, cut = values_of(program), set()
    for i, n in enumerate(program.nodes):
        if not n.operands:
            continue
        shapes = tuple(program.nodes[o].type.shape for o in n.operands)
        batch = batch_dims(program, i)
        for s in strategies(n.op, n.attr, shapes, n.type.shape, mesh, batch):
            found = run_cut(n, s, [values[o] for o in n.operands], mesh)
            assert np.array_equal(found, values[i]), (n.op, s)
            cut |= {(n.op, c) for c in s.cuts if c}
    for op in ("transpose", "reshape", "concat", "slice", "pad", "gather", "generic"):
        assert any(known == op for known, _ in cut), op
    assert {("generic", "parts"), ("gather", "rows"), ("gather", "rows of 0")} <= cut


def test_what_a_body_does_not_read_linearly_takes_no_parts() -> None:
    program = parse_program("program p\ninput x: f32[8, 8]\ny = relu(x)\nreturn y\n")
    (n,) = (n for n in program.nodes if n.operands)
    found = strategies(n.op, n.attr, ((8, 8),), (8, 8), MESH)
    assert not any(is_partial(spread) for s in found for spread in s.reads)
    assert isinstance(n.attr, Generic)


def test_a_spread_is_a_pack_of_a_tile_per_device() -> None:
    pack = MESH.as_pack((0, 2), (8, 3, 4))
    assert pack.packed_shape == (4, 3, 2, 2, 2)
    pack.verify()
    assert MESH.text((0, 2), 3) == "[data, -, model]"
    assert MESH.text((0, 0), 2) == "[data+model, -]"
    assert MESH.text(("add", 0), 1) == "[model], add over data"
    assert not MESH.fits((0, 0), (12,))


# ---- conversions ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("origin", "result", "kinds", "hops_ps"),
    [
        ((1, ""), ("", ""), ["all-gather"], 3 * (1e6 + 64 * 4 / 45e-3)),
        (("add", ""), ("", ""), ["all-reduce"], 6 * (1e6 + 64 * 4 / 45e-3)),
        (("add", ""), (1, ""), ["reduce-scatter"], 3 * (1e6 + 64 * 4 / 45e-3)),
        ((0, ""), (1, ""), ["all-to-all"], 3 * (1e6 + 32 * 4 / 45e-3)),
        (("", ""), (1, 0), ["slice", "slice"], 0),
        ((0, 0), ("", ""), ["all-gather", "all-gather"], None),
        (("max", ""), (0, ""), ["all-reduce", "slice"], None),
        ((0, 0), ("", 0), None, None),  # blocks of the inner axis lie inside those of the outer one
        (("", ""), ("add", ""), None, None),
    ],
)
def test_conversions_and_their_prices_by_links(
    origin: Spread, result: Spread, kinds: list[str] | None, hops_ps: float | None
) -> None:
    steps = conversion(origin, result, TensorType("f32", (16, 16)), MACHINE)
    if kinds is None:
        assert steps is None
        return
    assert steps is not None
    assert [s.kind for s in steps] == kinds
    if hops_ps:  # beside the links: a launch, and what is read and written
        memory = (steps[0].nbytes + _after(steps[0].kind, steps[0].nbytes)) / 819e-3
        assert steps[0].time_ps == pytest.approx(hops_ps + 1e6 + memory, abs=2)


def _after(kind: str, nbytes: int) -> int:
    return {"all-gather": 4 * nbytes, "reduce-scatter": nbytes // 4}.get(kind, nbytes)


# ---- the choice ----------------------------------------------------------------------------------
class StatedChoice(SpreadChoice):
    """Also remembers what pairs were stated, for brute force."""

    def __init__(self, steps: int, spare: int):
        super().__init__(steps, spare)
        self.stated: list[tuple[int, int, list[list[int]], list[list[int]]]] = []


def random_choice(rng: np.random.Generator) -> StatedChoice:
    """Five nodes, two of them perhaps one choice; pairs that cost and hold something."""
    found = StatedChoice(4, spare=int(rng.integers(0, 2)) * 300)
    for i in range(5):
        size, lower = int(rng.integers(1, 4)), int(rng.integers(0, 3))
        size = len(found.nodes[0].costs) if i == 4 else size
        costs = tuple(int(c) for c in rng.integers(0, 50, size))
        usages = tuple(int(u) for u in rng.integers(0, 9, size) * 64)
        node = ShardNode(costs, usages, lower, int(rng.integers(lower, 5)))
        found.add_node(node, 0 if i == 4 and rng.random() < 0.5 else None)
    for a, b in itertools.combinations(range(5), 2):
        if rng.random() < 0.6:
            rows, columns = (range(len(found.nodes[i].costs)) for i in (a, b))
            pairs = [[int(rng.integers(0, 30)) for _ in columns] for _ in rows]
            pairs = [[FORBIDDEN if rng.random() < 0.15 else c for c in line] for line in pairs]
            usages = [[int(rng.integers(0, 3)) * 64 for _ in columns] for _ in rows]
            found.add_edge(a, b, PairTable(rows, columns, pairs, usages), 1, 3)
            found.stated.append((a, b, pairs, usages))
    return found


def cost_and_peak(choice: StatedChoice, chosen: tuple[int, ...]) -> tuple[int, int]:
    """From what was stated, without the problem that is made of it."""
    cost, use = 0, [0] * 4
    for node, s in zip(choice.nodes, chosen, strict=False):
        cost += node.costs[s]
        for t in range(node.lower, node.upper):
            use[t] += node.usages[s]
    for a, b, pairs, usages in choice.stated:
        cost += pairs[chosen[a]][chosen[b]]
        for t in (1, 2):
            use[t] += usages[chosen[a]][chosen[b]]
    if any(chosen[i] != chosen[like] for i, like in enumerate(choice.group[:5])):
        cost += FORBIDDEN
    return cost, max(0, *(u - choice.spare for u in use[:3]), use[3])


def test_the_solver_finds_what_trying_everything_does() -> None:
    for seed in range(12):
        choice = random_choice(np.random.default_rng(seed))
        every = list(itertools.product(*(range(len(n.costs)) for n in choice.nodes[:5])))
        allowed = {c: v for c in every if (v := cost_and_peak(choice, c))[0] < FORBIDDEN}
        peaks = sorted(peak for _, peak in allowed.values())
        for limit in (None, peaks[len(peaks) // 3] if peaks else 0):
            problem = choice.problem(limit)
            fitting = [v for v in allowed.values() if limit is None or v[1] <= limit]
            found = solve_sharding(problem, time_limit=10.0, exact=True)
            if not fitting:
                assert found.status == "infeasible"
                continue
            assert (found.status, found.cost) == ("optimal", min(fitting)[0])
            least = least_used(problem, time_limit=10.0, most_cost=found.cost)
            assert (found.cost, choice.peak(least.strategies)) == min(fitting)
            assert choice.completed(least.strategies[:5]) == least.strategies
        if allowed:
            least = least_used(choice.problem(None), time_limit=10.0)
            assert choice.peak(least.strategies) == peaks[0]


# ---- plans ---------------------------------------------------------------------------------------
def test_memory_decides_between_data_parallel_and_tensor_parallel(tmp_path: Path) -> None:
    wide = plan_of(search(MLP))
    assert wide.collectives == {}  # every device has all weights
    run = search(MLP, budget={"memory": "160 KiB"})
    tight = plan_of(run)
    assert tight.collectives == {"all-reduce": 1}
    assert tight.peak_bytes <= 160 * 1024 < wide.peak_bytes
    assert wide.time_ps < tight.time_ps
    assert tight.bound_ps <= tight.time_ps
    spreads = run.summary()["mesh"]["spreads"]
    assert (spreads["x"], spreads["w1"], spreads["w2"]) == (
        "[data, -]", "[-, model]", "[model, -]",
    )  # fmt: skip
    run.save(tmp_path / "run")
    assert eqsat.load(tmp_path / "run").mesh_plan == tight
    page = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "w1 [-, model] = pack(pos=[1], tiles=[128])" in page
    told = run.explain("%" + run.program.value_names[run.program.results[0]]).to_text()
    assert "all-reduce over model" in told
    assert "without it: " in told
    front = run.mesh_front(2, 20.0)
    assert front[0].time_ps == tight.time_ps
    assert all(a.time_ps <= b.time_ps for a, b in itertools.pairwise(front))
    assert all(a.peak_bytes > b.peak_bytes for a, b in itertools.pairwise(front))


def test_one_device_takes_the_time_and_bytes_of_the_schedule() -> None:
    flat = ["memory=[{name: m, size: 1 GB, bandwidth: 819 GB/s}]"]
    plan = plan_of(search(MLP, mesh="data=1,model=1", settings=flat))
    assert plan.time_ps == pytest.approx(plan.single_ps, abs=10)
    assert plan.peak_bytes == plan.single_bytes


def test_asked_spreads_are_kept_and_results_leave_as_arguments_came() -> None:
    run = search(MLP, shards={"x": "[model, -]", "result0": "free", "w1": "[-, data]"})
    spreads = run.summary()["mesh"]["spreads"]
    assert (spreads["x"], spreads["w1"]) == ("[model, -]", "[-, data]")
    chained = plan_of(search(MLP, budget={"memory": "160 KiB"}))
    program = run.cut_schedule.program
    assert chained.by_node[program.inputs[0]].held == chained.by_node[program.results[0]].held


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        ({"mesh": "data=3"}, "E231", "divides no dim"),
        ({"mesh": "dat=4"}, "E230", "mesh_links.dat"),
        ({"mesh": "data"}, "E232", "data=4,model=2"),
        ({"shards": {"y": "[data, -]"}}, "E232", "named `y`"),
        ({"shards": {"x": "[data]"}}, "E232", "1 dims, not 2"),
        ({"shards": {"x": "[rows, -]"}}, "E232", "no axis `rows`"),
        ({"shards": {"x": "[data, data]"}}, "E232", "two dims"),
        ({"measure": 2}, "E232", "--set mesh={}"),
        ({"budget": {"memory": "1 KiB"}}, "E410", "the smallest plan found holds"),
    ],
)
def test_requests_that_cannot_be_are_told(request_: dict, code: str, words: str) -> None:
    with pytest.raises(EqsatError) as caught:
        search(MLP, **request_)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert words in f"{found.message} {found.help}"


def test_a_search_without_time_ends_with_a_plan_that_is_not_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharding, "_run", lambda *_: None)
    plan = plan_of(search(MLP, shards={"x": "[data, -]", "result0": "[data, -]"}))
    assert plan.collectives == {"all-gather": 1}
    assert (plan.stop, plan.bound_ps) == ("time", pytest.approx(2e6))
    with pytest.raises(EqsatError, match="E410"):
        search(MLP, budget={"memory": "160 KiB"})


def test_shards_and_fronts_need_a_mesh() -> None:
    with pytest.raises(EqsatError, match="E232"):
        eqsat.optimize(source(MLP), target="reference", shards={"x": "[data, -]"})
    with pytest.raises(EqsatError, match="E232"):
        eqsat.optimize(source(MLP), target="reference").mesh_front()


def test_a_search_that_ends_before_its_schedule_is_of_one_device() -> None:
    run = search(MLP, stop_after="selection", budget={"memory": "1 MiB"})
    assert run.target.mesh is None
    assert dict(run.target.budget) == {"memory": 2**20}
    open_sizes = MLP.replace("f32[64, 128]", "f32[m, 128]")
    with pytest.raises(EqsatError, match="unknown sizes"):
        search(open_sizes.replace("input", "symbol m size=64\ninput"))
    with pytest.raises(EqsatError, match="--layouts"):
        search(MLP, layouts="auto")


def test_settings_change_a_mesh() -> None:
    t = eqsat.target("tpu-v5e-4x2")
    assert t.mesh is not None
    two = replace(t.mesh, axes=(Axis("data", 2, *LINK), t.mesh.axes[1]))
    assert override(t, ["mesh.data=2"]).mesh == two
    slow = override(t, ["mesh_links.model={bandwidth: 1 GB/s}"]).mesh
    assert slow is not None
    assert slow.axes[1].bandwidth == 1e9
    assert Target.from_json(json.loads(json.dumps(t.to_json()))) == t
    with pytest.raises(EqsatError, match="E230"):
        override(t, ["mesh={rows: 2}"])


def test_fewer_devices_than_the_mesh_has_are_told() -> None:
    run = search(MLP, mesh="data=64", budget={})
    with pytest.raises(EqsatError, match="E513") as caught:
        run.compile()
    assert "xla_force_host_platform_device_count=64" in str(caught.value)


CHILD = """
import json, re, sys
import numpy as np
import eqsat
from eqsat.execute.draw import drawn_weights
from eqsat.lang.programs import parse_program
from eqsat.ops.meaning.programs import element_dtype
from eqsat.frontends.source import Source

found = {}
for name, text, request in json.load(sys.stdin):
    program = parse_program(text)
    given = Source(program, drawn_weights(program))
    request |= {"target": "tpu-v5e-4x2"}
    request.setdefault("rules", ["layout/fill", "spread"])
    run = eqsat.optimize(given, **request)
    checked = run.verify(samples=1)
    types = [program.nodes[i].type for i in program.inputs]
    xs = [np.ones(t.shape, element_dtype(t.dtype)) for t in types]
    made = run.executable
    results = made(*xs)
    hlo = made.jitted.lower(made.packed, *xs).compile().as_text()
    kinds = re.findall(r" (all-reduce|all-gather|reduce-scatter|all-to-all)(?:-start)?\\(", hlo)
    found[name] = {
        "ok": checked.ok, "hlo": {k: kinds.count(k) for k in sorted(set(kinds))},
        "plan": run.mesh_plan.collectives, "devices": len(results[0].sharding.device_set),
    }
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    "names",
    seeds(1, [("tight", "batch", "table"), ("shaped", "ops", "panels-f32", "panels-bf16")]),
    ids="+".join,
)
def test_eight_devices_compute_the_result_with_the_collectives_of_the_plan(
    names: tuple[str, ...],
) -> None:
    """In a process of its own, as JAX has its devices from its start."""
    shaped = MLP.replace("x: f32[64, 128]", "z: f32[8, 8, 128]\nx = reshape(z, shape=[64, 128])")
    shaped = shaped.replace("y = matmul", "m = matmul").replace(
        "return y", "y = reshape(m, shape=[8, 8, 128])\nreturn y"
    )
    cases = [
        ("tight", MLP, {"budget": {"memory": "160 KiB"}}),
        ("shaped", shaped, {"shards": {"z": "[data, -, model]", "result0": "[model, data, -]"}}),
        (
            "ops",
            OPS,
            {"shards": {"x": "[data, -, model]", "result0": "[-, -]", "result2": "[-, data]"}},
        ),
    ]
    panels = {
        "mesh": "data=2,model=4", "rules": ["layout/fill", "spread", "spread/streams"],
        "shards": {"a": "[data, model]", "b": "[data, model]", "result0": "[data, model]"},
        "without": ["all-gather", "all-to-all", "reduce-scatter", "all-reduce"],
    }  # fmt: skip
    text = GATHERS.replace("{index}", OWN)
    cases += [
        ("batch", text, {"shards": BATCH}),
        (
            "table",
            text,
            {
                "shards": BATCH | {"table": "[model, -]"}, "without": ["all-gather"],
                "mesh": "data=4,model=2",
            },
        ),
    ]  # fmt: skip
    cases += [(f"panels-{t}", PRODUCT.format(dtype=t), panels) for t in ("f32", "bf16")]
    flags = f"--xla_force_host_platform_device_count=8 {os.environ.get('XLA_FLAGS', '')}"
    env = os.environ | {"XLA_FLAGS": flags}
    cases = [case for case in cases if case[0] in names]
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(cases), env=env, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for name, row in found.items():
        assert row["ok"], name
        if name.startswith("panels"):  # a loop over panels has its collectives once
            assert row["hlo"] == {"all-gather": 2}
            assert row["plan"]["all-gather"] > 2
            continue
        assert row["hlo"] == row["plan"], name
        assert row["devices"] == 8, name
        assert name != "tight" or row["plan"] == {"all-reduce": 1}
        assert name != "batch" or not row["plan"]
        assert name != "table" or row["plan"]
        assert name != "ops" or row["plan"]


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mlp.eqs"
    file.write_text(MLP, encoding="utf-8")
    words = ["optimize", str(file), "--target", "tpu-v5e-4x2", "--mesh", "data=2,model=2"]
    words += ["--budget", "memory=190KiB", "--shard", "x=[data, -]", "--mesh-front", "2"]
    assert command(words) == 0
    text = capsys.readouterr().out
    assert "mesh data=2, model=2, by the answer" in text
    assert "front of the mesh" in text
    assert "x [data, -]" in text
    assert command([*words, "--output-format", "json"]) == 0
    summary, front = map(json.loads, capsys.readouterr().out.splitlines())
    assert summary["mesh"]["axes"] == {"data": 2, "model": 2}
    assert front["points"]
    assert command([*words[:4], "--shard", "x"]) == 2
    assert "E232" in capsys.readouterr().err


# ---- operands that are gathered in panels --------------------------------------------------------


def test_panels_of_operands_are_of_the_same_elements_of_the_inner_loop() -> None:
    """Also where an axis cuts the inner loop besides, so that each layer has its own panels."""
    text = PRODUCT.format(dtype="f32").replace("512", "16").replace("32, 16", "8, 16")
    program = parse_program(text.replace("16, 32", "16, 8"))
    mesh = Mesh(tuple(Axis(name, 2, *LINK) for name in "xyz"))
    values = values_of(program)
    (at,) = program.results
    n = program.nodes[at]
    every = strategies(n.op, n.attr, ((8, 16), (16, 8)), (8, 8), mesh)
    streamed = [s for s in every if s.panels]
    assert ("d0/d2", "d1/d2", "d2") in {s.cuts for s in streamed}
    assert not {("d0/d2", "d2", "d1")} & {s.cuts for s in streamed}  # other layers' elements
    for s in streamed:
        found = run_cut(n, s, [values[o] for o in n.operands], mesh)
        assert np.array_equal(found, values[at]), s


def test_a_product_in_panels_holds_less_and_sends_what_a_gather_sends() -> None:
    flat = ["memory=[{name: m, size: 1 GB, bandwidth: 819 GB/s}]"]
    text = PRODUCT.format(dtype="f32").replace("32", "512").replace("f512", "f32")
    request = {
        "mesh": "data=2,model=2", "settings": flat,
        "shards": {"a": "[data, model]", "b": "[data, model]", "result0": "[data, model]"},
    }  # fmt: skip
    plans = {}
    for name, rules in (("gathers", RULES), ("panels", (*RULES, "spread/streams"))):
        given = source(text)
        run = eqsat.optimize(
            given, target="tpu-v5e-4x2", rules=rules, budget={"memory": "1 GB"}, **request
        )
        least = run.mesh_front(8, 20.0)[-1]
        plans[name] = least
    panels, gathers = plans["panels"], plans["gathers"]
    (op,) = (v for v in panels.values if v.streams)
    assert op.cut_by == ("stream-summed-loop",) * 2
    assert panels.sent_bytes == gathers.sent_bytes
    assert panels.peak_bytes < gathers.peak_bytes
    assert panels.collectives == {"all-gather": 2 * op.panels}
    program = run.cut_schedule.program
    (told, *lines) = [t.text for t in mesh_told(panels, program, program.value_name(op.node))]
    assert "by stream-summed-loop (" in told
    assert f"in {op.panels} panels: all-gather over " in lines[0]
    assert MeshPlan.from_json(json.loads(json.dumps(panels.to_json()))) == panels
