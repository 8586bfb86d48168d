"""Judging IREE's dispatches where they are regions, before they become workgroups."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from brokenlines import codes_of_broken
from seeds import one_in, seeds

import eqsat
from eqsat.api.judge import foreign_cut, judge
from eqsat.execute.reference import WorkBudget, reference
from eqsat.frontends.mlir.dispatches import read_flow
from eqsat.model.compiled import CutProgram
from eqsat.model.diag import EqsatError

pytest.importorskip("iree.compiler")

PROGRAMS = Path(__file__).parent.parent / "experiments" / "programs"
FORM = "iree-dispatch-creation-form-dispatch-regions"
CLONE = "iree-dispatch-creation-clone-producers-into-dispatch-regions"  # the pass behind it

PACKED = """
func.func @packed(%a: tensor<64x128xf32>, %b: tensor<128x96xf32>)
    -> (tensor<64x96xf32>, tensor<128x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %ea = tensor.empty() : tensor<8x128x8x1xf32>
  %pa = linalg.pack %a inner_dims_pos = [0, 1] inner_tiles = [8, 1] into %ea
    : tensor<64x128xf32> -> tensor<8x128x8x1xf32>
  %eb = tensor.empty() : tensor<6x128x16x1xf32>
  %pb = linalg.pack %b outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [16, 1]
    into %eb : tensor<128x96xf32> -> tensor<6x128x16x1xf32>
  %ec = tensor.empty() : tensor<8x6x8x16xf32>
  %fc = linalg.fill ins(%zero : f32) outs(%ec : tensor<8x6x8x16xf32>) -> tensor<8x6x8x16xf32>
  %m = linalg.mmt4d ins(%pa, %pb : tensor<8x128x8x1xf32>, tensor<6x128x16x1xf32>)
    outs(%fc : tensor<8x6x8x16xf32>) -> tensor<8x6x8x16xf32>
  %eu = tensor.empty() : tensor<64x96xf32>
  %u = linalg.unpack %m inner_dims_pos = [0, 1] inner_tiles = [8, 16] into %eu
    : tensor<8x6x8x16xf32> -> tensor<64x96xf32>
  %et = tensor.empty() : tensor<128x64xf32>
  %t = linalg.transpose ins(%a : tensor<64x128xf32>) outs(%et : tensor<128x64xf32>)
    permutation = [1, 0]
  return %u, %t : tensor<64x96xf32>, tensor<128x64xf32>
}
"""


def iree_compile(source: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """IREE's own compiler, up to its dispatches."""
    from iree.compiler.tools.binaries import find_tool

    machine = ["--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=generic"]
    given = [find_tool("iree-compile"), str(source), *machine, "--compile-to=dispatch-creation"]
    return subprocess.run([*given, *flags], capture_output=True, text=True, check=True)


def regions_of(source: Path, after: str) -> str:
    """What IREE's compiler prints after a pass."""
    return iree_compile(source, f"--mlir-print-ir-after={after}", "-o", "/dev/null").stderr


def computed(program, weights) -> list[np.ndarray]:
    """The results on arguments that are the same for all with these types."""
    rng = np.random.default_rng(0)
    types = [program.nodes[i].type for i in program.inputs]
    inputs = [rng.standard_normal(t.shape).astype(np.float32) for t in types]
    return reference(program, inputs, weights, {}, WorkBudget(10**10))


# after either pass, and after the other one in `make slow`: IREE's compiler starts for each
EITHER = [
    ("transposed_pack", FORM),
    ("permuted_consumer", CLONE),
    ("conv_qdq_residual", FORM),
    ("", CLONE),
]
OTHER = [
    pytest.param(name, CLONE if after == FORM else FORM, marks=pytest.mark.slow)
    for name, after in EITHER
]


@pytest.mark.parametrize(("name", "after"), one_in(2, [*EITHER, *OTHER]))
def test_regions_of_iree_are_read_and_judged(name: str, after: str, tmp_path: Path):
    source = PROGRAMS / f"{name}.mlir" if name else tmp_path / "packed.mlir"
    if not name:
        source.write_text(PACKED)
    text = regions_of(source, after)
    cut = read_flow(text, "regions.mlir")
    cut.verify()
    run = eqsat.optimize(str(source), target="reference")
    found = judge(run, foreign_cut(cut, run))
    assert "the rules prove it" in found.sameness or "random samples" in found.sameness
    assert found.selection.goal("time").value > 0
    cuts = [d for d in cut.dispatches if d.name.startswith("dispatch_")]
    assert len(cuts) == text.count("= flow.dispatch.region ") > 0
    assert {d.name for d in cut.dispatches if d not in cuts} <= {"insert_slice"}
    got, want = computed(cut.program, cut.weights), computed(run.program, run.weights)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("source", [PACKED, (PROGRAMS / "transposed_pack.mlir").read_text()])
def test_regions_cost_what_their_workgroups_cost(source: str, tmp_path: Path):
    file = tmp_path / "source.mlir"
    file.write_text(source)
    run = eqsat.optimize(str(file), target="avx512-xla")
    sides = [
        judge(run, foreign_cut(read_flow(text, "cut.mlir"), run)).selection
        for text in (regions_of(file, FORM), iree_compile(file).stdout)
    ]
    for goal in ("time", "memory", "dispatches"):
        assert sides[0].goal(goal).value == sides[1].goal(goal).value


# ---- a file by hand ------------------------------------------------------------------------------
SMALL = """
util.global private @known = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
util.global private @unknown : tensor<4xf32>
util.func public @small(%arg0: !hal.buffer_view, %arg1: !hal.buffer_view,
                              %arg2: !hal.buffer_view)
    -> (!hal.buffer_view, !hal.buffer_view, !hal.buffer_view) {
  %six = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant dense<1.0> : tensor<4x6xf32>
  %table = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> : tensor<6xf32>
  %b = hal.tensor.import %arg1 "b" : !hal.buffer_view -> tensor<24xf32>
  %a = hal.tensor.import %arg0 "a" : !hal.buffer_view -> tensor<6x4xf32>
  %known = util.global.load @known : tensor<4xf32>
  %unknown = util.global.load @unknown : tensor<4xf32>
  %again = util.global.load @unknown : tensor<4xf32>
  %wide = tensor.expand_shape %b [[0, 1]] output_shape [4, 6] : tensor<24xf32> into tensor<4x6xf32>
  %empty = tensor.empty() : tensor<4x6xf32>
  %x:2 = flow.dispatch.region -> (tensor<4x6xf32>, tensor<4x6xf32>) {
    %t = linalg.transpose ins(%a : tensor<6x4xf32>) outs(%empty : tensor<4x6xf32>)
      permutation = [1, 0]
    %s = linalg.add ins(%t, %wide : tensor<4x6xf32>, tensor<4x6xf32>)
      outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
    flow.return %t, %s : tensor<4x6xf32>, tensor<4x6xf32>
  }
  %p = tensor.pad %x#1 low[1, 0] high[1, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<4x6xf32> to tensor<6x6xf32>
  %r = flow.dispatch.region -> (tensor<4x6xf32>) {
    %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
                       affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>,
                       affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]
    } ins(%x#0, %table, %known, %unknown, %again : tensor<4x6xf32>, tensor<6xf32>, tensor<4xf32>,
          tensor<4xf32>, tensor<4xf32>) outs(%empty : tensor<4x6xf32>) {
    ^bb0(%v: f32, %w: f32, %k: f32, %u: f32, %u2: f32, %o: f32):
      %1 = arith.mulf %v, %w : f32
      %2 = arith.mulf %1, %k : f32
      %3 = arith.mulf %2, %u : f32
      %4 = arith.mulf %3, %u2 : f32
      linalg.yield %4 : f32
    } -> tensor<4x6xf32>
    flow.return %r : tensor<4x6xf32>
  }
  %pe = hal.tensor.export %p "p" : tensor<6x6xf32> -> !hal.buffer_view
  %re = hal.tensor.export %r "r" : tensor<4x6xf32> -> !hal.buffer_view
  %oe = hal.tensor.export %one "one" : tensor<4x6xf32> -> !hal.buffer_view
  util.return %pe, %re, %oe : !hal.buffer_view, !hal.buffer_view, !hal.buffer_view
}
"""


def small() -> CutProgram:
    cut = read_flow(SMALL, "small.mlir")
    cut.verify()
    return cut


def test_what_stands_between_regions_is_a_dispatch_a_view_or_a_constant():
    cut = small()
    names = [d.name for d in cut.dispatches]
    assert names == ["dispatch_0", "pad", "dispatch_1", "fill"]
    first, pad, last, fill = cut.dispatches
    a, b = cut.program.inputs
    assert cut.program.nodes[a].type.shape == (6, 4)
    assert cut.program.nodes[b].type.shape == (24,)
    assert first.reads == tuple(sorted((a, b)))
    assert len(first.writes) == 2
    assert pad.reads == (first.writes[1],)
    assert set(last.reads) == {first.writes[0], *cut.program.weights}
    assert fill.reads == ()
    assert [d.at for d in cut.dispatches] == [f"small.mlir:{n}" for n in (18, 25, 29, 49)]
    assert cut.notes == ()


def test_a_file_by_hand_computes_what_it_says():
    cut = small()
    leaves = [cut.program.leaf(w) for w in cut.program.weights]
    (unknown,) = (leaf for leaf in leaves if leaf.key not in cut.weights)
    assert unknown.type.shape == (4,)
    u = np.array([0.5, 2.0, -1.0, 3.0], np.float32)
    p, r, one = computed(cut.program, {**cut.weights, unknown.key: u})
    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 4)).astype(np.float32)
    b = rng.standard_normal(24).astype(np.float32)
    np.testing.assert_allclose(p, np.pad(a.T + b.reshape(4, 6), ((1, 1), (0, 0))), rtol=1e-6)
    known = np.arange(1, 5, dtype=np.float32)
    want = a.T * np.arange(1, 7, dtype=np.float32) * (known * u * u)[:, None]
    np.testing.assert_allclose(r, want, rtol=1e-5)
    np.testing.assert_array_equal(one, np.ones((4, 6)))


TWICE = """util.func public @twice(%e: tensor<4xf32>) -> tensor<4xf32> {
  %y = flow.dispatch.region -> (tensor<4xf32>) {
    flow.return %e : tensor<4xf32>
  }
  util.return %y : tensor<4xf32>
}
"""
ALONE = """%y = flow.dispatch.workgroups() : () -> tensor<4x6xf32> =
      (%out: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<4x6xf32>>) {
    flow.return
  }
  %oe = hal.tensor.export %y"""
UNSIZED = """%d = hal.tensor.import %arg0 "a" : !hal.buffer_view -> tensor<?x4xf32>{%six}
  %a = tensor.cast %d : tensor<?x4xf32> to tensor<6x4xf32>"""
ENCODED = """%y = flow.tensor.encode %r
    : tensor<4x6xf32> -> tensor<4x6xf32, #iree_encoding.testing<>>
  %z = util.optimization_barrier %y : tensor<4x6xf32, #iree_encoding.testing<>>
  """
DUMP = "// -----// IR Dump After A //----- //\n// flow.dispatch.region\n"
DUMP += "// -----// IR Dump After B //----- //\n"


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("= flow.dispatch.region -> (tensor<4x6xf32>) {", "= flow.dispatch.no {", "E370", "no"),
        ("    flow.return %r : tensor<4x6xf32>\n", "", "E370", ""),
        ("flow.return %r :", "flow.return %nowhere :", "E370", "undeclared"),
        ("ins(%a : tensor<6x4xf32>)", "ins(%a : tensor<6x5xf32>)", "E370", ""),
        ("arith.mulf %1, %k", "arith.nothing %1, %k", "E370", ""),
        ("tensor.pad %x#1", "tensor.padded %x#1", "E370", "padded"),
        ('%a = hal.tensor.import %arg0 "a" : !hal.buffer_view -> tensor<6x4xf32>', UNSIZED,
         "E346", "sizes that are not known"),
        ("util.func public @small", TWICE + "util.func public @small", "E346", "one function"),
        ("%oe = hal.tensor.export %one", ALONE, "E346", "result 0 is never stored"),
        ("%pe = hal", "%y = flow.tensor.alloca : tensor<4xf32>\n%pe = hal", "E374", "alloca"),
        ("%pe = hal", ENCODED + "%pe = hal", "E346", "in an encoding"),
        ("util.func public @small", DUMP + "util.func public @small", "E346", "several prints"),
        ("util.return %pe, %re, %oe", "util.return %pe, %re, %arg2", "E346", "no elements"),
        ("%pe = hal", "// \0\n%pe = hal", "E345", "null"),
        ("linalg.yield %4 : f32", "linalg.yield %o : f32", "E375", ""),
    ],
)  # fmt: skip
def test_broken_regions_get_a_sentence(old: str, new: str, code: str, words: str):
    assert old in SMALL
    with pytest.raises(EqsatError, match=code) as error:
        read_flow(SMALL.replace(old, new), "small.mlir").verify()
    assert words in str(error.value)
    assert "small.mlir" in str(error.value)


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_hostile_regions_never_break_the_reader(seed: int):
    codes = codes_of_broken(SMALL, seed, 3)
    assert all(c.startswith(("E34", "E37", "E30")) for c in codes)
