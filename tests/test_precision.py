"""The precision of contractions: read, kept by every rule, executed, written and read back."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.drawer import Drawer
from jax import lax
from products import MAPS, MUL, NUMBERS, A, B, dot, lowered, matmul, precisions
from seeds import one_in, seeds

import eqsat
from eqsat.execute.expressions import dot_general
from eqsat.frontends.jaxpr import trace
from eqsat.hunt.instances import Instance
from eqsat.hunt.search import rows_at
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.rulesets import read_ruleset
from eqsat.lang.targets import load_target, read_target
from eqsat.model.affine import affine, dim
from eqsat.model.attr import Attr, ShapeError
from eqsat.model.diag import EqsatError
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Leaf
from eqsat.model.ops import attr_from_json
from eqsat.model.program import Program
from eqsat.model.rules import Apply, Splat, Term
from eqsat.model.tensor import (
    ALGORITHMS,
    DEFAULT,
    HIGH,
    HIGHEST,
    NONE,
    PRECISIONS,
    TensorType,
    algorithm_name,
    significand_bits,
)
from eqsat.ops.algebra.laws import law
from eqsat.ops.algebra.siblings import merge_contractions
from eqsat.ops.algebra.simplify import simplify, without_unread
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.spelling.passes import canonical
from eqsat.plugins import find_names
from eqsat.saturate import saturate
from tests.test_hunt import SHIPPED


# ---- the record --------------------------------------------------------------------------------
def test_only_contractions_have_one_so_that_equal_generics_are_equal():
    rows = Generic(
        (4, 6), 1, ((dim(0), dim(1)),), ((4, 6),), (Yield(arg(0), "f32", "add"),), (), ("f32",)
    )
    assert replace(rows, precision=HIGH) == rows
    assert rows.precision == NONE
    assert matmul(HIGH, dtype="i32", dtypes=("i8", "i8")).precision == NONE
    assert matmul(HIGH, combine="max").precision == NONE
    assert matmul(HIGH, MUL.substitute({1: arg(0)})).precision == NONE  # a sum of squares
    wide = call("mul", cast(arg(0), "f32"), cast(arg(1), "f32"))
    assert matmul(HIGH, wide, dtypes=("bf16", "bf16")).precision == HIGH
    assert len({matmul(p) for p in PRECISIONS}) == len(PRECISIONS)


def test_what_comes_from_no_contraction_is_computed_in_full():
    longer = matmul(HIGH, call("mul", MUL, const(1.0)))
    assert longer.precision == NONE
    shorter = simplify(longer)
    assert shorter is not None
    assert contraction_roles(shorter) is not None
    assert shorter.precision == HIGHEST


def test_an_operand_that_is_not_read_takes_no_precision_away():
    maps = (*MAPS, (affine([]),))
    g = replace(matmul(HIGH), maps=maps, shapes=((4, 6), (6, 5), (3,)), dtypes=("f32",) * 3)
    assert g.precision == HIGH
    assert without_unread(g, 2) == matmul(HIGH)


def test_json_and_text_name_what_is_not_the_default():
    for precision in PRECISIONS:
        g = matmul(precision)
        data = g.to_json()
        assert ("precision" in data) == (precision != DEFAULT)
        assert attr_from_json(data) == g
        text = (
            "program p\ninput a: f32[4, 6]\ninput b: f32[6, 5]\n"
            f"c = matmul(a, b, precision={precision})\nreturn c\n"
        )
        p = parse_program(text)
        assert p.nodes[p.results[0]].attr == g
        assert (f"precision={precision}" in str(p)) == (precision != DEFAULT)
        assert parse_program(str(p)) == p
        assert Program.from_json(p.to_json()) == p


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("matmul(a, b, precision=hihg)", "no precision named `hihg`"),
        ("matmul(cast(a, i8), cast(b, i8), precision=high)", "only floating products"),
        (
            "generic(a, loops=[4, 6], maps=[[d0, d1]], body=x0, precision=high)",
            "only a contraction has a `precision`",
        ),
    ],
)
def test_text_that_asks_for_what_is_not_there_is_refused(term: str, message: str):
    text = f"program p\ninput a: f32[4, 6]\ninput b: f32[6, 5]\nc = {term}\nreturn c\n"
    with pytest.raises(EqsatError) as caught:
        parse_program(text, "p.eqs")
    (found,) = caught.value.diagnostics
    assert found.code == "E312"
    assert message in found.message
    assert found.span is not None
    assert found.span.line == 4


def test_an_unknown_precision_does_not_verify():
    with pytest.raises(ShapeError, match="no precision named `mixed`"):
        matmul("mixed").verify()


def test_significand_bits():
    assert significand_bits(DEFAULT, "f32") == 24
    assert [significand_bits(p, "f32", "gpu") for p in (DEFAULT, HIGH, HIGHEST)] == [11, 11, 24]
    assert [significand_bits(p, "f32", "tpu") for p in (DEFAULT, HIGH, HIGHEST)] == [8, 16, 24]
    assert significand_bits(DEFAULT, "bf16", "tpu") == 8
    assert significand_bits("bf16_bf16_f32", "f32") == 8
    assert significand_bits("bf16_bf16_f32_x3", "f32") == 16
    assert significand_bits("bf16_bf16_f32_x9", "f32") == 24
    assert significand_bits("tf32_tf32_f32_x3", "f32") == 22
    assert significand_bits("tf32_tf32_f32", "bf16") == 8
    assert significand_bits("any_f8_any_f8_f32", "f8e4m3fn") == 4


def test_the_algorithms_are_those_of_jax():
    assert {p.name.lower() for p in lax.DotAlgorithmPreset} == {*ALGORITHMS, DEFAULT}
    assert algorithm_name("bf16", "bf16", "f32", 6) == "bf16_bf16_f32_x6"
    assert algorithm_name("f8e5m2", "f8e4m3fn", "f32", 1, True) == "any_f8_any_f8_f32_fast_accum"
    assert algorithm_name("bf16", "f16", "f32", 1) is None


# ---- JAX ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, DEFAULT),
        ("high", HIGH),
        (lax.Precision.HIGHEST, HIGHEST),
        ((lax.Precision.HIGHEST, lax.Precision.DEFAULT), HIGHEST),  # the more accurate of two
        (("default", "high"), HIGH),
        (lax.DotAlgorithmPreset.DEFAULT, DEFAULT),
        *((p, p.name.lower()) for p in lax.DotAlgorithmPreset if "X" in p.name or "T" in p.name),
        (lax.DotAlgorithm(jnp.bfloat16, jnp.bfloat16, np.float32), "bf16_bf16_f32"),
    ],
)
def test_jaxprs_say_a_precision(given: Any, wanted: str):
    if wanted == DEFAULT:
        assert precisions(trace(lambda a, b: dot(a, b, given), (A, B)).program) == [DEFAULT]
        return
    p = trace(lambda a, b: (dot(a, b, given), dot(a, b)), (A, B)).program
    assert sorted(precisions(p)) == sorted([wanted, DEFAULT])


def test_the_precision_around_a_product_counts_where_it_names_none():
    def f(a: Any, b: Any) -> Any:
        with jax.default_matmul_precision("BF16_BF16_F32_X3"):
            return a @ b, dot(a, b, "high")

    assert precisions(trace(f, (A, B)).program) == ["bf16_bf16_f32_x3", HIGH]


def test_an_algorithm_without_a_name_stays_what_it_is():
    odd = lax.DotAlgorithm(jnp.bfloat16, jnp.bfloat16, np.float32, 1, 1, 5)
    p = trace(lambda a, b: dot(a, b, odd), (A, B)).program
    assert [n.op for n in p.nodes] == ["input", "input", "opaque"]


def test_convolutions_and_bodies_of_loops_say_it_too():
    x, k = np.ones((1, 8, 8, 3), np.float32), np.ones((3, 3, 3, 4), np.float32)

    def conv(x: Any, k: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        pair = (lax.Precision.DEFAULT, lax.Precision.HIGH)
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=names,
                                        precision=pair)  # fmt: skip

    assert precisions(trace(conv, (x, k)).program) == [HIGH]

    def loop(a: Any, w: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, h: jnp.tanh(dot(h, w, "highest")), a)

    p = trace(loop, (A[:, :4], A[:, :4])).program
    assert precisions(p) == [HIGHEST]
    assert precisions(canonical(p)) == [HIGHEST]


def test_a_product_and_a_sum_of_it_round_nothing_before_and_after_they_are_merged():
    p = trace(lambda a, b: jnp.sum(a[:, :, None] * b[None], axis=1), (A, B)).program
    assert precisions(p) == []
    assert precisions(canonical(p)) == [HIGHEST]


# ---- rules -------------------------------------------------------------------------------------
def contractions(attrs: Sequence[Attr | None]) -> list[Generic]:
    return [a for a in attrs if isinstance(a, Generic) and a.has_precision]


def ops(t: Term) -> set[str]:
    if isinstance(t, Splat):
        return ops(t.inner)
    return {t.op}.union(*map(ops, t.operands)) if isinstance(t, Apply) else set()


ON_GENERICS = sorted(n for n, r in SHIPPED.items() if "generic" in ops(r.left))


@cache
def instances(name: str) -> tuple[Instance, ...]:
    """Matches of a rule that give a right side, on which a contraction is there before or after."""
    rule = SHIPPED[name]
    rng = Random(zlib.crc32(f"precision:{name}".encode()))
    drawer, found = Drawer(rule, rng), []
    for _ in range(400):
        one = drawer()
        rows = None if one is None else rows_at(one, rule)
        if one is not None and rows and any(contractions((*one.attrs, *r)) for r in rows):
            found.append(one)
        if len(found) == 8:
            break
    return tuple(found)


def at(one: Instance, precision: str) -> Instance:
    attrs = (replace(a, precision=precision) if isinstance(a, Generic) else a for a in one.attrs)
    return replace(one, attrs=tuple(attrs))


@pytest.mark.parametrize("name", one_in(6, ON_GENERICS))
def test_a_rule_keeps_the_precision(name: str):
    for one in instances(name):
        before = contractions(one.attrs)
        assert {g.precision for g in before} <= {DEFAULT}
        for precision in (HIGH, "bf16_bf16_f32"):
            rows = rows_at(at(one, precision), SHIPPED[name])
            assert rows, f"{name} does not apply at {precision}"
            made = {g.precision for r in rows for g in contractions(r)}
            assert made <= ({precision} if before else {HIGHEST}), (name, made)


@pytest.mark.parametrize(
    "name",
    [
        "collapse-loops", "contraction-reads-open", "contraction-reads-packed", "expand-loops",
        "fold-affine-into-weight", "fold-fill-into-body", "fold-norm-into-weight",
        "fold-scale-into-weight", "im2col", "merge-left-matmuls", "merge-matmuls",
        "merge-three-matmuls", "order-convolution", "pack-contraction", "pack-contraction-swapped",
        "pack-contraction-twice", "reassociate-to-the-left", "reassociate-to-the-right",
        "request-layouts", "transpose-into-operand", "transpose-out-of-result",
    ],
)  # fmt: skip
def test_rules_on_contractions_were_tried(name: str):
    assert name in ON_GENERICS
    assert any(contractions(one.attrs) for one in instances(name))


def test_a_rule_may_ask_for_a_precision():
    text = """
ruleset: accurate
doc: One rule that is for accurate contractions only.
rules:
  - name: turn-accurate
    doc: Write the result in another order.
    rewrite: transpose(generic(*xs, sig=g), perm=p)
    to: generic(*xs, sig=write_behind(g, p))
    where:
      - g.precision == "highest"
"""
    rules = read_ruleset(text, "accurate.yaml")
    made = {}
    for precision in (DEFAULT, HIGHEST):
        program = parse_program(
            "program p\ninput a: f32[4, 6]\ninput b: f32[6, 5]\n"
            f"c = matmul(a, b, precision={precision})\nt = transpose(c, perm=[1, 0])\nreturn t\n"
        )
        graph = saturate(program, rules, load_target("reference"))
        made[precision] = sum(n.op == "generic" for n in graph.nodes)
    assert made == {DEFAULT: 1, HIGHEST: 2}


def test_sums_of_different_precisions_are_joined_as_the_more_accurate_but_not_merged():
    one = matmul(HIGH)
    two = Generic(
        (4, 6, 5), 2, ((dim(0), dim(2)), (dim(2), dim(1))), ((4, 5), (5, 6)),
        (Yield(MUL, "f32", "add"),), (), ("f32", "f32"), HIGH,
    )  # fmt: skip
    assert law("(a b) c => a (b c) if order", one, two) is not None
    found = law("(a b) c => a (b c) if order", one, replace(two, precision=HIGHEST))
    assert found is not None and found.first is not None and found.second is not None
    assert (found.first.precision, found.second.precision) == (HIGHEST, HIGHEST)
    leaves = [Leaf(n, TensorType("f32", (6, 5)), key=n) for n in "ab"]
    assert merge_contractions(one, leaves[0], 1, one, leaves[1], 1) is not None
    assert merge_contractions(one, leaves[0], 1, matmul(HIGHEST), leaves[1], 1) is None


# ---- execution ---------------------------------------------------------------------------------
@pytest.mark.parametrize("platform", seeds(1, ["tpu", "cuda", "cpu"]))
@pytest.mark.parametrize("precision", [DEFAULT, HIGH, HIGHEST])
def test_xla_is_asked_for_the_precision_of_the_program(precision: str, platform: str):
    with jax.default_matmul_precision("high" if precision != HIGH else "highest"):
        call = eqsat.optimize(lambda a, b: dot(a, b, precision), A, B, target="reference").compile()
        text = lowered(call, A, B, platform=platform)
    word = precision.upper()
    assert f"precision = [{word}, {word}]" in text


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_xla_is_asked_for_the_algorithm_of_the_program(platform: str):
    def f(a: Any, b: Any) -> Any:
        return dot(a, b, lax.DotAlgorithmPreset.BF16_BF16_F32_X3)

    run = eqsat.optimize(f, A, B, target="reference")
    text = lowered(run.compile(), A, B, platform=platform)
    assert "num_primitive_operations = 3" in text


def test_a_cpu_computes_in_full():
    """Whatever is asked for, to the bit; f64_f64_f64 is more than that."""
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((64, 96), (96, 32)))
    found = {
        p: np.asarray(
            jax.jit(lambda a, b, p=p: dot_general(a, b, NUMBERS, p, np.dtype("float32")))(a, b)
        )
        for p in (*PRECISIONS, NONE)
    }
    full = found.pop("f64_f64_f64")
    assert all(np.array_equal(x, found[HIGHEST]) for x in found.values())
    np.testing.assert_allclose(full, found[HIGHEST], rtol=1e-4, atol=1e-5)


def test_a_program_of_every_precision_runs_and_verifies():
    def f(a: Any, b: Any) -> Any:
        return dot(a, b), dot(a, b, "high"), dot(a, b, lax.DotAlgorithmPreset.TF32_TF32_F32)

    run = eqsat.optimize(f, A, B, target="reference")
    assert run.verify(samples=1).ok
    assert sorted(precisions(run.program)) == [DEFAULT, HIGH, "tf32_tf32_f32"]


# ---- targets -----------------------------------------------------------------------------------
MACHINE = """
target: tensor-cores
doc: A machine with a fast and an accurate way to multiply.
executor: xla
data_tiling: false
source: made up
memory: [{name: ram, size: 1 GiB, bandwidth: 100 TB/s}]
rates: {f32: 1 GFLOP/s, f32/default: 8 GFLOP/s, f32/bf16_bf16_f32: 16 GFLOP/s, i8: 32 GOP/s}
"""


def product(precision: str, dtype: str = "f32") -> Program:
    asked = "" if precision == NONE else f", precision={precision}"
    return parse_program(
        f"program p\ninput a: {dtype}[128, 128]\ninput b: {dtype}[128, 128]\n"
        f"c = matmul(a, b{asked})\nreturn c\n"
    )


def time_us(precision: str, *settings: str, dtype: str = "f32") -> float:
    found = eqsat.optimize(
        product(precision, dtype), target=read_target(MACHINE), settings=settings, rules=[]
    )
    return found.summary()["goals"]["time_us"]["value"]


def test_a_target_prices_a_precision():
    flops = 2 * 128**3
    assert time_us(DEFAULT) == pytest.approx(flops / 8e9 * 1e6, rel=1e-3)
    assert time_us("bf16_bf16_f32") == pytest.approx(flops / 16e9 * 1e6, rel=1e-3)
    # one that it does not name is that of the element type, and so is an op without any
    for other in (HIGH, HIGHEST, "tf32_tf32_f32"):
        assert time_us(other) == pytest.approx(flops / 1e9 * 1e6, rel=1e-3)
    assert time_us(NONE, dtype="i8") == pytest.approx(flops / 32e9 * 1e6, rel=1e-3)
    assert time_us(HIGH, "rates.f32/high=4 GFLOP/s") == pytest.approx(flops / 4e9 * 1e6, rel=1e-3)


def test_a_precision_that_a_target_does_not_know_is_refused():
    known = "precisions=[default, highest]"
    assert time_us(DEFAULT, known) == time_us(DEFAULT)
    with pytest.raises(EqsatError) as caught:
        time_us("bf16_bf16_f32", known)
    (found,) = caught.value.diagnostics
    assert found.code == "E215"
    assert "`bf16_bf16_f32`, which target `tensor-cores` does not know" in found.message
    assert found.help == "it knows default, highest (--set precisions)"


def test_a_loop_that_asks_for_an_unknown_precision_is_refused():
    def f(a: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, h: dot(h, h, "high"), a)

    with pytest.raises(EqsatError, match="precision `high`"):
        eqsat.optimize(f, A[:, :4], settings=["precisions=[default]"], target="reference")


def test_what_the_search_forms_is_not_asked_of_the_target():
    f = lambda a, b: jnp.sum(a[:, :, None] * b[None], axis=1)  # noqa: E731
    run = eqsat.optimize(f, A, B, settings=["precisions=[default]"], target="reference")
    assert precisions(run.canonical) == [HIGHEST]


def test_targets_keep_precisions_in_text_and_json():
    t = override(read_target(MACHINE), ["precisions=[default, bf16_bf16_f32]"])
    assert type(t).from_json(t.to_json()) == t
    assert "precisions default, bf16_bf16_f32" in str(t)
    old = t.to_json()
    del old["precisions"]
    assert type(t).from_json(old).precisions == ()


@pytest.mark.parametrize("name", find_names("targets", ".yaml"))
def test_every_shipped_target_knows_every_precision(name: str):
    t = load_target(name)
    assert set(t.precisions) in (set(), set(PRECISIONS))
    for p in PRECISIONS:
        rate, own = t.rate("f32", p), t.rate("f32")
        assert rate is own is None or (rate is not None and own is not None and rate >= own)


def test_a_target_may_know_less_than_the_one_it_extends():
    text = "target: less\nextends: sm_90\nprecisions: [default, highest]\n"
    found = read_target(text)
    assert found.precisions == (DEFAULT, HIGHEST)
    assert dict(found.rates)["f32/tf32_tf32_f32"] == pytest.approx(494.7e12)
