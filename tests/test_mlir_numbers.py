"""What a program read from MLIR computes is what IREE computes for the same text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import iree_oracle
import mlir_programs
import numpy as np
import pytest
from seeds import one_in

from eqsat.frontends.mlir.parser import parse_module
from eqsat.frontends.mlir.reader import MlirProgram, read_mlir, read_module
from eqsat.frontends.mlir.source import ModuleText, modernised
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import element_dtype, evaluate_program
from eqsat.ops.programs.binding import bind_program

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "experiments" / "programs"


THEMES = 5  # the catalogue lies in themes: every fifth function is a module, one is in `suite`


@cache
def parsed(part: int) -> tuple[Any, ModuleText]:
    names = list(mlir_programs.FUNCTIONS)[part::THEMES]
    source = modernised(ModuleText("programs.mlir", mlir_programs.module(names)))
    return parse_module(source), source


def example_inputs(program: Program, seed: int) -> list[Any]:
    """Random arrays in the element types of the inputs; indices of embeddings stay in range."""
    rng = np.random.default_rng(seed)
    found = []
    for i in program.inputs:
        t = program.nodes[i].type
        if t.dtype[0] == "i":
            low, high = (0, 7) if program.name == "embedding" else (-100, 100)
            found.append(rng.integers(low, high, t.shape).astype(element_dtype(t.dtype)))
        else:
            found.append((3 * rng.standard_normal(t.shape)).astype(element_dtype(t.dtype)))
    return found


def same(read: MlirProgram, text: str, inputs: list[Any], function: str, **extra: Any) -> None:
    got = evaluate_program(read.program, inputs, read.weights)
    want = iree_oracle.run(text, inputs, function, **extra)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w.astype(g.dtype), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", one_in(THEMES, mlir_programs.FUNCTIONS))
def test_every_kind_of_op_computes_what_iree_computes(name: str) -> None:
    module, source = parsed([*mlir_programs.FUNCTIONS].index(name) % THEMES)
    read = read_module(module, source, name, None)
    read.program.verify()
    inputs = example_inputs(read.program, len(name))
    given = [float(x) if name == "scalars" and x.ndim == 0 else x for x in inputs]
    same(read, source.text, given, name)


@pytest.mark.parametrize("name", ["transposed_pack", "permuted_consumer"])
def test_programs_of_the_repository_compute_what_iree_computes(name: str) -> None:
    path = PROGRAMS / f"{name}.mlir"
    read = read_mlir(path)
    inputs = [x / 3 for x in example_inputs(read.program, 1)]
    got = evaluate_program(read.program, inputs, read.weights)
    want = iree_oracle.run(path.read_text(), inputs, name)
    for g, w in zip(got, want, strict=True):
        assert np.abs(g - w).max() <= 1e-5 * np.abs(g).max()


@pytest.mark.slow  # 4 s of IREE's compiler
def test_quantised_residual_block_is_within_one_quantum_of_iree() -> None:
    """A value within rounding of a tie may fall either way, by 1/64; nearly all are equal."""
    path = PROGRAMS / "conv_qdq_residual.mlir"
    read = read_mlir(path)
    scale = {"spatial": 24, "expand": 8}
    names = [read.program.leaf(i).name for i in read.program.inputs]
    given = example_inputs(read.program, 2)
    inputs = [x / np.float32(3 * scale.get(n, 1)) for n, x in zip(names, given, strict=True)]
    (got,) = evaluate_program(read.program, inputs, read.weights)
    (want,) = iree_oracle.run(path.read_text(), inputs)
    off = np.abs(got - want)
    assert off.max() <= 1 / 64 + 1e-6
    assert (off > 1e-6).mean() < 1e-3


def test_encoded_quantised_matmul_is_exact() -> None:
    """IREE does not lower dynamic encodings on a plain CPU: the same matmul without them."""
    read = read_mlir(PROGRAMS / "quantized_matmul.mlir", sizes={"a_1": 64})
    (k,) = (s.size for s in read.program.symbols)
    assert k == 64
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((3, k), (k, 5)))
    want = a.astype(np.int32) @ b.astype(np.int32)
    (got,) = evaluate_program(bind_program(read.program, {"a_1": k}), [a, b], {})
    np.testing.assert_array_equal(got, want)


STABLEHLO = """
func.func @main(%x: tensor<2x4x6xf32>, %w: tensor<6x6xf32>) -> tensor<2x4x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %q = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
    : (tensor<2x4x6xf32>, tensor<6x6xf32>) -> tensor<2x4x6xf32>
  %s = stablehlo.dot_general %q, %x, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x4xf32>
  %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [2]
    : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x4xf32>
  %d = stablehlo.subtract %s, %mb : tensor<2x4x4xf32>
  %e = stablehlo.exponential %d : tensor<2x4x4xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x4xf32>
  %r = stablehlo.divide %e, %tb : tensor<2x4x4xf32>
  return %r : tensor<2x4x4xf32>
}
"""

TOSA = """
func.func @main(%x: tensor<1x4x6xf32>, %w: tensor<1x6x5xf32>) -> tensor<1x5x4xf32> {
  %z = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %0 = tosa.matmul %x, %w, %z, %z
    : (tensor<1x4x6xf32>, tensor<1x6x5xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x5xf32>
  %1 = tosa.tanh %0 : (tensor<1x4x5xf32>) -> tensor<1x4x5xf32>
  %2 = "tosa.transpose"(%1) <{perms = array<i32: 0, 2, 1>}>
    : (tensor<1x4x5xf32>) -> tensor<1x5x4xf32>
  return %2 : tensor<1x5x4xf32>
}
"""


@pytest.mark.parametrize("text", [STABLEHLO, TOSA], ids=["stablehlo", "tosa"])
def test_input_dialects_are_lowered_by_their_own_pipelines(text: str) -> None:
    source = modernised(ModuleText("x.mlir", text))
    read = read_module(parse_module(source), source, "", None)
    assert [read.program.leaf(i).name for i in read.program.inputs] == ["x", "w"]
    same(read, text, example_inputs(read.program, 3), "main")
