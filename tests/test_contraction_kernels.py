"""Contractions as kernels: any size and operand order, between guard pages, against float64."""

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from contracted import (
    AVX2,
    AVX512,
    BIAS,
    NEON,
    PRODUCT,
    RESULT,
    A,
    B,
    beside,
    convolution,
    convolved,
    matmul,
    operands,
)
from fuzz import guarded
from rownests import check
from runnable import needs

from eqsat.execute.kernels.kernel import Kernel, generate
from eqsat.model.dispatch import Machine, Plan
from eqsat.model.expr import arg, call, cast
from eqsat.model.nest import Access, Bound, Nest, Stage, Store
from eqsat.model.tensor import DTYPES
from eqsat.plan.blocks import STREAMED
from eqsat.plan.contraction import UNROLL
from eqsat.plan.planner import plan
from eqsat.plan.stages import LINE

MACHINES = {"avx512": AVX512, "avx2": AVX2}


def run(nest, machine, inputs, shape):
    kernel = kernel_of(nest, plan(nest, machine), machine)
    (found,) = guarded.run(kernel, machine, inputs, [(shape, np.float32)])
    return found


def kernel_of(nest: Nest, chosen: Plan, machine: Machine) -> Kernel:
    """The kernel of a plan, where this machine can run it."""
    needs(machine)
    return generate(nest, chosen, machine, "kernel")


def close(found, expected, k):
    """Sums of k products of normals; 4 eps · sqrt(k) is far beyond what rounding does."""
    bound = 4 * np.finfo(np.float32).eps * max(k, 4) ** 0.5
    assert np.abs(found - expected).max() <= bound * max(np.abs(expected).max(), 1)


@pytest.mark.parametrize(
    ("machine", "m", "k", "n", "form"),
    [
        ("avx512", 37, 70, 40, {}),  # tails of rows, of the reduction's unrolling and of vectors
        ("avx2", 37, 800, 19, {"bias": True, "relu": True}),  # sums in parts
        ("avx512", 30, 33, 70, {"b": "nk", "bias": True}),  # both contiguous along k
        ("avx2", 14, 21, 18, {"a": "km", "b": "nk"}),
        ("avx512", 9, 20, 50, {"result": "nm", "bias": True}),
        ("avx2", 1, 40, 24, {"bias": True}),
        ("avx512", 5, 1, 3, {}),
    ],
)
def test_matmuls(machine, m, k, n, form):
    x, y, inputs = operands(
        np.random.default_rng(0),
        m,
        k,
        n,
        *(form.get(s, d) for s, d in (("a", "mk"), ("b", "kn"), ("bias", False))),
    )
    expected = x.astype(np.float64) @ y
    if form.get("bias"):
        expected += inputs[2]
    if form.get("relu"):
        expected = np.maximum(expected, 0)
    shape = (n, m) if form.get("result") == "nm" else (m, n)
    found = run(matmul(m, k, n, **form), MACHINES[machine], inputs, shape)
    close(found.T if shape != (m, n) else found, expected, k)


def test_padded_convolution():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 7, 6), np.float32)
    w = rng.standard_normal((3, 3, 6, 20), np.float32)
    found = run(convolution(7, 6, 20, 3, stride=2), AVX512, [x, w], (4, 4, 20))
    close(found, convolved(x, w, 2), 54)


def test_stores_without_a_common_loop_are_parts():
    both = beside(matmul(5, 6, 7), matmul(3, 4, 9, bias=True))
    chosen = plan(both, AVX2)
    assert chosen.kind == "several" and Plan.from_json(chosen.to_json()) == chosen
    rng = np.random.default_rng(0)
    x, y, first = operands(rng, 5, 6, 7)
    u, v, second = operands(rng, 3, 4, 9, bias=True)
    results = [((5, 7), np.float32), ((3, 9), np.float32)]
    found = guarded.run(kernel_of(both, chosen, AVX2), AVX2, [*first, *second], results)
    close(found[0], x @ y, 6)
    close(found[1], u @ v + second[2], 4)


SHORT = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "i8": np.int8, "u8": np.uint8}


def drawn(rng, shape, dtype):
    """Normals of a float type, all numbers of an integer type."""
    if DTYPES[dtype][1] == "f":
        return rng.standard_normal(shape, np.float32).astype(SHORT.get(dtype, np.float32))
    held = np.iinfo(SHORT[dtype])
    return rng.integers(held.min, held.max, shape, SHORT[dtype], endpoint=True)


@pytest.mark.parametrize(
    ("machine", "m", "k", "n", "form", "dtypes"),
    [
        ("avx512", 37, 70, 40, "kn", ("f32", "bf16")),  # converted as they are loaded
        ("avx2", 37, 70, 43, "kn", ("f16", "f16")),
        ("avx512", 29, 801, 33, "kn", ("bf16", "i8")),
        ("avx512", 30, 33, 70, "nk", ("f32", "bf16")),  # squares transposed in registers
        ("avx512", 2, 70, 19, "nk", ("bf16", "f16")),  # sums along the reduction
        ("avx2", 3, 55, 18, "nk", ("f32", "u8")),
        ("avx512", 1, 50, 1030, "kn", ("f32", "bf16")),  # rows side by side
        ("avx2", 1, 50, 1030, "kn", ("f32", "i8")),
    ],
)
def test_short_elements_are_converted_where_they_are_read(machine, m, k, n, form, dtypes):
    rng = np.random.default_rng(0)
    x = drawn(rng, (m, k), dtypes[0])
    y = drawn(rng, (k, n), dtypes[1])
    nest = matmul(m, k, n, b=form, dtypes=(*dtypes, "f32"))
    inputs = [x, y if form == "kn" else np.ascontiguousarray(y.T)]
    expected = x.astype(np.float64) @ y.astype(np.float64)
    close(run(nest, MACHINES[machine], inputs, (m, n)), expected, k)


@pytest.mark.parametrize(
    ("machine", "m", "k", "n", "forms", "dtype"),
    [
        ("avx512", 1, 300, 3010, ("mk", "kn"), "f32"),  # several work items, the last one short
        ("avx512", 1, 37, 1061, ("mk", "kn"), "bf16"),
        ("avx2", 1, 45, 531, ("mk", "kn"), "bf16"),
        ("avx2", 1, 37, 264, ("km", "kn"), "f32"),
        ("avx512", 1030, 50, 1, ("km", "kn"), "f32"),  # the other way round
    ],
)
def test_columns_of_one_row_are_read_in_order(machine, m, k, n, forms, dtype):
    rng = np.random.default_rng(0)
    dtypes = ("f32", dtype, "f32")
    nest = matmul(m, k, n, *forms, bias=True, relu=True, dtypes=dtypes)
    assert plan(nest, MACHINES[machine]).in_order
    x, y, bias = drawn(rng, (m, k), "f32"), drawn(rng, (k, n), dtype), drawn(rng, (n,), "f32")
    y[k // 2, n // 3] = np.nan
    given = [x.T.copy() if forms[0] == "km" else x, y, bias]
    with np.errstate(invalid="ignore"):
        expected = np.maximum(x.astype(np.float64) @ y.astype(np.float64) + bias, 0)
    found = run(nest, MACHINES[machine], given, (m, n))
    assert (np.isnan(found) == np.isnan(expected)).all()
    close(np.nan_to_num(found), np.nan_to_num(expected), k)


@pytest.mark.parametrize(("n", "dtype"), [(40, "bf16"), (1030, "f16")])
def test_nan_and_infinity_of_short_elements(n, dtype):
    x = np.ones((2, 9), np.float32)
    y = np.zeros((9, n), SHORT[dtype])
    y[3, 1], y[4, 2] = np.nan, -np.inf
    found = run(matmul(2, 9, n, dtypes=("f32", dtype, "f32")), AVX512, [x, y], (2, n))
    assert np.isnan(found[:, 1]).all() and (found[:, 2] == -np.inf).all()
    assert (np.delete(found, [1, 2], axis=1) == 0).all()


def test_products_that_are_rounded_before_they_are_added_are_no_contraction():
    nest = matmul(4, 5, 6, dtypes=("bf16", "bf16", "f32"))
    rounded = replace(nest.stages[0], body=cast(PRODUCT, "f32"))
    assert plan(replace(nest, stages=(rounded,)), AVX512).kind == "rows"


def test_an_epilogue_rounds_to_the_element_type_it_writes():
    nest = matmul(5, 20, 33, bias=True, dtypes=("bf16", "bf16", "f32"))
    last = Stage(5, (0, 1), cast(arg(0), "bf16"), (1,), "bf16")
    written = replace(nest.stores[0], access=replace(nest.stores[0].access, dtype="bf16"), stage=2)
    nest = replace(nest, stages=(*nest.stages, last), stores=(written,))
    rng = np.random.default_rng(0)
    x, y = (drawn(rng, shape, "bf16") for shape in ((5, 20), (20, 33)))
    bias = rng.standard_normal(33, np.float32)
    kernel = kernel_of(nest, plan(nest, AVX512), AVX512)
    (found,) = guarded.run(kernel, AVX512, [x, y, bias], [((5, 33), ml_dtypes.bfloat16)])
    expected = x.astype(np.float64) @ y.astype(np.float64) + bias
    assert np.abs(found.astype(np.float64) - expected).max() <= np.abs(expected).max() / 256


def test_nan_goes_through_a_maximum():
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.nan
    inputs = [x, np.ones((4, 5), np.float32), np.zeros(5, np.float32)]
    found = run(matmul(3, 4, 5, bias=True, relu=True), AVX2, inputs, (3, 5))
    assert np.isnan(found[1]).all() and (found[[0, 2]] == 4).all()


@pytest.mark.parametrize(
    ("m", "k", "n", "form", "kind"),
    [
        (2, 70, 19, "nk", "dot"),  # sums along the reduction, a tail of it and of columns
        (2, 50, 600, "kn", "streamed"),  # rows of B side by side
        (26, 1024, 160, "kn", "copied rows"),  # rows a page apart share a cache set
    ],
)
def test_plans_of_few_rows_and_of_rows_a_page_apart(m, k, n, form, kind):
    nest = matmul(m, k, n, b=form)
    chosen = plan(nest, AVX512)
    found = {
        "dot": chosen.dot > 0,
        "streamed": chosen.k_blocks > 1 and chosen.k_block <= 16,
        "copied rows": chosen.copied[0],
    }
    assert found[kind]
    x, y, inputs = operands(np.random.default_rng(0), m, k, n, b=form)
    close(run(nest, AVX512, inputs, (m, n)), x.astype(np.float64) @ y, k)


@pytest.mark.parametrize(
    ("m", "k", "n", "form"),
    [(64, 768, 96, "kn"), (128, 384, 96, "kn"), (512, 320, 96, "kn"), (128, 1536, 96, "nk")],
)
def test_tiles_of_a_block_ask_for_the_whole_next_panel(m, k, n, form):
    chosen = plan(matmul(m, k, n, b=form), AVX512)
    groups = -(-k // UNROLL // chosen.prefetch_turns)
    if form == "kn":
        assert k <= chosen.tile_block * groups * chosen.prefetch <= 2 * k
    else:
        assert chosen.prefetch_turns * UNROLL == LINE  # a line of k, then the next one
        columns = chosen.tile_block * chosen.prefetch * chosen.prefetch_turns
        assert columns >= chosen.vectors * chosen.lanes


def prefetches(kernel: Kernel) -> int:
    """How many the first tile's code has."""
    tile = next(f for f in kernel.ir.split("define ") if ".tile" in f.split("(")[0])
    return len(re.findall(r"call void @\S*llvm.prefetch", tile))


@pytest.mark.parametrize(
    ("machine", "m", "k", "panels", "width", "lines"),
    [
        ("avx512", 1, 70, 3, 32, 1),
        ("avx512", 1, 70, 4, 32, 2),  # two panels side by side
        ("avx2", 1, 33, 5, 16, 1),
        ("avx2", 2, 16, 2, 32, 1),
        ("avx512", 3, 65, 4, 32, 2),
        ("avx512", 4, 70, 3, 32, 8),
        ("avx2", 9, 64, 3, 32, 4),
    ],
)
def test_few_rows_ask_for_one_line_of_a_run_each_turn(machine, m, k, panels, width, lines):
    """Their own loads run ahead; more rows multiply a line for longer than it takes to come."""
    x = Access(A, "f32", (k, 0, 0, 1))
    y = Access(B, "f32", (0, k * width, 1, width))
    stage = Stage(3, (0, 1, 2), PRODUCT, (x, y), "f32", "add", (3,))
    written = Access(RESULT, "f32", (panels * width, width, 1, 0))
    nest = Nest((m, panels, width, k), (stage,), (Store(written, 0, (0, 1, 2)),))
    chosen = plan(nest, MACHINES[machine])
    kernel = kernel_of(nest, chosen, MACHINES[machine])
    others = generate(nest, replace(chosen, prefetch=0), MACHINES[machine], "kernel")
    assert prefetches(kernel) - prefetches(others) == lines
    left, right, _ = operands(np.random.default_rng(m), m, k, panels * width)
    columns = right.reshape(k, panels, width).transpose(1, 0, 2).copy()
    found = guarded.run(
        kernel, MACHINES[machine], [left, columns], [((m, panels * width), np.float32)]
    )
    close(found[0], left.astype(np.float64) @ right, k)


def test_rows_of_a_tile_are_balanced():
    assert plan(matmul(128, 512, 512), AVX512).rows == 13  # 8 tiles of 13 and 2 of 12
    assert plan(matmul(8, 512, 512), AVX512).rows == 8


@pytest.mark.parametrize(
    ("machine", "triple", "cpu"),
    [
        (NEON, "aarch64-unknown-linux-gnu", "neoverse-n1"),
        (AVX2, "x86_64-unknown-linux-gnu", "haswell"),
        (AVX512, "x86_64-unknown-linux-gnu", "skylake-avx512"),
    ],
)
def test_inner_loops_spill_nothing(machine, triple, cpu):
    nest = matmul(64, 128, 96)
    chosen = plan(nest, machine)
    kernel = generate(nest, chosen, machine, "kernel")
    loop = inner_loop(assembly(kernel.ir, triple, cpu))
    per_turn = chosen.rows * chosen.vectors * UNROLL
    assert sum(fused(line) for line in loop) == per_turn
    assert not [line for line in loop if re.search(r"\(%r[sb]p\)|\[sp", line)]


def assembly(ir, triple, cpu):
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    module.triple = triple
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    return target.emit_assembly(module).splitlines()


def fused(line):
    return bool(re.search(r"\b(vfmadd\w+ps|fmla)\b", line))


def inner_loop(lines):
    """The innermost loop that has the most multiply-adds: from a label to the jump back to it."""
    starts, loops = {}, []
    for i, line in enumerate(lines):
        if label := re.match(r"(\.L\w+):", line):
            starts[label[1]] = i
        jump = re.search(r"\b(?:j\w+|b\.\w+|cbnz\s+\w+,)\s+(\.L\w+)", line)
        if jump and jump[1] in starts:
            body = lines[starts[jump[1]] + 1 : i + 1]
            if not any(re.match(r"\.L\w+:", x) for x in body):
                loops.append(body)
    return max(loops, key=lambda body: sum(map(fused, body)))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("m", "at", "count"), [(1, 48, 24), (5, 24, 17), (14, 0, 40), (3, 41, 30)])
def test_a_part_of_the_columns_is_a_result_of_its_own(machine, m, at, count):
    """It is written where its loop, shifted, is inside; what it reads beside is, too."""
    n = 71
    both = matmul(m, 20, n)
    inside = Bound((0, 1, 0), -at, count)
    bias = Access(BIAS, "f32", (0, 1, 0), -at, (inside,))
    added = Stage(4, (0, 1), call("add", arg(0), arg(1)), (0, bias), "f32")
    plain = Store(Access(7, "f32", (count, 1, 0), -at), 0, (0, 1), (inside,))
    other = Store(Access(8, "f32", (count, 1, 0), -at), 1, (0, 1), (inside,))
    nest = replace(both, stages=(*both.stages, added), stores=(*both.stores, plain, other))
    known = MACHINES[machine]
    needs(known)
    sizes = {7: m * count, 8: m * count, RESULT: m * n}
    chosen = check(nest, "parts", known, sizes=sizes, plan=plan(nest, known))
    assert chosen.kind == "contraction"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 70, 300), (3, 37, 515), (8, 64, 1024)])
def test_few_rows_that_are_computed_are_copied_where_columns_stream(machine, m, k, n):
    """Rows of B are read in order, a few side by side, whatever A's rows are made of."""
    plain = matmul(m, k, n)
    (stage,) = plain.stages
    shift = Access(BIAS, "f32", (0, 0, 1))
    body = call("mul", call("add", arg(0), arg(2)), arg(1))
    nest = replace(plain, stages=(replace(stage, body=body, arguments=(*stage.arguments, shift)),))
    known = MACHINES[machine]
    needs(known)
    chosen = check(nest, "streamed", known, plan=plan(nest, known))
    assert chosen.copied == (True, False)
    assert chosen.k_block <= STREAMED < k
    assert chosen.prefetch


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("k", "n", "most"), [(515, 37, 16), (600, 16, 16), (70, 37, 8)])
def test_long_columns_from_memory_are_summed_along_more_of_them_side_by_side(machine, k, n, most):
    nest = matmul(1, k, n, b="nk", bias=True)
    small = MACHINES[machine].registers != 32
    assert plan(nest, MACHINES[machine]).dot == (4 if small else 8)
    known = replace(MACHINES[machine], caches=(4096, 8192, 4 * k * n - 1))
    assert plan(nest, known).dot == (4 if small else most)
    x, y, inputs = operands(np.random.default_rng(0), 1, k, n, "mk", "nk", True)
    found = run(nest, known, inputs, (1, n))
    close(found, x.astype(np.float64) @ y + inputs[-1], k)
