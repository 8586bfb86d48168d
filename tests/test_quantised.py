"""Quantised programs written in f32 (QDQ): products of stored integers, scaled behind the sum."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxmodels
import onnxquantised
import pytest
from runnable import or_as_ops
from seeds import one_in

import eqsat
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.meaning.programs import evaluate_program

RULES = ["default"]


def quantised(x, scale, zero, dtype):
    ends = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x / scale) + zero, ends.min, ends.max).astype(dtype)


def dequantised(q, scale, zero=0):
    return (jnp.asarray(q).astype(jnp.int32) - zero).astype(jnp.float32) * scale


def round_trip(x, scale, zero, dtype):
    return dequantised(quantised(x, scale, zero, dtype), scale, zero)


def integers(rng, *shape):
    return rng.integers(-127, 128, shape).astype(np.int8)


def two_layers(zero, dtype):
    """x @ w1 @ w2 with a ReLU and a bias between them, every value quantised."""
    rng = np.random.default_rng(0)
    weights = [integers(rng, 40, 48), integers(rng, 48, 24)]
    scales = [rng.uniform(0.001, 0.002, w.shape[1]).astype("f4") for w in weights]
    bias = rng.standard_normal(48).astype("f4")

    def function(x):
        y = round_trip(x, 0.02, zero, dtype) @ dequantised(weights[0], scales[0])
        y = round_trip(jax.nn.relu(y + bias), 0.03, 0, jnp.uint8)
        return round_trip(y @ dequantised(weights[1], scales[1]), 0.05, zero, dtype)

    return function, (rng.standard_normal((9, 40)).astype("f4"),), 0.05


def convolution(zero, dtype):
    """3x3 with pads; the filters are on the right of one layout and on the left of the other."""
    rng = np.random.default_rng(0)
    w, scale = integers(rng, 3, 3, 16, 32), rng.uniform(0.001, 0.002, 32).astype("f4")

    def function(x):
        y = jax.lax.conv_general_dilated(
            round_trip(x, 0.02, zero, dtype), dequantised(w, scale), (1, 1), "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        return round_trip(y, 0.04, zero, dtype)

    return function, (rng.standard_normal((1, 7, 8, 16)).astype("f4"),), 0.04


def behind_a_function(zero, dtype):
    """A layer that reads what was computed of one byte by many operations."""
    rng = np.random.default_rng(0)
    w, scale = integers(rng, 24, 16), rng.uniform(0.001, 0.002, 16).astype("f4")

    def function(x):
        y = round_trip(jax.nn.gelu(round_trip(x, 0.02, zero, dtype)), 0.03, zero, dtype)
        return round_trip(y @ dequantised(w, scale), 0.05, zero, dtype)

    return function, (rng.standard_normal((9, 24)).astype("f4"),), 0.05


def two_activations(zero, dtype):
    """Products of which both factors have a zero point, or one of bytes without a sign has."""

    def function(x):
        y = round_trip(x, 0.02, zero, dtype)
        scores = round_trip(jnp.abs(y @ y.T), 0.1, 0, jnp.uint8)
        return round_trip(scores @ y, 0.4, zero, dtype)

    return function, (np.random.default_rng(0).standard_normal((9, 23)).astype("f4"),), 0.4


CASES = {
    "layers, symmetric": (two_layers, 0, jnp.int8),
    "layer behind a function": (behind_a_function, 128, jnp.uint8),
    "layers, zero point": (two_layers, 117, jnp.uint8),
    "convolution, zero point": (convolution, 117, jnp.uint8),
}


@or_as_ops("avx512-vnni")
@pytest.mark.parametrize("case", one_in(4, CASES))
def test_quantised_layers_multiply_bytes(case):
    """All products are of i8 or u8, no f32 is between two of them, and only ties may differ."""
    make, zero, dtype = CASES[case]
    function, given, quantum = make(zero, dtype)
    run = eqsat.optimize(function, *given, target="avx512-vnni", rules=RULES, goals=["time"])
    program = run.schedule.program
    products = [n.attr for n in program.nodes if is_product(n.attr)]
    assert products
    for g in products:
        assert set(g.dtypes) <= {"i8", "u8"}, g
    kept = [program.nodes[w].type for d in run.schedule.dispatches for w in d.writes]
    assert {t.dtype for t in kept[:-1]} <= {"i8", "u8", "i32"}
    (wanted,) = evaluate_program(run.program, list(given), run.weights)
    apart = np.abs(np.asarray(run.compile()(*given)) - wanted) / quantum
    assert apart.max() < 1.001
    assert np.mean(apart > 0.5) < 0.01


@or_as_ops("avx512-vnni")
@pytest.mark.parametrize(
    ("zero", "dtype"), one_in(3, [(-3, jnp.int8), (117, jnp.uint8), (128, jnp.uint8)])
)
def test_products_of_two_activations_are_of_bytes(zero, dtype):
    function, given, quantum = two_activations(zero, dtype)
    run = eqsat.optimize(function, *given, target="avx512-vnni", rules=RULES, goals=["time"])
    sums = [n.attr for n in run.schedule.program.nodes if getattr(n.attr, "reductions", ())]
    assert len(sums) == 2 and all(set(g.dtypes) <= {"i8", "u8"} for g in sums)
    assert all(d.plan.kind == "contraction" for d in run.schedule.dispatches if d.plan.work.fma)
    (wanted,) = evaluate_program(run.program, list(given), run.weights)
    apart = np.abs(np.asarray(run.compile()(*given)) - wanted) / quantum
    assert apart.max() < 1.001
    assert np.mean(apart > 0.5) < 0.01


def test_layers_of_an_exporter_multiply_bytes(tmp_path):
    """Zero points per channel that are all zero are none; those of activations are pads, too."""
    file = str(tmp_path / "block.onnx")
    onnx.save(onnxmodels.qdq_block(32, 14), file)  # of few channels f32 is as quick
    run = eqsat.optimize(file, target="avx512-vnni", rules=RULES, stop_after="schedule")
    products = [n.attr for n in run.schedule.program.nodes if is_product(n.attr)]
    assert len(products) == 2
    assert all(set(g.dtypes) == {"u8", "i8"} for g in products)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A stem with a pool, a block that steps, and a head, as onnxruntime quantises them."""
    file = tmp_path_factory.mktemp("quantised") / "net.onnx"
    onnx.save(onnxquantised.resnet(16, 22, classes=10, stages=2, blocks=1), str(file))
    return str(file)


def test_between_products_of_a_network_are_bytes(network):
    """Before any search: moves and pools are of u8, and f32 is what a product reads or gives."""
    program = eqsat.optimize(network, stop_after="program").canonical
    nodes = [(i, n) for i, n in enumerate(program.nodes) if n.op not in ("input", "weight")]
    wide = {i for i, n in nodes if n.type.dtype == "f32"}
    assert not [n for i, n in nodes if i in wide and n.op in ("pad", "reshape")]
    pools = [n for n in program.nodes if isinstance(n.attr, Generic) and n.attr.combine == "max"]
    assert [n.type.dtype for n in pools] == ["u8"]
    readers = [n for n in program.nodes if wide & {*n.operands}]
    assert all(is_product(n.attr) or n.type.dtype in ("u8", "f32") for n in readers)
    sums = [n for n in readers if not is_product(n.attr) and n.type.dtype == "f32"]
    assert [n.op for n in sums] == ["transpose"]  # of the weight of the head


def test_where_xla_computes_integers_one_by_one_products_stay_in_f32():
    function, given, _ = two_layers(0, jnp.int8)
    run = eqsat.optimize(function, *given, target="avx512-xla", rules=RULES, stop_after="egraph")
    assert {n.attr.dtypes for n in run.egraph.nodes if is_product(n.attr)} == {("f32", "f32")}


def is_product(attr):
    return isinstance(attr, Generic) and contraction_roles(attr) is not None


def test_a_sum_that_may_leave_i32_stays_in_f32():
    """131,073 products of -128 with -128 are more than 2^31."""

    def function(x, w):
        return dequantised(x, 0.5) @ dequantised(w, 0.25)

    def types(depth):
        given = [jax.ShapeDtypeStruct(s, "int8") for s in ((2, depth), (depth, 2))]
        run = eqsat.optimize(function, *given, rules=RULES, stop_after="egraph")
        found = {n.attr.yields[0].dtype for n in run.egraph.nodes if is_product(n.attr)}
        return found

    assert types(131_071) == {"i32"}
    assert types(131_072) == {"f32"}


# ---- what does not fit ---------------------------------------------------------------------------
def holding(name, array):
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def beyond(name, number):
    """A byte of the file's integers that is none."""
    made = onnx.TensorProto(name=name, data_type=onnx.TensorProto.UINT8)
    made.int32_data.append(number)
    return made


SCALE, ZERO = holding("s", np.float32(0.1)), holding("z", np.uint8(3))
WRONG = {
    "no scale": (["x", "", "z"], [ZERO], "E362"),
    "a scale that nothing gives": (["x", "s", "z"], [ZERO], "E362.*reads `s`"),
    "a zero point beyond its type": (["x", "s", "z"], [SCALE, beyond("z", 300)], "E363.*fit uint8"),
    "below": (["x", "s", "z"], [SCALE, beyond("z", -1)], "E363.*fit uint8"),
    "of 32 bits": (["x", "s", "z"], [SCALE, holding("z", np.int32(300))], "E368.*type int32"),
    "a float": (["x", "s", "z"], [SCALE, holding("z", np.float32(3))], "E368.*type float32"),
    "a scale of 0": (["x", "s", "z"], [holding("s", np.float32(0)), ZERO], "E368.*scale of 0"),
    "no number": (["x", "s", "z"], [holding("s", np.float32("nan")), ZERO], "E368.*scale of nan"),
    "unlike numbers": (
        ["x", "s", "z"], [holding("s", np.ones(6, "f4")), holding("z", np.ones(5, "u1"))],
        r"E368.*zero points \[5\] for scales \[6\]",
    ),
}  # fmt: skip


def read_alone(folder, op, types, given, initializers):
    x, y = (
        onnx.helper.make_tensor_value_info(n, t, [4, 6]) for n, t in zip("xy", types, strict=True)
    )
    node = onnx.helper.make_node(op, given, ["y"], name="/q")
    graph = onnx.helper.make_graph([node], "g", [x], [y], initializers)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), str(folder / "bad.onnx"))
    return eqsat.optimize(str(folder / "bad.onnx"), stop_after="program")


@pytest.mark.parametrize("case", WRONG)
def test_a_scale_or_zero_point_that_does_not_fit_is_told(case, tmp_path):
    given, initializers, told = WRONG[case]
    types = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8
    with pytest.raises(EqsatError, match=told):
        read_alone(tmp_path, "QuantizeLinear", types, given, initializers)


def test_a_zero_point_of_another_type_than_what_is_dequantised(tmp_path):
    types = onnx.TensorProto.INT8, onnx.TensorProto.FLOAT
    with pytest.raises(EqsatError, match=r"E368.*operands of int8 and uint8, which have to be"):
        read_alone(tmp_path, "DequantizeLinear", types, ["x", "s", "z"], [SCALE, ZERO])


def test_weights_of_a_channel_of_zeros_have_a_scale_of_zero(tmp_path):
    types = onnx.TensorProto.INT8, onnx.TensorProto.FLOAT
    scales = [holding("s", np.zeros(6, "f4"))]
    read_alone(tmp_path, "DequantizeLinear", types, ["x", "s"], scales)
