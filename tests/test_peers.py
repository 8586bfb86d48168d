"""Peers on the clock: what is exported for them, how they are asked, what the table says."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx_oracle
import peermodels
import peerpage
import peers
import pytest
from peergraph import model_of, with_ops
from peeronnx import raise_ops
from seeds import one_in, seeds

import eqsat

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def convolved(x: Any, w: Any, form: str, stride: int = 1) -> Any:
    filters = "OIHW" if form == "NCHW" else "HWIO"
    pads = ((w.shape[2 if form == "NCHW" else 0] // 2,) * 2,) * 2
    return jax.lax.conv_general_dilated(
        x, w, (stride,) * 2, pads, dimension_numbers=(form, filters, form)
    )


def normed(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def quantised(x: Any) -> Any:
    small = jnp.clip(jnp.round(x * 32), -128, 127).astype(jnp.int8)
    return small.astype(jnp.float32) / 32


def pooled(x: Any) -> Any:
    window, pads = (1, 1, 3, 3), ((0, 0), (0, 0), (1, 1), (1, 1))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, (1, 1, 2, 2), pads)


def attended(x: Any) -> Any:
    """[batch, head, place, size], of which a row sees the places before it."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", x, x) * 0.5 + np.triu(np.full((5, 5), -1e9, "f4"), 1)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), x)


def along(x: Any) -> Any:
    """A layer over a line, with a bias per channel."""
    return jax.lax.conv_general_dilated(x, LINE, (1,), "SAME") + ROW[:6, None]


def root_normed(x: Any) -> Any:
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)


LINE = real(6, 4, 1)
W1, W3, LAST, ROW = real(6, 4, 1, 1), real(6, 4, 3, 3), real(1, 1, 4, 6), real(8)
IMAGE, PLACES, TABLE = (1, 4, 9, 9), (1, 9, 9, 4), (5, 8)
# what is written, the shape of its argument, the ops that must come of it
CASES: dict[str, tuple[Any, tuple[int, ...], set[str]]] = {
    "pads": (lambda x: jax.nn.relu(convolved(x, W3, "NCHW", 2)), IMAGE, {"Conv", "Relu"}),
    "pointwise": (lambda x: convolved(x, W1, "NCHW"), IMAGE, {"Conv"}),
    "strided pointwise": (lambda x: convolved(x, W1, "NCHW", 2), IMAGE, {"Conv"}),
    "pointwise, channels last": (
        lambda x: convolved(x, LAST, "NHWC"), PLACES, {"Conv", "Transpose"},
    ),
    "pool": (pooled, IMAGE, {"MaxPool"}),
    "softmax": (lambda x: jax.nn.softmax(x, axis=-1), TABLE, {"Softmax"}),
    "norm": (lambda x: normed(x) * ROW + ROW, TABLE, {"LayerNormalization"}),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), TABLE, {"Gelu"}),
    "gelu by tanh": (jax.nn.gelu, TABLE, {"Gelu"}),
    "hard swish": (jax.nn.hard_swish, TABLE, {"HardSwish"}),
    "rounded": (lambda x: jnp.maximum(x, 1), (5,), {"Max"}),
    "along a line": (along, (1, 4, 9), {"Conv", "Add"}),
    "leaky": (lambda x: jax.nn.leaky_relu(x, 0.1), TABLE, {"LeakyRelu"}),
    "softplus": (jax.nn.softplus, TABLE, {"Softplus"}),
    "repeated": (lambda x: jnp.repeat(jnp.repeat(x, 2, 2), 3, 3), IMAGE, {"Resize"}),
    "root norm": (
        lambda x: root_normed(x) * ROW, TABLE, {"Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"},
    ),
    "attention": (
        attended, (2, 3, 5, 8), {"MatMul", "Mul", "Add", "Softmax", "Transpose"},
    ),
}  # fmt: skip


def exported(function: Any, x: Any) -> Any:
    run = eqsat.optimize(function, x, target="reference", stop_after="program")
    return onnx.load_from_string(run.export("onnx", of="program").data)


@pytest.mark.parametrize("name", one_in(3, CASES))
def test_exports_are_raised_to_the_ops_that_runtimes_fuse(name: str) -> None:
    function, shape, ops = CASES[name]
    x = real(*shape)
    model = raise_ops(exported(function, x))
    assert {n.op_type for n in model.graph.node} - {"Identity"} == ops
    found = onnx_oracle.run(model.SerializeToString(), [x])
    np.testing.assert_allclose(found[0], function(x), rtol=1e-4, atol=1e-5)


def test_rows_of_a_table_are_a_gather_wherever_they_are_counted_from() -> None:
    at = np.array([[0, 7, -1], [-8, 3, 2]], "i4")
    model = raise_ops(exported(lambda i: jnp.asarray(ROW)[i], at))
    assert {n.op_type for n in model.graph.node} - {"Identity"} == {"Gather"}
    (found,) = onnx_oracle.run(model.SerializeToString(), [at])
    np.testing.assert_array_equal(found, ROW[at])
    cut = raise_ops(exported(lambda i: jnp.asarray(ROW)[jnp.clip(i, 0, 5)], at))
    assert {"Min", "Max"} <= {n.op_type for n in cut.graph.node}
    (found,) = onnx_oracle.run(cut.SerializeToString(), [at])
    np.testing.assert_array_equal(found, ROW[np.clip(at, 0, 5)])


# ---- further models ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(2, ["gru", "lstm8", "kmeans", "gnn"]))
def test_a_file_written_by_hand_computes_the_model(name: str) -> None:
    model = peermodels.FURTHER[name]
    assert model.natural is not None
    weights = jax.tree_util.tree_leaves(model.values[len(model.inputs) :])
    wanted = jax.tree_util.tree_leaves(jax.jit(model.closed)(*model.inputs))
    made = model_of(model.natural, model.inputs, weights, wanted)
    found = onnx_oracle.run(made.SerializeToString(), model.inputs)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", seeds(1, ["gnn", "traincnn"]))
def test_what_eqsat_keeps_whole_has_ops_for_peers(name: str) -> None:
    model = peermodels.FURTHER[name]
    run = eqsat.optimize(model.closed, *model.inputs, target="reference", stop_after="program")
    data = run.export("onnx", of="program", partial=True).data
    made = raise_ops(with_ops(onnx.load_from_string(data), model.ops))
    assert not {n.domain for n in made.graph.node} - {""}
    found = onnx_oracle.run(made.SerializeToString(), model.inputs)
    wanted = jax.tree_util.tree_leaves(jax.jit(model.closed)(*model.inputs))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)


# ---- bytes ---------------------------------------------------------------------------------------
def test_rounding_to_bytes_becomes_qdq_and_stays_exact() -> None:
    x = np.concatenate([real(64) * 3, np.float32([-99, 99, 0.015625, -0.015625, 0])])
    model = raise_ops(exported(lambda x: quantised(x) * 1, x))
    assert {"QuantizeLinear", "DequantizeLinear"} <= {n.op_type for n in model.graph.node}
    found = onnx_oracle.run(model.SerializeToString(), [x])
    np.testing.assert_array_equal(found[0], np.asarray(quantised(x)))


def test_what_only_looks_like_one_stays() -> None:
    """A norm over other places than its mean's, a maximum with one, a sum that is no softmax's."""

    def norm(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(0, keepdims=True) + 1e-5)

    def shares(x: Any) -> Any:
        e = jnp.exp(x - x.max(0, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    for function in (norm, shares, lambda x: jnp.maximum(x, 1) * 0.5):
        x = real(*TABLE)
        model = raise_ops(exported(function, x))
        known = {n.op_type for n in model.graph.node}
        assert not known & {"LayerNormalization", "Softmax", "Relu", "Gelu"}
        found = onnx_oracle.run(model.SerializeToString(), [x])
        np.testing.assert_allclose(found[0], function(x), rtol=1e-5, atol=1e-6)


# ---- sides -------------------------------------------------------------------------------------
# `slow`, as each is a process with a runtime of its own, and the benchmark takes hours
@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The smallest model by the sides that this environment has, with very few rounds."""
    place = tmp_path_factory.mktemp("peers")
    settings = peers.Settings(place, Path(sys.executable), "avx512-xla", 60.0, (0,), None, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "ROUNDS_SECONDS", 0.0)
        patch.setattr(peers, "BATCH_SECONDS", 0.001)
        patch.setattr(peers, "FAMILIES", peers.FAMILIES | {"iree": ("iree_o1",)})
        names = ("eqsat", "jax", "onnxruntime", "iree", "openvino")
        return peers.measure("mlp_784", names, settings)


@pytest.mark.slow
def test_sides_are_compared_with_the_reference_and_timed_in_turn(measured: Any) -> None:
    installed = {"eqsat", "jax", "onnxruntime", "iree"}
    assert installed <= measured["sides"].keys()
    for name in installed:
        side = measured["sides"][name]
        assert side["error"] < 1e-5 and side["ms"] > 0 and side["rounds"] == peers.LEAST_ROUNDS
        assert side["peak_mib"] >= side["resident_mib"] > side["base_mib"] > 0
    for name in installed - {"eqsat"}:
        middle, low, high = measured["ratios"][name]
        assert 0 < low <= middle <= high
    models = {"mlp_784": {"1": measured}}
    found = {"machine": "M", "date": "D", "target": "T", "models": models}
    assert "| mlp_784 |" in peerpage.page(peerpage.BEGIN + peerpage.END, found)


@pytest.mark.slow
def test_a_side_with_other_results_is_not_timed(tmp_path: Path, measured: Any) -> None:
    source = Path(measured["answer"]["folder"]).parent
    shutil.copytree(source.parent / "first", tmp_path / "first")
    place = tmp_path / "mlp_784"
    place.mkdir()
    for file in ("inputs.npz", "model.onnx"):
        (place / file).write_bytes((source / file).read_bytes())
    with np.load(source / "wanted.npz") as wanted:
        np.savez(place / "wanted.npz", *(wanted[k] * 1.01 for k in wanted.files))
    settings = peers.Settings(tmp_path, Path(sys.executable), "avx512-xla", 60.0, (0,), None, 0)
    side = peers.start("onnxruntime", "mlp_784", str(source), settings)
    assert "computes something else" in side.about["failed"]


# ---- table -------------------------------------------------------------------------------------


def test_the_first_page_has_every_model_of_the_tables_losses_too() -> None:
    page, readme = (p.read_text(encoding="utf-8") for p in (peerpage.PAGE, peerpage.README))
    shown = peerpage.first_page(page)
    assert shown in readme, "python benchmarks/peerpage.py"
    assert len(shown.splitlines()) == 2 + 17 + 1 + 3
    unseen = next(x for x in shown.splitlines() if x.startswith("* models nobody tuned to"))
    assert "ahead on 13 of 27" in unseen and unseen.count(",") == 12
    assert all(name in unseen for name in ("decode8 0.23", "q18 0.27", "gru 0.34", "vgg16 0.92"))


def test_quantised_layers_become_what_runtimes_fuse() -> None:
    """A zero point, weights with a scale per channel, a bias of i32; two layers and no other op."""
    rng = np.random.default_rng(0)
    weights = [rng.integers(-127, 128, s).astype(np.int8) for s in ((12, 16), (16, 8))]
    scales = [rng.uniform(0.001, 0.002, w.shape[1]).astype(np.float32) for w in weights]
    bias = rng.standard_normal(16).astype(np.float32)

    def rounded(x: Any, scale: float, zero: int) -> Any:
        small = jnp.clip(jnp.round(x / scale) + zero, 0, 255).astype(jnp.uint8)
        return (small.astype(jnp.int32) - zero).astype(jnp.float32) * scale

    def function(x: Any) -> Any:
        first, second = (
            jnp.asarray(w).astype("f4") * s for w, s in zip(weights, scales, strict=True)
        )
        y = jax.nn.relu(rounded(x, 0.02, 117) @ first + bias)
        return rounded(rounded(y, 0.03, 0) @ second, 0.05, 100)

    x = real(5, 12)
    model = raise_ops(exported(function, x))
    ops = {"QuantizeLinear", "DequantizeLinear", "Gemm", "MatMul", "Relu"}
    assert {n.op_type for n in model.graph.node} - {"Identity"} == ops
    found = onnx_oracle.run(model.SerializeToString(), [x])
    apart = np.abs(found[0] - np.asarray(function(x))) / 0.05
    assert apart.max() < 1.001 and np.mean(apart > 0.5) < 0.05
