"""Row blocks as kernels: attention and norms in front of a contraction, against float64."""

from __future__ import annotations

import re

import numpy as np
import pytest
from contracted import AVX2, AVX512, NEON
from rowblocked import attention, computed, drawn, nest_of_program
from runnable import needs
from seeds import one_in
from test_contraction_kernels import assembly, fused, inner_loop

from eqsat.execute.kernels.kernel import generate
from eqsat.execute.kernels.rowpasses import UNROLL
from eqsat.lang.programs import parse_program
from eqsat.model.nest import NoNest
from eqsat.plan.rowblocks import RowBlocks, plan

MACHINES = {"avx512": AVX512, "avx2": AVX2}
NORM = """
program norm
input x: f32[13, 37]
input w: f32[37, 21]
input b: f32[21]
a = generic(x, loops=[13, 37], maps=[[d0, d1]], body=x0, combine=add, rank=1)
c = generic(x, a, loops=[13, 37], maps=[[d0, d1], [d0]], body=sub(x0, div(x1, 37.0)), rank=2)
v = generic(c, loops=[13, 37], maps=[[d0, d1]], body=mul(x0, x0), combine=add, rank=1)
r = generic(v, loops=[13], maps=[[d0]], body=rsqrt(add(div(x0, 37.0), 0.001)), rank=1)
n = generic(c, r, loops=[13, 37], maps=[[d0, d1], [d0]], body=mul(x0, x1), rank=2)
h = matmul(n, w)
y = generic(h, b, loops=[13, 21], maps=[[d0, d1], [d1]], body=max(add(x0, x1), 0.0), rank=2)
return y
"""
BETWEEN = """
program between
input x: f32[11, 20]
input u: f32[20, 35]
input w: f32[35, 18]
h = matmul(x, u)
t = generic(h, x, loops=[11, 35], maps=[[d0, d1], [d0, 3]], body=mul(x0, x1), rank=2)
v = generic(t, loops=[11, 35], maps=[[d0, d1]], body=mul(x0, x0), combine=add, rank=1)
n = generic(t, v, loops=[11, 35], maps=[[d0, d1], [d0]], body=mul(x0, rsqrt(x1)), rank=2)
g = matmul(n, w)
y = generic(g, v, loops=[11, 18], maps=[[d0, d1], [d0]], body=add(x0, mul(x1, 0.125)), rank=2)
return y, n
"""


def check(text, machine, inputs=None):
    machine = MACHINES[machine]
    needs(machine)
    program = parse_program(text)
    found, expected, _ = computed(program, inputs or drawn(program), machine)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6 * np.nanmax(np.abs(b)))


@pytest.mark.parametrize(
    ("machine", "sizes"),
    [
        ("avx512", {"queries": 19, "keys": 37, "heads": 2, "depth": 20, "width": 35}),
        ("avx2", {"queries": 6, "keys": 400, "heads": 2, "shared": 3, "depth": 8, "width": 8}),
        (
            "avx512",
            {"queries": 1, "keys": 50, "heads": 3, "depth": 16, "width": 16, "cached": True},
        ),
    ],
    ids=["odd", "shared heads and a long row", "decoding"],
)
def test_attention(machine, sizes):
    check(attention(**sizes), machine)


def one_token(**sizes):
    return attention(queries=1, **sizes)


@pytest.mark.parametrize(
    ("machine", "keys_at_once", "sizes"),
    [
        ("avx512", 16, {"keys": 50, "heads": 3, "depth": 16, "width": 16, "cached": True}),
        ("avx512", 8, {"keys": 23, "heads": 2, "shared": 2, "depth": 150, "width": 7}),
        ("avx512", 4, {"keys": 37, "heads": 2, "shared": 3, "depth": 20, "width": 35}),
        ("avx512", 4, {"keys": 400, "heads": 1, "shared": 4, "depth": 33, "width": 70}),
        ("avx512", 2, {"keys": 51, "heads": 2, "shared": 8, "depth": 64, "width": 16}),
        ("avx2", 8, {"keys": 19, "heads": 2, "depth": 11, "width": 9, "cached": True}),
        ("avx2", 4, {"keys": 19, "heads": 2, "shared": 2, "depth": 80, "width": 9}),
        ("avx2", 2, {"keys": 19, "heads": 2, "shared": 3, "depth": 8, "width": 9}),
    ],
)
def test_few_rows_read_keys_where_they_are(machine, keys_at_once, sizes):
    text = one_token(**sizes)
    assert plan(nest_of_program(parse_program(text)), MACHINES[machine]).dots == keys_at_once
    check(text, machine)


def test_keys_that_lie_along_the_row_are_copied():
    text = one_token(keys=50, heads=3, depth=16, width=16, cached=True)
    turned = text.replace("k: f32[3, 50, 16]", "k: f32[3, 16, 50]")
    turned = turned.replace("[[d0, d1, d3], [d0, d2, d3]]", "[[d0, d1, d3], [d0, d3, d2]]", 1)
    assert turned != text
    assert plan(nest_of_program(parse_program(turned)), AVX512).dots == 0
    check(turned, "avx512")


@pytest.mark.parametrize("text", [NORM, BETWEEN], ids=["norm", "between"])
def test_norms_in_front_of_a_contraction(text):
    check(text, "avx512")


@pytest.mark.parametrize(
    ("machine", "rows", "sums", "columns", "is_streamed"),
    [
        ("avx512", 1, 37, 277, True),
        ("avx512", 3, 40, 320, True),
        ("avx512", 13, 67, 517, True),
        ("avx2", 1, 403, 264, True),
        ("avx2", 5, 5, 259, True),
        ("avx2", 2, 40, 250, False),  # rows of less than 1 KiB
        ("avx512", 14, 40, 320, False),  # columns that two blocks read
    ],
)
def test_columns_of_few_rows_are_read_in_order(machine, rows, sums, columns, is_streamed):
    text = NORM.replace("37.0", "S.0").replace("13", str(rows))
    text = text.replace("37", str(sums)).replace("21", str(columns)).replace("S.0", f"{sums}.0")
    chosen = plan(nest_of_program(parse_program(text)), MACHINES[machine])
    assert bool(chosen.streamed) == is_streamed
    check(text, machine)


def test_a_column_without_a_number():
    text = NORM.replace("13", "2").replace("21", "300")
    inputs = drawn(parse_program(text))
    inputs["w"][11, 299] = np.nan
    inputs["w"][36, 0] = np.nan
    check(text, "avx512", inputs)


def test_rows_without_a_number():
    text = attention(queries=5, keys=18, heads=1, depth=4, width=6, masked="-inf")
    inputs = drawn(parse_program(text))
    inputs["mask"][2] = False  # nothing is allowed: -inf less itself
    inputs["q"][3, 0, 0] = np.nan
    with np.errstate(all="ignore"):
        check(text, "avx512", inputs)


def test_what_is_no_row_block_says_why():
    text = attention(queries=5, keys=18, heads=1, depth=4, width=6)
    columns = text.replace("combine=max, rank=2", "combine=mul, rank=2")
    assert isinstance(plan(nest_of_program(parse_program(columns)), AVX512), RowBlocks)
    halves = text.replace("input v: f32", "input v: f16").replace(
        "o = generic(p, v,", "w = generic(v, loops=[18, 1, 6], maps=[[d0, d1, d2]], "
        "body=cast(x0, f32), rank=3)\no = generic(p, w,",
    )  # fmt: skip
    assert isinstance(plan(nest_of_program(parse_program(halves)), AVX512), RowBlocks)
    exact = text.replace("f32[", "f64[")
    with pytest.raises(NoNest, match="f64"):
        plan(nest_of_program(parse_program(exact)), AVX512)


@pytest.mark.parametrize("written", ["v2", "k2", "b2"])
def test_what_is_written_along_no_row_is_no_row_block(written):
    """Values and keys with their biases, or what is added behind, are results of no row."""
    text = attention(5, 7, 3, 4, 6)
    for name, width in (("k", 4), ("v", 6)):
        loops = f"loops=[7, 3, {width}], maps=[[d0, d1, d2]], body=add(x0, 1.0), rank=3"
        text = text.replace("qt =", f"{name}2 = generic({name}, {loops})\nqt =")
        text = text.replace(f", {name}, loops", f", {name}2, loops")
    behind = "loops=[5, 3, 6], maps=[[d0, d1, d2]"
    text = text.replace("input mask", "input b: f32[5, 3, 6]\ninput mask")
    text = text.replace(
        "return y", f"b2 = generic(b, {behind}], body=add(x0, 2.0), rank=3)\n"
        f"z2 = generic(y, b2, {behind}, [d0, d1, d2]], body=add(x0, x1), rank=3)\nreturn z2",
    )  # fmt: skip
    computed(parse_program(text), drawn(parse_program(text)))
    program = parse_program(text.replace("return z2", f"return z2, {written}"))
    with pytest.raises(NoNest, match="is along no row, and written"):
        plan(nest_of_program(program), AVX512)


def test_what_is_written_once_for_all_rows_is_no_row_block():
    """A scale of the columns that all rows share, written beside what it scales."""
    text = """
    program shared
    input h: f32[8, 8]
    input w: f32[8, 8]
    input x: f32[8]
    input v: f32[8, 8]
    e = generic(x, loops=[8], maps=[[d0]], body=exp(x0))
    m = matmul(h, w)
    n = generic(m, e, loops=[8, 8], maps=[[d0, d1], [d1]], body=mul(x0, x1))
    s = generic(n, loops=[8, 8], maps=[[d0, d1]], body=x0, combine=max) : f32[8]
    o = generic(n, s, loops=[8, 8], maps=[[d0, d1], [d0]], body=sub(x0, x1))
    y = matmul(o, v)
    return y"""
    assert isinstance(plan(nest_of_program(parse_program(text)), AVX512), RowBlocks)
    with pytest.raises(NoNest, match="is the same in all rows, and written"):
        plan(nest_of_program(parse_program(f"{text}, e")), AVX512)


def test_rows_across_cache_sets_fetch_lines_again():
    """Elements 4 KiB apart share sets of a cache; lines of others stay for the next row."""
    text = """
    program across
    input x: f32[320, LINE]
    input w: f32[320, 64]
    c = generic(x, loops=[320, LINE], maps=[[d0, d1]], body=exp(x0), rank=2)
    s = generic(c, loops=[LINE, 320], maps=[[d1, d0]], body=x0, combine=add, rank=1)
    n = generic(c, s, loops=[LINE, 320], maps=[[d1, d0], [d0]], body=div(x0, x1), rank=2)
    y = matmul(n, w)
    return y
    """
    pages = []
    for line in (1024, 1040):
        program = parse_program(text.replace("LINE", str(line)))
        pages.append(plan(nest_of_program(program), AVX512).work.pages / (320 * line))
    assert pages[0] >= 1
    assert pages[1] < 0.1


@pytest.mark.parametrize(
    ("machine", "triple", "cpu"),
    one_in(
        3,
        [
            (NEON, "aarch64-unknown-linux-gnu", "neoverse-n1"),
            (AVX2, "x86_64-unknown-linux-gnu", "haswell"),
            (AVX512, "x86_64-unknown-linux-gnu", "skylake-avx512"),
        ],
    ),
)
def test_inner_loops_spill_nothing(machine, triple, cpu):
    program = parse_program(attention(queries=26, keys=64, heads=2, depth=32, width=32))
    nest = nest_of_program(program)
    chosen = plan(nest, machine)
    kernel = generate(nest, chosen, machine, "rows")
    loop = inner_loop(assembly(kernel.ir, triple, cpu))
    assert sum(fused(line) for line in loop) == chosen.rows * chosen.vectors * UNROLL
    assert not [line for line in loop if re.search(r"\(%r[sb]p\)|\[sp", line)]
