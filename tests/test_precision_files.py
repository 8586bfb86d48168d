"""The precision of contractions in files: MLIR, StableHLO and ONNX, read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from products import A, B, dot, lowered, precisions

import eqsat
from eqsat.export.write import export, write_files
from eqsat.frontends.jaxpr import trace
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.model.tensor import (
    DEFAULT,
    HIGH,
    HIGHEST,
)
from eqsat.ops.spelling.passes import canonical
from eqsat.run import Run

# ---- MLIR --------------------------------------------------------------------------------------
MLIR = """
func.func @f(%a: tensor<4x6xf32>, %b: tensor<6x5xf32>, %c: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = linalg.matmul {eqsat.precision = "PRECISION"}
    ins(%a, %b : tensor<4x6xf32>, tensor<6x5xf32>) outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}
"""
STABLEHLO = """
func.func @f(%a: tensor<4x6xf32>, %b: tensor<6x5xf32>, %c: tensor<6x5xf32>,
             %d: tensor<6x5xf32>, %p: tensor<2x4x6xf32>, %q: tensor<2x5x6xf32>,
             %x: tensor<1x8x8x3xf32>, %k: tensor<3x3x3x4xf32>)
    -> (tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>, tensor<2x4x5xf32>, tensor<1x8x8x4xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [DEFAULT, HIGHEST]
    : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
  %1 = stablehlo.dot_general %a, %c, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT],
    algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32,
      lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3,
      allow_imprecise_accumulation = false>
    : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
  %2 = stablehlo.dot_general %a, %d, contracting_dims = [1] x [0]
    : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
  %3 = stablehlo.dot_general %p, %q, batching_dims = [0] x [0], contracting_dims = [2] x [2],
    precision = [HIGH, HIGH] : (tensor<2x4x6xf32>, tensor<2x5x6xf32>) -> tensor<2x4x5xf32>
  %4 = stablehlo.convolution(%x, %k)
    dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64,
     precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGHEST>]}
    : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x8x8x4xf32>
  return %0, %1, %2, %3, %4
    : tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>, tensor<2x4x5xf32>, tensor<1x8x8x4xf32>
}
"""


def read_text(text: str, tmp_path: Path, suffix: str = ".mlir") -> Program:
    path = tmp_path / f"p{suffix}"
    path.write_text(text, encoding="utf-8")
    return eqsat.read(str(path)).program


def test_mlir_says_it_by_an_attribute_of_ours(tmp_path: Path):
    found = read_text(MLIR.replace("PRECISION", "tf32_tf32_f32"), tmp_path)
    assert precisions(found) == ["tf32_tf32_f32"]
    plain = MLIR.replace('{eqsat.precision = "PRECISION"}', "")
    assert precisions(read_text(plain, tmp_path)) == [DEFAULT]


def test_mlir_that_asks_for_what_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(EqsatError) as caught:
        read_text(MLIR.replace("PRECISION", "hgih"), tmp_path)
    (found,) = caught.value.diagnostics
    assert found.code == "E375"
    assert found.span is not None
    assert found.span.line == 3


def test_stablehlo_says_precisions_and_algorithms(tmp_path: Path):
    found = precisions(read_text(STABLEHLO, tmp_path))
    assert found == [HIGHEST, "bf16_bf16_f32_x3", DEFAULT, HIGH, HIGHEST]


def test_stablehlo_written_by_jax_says_what_the_jaxpr_says(tmp_path: Path):
    def f(a: Any, b: Any) -> Any:
        c = dot(a, b, lax.DotAlgorithmPreset.TF32_TF32_F32_X3)
        return dot(a, b[::-1], "high"), c, dot(c, b.T)

    text = lowered(f, A, B, platform="cuda")
    wanted = ["tf32_tf32_f32_x3", HIGH, DEFAULT]
    assert sorted(precisions(trace(f, (A, B)).program)) == sorted(wanted)
    assert sorted(precisions(read_text(text, tmp_path))) == sorted(wanted)


def test_stablehlo_that_says_one_product_twice_gets_the_more_accurate(tmp_path: Path):
    """IREE's pipeline takes them for one, and would keep whichever comes first."""

    def f(a: Any, b: Any) -> Any:
        return dot(a, b), dot(a, b, "highest")

    assert {*precisions(read_text(lowered(f, A, B, platform="cpu"), tmp_path))} == {HIGHEST}


# ---- exports -----------------------------------------------------------------------------------
def written(run: Run, form: str, folder: Path) -> Path:
    path = folder / f"p.{form}"
    assert run.schedule is not None
    write_files(export(run.schedule, form, run.source.weights, {}), path)
    return path


@pytest.mark.parametrize("form", ["mlir", "onnx"])
def test_an_export_read_back_asks_for_the_same(form: str, tmp_path: Path):
    x, k = np.ones((1, 8, 8, 3), np.float32), np.ones((3, 3, 3, 4), np.float32)

    def f(a: Any, b: Any, x: Any, k: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        image = lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=names,
                                         precision="highest")  # fmt: skip
        other = dot(a, b, lax.DotAlgorithmPreset.BF16_BF16_F32_X6)
        return dot(a, b), dot(a, b, "high"), other, image

    run = eqsat.optimize(f, A, B, x, k, target="reference", rules=[])
    again = eqsat.read(str(written(run, form, tmp_path))).program
    wanted = precisions(trace(f, (A, B, x, k)).program)
    assert sorted(precisions(canonical(again))) == sorted(wanted)


def test_exports_of_default_say_nothing(tmp_path: Path):
    run = eqsat.optimize(dot, A, B, target="reference", rules=[])
    for form in ("mlir", "onnx"):
        assert b"eqsat.precision" not in written(run, form, tmp_path).read_bytes()


def test_onnx_that_asks_for_what_is_not_there_is_refused(tmp_path: Path):
    run = eqsat.optimize(lambda a, b: dot(a, b, "high"), A, B, rules=[], target="reference")
    path = written(run, "onnx", tmp_path)
    path.write_bytes(path.read_bytes().replace(b"\x04high", b"\x04hihg"))
    with pytest.raises(EqsatError, match="hihg") as caught:
        eqsat.read(str(path))
    assert caught.value.diagnostics[0].code == "E362"


def test_onnx_is_read_alike_whatever_jax_is_told(tmp_path: Path):
    path = written(eqsat.optimize(dot, A, B, rules=[], target="reference"), "onnx", tmp_path)
    with jax.default_matmul_precision("highest"):
        assert precisions(eqsat.read(str(path)).program) == [DEFAULT]
