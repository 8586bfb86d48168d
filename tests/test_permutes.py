"""The least permutes of a program: forced orders, the goal, and ExecuTorch's matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from permutemodules import CASES, LAST, attention, lstm
from permutes import PUBLISHED, row, searched

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.schedule import faults

BLOCK = """
program block
input x: f32[1, 3, 8, 8]
y = transpose(x, perm=[0, 2, 3, 1])
z = relu(y)
r = transpose(z, perm=[0, 2, 1, 3])
return r
"""
COLUMNS = """
program columns
input x: f32[8, 4]
input w: f32[8, 6]
r = generic(x, w, loops=[4, 6, 8], maps=[[d2, d0], [d2, d1]], body=mul(x0, x1), combine=add)
return r
"""


def transposes(jaxpr) -> int:
    """Those in a jaxpr and the ones inside."""
    count = 0
    for e in jaxpr.eqns:
        count += e.primitive.name == "transpose"
        inner = [v for v in e.params.values() if hasattr(v, "jaxpr")]
        count += sum(transposes(v.jaxpr) for v in inner)
    return count


# ---- the matrix ----------------------------------------------------------------------------------
def test_functions_have_the_permutes_that_were_published():
    found = {n: transposes(jax.make_jaxpr(c.function)(*c.example).jaxpr) for n, c in CASES.items()}
    assert found == {n: c.permutes for n, c in CASES.items()}
    assert (len(CASES), sum(found.values()), len(LAST)) == (36, PUBLISHED["exported"], 13)


def test_functions_compute_what_the_layers_do():
    draw = np.random.default_rng(0).standard_normal
    of = lambda case: {k: jnp.asarray(draw(s), "float32") for k, s in case.weights.items()}  # noqa: E731
    w, x = of(CASES["multihead_attention_rank3"]), jnp.asarray(draw((2, 4, 8)), "float32")
    np.testing.assert_allclose(attention(x, w)[1], attention(x[1], w), rtol=2e-4, atol=2e-5)
    q, k, v = np.split(x[1] @ w["in_proj"].T + w["in_offset"], 3, axis=-1)
    heads = [(a[:, :4], a[:, 4:]) for a in (q, k, v)]
    each = [jax.nn.softmax(a @ b.T / 2) @ c for a, b, c in zip(*heads, strict=True)]
    alone = np.concatenate(each, -1) @ w["out_proj"].T + w["out_offset"]
    np.testing.assert_allclose(attention(x[1], w), alone, rtol=2e-4, atol=2e-5)
    w = of(CASES["lstm"])
    np.testing.assert_allclose(lstm(x, w)[:, :2], lstm(x[:, :2], w), rtol=1e-4, atol=1e-5)


LEAST = {
    "linear_rank2": (0, 0), "conv1d_rank2": (2, 2), "conv2d_rank4": (2, 2), "transposes": (1, 1),
    "maxpool2d_dilation": (0, 0), "lstm": (0, 0), "multihead_attention_rank2": (3, 1),
    "permute_silu_permute": (0, 0), "pixel_shuffle": (1, 1),
    "model_7_dwconv_batchnorm_linear": (1, 1),
    "conv2d_rank4_channels_last": (0, 0), "maxpool2d_dilation_channels_last": (0, 0),
    "linear_rank4_channels_last": (1, 1), "transposes_channels_last": (1, 1),
    "matmul_rank4_channels_last": (2, 2), "groupnorm_channels_last": (0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAST)
def test_least_permutes_are_proven(name):
    found = row((CASES | LAST)[name])
    assert (found["least"], found["bound"]) == (LEAST[name][0],) * 2
    assert found["at_border"] == LEAST[name][1], "a caller can have each of these"


def test_answer_computes_the_same():
    case = CASES["model_7_dwconv_batchnorm_linear"]
    run = eqsat.optimize(
        case.function, *case.example, weights=["weights"], target="cortex-m-like",
        goals=("permutes", "time"), rules="permutes", verify=True,
    )  # fmt: skip
    assert run.verification is not None
    assert run.schedule.permutes == 1


# ---- what a target forces ------------------------------------------------------------------------
def test_a_left_operand_by_columns_is_transposed():
    run = eqsat.assert_permutes(parse_program(COLUMNS), 1)
    assert "transpose(x, perm=[1, 0])" in str(run.schedule.program)
    plain = eqsat.optimize(parse_program(COLUMNS), target="reference", goals=("permutes",))
    assert plain.schedule.permutes == 0
    told = faults(plain.schedule, eqsat.target("cortex-m-like"))
    assert any("reads or writes in another order than its kernel" in f for f in told)
    assert not faults(run.schedule, eqsat.target("cortex-m-like"))


def test_without_the_rules_nothing_is_admissible():
    with pytest.raises(EqsatError, match=r"`orders_forced`.*rules out") as error:
        eqsat.optimize(
            parse_program(COLUMNS),
            target="cortex-m-like",
            rules=("default",),
        )
    assert error.value.diagnostics[0].code == "E410"


def test_other_targets_never_meet_the_rules():
    rules = ("default", "layout/straighten")
    run = eqsat.optimize(parse_program(COLUMNS), target="reference", rules=rules, cache=False)
    assert not {r.name for r in run.egraph.rules} & {"straighten-operand", "order-result"}


def test_dims_of_extent_1_are_no_permute():
    text = BLOCK.replace("[1, 3, 8, 8]", "[1, 1, 8, 8]").replace("[0, 2, 1, 3]", "[3, 0, 1, 2]")
    eqsat.assert_permutes(parse_program(text), 0)


# ---- in a user's tests ---------------------------------------------------------------------------
def test_another_number_says_what_is_left():
    assert eqsat.assert_permutes(parse_program(BLOCK), 1).schedule.permutes == 1
    with pytest.raises(AssertionError, match=r"is 1 \(proven\), not 0: transpose\("):
        eqsat.assert_permutes(parse_program(BLOCK), 0)
    with pytest.raises(AssertionError, match=r"is 1 \(proven\), not 2"):
        eqsat.assert_permutes(parse_program(BLOCK), 2)


def test_what_is_not_proven_is_no_answer():
    with pytest.raises(AssertionError, match="nothing is proven"):
        eqsat.assert_permutes(parse_program(BLOCK), 0, extractor="greedy", rules=[])


def test_a_budget_of_permutes_is_kept_or_refused():
    with pytest.raises(EqsatError) as error:
        eqsat.optimize(parse_program(BLOCK), target="cortex-m-like", budget={"permutes": 0})
    assert error.value.diagnostics[0].code == "E410"


def test_the_search_is_of_every_run():
    run = searched(CASES["linear_rank2"])
    assert dict(run.selection.goals)["permutes"].bound == 0
