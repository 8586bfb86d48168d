"""`fusion.row_block`: a contraction reads rows of what roots inside its dispatch compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from library import module
from seeds import one_in

import eqsat
from eqsat.extract.candidates.sources import group_of
from eqsat.extract.check import Checker
from eqsat.extract.session import prepare
from eqsat.lang.programs import parse_program
from eqsat.schedule import faults


def attention(reduced: str = "[24, 20], maps=[[d0, d1, d2]]", row: str = "d1") -> str:
    """Keys and values in heads; scores masked, and a softmax over the loops that are reduced."""
    scores = "loops=[2, 24, 20], maps="
    reduced = f"loops=[2, {reduced[1:]}"
    product = "body=mul(x0, x1), combine=add, rank=3"
    both = f"{scores}[[d0, d1, d2], [d0, {row}]]"
    return f"""
s = generic(q, k, loops=[2, 24, 20, 8], maps=[[d1, d0, d3], [d2, d0, d3]], {product})
t = generic(mask, s, {scores}[[d1, d2], [d0, d1, d2]], body=select(x0, div(x1, 8.0), -1e30), rank=3)
m = generic(t, {reduced}, body=x0, combine=max, rank=2)
e = generic(t, m, {both}, body=exp(sub(x0, x1)), rank=3)
z = generic(e, {reduced}, body=x0, combine=add, rank=2)
p = generic(e, z, {both}, body=div(x0, x1), rank=3)
o = generic(p, v, loops=[2, 24, 8, 20], maps=[[d0, d1, d3], [d3, d0, d2]], {product})
y = transpose(o, perm=[1, 0, 2])
"""


ATTENTION = attention()
COLUMNS = attention("[20, 24], maps=[[d0, d2, d1]]", "d2")
TURNED = ATTENTION.replace(
    "o = generic(p,", "pt = transpose(p, perm=[0, 2, 1])\npu = transpose(pt, perm=[0, 2, 1])\n"
    "o = generic(pu,",
)  # fmt: skip
NORM = """
w = generic(q, loops=[24, 2, 8], maps=[[d0, d1, d2]], body=mul(x0, x0), combine=add, rank=2)
r = generic(q, w, loops=[24, 2, 8], maps=[[d0, d1, d2], [d0, d1]], body=mul(x0, rsqrt(x1)), rank=3)
y = generic(r, k, loops=[2, 24, 20, 8], maps=[[d1, d0, d3], [d2, d0, d3]], body=mul(x0, x1),
  combine=add, rank=3)
"""
ON = ("fusion.row_reductions=3", "fusion.row_block=8")


def searched(body: str, *settings: str):
    text = "program rows\ninput q: f32[24, 2, 8]\ninput k: f32[20, 2, 8]\ninput v: f32[20, 2, 8]\n"
    text += f"input mask: bool[24, 20]\n{body}return y\n"
    return eqsat.optimize(
        parse_program(text), target="reference", goals=["dispatches", "time"], settings=settings
    )


@pytest.mark.parametrize(
    ("body", "settings", "dispatches"),
    one_in(
        2,
        [
            (ATTENTION, ON, 1),
            (ATTENTION, (*ON, "limits.scratch=640 B"), 1),  # 8 rows of 20 floats
            (ATTENTION, (*ON, "limits.scratch=639 B"), 3),
            (TURNED, ON, 1),
            (COLUMNS, ON, 3),
            (NORM, ON, 1),
        ],
    ),
)
def test_what_is_kept_by_rows_is_one_dispatch(body, settings, dispatches):
    run = searched(body, *settings)
    goal = run.summary()["goals"]["dispatches"]
    assert (goal["value"], goal["bound"]) == (dispatches, dispatches)
    assert faults(run.schedule, run.target) == []


def test_the_legality_checker_knows_row_blocks():
    run = searched(ATTENTION, *ON)
    off = replace(run.target, fusion=replace(run.target.fusion, row_block=0))
    assert any("fusion.roots is 1" in f for f in faults(run.schedule, off))
    crowded = replace(run.target, limits=replace(run.target.limits, scratch_bytes=639))
    (fault,) = faults(run.schedule, crowded)
    assert "a row block needs 640 bytes, the scratch limit is 639" in fault


def shaped(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def prefill(q: Any, k: Any, v: Any) -> Any:
    places = np.arange(q.shape[1])
    return module("gpt2").attend(q, k, v, places[:, None] >= places)


def decode(q: Any, k: Any, v: Any, position: Any) -> Any:
    return module("gpt2").attend(q, k, v, (np.arange(k.shape[1]) <= position)[None])


def grouped(q: Any, k: Any, v: Any) -> Any:
    """Llama's: four heads of queries, two of keys and values, by tokens."""
    q = q.transpose(1, 0, 2).reshape(2, 48, 16)
    scores = jnp.einsum("sqd,ksd->sqk", q, k) / 4
    allowed = np.tile(np.arange(24), 2)[:, None] >= np.arange(24)
    weights = jax.nn.softmax(jnp.where(allowed, scores, jnp.finfo("f4").min), axis=-1)
    return jnp.einsum("sqk,ksd->sqd", weights, v)


HEADS = (shaped(2, 24, 16),) * 3
CACHE = (shaped(2, 1, 16), *HEADS[1:], shaped(dtype="int32"))
GROUPED = (shaped(24, 4, 16), shaped(24, 2, 16), shaped(24, 2, 16))


@pytest.mark.parametrize(
    ("program", "arguments"), one_in(3, [(grouped, GROUPED), (prefill, HEADS), (decode, CACHE)])
)
def test_attention_is_one_kernel(program, arguments):
    run = eqsat.optimize(program, *arguments, target="avx512")
    assert run.schedule is not None
    time = run.summary()["goals"]["time_us"]
    assert time["value"] == time["bound"]
    kinds = [d.plan.kind for d in run.schedule.dispatches if d.plan]
    assert kinds.count("row_blocks") == 1
    assert "contraction" not in kinds
    assert faults(run.schedule, run.target) == []


def norm(x: Any, w: Any, b: Any, g: Any) -> Any:
    """A contraction's residual, then a norm by the mean of squares less the mean's square."""
    z = x @ w + b + x
    mean, square = z.mean(-1, keepdims=True), jnp.square(z).mean(-1, keepdims=True)
    return (z - mean) * jax.lax.rsqrt(square - mean * mean + 1e-5) * g


def test_a_norm_is_one_kernel_behind_the_sum_it_norms():
    shapes = shaped(32, 64), shaped(64, 64), shaped(64), shaped(64)
    run = eqsat.optimize(norm, *shapes, weights=("w", "b", "g"), target="avx512")
    assert run.schedule is not None
    first, second = run.schedule.dispatches
    assert first.ops.startswith("contraction+elementwise")
    assert second.ops.count("reduction") == 2 and "elementwise" in second.ops
    assert [d.plan.kind for d in (first, second) if d.plan] == ["contraction", "rows"]


def test_every_candidate_passes_the_checker():
    """Packed readers, whose rows end in pads, of sums of plain rows are none."""

    def attention(q, k, v, bias):
        scores = jnp.einsum("hqd,hkd->hqk", q, k) + bias
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)

    shapes = [(6, 49, 32)] * 3 + [(6, 49, 49)]
    arguments = [jax.ShapeDtypeStruct(s, "float32") for s in shapes]
    run = eqsat.optimize(attention, *arguments, target="avx512", stop_after="egraph")
    assert run.egraph is not None
    session = prepare(run.egraph, run.target, run.goals)
    space, sources = session.assembly.space, session.assembly.sources
    assert session.baseline is not None
    assert len(sources.candidates) > 100
    for c in sources.candidates.candidates:
        group = group_of(sources.costs, c, [space.buffer[w] for w in c.writes], 0)
        selection = replace(session.baseline, groups=(group,))
        wrong = Checker(space, run.target, selection).all_group_faults()
        assert not [f for f in wrong if " ps, not 0" not in f]  # no price is stated
