"""ONNX models read into programs: numbers as onnxruntime's, names kept, shapes folded away."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxmodels as models
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxmodels import FLOAT, INT64, Writer, value

from eqsat.cli.app import run as command
from eqsat.execute.draw import random_inputs
from eqsat.frontends.onnxgraph import read_onnx
from eqsat.frontends.source import Traced
from eqsat.model.diag import EqsatError, EqsatWarning
from eqsat.ops.meaning.programs import evaluate_program

MICROSOFT = helper.make_opsetid("com.microsoft", 1)
RNG = np.random.default_rng(7)


def save(model: Any, folder: Path, name: str = "model") -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def read(model: Any, folder: Path, **sizes: int) -> Traced:
    return read_onnx(save(model, folder), sizes)


def reference(found: Traced, inputs: dict[str, Any]) -> list[Any]:
    return evaluate_program(found.program, list(inputs.values()), found.weights, found.opaque)


def agree(model: Any, inputs: dict[str, Any], folder: Path, limit: float = 1e-5) -> Traced:
    """Read, evaluate in float64, and compare every result with onnxruntime's."""
    wanted = runtime(model, inputs)
    sizes = {
        d: n
        for i in model.graph.input
        for d, n in zip(dims(i), inputs[i.name].shape, strict=True)
        if isinstance(d, str)
    }
    found = read(model, folder, **sizes)
    got = reference(found, inputs)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape
        scale = np.abs(b.astype(np.float64)).max(initial=0) or 1.0
        assert np.abs(a.astype(np.float64) - b).max(initial=0) <= limit * scale
    return found


def runtime(model: Any, inputs: dict[str, Any]) -> list[Any]:
    """onnxruntime's results, op by op: its fused kernels round otherwise."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # without VNNI, sums of products of u8 and i8 would saturate at 16 bits
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, inputs)


def dims(v: Any) -> list[int | str]:
    return [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def single(
    op: str,
    arrays: list[Any],
    opset: int = 17,
    domain: str = "",
    results: int = 1,
    **attributes: Any,
) -> tuple[Any, dict[str, Any]]:
    """A model of one node over inputs of these arrays' types; None is an operand left out."""
    given = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    node = helper.make_node(
        op, names, [f"y{i}" for i in range(results)], domain=domain, **attributes
    )
    inputs = [
        value(k, helper.np_dtype_to_tensor_dtype(a.dtype), *a.shape) for k, a in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(results)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    opsets = [helper.make_opsetid("", opset), MICROSOFT]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


# ---- whole models --------------------------------------------------------------------------------
ENCODER = {"input_ids": RNG.integers(0, 50, (2, 8)), "attention_mask": RNG.integers(0, 2, (2, 8))}


def test_an_encoder_as_torch_exports_it_equals_onnxruntime(tmp_path: Path) -> None:
    found = agree(models.encoder(), ENCODER, tmp_path)
    assert not found.opaque
    program = found.program
    assert [program.leaf(i).name for i in program.inputs] == ["input_ids", "attention_mask"]
    names = {program.leaf(i).name for i in program.weights}
    assert "encoder_layer_0_attention_c_attn_weight" in names
    # all shape arithmetic is gone: what is left has the types of the data
    assert {t.dtype for n in program.nodes for t in n.types} == {"i32", "f32", "bool"}


def test_weights_are_the_initializers_under_their_content_hash(tmp_path: Path) -> None:
    model = models.encoder()
    found = read(model, tmp_path, batch=1, sequence=4)
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    table = stored["embeddings.word_embeddings.weight"]
    key = next(
        found.program.leaf(i).key
        for i in found.program.weights
        if found.program.leaf(i).name == "embeddings_word_embeddings_weight"
    )
    np.testing.assert_array_equal(found.weights[key], table)


def test_a_quantised_block_is_right_to_one_quantum(tmp_path: Path) -> None:
    inputs = {"input": floats(1, 8, 10, 10)}
    model = models.qdq_block()
    (wanted,) = runtime(model, inputs)
    (got,) = reference(read(model, tmp_path), inputs)
    assert got.shape == wanted.shape
    off = np.abs(got.astype(int) - wanted.astype(int))
    assert off.max() <= 1 and (off > 0).mean() < 0.01
    assert len(np.unique(wanted)) > 50  # the block does not saturate everywhere


def test_reading_is_deterministic(tmp_path: Path) -> None:
    a, b = (read(models.encoder(), tmp_path, batch=1, sequence=4) for _ in range(2))
    assert a.program.to_text() == b.program.to_text()


def test_the_command_line_reads_searches_and_verifies(tmp_path: Path, capsys: Any) -> None:
    path = save(models.encoder(layers=0, hidden=8), tmp_path)
    sizes = ["--size", "batch=1", "--size", "sequence=4"]
    told = ["--output-format", "json", "--time-limit", "5s", "-q"]
    assert command(["optimize", str(path), "--target", "reference", *sizes, *told, "--verify"]) == 0
    assert '"ok": true' in capsys.readouterr().out


def test_masks_are_verified_with_zeros_and_ones(tmp_path: Path) -> None:
    found = read(models.encoder(), tmp_path, batch=4, sequence=16)
    ids, mask = random_inputs(found.program, np.random.default_rng(0))
    assert set(mask.flat) == {0, 1}
    tables = models.encoder().graph.initializer
    (rows,) = (t.dims[0] for t in tables if t.name == "embeddings.word_embeddings.weight")
    assert 0 <= ids.min() < ids.max() < rows  # row numbers are drawn within their table


# ---- sizes, types, warnings ----------------------------------------------------------------------
def test_open_dimensions_need_a_size(tmp_path: Path) -> None:
    with pytest.raises(EqsatError, match=r"E367.*`batch`, `sequence`") as caught:
        read(models.encoder(), tmp_path)
    assert "--size batch=1 --size sequence=1" in str(caught.value)
    with pytest.raises(EqsatError, match=r"E367.*no open dimension `sequnce`"):
        read(models.encoder(), tmp_path, batch=1, sequence=4, sequnce=4)


def test_a_dimension_without_a_name_is_called_by_its_place(tmp_path: Path) -> None:
    model, _ = single("Relu", [floats(2, 3)])
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    with pytest.raises(EqsatError, match=r"`x0\.1`"):
        read(model, tmp_path)
    found = read(model, tmp_path, **{"x0.1": 5})
    assert found.program.nodes[found.program.results[0]].type.shape == (2, 5)


def test_64_bit_types_follow_jax(tmp_path: Path) -> None:
    model, inputs = single("Add", [np.arange(3), np.ones(3, np.int64)])
    assert {n.type.dtype for n in read(model, tmp_path).program.nodes} == {"i32"}
    with jax.enable_x64(True):
        found = read(model, tmp_path)
        assert {n.type.dtype for n in found.program.nodes} == {"i64"}
        np.testing.assert_array_equal(reference(found, inputs)[0], [1, 2, 3])


def test_wide_integers_are_not_cut_silently(tmp_path: Path) -> None:
    w = Writer()
    y = w.op("Add", "/Add", "x", w.constant("big", np.asarray([2**40, 1])))
    model = w.model([value("x", INT64, 2)], [value(y, INT64, 2)])
    with pytest.raises(EqsatError, match=r"E369.*`big`.*beyond 32 bits"):
        read(model, tmp_path)


def test_weights_that_are_not_finite_are_named_and_kept(tmp_path: Path, capsys: Any) -> None:
    w = Writer()
    y = w.op("Add", "/Add", "x", w.constant("bias", np.asarray([1, np.nan], np.float32)))
    path = save(w.model([value("x", FLOAT, 2)], [value(y, FLOAT, 2)]), tmp_path)
    with pytest.warns(EqsatWarning, match="`bias`"):
        found = read_onnx(path)
    assert [np.isnan(a).any() for a in found.weights.values()] == [True]
    assert command(["optimize", str(path), "--target", "reference", "--stop-after", "program"]) == 0
    assert "warning[E369]: weights hold NaN" in capsys.readouterr().err


def test_reading_a_sound_model_warns_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(models.encoder(), tmp_path, batch=1, sequence=4)


# ---- external data -------------------------------------------------------------------------------
def test_external_data_is_mapped_from_beside_the_model(tmp_path: Path) -> None:
    model = models.qdq_block()
    inline = read(model, tmp_path)
    path = tmp_path / "external.onnx"
    onnx.save_model(
        model, path, save_as_external_data=True, location="external.data", size_threshold=8
    )
    found = read_onnx(path)
    assert (tmp_path / "external.data").stat().st_size > 500
    assert {found.program.leaf(i).key for i in found.program.weights} == {
        inline.program.leaf(i).key for i in inline.program.weights
    }


# ---- functions, control flow ---------------------------------------------------------------------
def test_functions_of_the_model_are_inlined_with_their_attributes(tmp_path: Path) -> None:
    body = [
        helper.make_node("LeakyRelu", ["x"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["y"]),
    ]
    body[0].attribute.add(name="alpha", ref_attr_name="slope", type=1)
    f = helper.make_function(
        "mine", "Leak", ["x"], ["y"], body, [helper.make_opsetid("", 17)], ["slope"]
    )
    w = Writer()
    w.nodes.append(helper.make_node("Leak", ["x"], ["b"], domain="mine", slope=0.25))
    w.nodes.append(helper.make_node("Leak", ["b"], ["c"], domain="mine", slope=0.5))
    imports = [helper.make_opsetid("mine", 1)]
    model = w.model([value("x", FLOAT, 4)], [value("c", FLOAT, 4)], [f], imports)
    agree(model, {"x": floats(4)}, tmp_path)


def branch(name: str, op: str, of: str = "x") -> Any:
    node = helper.make_node(op, [of, of], [f"{name}_y"])
    out = [helper.make_empty_tensor_value_info(f"{name}_y")]
    return helper.make_graph([node], name, [], out)


@pytest.mark.parametrize("known", [True, False])
def test_if_takes_a_known_branch_and_keeps_both_of_an_unknown(tmp_path: Path, known: bool) -> None:
    w = Writer()
    inputs: dict[str, Any] = {"x": floats(3)}
    condition = w.constant("c", np.asarray(False)) if known else "c"
    y = w.op("If", "/If", condition, then_branch=branch("t", "Add"), else_branch=branch("e", "Mul"))
    given = [value("x", FLOAT, 3)]
    if not known:
        given.append(value("c", TensorProto.BOOL))
        inputs["c"] = np.asarray(True)
    found = agree(w.model(given, [value(y, FLOAT, 3)]), inputs, tmp_path)
    assert (Counter(n.op for n in found.program.nodes) == {"input": 1, "generic": 1}) == known


VECTOR = np.arange(3, dtype=np.float32)
CONDITIONS = {  # of an x of three elements; each is true
    "constant": [("Constant", [], {"value": numpy_helper.from_array(np.asarray(True))})],
    "shapes": [("Shape", ["x"], {}), ("ReduceMax", [0], {}), ("Equal", [0, "three"], {})],
    "rank": [("Shape", ["x"], {}), ("Size", [0], {}), ("Less", [0, "three"], {})],
    "products": [("MatMul", ["v", "v"], {}), ("Greater", [0, "one"], {})],
    "ArgMax": [
        ("Einsum", ["v", "v"], {"equation": "i,j->ij"}), ("ArgMax", [0], {"axis": 1}),
        ("ReduceMin", [0], {"keepdims": 0}), ("Less", [0, "three"], {}),
    ],
    "another If": [
        ("If", ["true"], dict(then_branch=branch("t", "Add", "v"), else_branch=branch("e", "Mul"))),
        ("MatMul", [0, "v"], {}), ("Greater", [0, "one"], {}),
    ],
}  # fmt: skip
UNREADABLE = {
    "unknown": helper.make_node("Mine", ["x"], ["e_y"], domain="mine"),
    "misfit": helper.make_node("MatMul", ["x", "wide"], ["e_y"]),
    "text": helper.make_node(
        "Constant", [], ["e_y"], value=helper.make_tensor("s", TensorProto.STRING, [1], [b"a"])
    ),
    "type": helper.make_node(
        "Optional", [], ["e_y"], type=helper.make_tensor_type_proto(FLOAT, [3])
    ),
    "complex": helper.make_node(
        "Constant", [], ["e_y"], value=helper.make_tensor("s", TensorProto.COMPLEX64, [1], [1j])
    ),
}


def conditional(condition: str, other: str) -> Any:
    """An If that adds x to itself where the condition is true; else what cannot be read."""
    w = Writer()
    for name, array in {
        "one": VECTOR[1],
        "v": VECTOR,
        "wide": np.zeros((5, 2), np.float32),
    }.items():
        w.constant(name, np.asarray(array))
    w.constant("three", np.asarray(3, np.int64))
    w.constant("true", np.asarray(True))
    c = condition
    for i, (op, operands, attributes) in enumerate(CONDITIONS.get(condition, ())):
        c = w.op(op, f"/{i}", *(c if o == 0 else o for o in operands), **attributes)
    out = [helper.make_empty_tensor_value_info("e_y")]
    no = helper.make_graph([UNREADABLE[other]], "e", [], out)
    y = w.op("If", "/If", c, then_branch=branch("t", "Add"), else_branch=no)
    given = [value("x", FLOAT, 3)]
    if condition not in CONDITIONS:
        given.append(value(condition, TensorProto.BOOL))
    return w.model(given, [value(y, FLOAT, 3)], imports=[helper.make_opsetid("mine", 1)])


@pytest.mark.parametrize("other", UNREADABLE)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_branch_not_taken_may_hold_what_is_not_read(
    tmp_path: Path, condition: str, other: str
) -> None:
    found = read(conditional(condition, other), tmp_path)
    x = floats(3)
    assert np.array_equal(reference(found, {"x": x})[0], x + x)


@pytest.mark.parametrize("other", UNREADABLE)
def test_a_branch_that_may_be_taken_is_refused_with_its_node(tmp_path: Path, other: str) -> None:
    with pytest.raises(EqsatError, match="`e_y`") as error:
        read(conditional("c", other), tmp_path)
    assert error.value.diagnostics[0].code in ("E363", "E365", "E368")


def loop_body(stacked: bool, going: str = "Identity") -> Any:
    nodes = [
        helper.make_node(going, ["cond"] if going == "Identity" else ["s", "top"], ["cond_out"]),
        helper.make_node("Mul", ["s", "x"], ["s_out"]),
        helper.make_node("Identity", ["s_out"], ["row"]),
    ]
    given = [value("i", INT64), value("cond", TensorProto.BOOL), value("s", FLOAT)]
    outputs = [value("cond_out", TensorProto.BOOL), value("s_out", FLOAT)]
    return helper.make_graph(
        nodes, "body", given, [*outputs, value("row", FLOAT)] if stacked else outputs
    )


@pytest.mark.parametrize("trips", [0, 3, 50])
def test_loops_of_known_length_are_unrolled_or_scanned(tmp_path: Path, trips: int) -> None:
    w = Writer()
    count = w.constant("trips", np.asarray(trips, np.int64))
    ys = w.op("Loop", "/Loop", count, "", "x0", results=2, body=loop_body(stacked=True))
    given = [value("x0", FLOAT), value("x", FLOAT)]
    outputs = [helper.make_empty_tensor_value_info(y) for y in ys]
    inputs = {"x0": np.float32(1.5), "x": np.float32(1.01)}
    agree(w.model(given, outputs), {k: np.asarray(v) for k, v in inputs.items()}, tmp_path)


def test_a_loop_may_run_until_its_values_say_stop(tmp_path: Path) -> None:
    w = Writer()
    w.constant("top", np.float32(100))
    y = w.op(
        "Loop",
        "/Loop",
        "",
        w.constant("yes", np.asarray(True)),
        "x0",
        body=loop_body(False, "Less"),
    )
    model = w.model(
        [value("x0", FLOAT), value("x", FLOAT)], [helper.make_empty_tensor_value_info(y)]
    )
    inputs = {"x0": np.asarray(1, np.float32), "x": np.asarray(1.7, np.float32)}
    agree(model, inputs, tmp_path)


@pytest.mark.parametrize("start", [True, False])
def test_a_loop_may_be_told_not_to_start(tmp_path: Path, start: bool) -> None:
    w = Writer()
    count = w.constant("trips", np.asarray(3, np.int64))
    y = w.op("Loop", "/Loop", count, "go", "x0", body=loop_body(False))
    given = [value("x0", FLOAT), value("x", FLOAT), value("go", TensorProto.BOOL)]
    model = w.model(given, [helper.make_empty_tensor_value_info(y)])
    numbers = {"x0": np.asarray(1.5, np.float32), "x": np.asarray(2, np.float32)}
    agree(model, numbers | {"go": np.asarray(start)}, tmp_path)


# ---- operators of exports ------------------------------------------------------------------------
H = 8
MASK = np.asarray([[1, 1, 0], [1, 1, 1]], np.int32)


def signed(*shape: int) -> Any:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def unsigned(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


CONTRIBUTED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Gelu": ([floats(2, 5)], {}),
    "BiasGelu": ([floats(2, 5), floats(5)], {}),
    "FastGelu": ([floats(2, 5), floats(5)], {}),
    "QuickGelu": ([floats(2, 5)], {"alpha": 1.5}),
    "FusedMatMul": ([floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    "SkipLayerNormalization": (
        [floats(2, 3, H), floats(2, 3, H), floats(H), floats(H), floats(H)],
        {"epsilon": 1e-6},
    ),
    "SkipSimplifiedLayerNormalization": (
        [floats(2, 3, H), floats(2, 3, H), floats(H)],
        {"epsilon": 1e-6},
    ),
    "Attention": (
        [floats(2, 3, H), floats(H, 3 * H), floats(3 * H), MASK],
        {"num_heads": 2},
    ),
    "MultiHeadAttention": (
        [floats(2, 3, H), floats(2, 4, H), floats(2, 4, H), floats(3 * H)],
        {"num_heads": 2},
    ),
    "RotaryEmbedding": (
        [floats(1, 2, 3, 4), np.asarray([[0, 1, 2]]), floats(6, 2), floats(6, 2)],
        {},
    ),
    "QLinearAdd": (
        [
            unsigned(2, 5), np.float32(0.02), np.uint8(120),
            unsigned(2, 5), np.float32(0.03), np.uint8(130),
            np.float32(0.05), np.uint8(125),
        ],
        {},
    ),
    "MatMulIntegerToFloat": (
        [
            unsigned(2, 8), signed(8, 3) // 2,  # without VNNI it saturates sums of two products
            np.float32(0.02), np.float32(0.01), np.uint8(120), np.int8(3), floats(3),
        ],
        {},
    ),
    "DynamicQuantizeMatMul": (
        [floats(2, 8), signed(8, 3), np.float32(0.01), np.int8(0)],
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", CONTRIBUTED)
def test_microsoft_operators_equal_onnxruntime(op: str, tmp_path: Path) -> None:
    arrays, attributes = CONTRIBUTED[op]
    model, inputs = single(
        op, [np.asarray(a) for a in arrays], domain="com.microsoft", **attributes
    )
    quantised = "Quantize" in op or op == "QLinearAdd"  # onnxruntime rounds in 32 bits
    agree(model, inputs, tmp_path, limit=1e-2 if quantised else 1e-5)


def test_weights_of_four_bits_multiply_as_onnxruntime_does(tmp_path: Path) -> None:
    data = unsigned(6, 2, 8)  # 6 rows of 2 blocks of 16
    model, inputs = single(
        "MatMulNBits", [floats(3, 32), data, floats(12)],
        domain="com.microsoft", N=6, K=32, bits=4, block_size=16,
    )  # fmt: skip
    agree(model, inputs, tmp_path)


OPSET_13 = {
    "ConvTranspose": (
        [floats(1, 4, 5, 5), floats(4, 3, 3, 3)],
        {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0], "group": 2},
    ),
    "LSTM": (
        [floats(5, 2, 3), floats(2, 16, 3), floats(2, 16, 4)],
        {"hidden_size": 4, "direction": "bidirectional"},
    ),
    "GRU": (
        [floats(5, 2, 3), floats(1, 12, 3), floats(1, 12, 4)],
        {"hidden_size": 4, "linear_before_reset": 1},
    ),
    "ReduceMean": ([floats(2, 3, 4)], {"axes": [0, -1], "keepdims": 0}),
}  # fmt: skip


@pytest.mark.parametrize("op", OPSET_13)
def test_older_opsets_keep_their_own_meaning(op: str, tmp_path: Path) -> None:
    arrays, attributes = OPSET_13[op]
    agree(*single(op, arrays, opset=13, **attributes), tmp_path)


def test_resize_of_pytorch_equals_onnxruntime(tmp_path: Path) -> None:
    for mode, how in (
        ("linear", "pytorch_half_pixel"),
        ("nearest", "asymmetric"),
        ("cubic", "half_pixel"),
    ):
        w = Writer()
        scales = w.constant("scales", np.asarray([1, 1, 2, 1.5], np.float32))
        attributes = {"nearest_mode": "floor"} if mode == "nearest" else {}
        y = w.op(
            "Resize",
            "/up/Resize",
            "x",
            "",
            scales,
            mode=mode,
            coordinate_transformation_mode=how,
            **attributes,
        )
        model = w.model([value("x", FLOAT, 1, 2, 5, 6)], [helper.make_empty_tensor_value_info(y)])
        agree(model, {"x": floats(1, 2, 5, 6)}, tmp_path)


def test_every_form_of_a_constant(tmp_path: Path) -> None:
    w = Writer()
    forms = {
        "value_float": 2.0, "value_floats": [1.0, 2.0], "value_int": 3, "value_ints": [1, 2],
        "value": numpy_helper.from_array(np.asarray([0.5, 4], np.float32)),
    }  # fmt: skip
    total = "x"
    for i, (form, held) in enumerate(forms.items()):
        c = w.op("Constant", f"/Constant_{i}", **{form: held})
        total = w.op("Add", f"/Add_{i}", total, w.op("Cast", f"/Cast_{i}", c, to=FLOAT))
    agree(w.model([value("x", FLOAT, 2)], [value(total, FLOAT, 2)]), {"x": floats(2)}, tmp_path)
