"""Element types of 4 to 8 bits: read, priced by their bits, executed, verified and exported."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from onnxmodels import Writer, value
from seeds import one_in

import eqsat
from eqsat.execute.executable import NOT_IN_XLA
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.tensor import DTYPES, NO_INFINITY, NO_NAN, NO_ZERO, SIGNIFICAND, TensorType
from eqsat.ops.algebra.simplify import keeps_values
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype

NARROW = ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e8m0fnu", "i4", "u4", "i16", "f16")
# a block format: 4-bit numbers, and a scale for each row of 32 of them
SCALED = """
input x: {x}[32, 48]
input scale: {scale}[32, 1]
input w: f32[48, 16]
s = reshape(scale, shape=[32])
y = generic(x, s, w, loops=[32, 16, 48], maps=[[d0, d2], [d0], [d2, d1]],
  body=mul(mul(cast(x0, f32), cast(x1, f32)), x2), combine=add, rank=2)
return y
""".replace(",\n ", ",")


@pytest.mark.parametrize("dtype", [t for t in DTYPES if DTYPES[t][1] == "f"])
def test_tables_say_what_ml_dtypes_does(dtype):
    kind = element_dtype(dtype)
    info = ml_dtypes.finfo(kind)
    assert SIGNIFICAND[dtype] == -int(np.log2(float(info.eps))) + 1
    with np.errstate(all="ignore"):
        strange = np.array([np.inf, np.nan, 0.0]).astype(kind).astype(np.float64)
    assert np.isinf(strange[0]) == (dtype not in NO_INFINITY)
    assert np.isnan(strange[1]) == (dtype not in NO_NAN)
    assert (strange[2] == 0) == (dtype not in NO_ZERO)


def test_bits_are_what_is_priced():
    sizes = {t: TensorType(t, (3, 5)).nbytes for t in NARROW}
    assert sizes == {
        "f4e2m1fn": 8, "f6e2m3fn": 12, "f6e3m2fn": 12, "f8e8m0fnu": 15, "i4": 8, "u4": 8,
        "i16": 30, "f16": 30,
    }  # fmt: skip


def test_four_bits_wrap_with_and_without_a_sign():
    x = np.array([-9, -1, 7, 8, 15, 17], np.int32)
    assert list(scalar.hold(x, "i4")) == [7, -1, 7, -8, -1, 1]
    assert list(scalar.hold(x, "u4")) == [7, 15, 7, 8, 15, 1]
    assert list(scalar.hold(np.array([-2.5, 15.9, 99, np.nan]), "u4")) == [0, 15, 15, 0]


def test_what_fits_into_what():
    assert keeps_values("f4e2m1fn", "f8e4m3fn")
    assert keeps_values("f6e2m3fn", "f8e4m3fn")
    assert not keeps_values("f8e4m3fn", "f6e2m3fn")
    assert keeps_values("f8e8m0fnu", "f32")
    assert keeps_values("u4", "i8")
    assert not keeps_values("f32", "f8e8m0fnu")


@pytest.mark.parametrize(
    ("x", "scale"), one_in(3, [("f4e2m1fn", "f8e8m0fnu"), ("u4", "f16"), ("i4", "f16")])
)
def test_a_scaled_product_is_verified(x, scale):
    program = parse_program(SCALED.format(x=x, scale=scale))
    run = eqsat.optimize(program, target="avx512-xla", verify=True)
    assert run.verification is not None
    assert run.verification.ok


def test_nothing_pads_what_has_no_zero():
    """k = 45 would be padded to 48: a scale of 0 does not exist, and NaN times 0 is not 0."""
    text = "input a: {}[32, 45]\ninput b: f32[45, 16]\ny = generic(a, b, loops=[32, 16, 45], maps="
    text += "[[d0, d2], [d2, d1]], body=mul(cast(x0, f32), x1), combine=add)\nreturn y\n"
    tile = ["tiles.matmul=[{mnk: [16, 16, 16], rate: 1}]"]
    for dtype, packed in (("f8e4m3fn", True), ("f8e8m0fnu", False)):
        program = parse_program(text.format(dtype))
        run = eqsat.optimize(program, settings=tile, stop_after="egraph", target="reference")
        assert run.egraph is not None
        assert ("pack" in {n.op for n in run.egraph.nodes}) == packed


@pytest.mark.parametrize("dtype", sorted(NOT_IN_XLA))
def test_what_xla_cannot_execute_says_so(dtype):
    program = parse_program(f"input x: {dtype}[8]\ny = cast(x, f32)\nz = add(y, y)\nreturn z\n")
    run = eqsat.optimize(program, stop_after=None, target="reference")
    with pytest.raises(EqsatError, match=rf"E509.*{dtype}, which XLA cannot execute"):
        run.verify()
    text = run.export("mlir").data.decode()
    assert f"tensor<8xf6E{dtype[3:].upper()}>" in text
    with pytest.raises(EqsatError, match=r"E380.*no element type"):
        run.export("onnx")


MLIR = """
func.func @f(%x: tensor<4x6xTYPE>) -> tensor<4x6xf32> {
  %c = arith.constant dense<DENSE> : tensor<4x6xTYPE>
  %e = tensor.empty() : tensor<4x6xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
    ins(%x, %c : tensor<4x6xTYPE>, tensor<4x6xTYPE>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%a: TYPE, %b: TYPE, %o: f32):
    %1 = arith.EXT %a : TYPE to f32
    %2 = arith.EXT %b : TYPE to f32
    %3 = arith.mulf %1, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
"""


@pytest.mark.parametrize(
    ("spelled", "dtype"),
    one_in(3, [
        ("f4E2M1FN", "f4e2m1fn"), ("f6E3M2FN", "f6e3m2fn"), ("f8E8M0FNU", "f8e8m0fnu"),
        ("i4", "i4"), ("f16", "f16"), ("i16", "i16"),
    ]),
)  # fmt: skip
def test_mlir_comes_and_goes(spelled, dtype, tmp_path: Path):
    ext = "extf" if dtype[0] == "f" else "sitofp"
    values = np.array([1, 2, 4, 1, 2, 4] * 4).reshape(4, 6).tolist()
    dense = str([[float(v) for v in r] if dtype[0] == "f" else r for r in values])
    text = MLIR.replace("TYPE", spelled).replace("DENSE", dense).replace("EXT", ext)
    (tmp_path / "f.mlir").write_text(text)
    source = eqsat.read(str(tmp_path / "f.mlir"))
    assert source.program.nodes[source.program.inputs[0]].type == TensorType(dtype, (4, 6))
    (weight,) = source.weights.values()
    assert np.asarray(weight).astype(np.float64).tolist() == values
    run = eqsat.optimize(source, target="reference", rules=())
    (tmp_path / "g.mlir").write_text(run.export("mlir").data.decode())
    again = eqsat.read(str(tmp_path / "g.mlir"))
    assert again.program.nodes[again.program.inputs[0]].type.dtype == dtype
    if dtype not in NOT_IN_XLA:
        x = np.array(values).astype(element_dtype(dtype))
        (got,) = eqsat.optimize(again, target="reference", rules=()).compile()(x)
        np.testing.assert_array_equal(got, np.square(np.array(values, np.float32)))


def test_an_unsigned_type_of_mlir_is_read(tmp_path: Path):
    text = "func.func @f(%x: tensor<4xui4>) -> tensor<4xui4> {\n  return %x : tensor<4xui4>\n}\n"
    (tmp_path / "f.mlir").write_text(text)
    assert str(eqsat.read(str(tmp_path / "f.mlir")).program.nodes[0].type) == "u4[4]"


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.FLOAT4E2M1, "f4e2m1fn"), (TensorProto.FLOAT8E8M0, "f8e8m0fnu"),
        (TensorProto.UINT4, "u4"), (TensorProto.INT4, "i4"),
    ],
)  # fmt: skip
def test_onnx_comes_and_goes(kind, dtype, tmp_path: Path):
    w = Writer(opset=24)
    y = w.op("Cast", "/Cast", "x", to=TensorProto.FLOAT)
    z = w.op("Cast", "/Cast2", w.constant("c", np.ones((3, 4), element_dtype(dtype))), to=1)
    out = w.op("Add", "/Add", y, z)
    model = w.model([value("x", kind, 3, 4)], [value(out, TensorProto.FLOAT, 3, 4)])
    model.ir_version = 12
    path = tmp_path / "a.onnx"
    path.write_bytes(model.SerializeToString())
    source = eqsat.read(str(path))
    assert str(source.program.nodes[source.program.inputs[0]].type) == f"{dtype}[3, 4]"
    run = eqsat.optimize(source, target="reference")
    x = np.full((3, 4), 2).astype(element_dtype(dtype))
    np.testing.assert_array_equal(run.compile()(x)[0], np.full((3, 4), 3, np.float32))
    run.export("onnx", tmp_path / "b.onnx")
    again = eqsat.read(str(tmp_path / "b.onnx"))
    assert [str(again.program.nodes[i].type) for i in again.program.inputs] == [f"{dtype}[3, 4]"]


def test_jax_functions_hold_them():
    import jax
    import jax.numpy as jnp

    def f(x, s):
        return x.astype(jnp.float32) * s.astype(jnp.float32)

    run = eqsat.optimize(
        f, jax.ShapeDtypeStruct((4, 8), jnp.float4_e2m1fn),
        jax.ShapeDtypeStruct((4, 1), jnp.float8_e8m0fnu), verify=True, target="reference",
    )  # fmt: skip
    assert run.verification is not None
    assert run.verification.ok
    assert [run.program.leaf(i).type.dtype for i in run.program.inputs] == ["f4e2m1fn", "f8e8m0fnu"]
