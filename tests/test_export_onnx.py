"""ONNX: the model passes the checker, and onnxruntime computes what the float64 reference does."""

from __future__ import annotations

from collections import Counter

import iree_oracle
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx_oracle
import pytest
from exports import FLOATING, check, function_case
from fuzz.programs import Maker
from onnxmodels import FLOAT, Writer, value
from seeds import one_in, seeds

import eqsat
from eqsat.cli import run as command
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.export.write import export
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import evaluate_program

FORCED = ("tiles_forced=true",)


def ops(data: bytes) -> Counter[str]:
    return Counter(n.op_type for n in onnx.load_from_string(data).graph.node)


def same(program: Program, weights: dict[str, np.ndarray], seed: int = 0, least: float = 1e-5):
    """The exported model computes what the reference does; how often it has each op."""
    inputs = random_inputs(program, np.random.default_rng(seed))
    data = export(program, "onnx", weights, {}).data
    wanted = evaluate_program(program, inputs, weights)
    check(program, onnx_oracle.run(data, inputs), wanted, least)
    return ops(data)


def traced(f, *shapes: tuple[int, ...]) -> Program:
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    run = eqsat.optimize(f, *args, stop_after="program", target="reference")
    return run.program


# ---- meaning -----------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", seeds(8, 24))
def test_random_programs_compute_the_same(seed):
    program = Maker(seed, exact=seed % 2 == 0).program(10)
    same(program, drawn_weights(program), seed, 1e-4)


@pytest.mark.parametrize("name", ["padded_chain", "residual", "folded_batch"])
def test_packed_programs_compute_the_same(name):
    source = eqsat.read(f"{name}.eqs")
    run = eqsat.optimize(source, target="avx512-xla", settings=FORCED)
    inputs = random_inputs(run.program, np.random.default_rng(0))
    wanted = evaluate_program(run.program, inputs, source.weights)
    check(run.program, onnx_oracle.run(run.export("onnx").data, inputs), wanted, 1e-5)


@pytest.mark.parametrize("name", FLOATING)
def test_every_function_of_floats(name):
    program, _, inputs = function_case(name)
    wanted = evaluate_program(program, inputs, {})
    data = export(program, "onnx", {}, {}).data
    check(program, onnx_oracle.run(data, inputs), wanted, 2e-6)


EDGES = """program edges
input x: f32[13]
input a: i8[8]
input b: i8[8]
%3 = generic(x, loops=[13], maps=[[d0]], body=[cast(x0, i8), cast(x0, i32), cast(x0, u8)])
%4 = result(%3, index=0)
%5 = result(%3, index=1)
%6 = result(%3, index=2)
%7 = generic(a, b, loops=[8], maps=[[d0], [d0]], body=[div(x0, x1), rem(x0, x1), xor(x0, x1)])
%8 = result(%7, index=0)
%9 = result(%7, index=1)
%10 = result(%7, index=2)
%11 = generic(a, loops=[8], maps=[[d0]], body=[cast(x0, u8), mul(x0, x0), shift_left(x0, 3)])
%12 = result(%11, index=0)
%13 = result(%11, index=1)
%14 = result(%11, index=2)
%15 = generic(a, loops=[8], maps=[[d0]], body=shift_right_logical(x0, 2))
%16 = generic(a, loops=[8], maps=[[d0]], body=shift_right_arithmetic(x0, 2))
%17 = generic(x, loops=[13], maps=[[d0]], body=[sign(x0), round_away(x0), is_finite(x0)])
%18 = result(%17, index=0)
%19 = result(%17, index=1)
%20 = result(%17, index=2)
return %4, %5, %6, %8, %9, %10, %12, %13, %14, %15, %16, %18, %19, %20
"""


def test_integers_wrap_and_floats_saturate():
    program = parse_program(EDGES)
    whole = [-2.5, -1.0, -0.5, 0.0, 0.25, 0.5, 1.5, 2.5, 300.0, 3e9, np.nan, -np.inf, np.inf]
    a = np.array([0, 1, -1, 7, -128, 127, -7, 3], np.int8)
    b = np.array([0, 0, -1, -2, -1, 0, 7, 5], np.int8)
    inputs = [np.array(whole, np.float32), a, b]
    wanted = evaluate_program(program, inputs, {})
    data = export(program, "onnx", {}, {}).data
    check(program, onnx_oracle.run(data, inputs), wanted, 1e-6)


# ---- which ops ---------------------------------------------------------------------------------
def test_a_matmul_is_one_matmul():
    found = same(traced(lambda x, y: jnp.maximum(x @ y, 0), (5, 7), (7, 3)), {})
    assert found == {"MatMul": 1, "Max": 1, "Identity": 1}


def convolution(dims: tuple[str, str, str], **options):
    def f(x, w):
        return jax.lax.conv_general_dilated(x, w, dimension_numbers=dims, **options)

    return f


CASES = {
    "nchw": (("NCHW", "OIHW", "NCHW"), (2, 4, 9, 8), (6, 4, 3, 2), {"window_strides": (2, 1)}),
    "nhwc": (("NHWC", "HWIO", "NHWC"), (2, 9, 8, 4), (3, 3, 4, 6), {"window_strides": (1, 1)}),
    "dilated": (
        ("NCHW", "OIHW", "NCHW"), (1, 3, 9, 9), (5, 3, 3, 3),
        {"window_strides": (1, 1), "rhs_dilation": (2, 2)},
    ),
    "groups": (
        ("NHWC", "HWIO", "NHWC"), (2, 7, 7, 6), (3, 3, 2, 9),
        {"window_strides": (2, 2), "feature_group_count": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(CASES))
def test_convolutions_are_conv_in_any_layout(case):
    dims, image, kernel, options = CASES[case]
    f = convolution(dims, padding="SAME", **options)
    assert same(traced(f, image, kernel), {})["Conv"] == 1


def test_pooling_is_pooling():
    def largest(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")

    def total(x):
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    assert same(traced(largest, (2, 9, 9, 3)), {})["MaxPool"] == 1
    assert same(traced(total, (2, 8, 8, 3)), {})["AveragePool"] == 1


def test_an_encoder_block_with_an_embedding():
    def block(ids, table, w):
        x = table[ids]
        x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        heads = (x @ w).reshape(6, 2, 4).transpose(1, 0, 2)
        p = jax.nn.softmax(heads @ heads.transpose(0, 2, 1), axis=-1)
        return jax.nn.gelu((p @ heads).transpose(1, 0, 2).reshape(6, 8), approximate=False)

    shapes = [jax.ShapeDtypeStruct(s, t) for s, t in (((6,), "int32"), ((11, 8), "float32"))]
    args = (*shapes, jax.ShapeDtypeStruct((8, 8), "float32"))
    program = eqsat.optimize(block, *args, stop_after="program", target="reference").program
    rng = np.random.default_rng(0)
    table, w = (rng.standard_normal(s).astype(np.float32) for s in ((11, 8), (8, 8)))
    ids = np.array([0, 3, 10, 5, 5, 1], np.int32)
    inputs = [ids, table, w]
    data = export(program, "onnx", {}, {}).data
    assert {"Gather", "MatMul", "Erf", "Exp"} <= set(ops(data))
    wanted = evaluate_program(program, inputs, {})
    check(program, onnx_oracle.run(data, inputs), wanted, 1e-5)


# ---- the file ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def packed() -> eqsat.Run:
    return eqsat.optimize(eqsat.read("residual"), target="avx512-xla", settings=FORCED)


def test_the_same_bytes_every_time_with_the_program_s_names(packed):
    data = packed.export("onnx").data
    assert data == packed.export("onnx").data
    model = onnx.load_from_string(data)
    names = [packed.program.leaf(i).name for i in packed.program.inputs]
    assert [i.name for i in model.graph.input] == names
    assert [o.name for o in model.graph.output] == ["result0"]
    assert model.opset_import[0].version == 21
    assert any("dispatch 0, " in n.doc_string for n in model.graph.node)


def test_constants_may_lie_in_a_file_of_their_own(packed, tmp_path):
    path = tmp_path / "m.onnx"
    found = packed.export("onnx", path, weights="resources")
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["m.onnx", "m.onnx.data"]
    assert len(found.data) < 100_000
    onnx.checker.check_model(str(path), full_check=True)
    inputs = random_inputs(packed.program, np.random.default_rng(0))
    whole = onnx.load(str(path)).SerializeToString()
    wanted = evaluate_program(packed.program, inputs, packed.source.weights)
    check(packed.program, onnx_oracle.run(whole, inputs), wanted, 1e-5)


RECURRENT = [  # (op, direction, lengths of the sequences, initial states)
    ("LSTM", "bidirectional", (5, 3), True),
    ("LSTM", "forward", None, True),
    ("LSTM", "reverse", (2, 5), False),
    ("GRU", "bidirectional", (5, 3), True),
    ("GRU", "forward", None, True),
    ("GRU", "reverse", None, False),
]


def recurrent(op: str, direction: str, lengths: tuple[int, ...] | None, initial: bool):
    """A layer of 4 over sequences of 5 steps of 3 elements, two in a batch."""
    w, rng = Writer(), np.random.default_rng(5)
    ways, rows = 1 + (direction == "bidirectional"), 16 if op == "LSTM" else 12
    shapes = {"W": (ways, rows, 3), "R": (ways, rows, 4), "B": (ways, 2 * rows)}
    for name, shape in shapes.items():
        w.constant(name, (rng.standard_normal(shape) * 0.4).astype(np.float32))
    sizes = w.constant("sizes", np.asarray(lengths, np.int32)) if lengths else ""
    states = ["h", "c"][: 2 if op == "LSTM" else 1]
    operands = ["x", *shapes, sizes, *(states if initial else ())]
    given = [value("x", FLOAT, 5, 2, 3)]
    given += [value(s, FLOAT, ways, 2, 4) for s in states if initial]
    ys = w.op(op, f"/{op}", *operands, results=1 + len(states), hidden_size=4, direction=direction)
    return w.model(given, [onnx.helper.make_empty_tensor_value_info(y) for y in ys])


@pytest.mark.parametrize("target", seeds(1, ["avx512-xla", "reference"]))
@pytest.mark.parametrize(("op", "direction", "lengths", "initial"), one_in(6, RECURRENT))
def test_recurrent_layers_are_exported_as_loops(op, direction, lengths, initial, target, tmp_path):
    model = recurrent(op, direction, lengths, initial)
    path = tmp_path / "layer.onnx"
    path.write_bytes(model.SerializeToString())
    run = eqsat.optimize(str(path), target=target)
    inputs = random_inputs(run.program, np.random.default_rng(0))
    wanted = onnx_oracle.run(model.SerializeToString(), inputs, check=False)
    data = run.export("onnx").data
    assert ops(data)["Scan"] == 1 + (direction == "bidirectional")
    check(run.program, onnx_oracle.run(data, inputs), wanted, 1e-6)
    check(run.program, iree_oracle.run(run.export("mlir").data.decode(), inputs), wanted, 1e-6)


def test_weights_may_be_arguments(packed):
    model = onnx.load_from_string(packed.export("onnx", weights="arguments").data)
    assert len(model.graph.input) == len(packed.program.inputs) + len(packed.program.weights)


def test_what_onnx_has_no_op_for_is_listed_or_left_to_the_domain_eqsat():
    text = "program p\ninput x: f32[4]\n%1 = generic(x, loops=[4], maps=[[d0]], body=erf_inv(x0))\n"
    program = parse_program(f"{text}return %1\n")
    with pytest.raises(EqsatError, match=r"1 of 1 ops .* `erf_inv` of f32") as error:
        export(program, "onnx", {}, {})
    assert error.value.diagnostics[0].code == "E380"
    data = export(program, "onnx", {}, {}, partial=True).data
    onnx.checker.check_model(onnx.load_from_string(data))
    assert [n.domain for n in onnx.load_from_string(data).graph.node][:1] == ["eqsat"]


def test_without_onnx_a_sentence_says_what_to_install(monkeypatch, packed):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(EqsatError, match="eqsat\\[onnx\\]") as error:
        packed.export("onnx")
    assert error.value.diagnostics[0].code == "E382"


def test_command_writes_a_model_that_is_read_back(packed, tmp_path, capsys):
    folder = packed.save(tmp_path / "run")
    assert command(["export", str(folder), "--to", "onnx"]) == 0
    printed = capsys.readouterr()
    back = eqsat.read(printed.out.strip())
    inputs = random_inputs(packed.program, np.random.default_rng(2))
    wanted = evaluate_program(packed.program, inputs, packed.source.weights)
    check(packed.program, evaluate_program(back.program, inputs, back.weights), wanted, 1e-6)
