"""What nobody reads is not computed: the answers of `full`, and what is not looked at."""

from __future__ import annotations

import math

import numpy as np
import pytest
from seeds import one_in

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.model.generic import Generic
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.run import Run

SUM = ", body=mul(x0, x1), combine=add, rank="
NEW = ("algebra/demand", "algebra/folds", "algebra/zeros", "algebra/repeats")

# lines of a program, and how many times fewer multiply-adds will do
LESS = {
    "last token": (
        ["input x: f32[2, 32, 64]", "weight w: f32[64, 128]",
         "y = generic(x, w, loops=[2, 32, 128, 64], maps=[[d0, d1, d3], [d3, d2]]" + SUM + "3)",
         "z = slice(y, start=[0, 31, 0], limit=[2, 32, 128])"], 32),
    "embedding": (
        ["weight e: f32[400, 16]", "weight w: f32[16, 64]", "input i: i32[8]", "input s: f32[16]",
         "u = generic(e, s, loops=[400, 16], maps=[[d0, d1], [d1]], body=mul(x0, x1))",
         "y = matmul(u, w)", "z = gather(y, i, axis=0)"], 50),
    "two layers": (
        ["input x: f32[64, 32]", "weight w: f32[32, 32]", "weight v: f32[32, 32]",
         "y = matmul(relu(matmul(x, w)), v)", "z = slice(y, start=[0, 0], limit=[4, 32])"], 16),
    "window": (
        ["input x: f32[32, 400]", "weight w: f32[64, 32, 5]",
         "y = generic(x, w, loops=[64, 396, 32, 5], "
         "maps=[[d2, d1 + d3], [d0, d2, d3]]" + SUM + "2)",
         "z = slice(y, start=[0, 8], limit=[64, 52])"], 9),
    "padded rows": (
        ["input x: f32[8, 32]", "weight w: f32[32, 32]",
         "z = matmul(pad(x, low=[0, 0], high=[56, 0], value=0.0), w)"], 8),
    "tiled rows": (
        ["input x: f32[64, 128]", "weight w: f32[128, 256]",
         "r = generic(x, loops=[8, 64, 128], maps=[[d1, d2]], body=x0)",
         "z = matmul(reshape(r, shape=[512, 128]), w)"], 8),
    "one row": (
        ["input v: f32[128]", "weight w: f32[128, 256]",
         "z = generic(v, w, loops=[64, 256, 128], maps=[[d2], [d2, d1]]" + SUM + "2)"], 64),
}  # fmt: skip


def work_of(program: Program) -> int:
    """Multiply-adds of all contractions."""
    return sum(_work(n.attr) for n in program.nodes)


def work(run: Run) -> int:
    """Multiply-adds of the contractions that were chosen."""
    assert run.egraph is not None and run.selection is not None
    return sum(_work(run.egraph.nodes[i].attr) for g in run.selection.groups for i in g.members)


def _work(attr: object) -> int:
    is_one = isinstance(attr, Generic) and contraction_roles(attr) is not None
    return math.prod(attr.sizes) if is_one else 0


@pytest.mark.parametrize("name", one_in(4, LESS))
def test_less_is_computed(name: str) -> None:
    lines, times = LESS[name]
    program = parse_program("\n".join(("program p", *lines, "return z")), "p.eqs")
    run = eqsat.optimize(program, rules=["full"], target="avx512-xla", verify=True)
    assert run.verification is not None and run.verification.ok
    assert work(run) * times == work_of(program)


def test_an_element_per_row_needs_no_other() -> None:
    """Of flattened rows less a number each: whatever the indices are, they are clipped alike."""
    lines = [
        "program p", "input x: f32[512, 256]", "input s: f32[512]", "input i: i32[16]",
        "y = generic(x, s, loops=[512, 256], maps=[[d0, d1], [d0]], body=exp(sub(x0, x1)))",
        "j = generic(i, loops=[16], maps=[[d0]], body=mul(x0, 999))",
        "z = gather(reshape(y, shape=[131072]), reshape(j, shape=[16, 1]), axis=0)", "return z",
    ]  # fmt: skip
    run = eqsat.optimize(
        parse_program("\n".join(lines), "p.eqs"), rules=["full"], target="avx512-xla"
    )
    sizes = [n.attr.sizes for n in run.schedule.program.nodes if isinstance(n.attr, Generic)]
    assert (512, 256) not in sizes
    rng = np.random.default_rng(0)
    x, s = rng.standard_normal((512, 256), "f"), rng.standard_normal(512, "f")
    i = np.array([-9, -1, 0, 5, 8, 127, 128, 200, 1, 2, 3, 40, 50, 60, 70, 80], "i4")
    flat = np.exp(x - s[:, None]).reshape(-1)
    wanted = np.take(flat, (999 * i)[:, None], mode="clip")
    np.testing.assert_allclose(run.compile()(x, s, i)[0], wanted, rtol=1e-6)


def without_new() -> RuleSet:
    rules = load_rulesets(["full"])
    gone = {r.name for s in NEW for r in load_rulesets([s]).rules if "simplify" not in r.ruleset}
    return rules.without(*gone)


ALL_READ = {
    "split in three": ["y = matmul(x, w)", *(
        f"z{i} = slice(y, start=[0, {8 * i}], limit=[16, {8 * i + 8}])" for i in range(3)
    ), "return z0, z1, z2"],
    "most of it": [
        "y = matmul(x, w)", "z = slice(y, start=[1, 0], limit=[16, 24])", "return z"
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(2, ALL_READ))
def test_nothing_grows_where_nothing_is_wasted(name: str) -> None:
    lines = ["program p", "input x: f32[16, 32]", "weight w: f32[32, 24]", *ALL_READ[name]]
    program = parse_program("\n".join(lines), "p.eqs")
    with_new, old = (
        eqsat.optimize(program, rules=r, target="avx512-xla") for r in (["full"], without_new())
    )
    assert len(with_new.egraph.nodes) == len(old.egraph.nodes)


# lines of a program, and shapes of which no value of the answer may be
NEVER_MADE = {
    "rows of a norm": (
        ["input x: f32[400, 64]", "input m: f32[400]", "input s: f32[400]", "input b: f32[64]",
         "input i: i32[8]",
         "y = generic(x, m, s, b, loops=[400, 64], maps=[[d0, d1], [d0], [d0], [d1]], "
         "body=add(mul(sub(x0, x1), x2), x3))", "z = gather(y, i, axis=0)"], (400, 64)),
    "last of a look-up": (
        ["input x: f32[400, 64]", "input i: i32[2, 50]", "y = gather(x, i, axis=0)",
         "z = slice(y, start=[0, 49, 0], limit=[2, 50, 64])"], (2, 50, 64)),
    "function of a repeated row": (
        ["input x: f32[64]", "input w: f32[64, 32]",
         "y = generic(x, loops=[400, 64], maps=[[d1]], body=exp(x0))",
         "z = matmul(y, w)"], (400, 64)),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(2, NEVER_MADE))
def test_what_nobody_needs_is_not_made(name: str) -> None:
    lines, shape = NEVER_MADE[name]
    program = parse_program("\n".join(("program p", *lines, "return z")), "p.eqs")
    run = eqsat.optimize(program, rules=["full"], target="avx512-xla", verify=True)
    assert run.verification is not None and run.verification.ok
    assert run.egraph is not None and run.selection is not None
    nodes = [run.egraph.nodes[i] for g in run.selection.groups for i in g.members]
    made = [n.attr.value_shape(n.op) for n in nodes if n.op not in ("input", "weight")]
    assert made and shape not in made


def test_repeats_of_a_reduction_are_no_loop() -> None:
    lines = [
        "input x: f32[64]",
        "z = generic(x, loops=[64, 16], maps=[[d0]], body=exp(x0), combine=max, rank=1)",
    ]
    program = parse_program("\n".join(("program p", *lines, "return z")), "p.eqs")
    run = eqsat.optimize(program, rules=["full"], target="avx512-xla", verify=True)
    assert run.verification is not None and run.verification.ok
    assert run.egraph is not None and run.selection is not None
    nodes = [run.egraph.nodes[i] for g in run.selection.groups for i in g.members]
    assert all(math.prod(n.attr.sizes) == 64 for n in nodes if isinstance(n.attr, Generic))
