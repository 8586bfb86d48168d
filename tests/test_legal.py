"""The checker of schedules: a legal one for every key of a target, and what breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.pipelines import Intrinsic, Pipeline
from eqsat.model.schedule import Buffer, Dispatch, Schedule
from eqsat.model.target import DispatchLimits as Limits
from eqsat.model.target import Fusion, Memory, Target
from eqsat.schedule.legal import faults


def toy(limits: Limits | None = None, *pipelines: Pipeline, **fusion: Any) -> Target:
    memory = (Memory("ram", 1 << 40, 1e9),)
    wide = {"multi_result": True, "siblings": True, "index_relation": "any", "members": 8}
    made = Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, (), file="toy.yaml")
    rules = Fusion(**(wide | fusion))
    return replace(made, fusion=rules, limits=limits or Limits(), pipelines=pipelines)


def scheduled(text: str, *groups: list[int]) -> Schedule:
    """A schedule that cuts a program into these dispatches; figures are those of the borders."""
    program = parse_program(text)
    views = {"reshape", "relax"}

    def base(i: int) -> int:
        while program.nodes[i].op in views:
            (i,) = program.nodes[i].operands
        return i

    used = [{base(o) for m in g for o in program.nodes[m].operands} for g in groups]
    results = {base(r) for r in program.results}
    dispatches, buffers, written = [], [], {}
    for step, members in enumerate(groups):
        fills = {i for i, n in enumerate(program.nodes) if n.op == "fill"}
        reads = sorted(used[step] - set(members) - fills)
        later = {u for i, us in enumerate(used) if i != step for u in us - set(groups[i])}
        is_view = {m for m in members if program.nodes[m].op in views}
        writes = sorted(m for m in set(members) - is_view if m in later | results)
        writes = [w for w in writes if w not in written]
        written |= dict.fromkeys(writes, step)
        sides = tuple(reads), tuple(writes)
        dispatches.append(Dispatch(tuple(members), *sides, 5, step, "d", pipeline="tiny"))
    for i, n in enumerate(program.nodes):
        roles = {"input": "argument", "weight": "weight"}
        if n.op in roles or i in written:
            role = roles.get(n.op, "result" if i in results else "temporary")
            buffers.append(Buffer(i, n.types[0].nbytes, role, written.get(i, 0), len(groups)))
    return Schedule(program, tuple(dispatches), tuple(buffers), (), "toy")


CHAIN = """
input x: f32[4, 4]
input y: f32[4, 4]
a = exp(x)
b = tanh(a)
c = add(b, y)
return c
"""
MATMULS = """
input x: f32[4, 4]
input w: f32[4, 4]
h = matmul(x, w)
r = relu(h)
z = matmul(r, w)
return z
"""
TURNED = """
input x: f32[4, 4]
a = exp(x)
b = generic(a, loops=[4, 4], maps=[[d1, d0]], body=tanh(x0))
return b
"""
DIAGONAL = """
input x: f32[4, 4]
a = exp(x)
b = generic(a, loops=[4], maps=[[d0, d0]], body=tanh(x0))
return b
"""
BROADCAST = """
input x: f32[4, 4]
input w: f32[4, 4]
h = matmul(x, w)
r = relu(h)
b = generic(r, loops=[3, 4, 4], maps=[[d1, d2]], body=tanh(x0))
return b
"""
ROWS = """
input x: f32[4, 8]
a = generic(x, loops=[4, 8], maps=[[d0, d1]], body=x0, combine=add, rank=1)
b = generic(x, a, loops=[4, 8], maps=[[d0, d1], [d0]], body=sub(x0, x1))
c = generic(a, loops=[4, 9], maps=[[d0]], body=exp(x0))
return b, c
"""
SEVERAL = """
input x: f32[4, 4]
a = generic(x, loops=[4, 4], maps=[[d0, d1]], body=[exp(x0), tanh(x0)])
p = result(a, index=0)
q = result(a, index=1)
r = relu(p)
return r, q
"""
SIBLINGS = """
input x: f32[4, 4]
input y: f32[4, 4]
a = exp(x)
b = generic(x, loops=[4, 4], maps=[[d1, d0]], body=tanh(x0))
c = tanh(y)
return a, b, c
"""
FORK = """
input x: f32[4, 4]
a = exp(x)
b = tanh(a)
c = neg(a)
return b, c
"""
CASTS = """
input x: f32[4, 4]
a = cast(x, f64)
b = tanh(a)
c = neg(a)
return b, c
"""
COPIES = """
input x: f32[4]
a = generic(x, loops=[4, 4], maps=[[d0]], body=x0)
b = tanh(a)
c = neg(a)
return b, c
"""
PACKED = """
input x: f32[4, 8]
input w: f32[8, 4]
p = pack(x, pos=[0], tiles=[2])
q = pack(w, pos=[1], tiles=[4], outer=[1, 0])
r = generic(p, q, loops=[2, 1, 2, 4, 8], maps=[[d0, d4, d2], [d1, d4, d3]], body=mul(x0, x1),
    combine=add, rank=4, tile=[2, 4, 1])
return r
"""
ENCODED = """
input x: f32[4, 4]
e = set_encoding(x, role="lhs")
y = unset_encoding(e, role="lhs")
return y
"""
HELD = """
input x: f32[6, 4]
input w: f32[4, 10]
h = matmul(x, w)
r = relu(h)
return r
"""
BY_ROWS = """
input x: f32[6, 4]
input w: f32[4, 10]
n = generic(x, loops=[6, 4], maps=[[d0, d1]], body=mul(x0, x0), combine=add, rank=1)
s = generic(x, n, loops=[6, 4], maps=[[d0, d1], [d0]], body=div(x0, x1), rank=2)
y = matmul(s, w)
return y
"""
BY_COLUMNS = BY_ROWS.replace("[4, 10]", "[6, 10]").replace(
    "matmul(s, w)",
    "generic(s, w, loops=[4, 10, 6], maps=[[d2, d0], [d2, d1]], body=mul(x0, x1), combine=add)",
)
Groups = tuple[list[int], ...]
APART = """
input x: f32[6, 4]
s = generic(x, loops=[6, 4], maps=[[d0, d1]], body=x0, combine=add, rank=1)
t = generic(s, loops=[2, 2], maps=[[d0 + d1]], body=x0, rank=2)
return t
"""
TINY = Pipeline("tiny", (2,), (4,), (2,), unaligned="whole")  # 10 has no tile of 4
F16 = (Intrinsic((1, 1, 1), ("f16",)),)
FAST = replace(TINY, rate=1.0)  # 2 * 6 * 4 * 10 operations take 480 ps at 1 TFLOP/s
MUTATIONS: dict[str, tuple[str, Groups, Target, Target | Groups, str]] = {
    "members": (CHAIN, ([2, 3, 4],), toy(members=3), toy(members=2), "fusion.members is 2"),
    "template": (
        HELD.replace("r = relu(h)", "q = exp(h)\nr = relu(q)"), ([2, 3, 4],),
        toy(members=2, template=3), toy(members=2, template=2), "3 ops, fusion.members is 2",
    ),
    "template without a root": (
        CHAIN, ([2, 3], [4]), toy(members=2, template=9), ([2, 3, 4],), "fusion.members is 2",
    ),
    "operands": (CHAIN, ([2, 3, 4],), toy(operands=3), toy(operands=2), "fusion.operands is 2"),
    "roots": (
        MATMULS, ([2, 3], [4]), toy(), ([2, 3, 4],), "fusion.roots is 1",
    ),
    "join": (
        CHAIN, ([2, 3, 4],), toy(), toy(join=(("elementwise", ("contraction",)),)), "fusion.join",
    ),
    "identity": (
        TURNED, ([1, 2],), toy(index_relation="permutation"), toy(index_relation="identity"),
        "by no identity of its loops",
    ),
    "result_relation": (
        TURNED.replace("tanh(x0)", "tanh(x0), order=[1, 0]"), ([1, 2],),
        toy(index_relation="identity"), toy(index_relation="identity", result_relation="identity"),
        "%b writes its result permuted (toy.yaml)",
    ),
    "permutation": (
        DIAGONAL, ([1, 2],), toy(), toy(index_relation="permutation"),
        "by no permutation of its loops",
    ),
    "repeats": (BROADCAST, ([2, 3], [4]), toy(), ([2, 3, 4],), "more than once"),
    "row_reductions": (
        ROWS, ([1, 2], [3]), toy(row_reductions=2), toy(), "%b would compute %a more than once",
    ),
    "row_block": (
        BY_ROWS, ([2, 3, 4],), toy(row_block=2), toy(), "%y would compute %s more than once",
    ),
    "rows in scratch": (
        BY_ROWS, ([2, 3, 4],), toy(Limits(scratch_bytes=32), row_block=2),
        toy(Limits(scratch_bytes=31), row_block=2), "a row block needs 32 bytes",
    ),
    "rows along the sum": (
        BY_COLUMNS, ([2, 3], [4]), toy(row_reductions=2, row_block=2), ([2, 3, 4],),
        "%y does not read the same rows of all other roots",
    ),
    "longer rows": (ROWS, ([1, 2], [3]), toy(row_reductions=2), ([1, 2, 3],), "more than once"),
    "several": (SEVERAL, ([1, 2, 3], [4]), toy(), ([1, 2, 3, 4],), "has several results"),
    "multi_result": (
        FORK, ([1, 2, 3],), toy(), toy(multi_result=False, siblings=False), "writes 2 results",
    ),
    "inner result": (
        CHAIN.replace("return c", "return a, c"), ([2, 3, 4],), toy(), toy(multi_result=False),
        "which is also used inside",
    ),
    "siblings": (
        SIBLINGS, ([2, 3], [4]), toy(), toy(siblings=False), "do not hang together",
    ),
    "apart": (SIBLINGS, ([2, 3], [4]), toy(), ([2], [3, 4]), "share no operand"),
    "unfused": (
        SIBLINGS, ([2, 3], [4]), toy(Limits(vector_bytes=64)), toy(Limits(vector_bytes=63)),
        "the unfused %b needs 64 bytes, the vector limit is 63",
    ),
    "clone": (
        FORK, ([1, 2], [1, 3]), toy(clone=("elementwise",)), toy(clone=("cast", "broadcast")),
        "may not be cloned",
    ),
    "clone cast": (
        CASTS, ([1, 2], [1, 3]), toy(clone=("cast",)), toy(clone=("broadcast",)), "not be cloned",
    ),
    "clone copy": (
        COPIES, ([1, 2], [1, 3]), toy(clone=("broadcast",)), toy(clone=("cast",)), "not be cloned",
    ),
    "clone root": (
        MATMULS.replace("z = matmul(r, w)\nreturn z", "s = neg(h)\nreturn r, s"),
        ([2, 3, 4],), toy(clone=("all",)), ([2, 3], [2, 4]), "may not be cloned",
    ),
    "vector of a pack": (
        PACKED, ([2], [3], [4]), toy(Limits(vector_bytes=32)), toy(Limits(vector_bytes=15)),
        "a tile of %q needs 16 bytes, the vector limit is 15",
    ),
    "vector of a tile": (
        PACKED, ([2], [3], [4]), toy(Limits(vector_bytes=32)), toy(Limits(vector_bytes=31)),
        "the tile of %r needs 32 bytes, the vector limit is 31",
    ),
    "scratch of a tile": (
        PACKED, ([2], [3], [4]), toy(Limits(scratch_bytes=56)), toy(Limits(scratch_bytes=55)),
        "the tiles of %r needs 56 bytes, the scratch limit is 55",
    ),
    "scratch of a packed workgroup": (
        PACKED, ([2], [3], [4]), toy(Limits(scratch_bytes=24), TINY),
        toy(Limits(scratch_bytes=23), TINY), "keeps of %r needs 24 bytes",
    ),
    "scratch held whole": (
        HELD, ([2, 3],), toy(Limits(scratch_bytes=80), TINY), toy(Limits(scratch_bytes=79), TINY),
        "keeps of %h needs 80 bytes, the scratch limit is 79",
    ),
    "scratch with a reader": (
        HELD, ([2], [3]), toy(Limits(scratch_bytes=79), TINY), ([2, 3],), "needs 80 bytes",
    ),
    "scratch promoted": (
        HELD.replace("10]", "12]"), ([2, 3],), toy(Limits(scratch_bytes=48), TINY),
        toy(Limits(scratch_bytes=47), TINY), "keeps of %h needs 48 bytes",
    ),
    "scratch of a reduction": (
        APART, ([1, 2],), toy(Limits(scratch_bytes=24), TINY),
        toy(Limits(scratch_bytes=23), TINY), "%s needs 24 bytes",
    ),
    "a pipeline that is not there": (
        HELD, ([2], [3]), toy(None, TINY), toy(None, replace(TINY, name="other")),
        "is computed by `tiny`, no pipeline of toy",
    ),
    "a pipeline for other types": (
        HELD, ([2], [3]), toy(None, TINY), toy(None, replace(TINY, intrinsics=F16)),
        "`tiny` does not take %h",
    ),
    "a pipeline that wants tiles": (
        HELD, ([2], [3]), toy(None, TINY), toy(None, replace(TINY, unaligned="refused")),
        "`tiny` does not take %h",
    ),
    "a pipeline's time": (
        HELD, ([2], [3]), replace(toy(None, FAST), rates=(("f32", 1e15),)),
        replace(toy(None, FAST), rates=(("f32", 1e12),)), "takes 5 ps, `tiny` needs 480 for %h",
    ),
    "a pipeline's padding": (
        HELD, ([2], [3]), replace(toy(None, FAST), rates=(("f32", 2e14),)),
        replace(toy(None, replace(FAST, n=(32,), unaligned="padded")), rates=(("f32", 2e14),)),
        "takes 5 ps, `tiny` needs 8 for %h",
    ),
    "tiles forced": (
        HELD, ([2, 3],), toy(), replace(toy(), tiles_forced=True), "is an unpacked contraction",
    ),
    "no data tiling": (
        PACKED, ([2], [3], [4]), toy(), replace(toy(), data_tiling=False), "is packed by 2x4x1",
    ),
    "an encoding": (
        ENCODED, ([1, 2],), toy(join=(("conversion", ("conversion",)),)),
        replace(toy(join=(("conversion", ("conversion",)),)), data_tiling=False),
        "%e (set_encoding) is left",
    ),
    "time": (
        CHAIN, ([2, 3, 4],), replace(toy(), budget=(("time", 5),)),
        replace(toy(), budget=(("time", 4),)), "needs 5 ps, the budget is 4",
    ),
    "memory": (
        CHAIN, ([2, 3, 4],), replace(toy(), budget=(("memory", 192),)),
        replace(toy(), budget=(("memory", 191),)), "needs 192 bytes, the budget is 191",
    ),
    "dispatches": (
        CHAIN, ([2, 3, 4],), replace(toy(), budget=(("dispatches", 1),)), ([2], [3, 4]),
        "needs 2 dispatches, the budget is 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_checker_finds_every_kind_of_fault(name: str):
    text, groups, target, broken, words = MUTATIONS[name]
    legal = scheduled(text, *groups)
    legal.verify()
    assert faults(legal, target) == []
    if isinstance(broken, Target):
        found = faults(legal, broken)
    else:
        found = faults(scheduled(text, *broken), target)
    assert any(words in f for f in found), found
    assert all("toy.yaml" in f or "%" in f for f in found)


def test_what_the_author_wrote_is_no_fault():
    for text, groups in ((PACKED, ([2], [3], [4])), (ENCODED, ([1], [2]))):
        found = scheduled(text, *groups)
        target = replace(toy(), data_tiling=False)
        assert faults(found, target)
        assert faults(found, target, parse_program(text)) == []


def test_the_checker_finds_reads_of_what_is_not_there():
    good = scheduled(CHAIN, [2, 3], [4])
    first, second = good.dispatches
    assert faults(good, toy()) == []
    silent = replace(good, dispatches=(replace(first, writes=()), second))
    assert any("reads %b, which was not written" in f for f in faults(silent, toy()))
    blind = replace(good, dispatches=(first, replace(second, reads=(1,))))
    assert any("%c reads %b, which is neither" in f for f in faults(blind, toy()))
    unmade = replace(good, dispatches=(first, replace(second, writes=())))
    assert faults(unmade, toy()) == ["result %c is never written"]
    late = replace(good, dispatches=(replace(first, step=1), replace(second, step=0)))
    assert faults(late, toy()) == ["dispatch 1 runs at step 0, after step 1"]
    dead = [replace(b, last=0) if b.node == 3 else b for b in good.buffers]
    found = faults(replace(good, buffers=tuple(dead)), toy())
    assert found == ["dispatch 1 reads %b after its buffer is gone"]


@pytest.mark.parametrize("target", ["gfx942", "sm_90", "vmvx-like", "spirv-like"])
@pytest.mark.parametrize("program", seeds(1, ["padded_chain", "transposed_pack", "residual"]))
def test_schedules_of_every_target_are_legal(program: str, target: str):
    run = eqsat.optimize(eqsat.read(program), target=target)
    assert run.schedule is not None
    assert run.baseline_schedule is not None
    assert faults(run.schedule, run.target) == []
    assert faults(run.baseline_schedule, run.target, run.canonical) == []


def test_encodings_become_nothing_without_data_tiling():
    text = (
        "input x: f32[64, 32]\ninput w: f32[32, 48]\n"
        'a = set_encoding(x, role="lhs")\nb = set_encoding(w, role="rhs")\n'
        'c = matmul(a, b)\ny = unset_encoding(c, role="result")\nreturn y\n'
    )
    run = eqsat.optimize(parse_program(text), target="spirv-like")
    assert run.schedule is not None
    assert {n.op for n in run.schedule.program.nodes} == {"input", "generic"}


def test_what_failed_on_vulkan_is_illegal_there():
    """IREE issue 8951: a reader through a permuted map is no member of a product's dispatch."""
    program = eqsat.read("permuted_consumer.mlir")
    run = eqsat.optimize(program, target="spirv-like", without=["interchange"])
    assert len(run.schedule.dispatches) == 2
    setting = ("fusion.index_relation=permutation",)
    follows = eqsat.optimize(
        program, target="spirv-like", without=["interchange"], settings=setting
    )
    assert len(follows.schedule.dispatches) == 1


def test_a_schedule_that_is_not_legal_is_our_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.schedule.faults", lambda *_: ["something is wrong"])
    with pytest.raises(EqsatError, match=r"E905.*something is wrong") as caught:
        eqsat.optimize(
            parse_program("input x: f32[4]\ny = relu(x)\nreturn y\n"), target="reference"
        )
    assert caught.value.exit_code == 4
