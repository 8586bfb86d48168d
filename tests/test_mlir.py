"""MLIR text becomes the program it states, older spellings too, and errors have their place."""

# ruff: noqa: E501 (one op of MLIR is one line)
from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.api.reading import read_spec
from eqsat.frontends.mlir.parser import parse_module
from eqsat.frontends.mlir.reader import MlirProgram, read_mlir, read_module
from eqsat.frontends.mlir.source import ModuleText, modernised
from eqsat.lang.programs import load_program
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.layout import Encoding, Layout
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.programs.binding import bind_program

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "experiments" / "programs"


def read(text: str, function: str = "", sizes: dict[str, int] | None = None) -> MlirProgram:
    source = modernised(ModuleText("x.mlir", textwrap.dedent(text).lstrip("\n")))
    return read_module(parse_module(source), source, function, sizes)


def refused(text: str, function: str = "", sizes: dict[str, int] | None = None) -> Any:
    """The one diagnostic of a text that is not read."""
    with pytest.raises(EqsatError) as caught:
        read(text, function, sizes)
    assert caught.value.exit_code == 2
    (found,) = caught.value.diagnostics
    return found


def ops(found: MlirProgram) -> list[str]:
    return [n.op for n in found.program.nodes]


# ---- what is read --------------------------------------------------------------------------------
def test_linalg_text_is_the_program_of_the_same_eqs_text() -> None:
    mine = read_mlir(PROGRAMS / "transposed_pack.mlir").program
    theirs = load_program(PROGRAMS / "transposed_pack.eqs")
    assert mine == theirs


def test_permuted_map_stays_in_the_consumer() -> None:
    found = read_mlir(PROGRAMS / "permuted_consumer.mlir")
    assert ops(found) == ["input"] * 3 + ["generic"] * 2
    attr = found.program.nodes[-1].attr
    assert isinstance(attr, Generic)
    assert [str(e) for m in attr.maps for e in m] == ["d0", "d1", "d0"]


def test_fills_are_neutral_starts_and_others_are_added() -> None:
    text = """
    func.func @f(%a: tensor<4x6xf32>) -> tensor<4xf32> {{
      %v = arith.constant {} : f32
      %e = tensor.empty() : tensor<4xf32>
      %f = linalg.fill ins(%v : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
      %0 = linalg.reduce {{ arith.addf }} ins(%a : tensor<4x6xf32>) outs(%f : tensor<4xf32>)
        dimensions = [1]
      return %0 : tensor<4xf32>
    }}
    """
    assert ops(read(text.format("0.0"))) == ["input", "generic"]
    assert ops(read(text.format("1.0"))) == ["input", "generic", "generic"]


ENCODED = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
{}
func.func @f(%x: tensor<?x?xi8>, %y: tensor<?x?xi8>) -> tensor<?x?xi32> {{
  %z = arith.constant 0 : i32
  %c3 = arith.constant 3 : index
  %c5 = arith.constant 5 : index
  %0 = iree_encoding.set_encoding %x : tensor<?x?xi8> -> tensor<?x?xi8, #lhs>
  %1 = iree_encoding.set_encoding %y : tensor<?x?xi8> -> tensor<?x?xi8, #rhs>
  %2 = tensor.empty(%c3, %c5) : tensor<?x?xi32, #res>
  %3 = linalg.fill ins(%z : i32) outs(%2 : tensor<?x?xi32, #res>) -> tensor<?x?xi32, #res>
  %4 = linalg.matmul ins(%0, %1 : tensor<?x?xi8, #lhs>, tensor<?x?xi8, #rhs>)
    outs(%3 : tensor<?x?xi32, #res>) -> tensor<?x?xi32, #res>
  %5 = iree_encoding.unset_encoding %4 : tensor<?x?xi32, #res> -> tensor<?x?xi32>{}
  return %5 : tensor<?x?xi32>
}}
"""
TODAY = (
    "#{} = #iree_encoding.encoding<operand_index = {} : index, op_type = matmul, "
    "element_types = [i8, i8, i32], user_indexing_maps = [#a, #b, #c]>"
)
BY_ROLE = (
    "#{} = #iree_encoding.encoding<role = {}, element_types = [i8, i8, i32],\n"
    "  original_type = tensor<?x?xi8>, user_indexing_maps = [#a, #b, #c],\n"
    "  round_dims_to = array<i64: 16, 16, 16>>"
)
BY_USER = "#{} = #iree_linalg_ext.encoding<user = MATMUL_I8I8I32, role = {}>"
NAMES = (("lhs", "LHS"), ("rhs", "RHS"), ("res", "RESULT"))


def encoded(form: str) -> str:
    if form is TODAY:
        lines = [form.format(name, i) for i, (name, _) in enumerate(NAMES)]
        return ENCODED.format("\n".join(lines), "{%c3, %c5}")
    text = ENCODED.format("\n".join(form.format(*n) for n in NAMES), "")
    return text.replace("iree_encoding.set", "iree_linalg_ext.set") if form is BY_USER else text


@pytest.mark.parametrize("form", [TODAY, BY_ROLE, BY_USER], ids=["today", "role", "user"])
def test_encodings_of_all_forms_are_the_same_requests(form: str) -> None:
    found = read(encoded(form))
    assert ops(found) == ["input"] * 2 + ["set_encoding"] * 2 + ["generic", "unset_encoding"]
    held = [n.attr for n in found.program.nodes if isinstance(n.attr, Encoding)]
    assert [e.role for e in held] == ["lhs", "rhs", "result"]
    (k,) = found.program.symbols
    assert (k.name, k.size) == ("x_1", 128)
    for e in held:
        assert e.dtypes == ("i8", "i8", "i32")
        assert e.sizes == (3, 5, k.extent)
        assert [[str(x) for x in m] for m in e.maps] == [["d0", "d2"], ["d2", "d1"], ["d0", "d1"]]
    assert [str(t) for t in found.program.nodes[-1].types] == ["i32[3, 5]"]
    assert found.program == read(encoded(TODAY)).program


def test_chain_of_maps_says_which_dims_a_moved_tensor_holds() -> None:
    found = read("""
    #e = #iree_encoding.encoding<operand_index = 0 : index, op_type = matmul,
      element_types = [f32, f32, f32], user_indexing_maps = [
      [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, k) -> (k)>],
      affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iteration_sizes = [4, 16, 8]>
    func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = iree_encoding.set_encoding %x : tensor<8xf32> -> tensor<8xf32, #e>
      %1 = iree_encoding.unset_encoding %0 : tensor<8xf32, #e> -> tensor<8xf32>
      return %1 : tensor<8xf32>
    }
    """)
    attr = found.program.nodes[1].attr
    assert isinstance(attr, Encoding)
    assert (attr.dims, attr.sizes) == ((1,), (4, 16, 8))


def test_older_spellings_read_as_todays() -> None:
    old = """
    func.func @f(%a: tensor<8x6xf32>, %b: tensor<4x6xf32>) -> (tensor<2x4x4x1xf32>, tensor<2x16xf32>) {
      %z = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<8x4xf32>
      %f = linalg.fill ins(%z : f32) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
      %0 = linalg.matmul_transpose_b ins(%a, %b : tensor<8x6xf32>, tensor<4x6xf32>) outs(%f : tensor<8x4xf32>) -> tensor<8x4xf32>
      %1 = linalg.exp ins(%0 : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
      %p = tensor.empty() : tensor<2x4x4x1xf32>
      %2 = tensor.pack %1 inner_dims_pos = [0, 1] inner_tiles = [4, 1] into %p : tensor<8x4xf32> -> tensor<2x4x4x1xf32>
      %3 = tensor.unpack %2 inner_dims_pos = [0, 1] inner_tiles = [4, 1] into %e : tensor<2x4x4x1xf32> -> tensor<8x4xf32>
      %4 = tensor.collapse_shape %3 [[0, 1]] : tensor<8x4xf32> into tensor<32xf32>
      %5 = tensor.expand_shape %4 [[0, 1]] : tensor<32xf32> into tensor<2x16xf32>
      return %2, %5 : tensor<2x4x4x1xf32>, tensor<2x16xf32>
    }
    """
    found = read(old)
    assert ops(found) == ["input"] * 2 + ["generic"] * 2 + ["pack", "unpack"] + ["reshape"] * 2
    layouts = [n.attr for n in found.program.nodes if isinstance(n.attr, Layout)]
    assert layouts[0] == layouts[1]


def test_written_locations_do_not_hide_the_file() -> None:
    found = refused("""
    #loc1 = loc("model.py":7:1)
    func.func @f(%a: tensor<4xf32> loc("a"(#loc1))) -> tensor<4xf32> {
      %0 = tensor.bitcast %a : tensor<4xf32> to tensor<4xi32> loc("model.py":3:1)
      %1 = tensor.bitcast %0 : tensor<4xi32> to tensor<4xf32> loc(#loc1)
      return %1 : tensor<4xf32> loc(fused["x", #loc1])
    } loc(#loc1)
    """)
    assert (found.code, str(found.span)) == ("E374", "x.mlir:3:8")


# ---- constants and weights -----------------------------------------------------------------------
def test_constants_are_fills_or_weights_by_content() -> None:
    found = read("""
    func.func @f() -> (tensor<2xf32>, tensor<2xbf16>, tensor<2xi4>, tensor<2xf32>, tensor<2xf32>) {
      %0 = arith.constant dense<1.5> : tensor<2xf32>
      %1 = arith.constant dense<[1.5, 0x7F80]> : tensor<2xbf16>
      %2 = arith.constant dense<[1, -2]> : tensor<2xi4>
      %3 = arith.constant dense_resource<blob> : tensor<2xf32>
      %4 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
      return %0, %1, %2, %3, %4 : tensor<2xf32>, tensor<2xbf16>, tensor<2xi4>, tensor<2xf32>, tensor<2xf32>
    }
    {-# dialect_resources: { builtin: { blob: "0x040000000000803F00000040" } } #-}
    """)
    assert sorted(ops(found)) == ["fill", "weight", "weight", "weight"]  # equal ones are one
    got = evaluate_program(found.program, [], found.weights)
    assert [x.tolist() for x in got] == [[1.5, 1.5], [1.5, np.inf], [1, -2], [1, 2], [1, 2]]


def test_globals_are_weights_by_name_or_value() -> None:
    text = """
    util.global private @w : tensor<2x3xf32>
    ml_program.global private @c(dense<2.0> : tensor<2x3xf32>) : tensor<2x3xf32>
    func.func @f(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %w = util.global.load @w : tensor<2x3xf32>
      %c = ml_program.global_load_const @c : tensor<2x3xf32>
      %0 = arith.mulf %a, %w : tensor<2x3xf32>
      %1 = arith.addf %0, %c : tensor<2x3xf32>
      return %1 : tensor<2x3xf32>
    }
    """
    found = read(text)
    (w,) = found.program.weights
    assert found.program.leaf(w).name == "w"
    assert found.weights == {}  # the file names it and does not hold it


# ---- functions -----------------------------------------------------------------------------------
TWO = """
func.func @first(%a: tensor<2xf32>) -> tensor<2xf32> {
  return %a : tensor<2xf32>
}
func.func @second(%a: tensor<3xf32>) -> tensor<3xf32> {
  return %a : tensor<3xf32>
}
"""


def test_function_is_named_or_the_only_public_one(tmp_path: Path) -> None:
    assert read(TWO, "second").program.nodes[0].type.shape == (3,)
    private = TWO.replace("func.func @first", "func.func private @first")
    assert read(private).program.nodes[0].type.shape == (3,)
    (tmp_path / "two.mlir").write_text(TWO)
    found = read_spec(f"{tmp_path / 'two.mlir'}:first")
    program, weights, opaque, traced = found.program, found.weights, found.opaque, found.traced
    assert (program.nodes[0].type.shape, weights, opaque, traced) == ((2,), {}, {}, None)
    found = refused(TWO)
    assert found.code == "E373" and "first, second" in found.message
    assert refused(TWO, "secnd").help == "did you mean `second`?"


def test_optimize_reads_mlir(capsys: pytest.CaptureFixture[str]) -> None:
    from eqsat.cli import run

    path = str(PROGRAMS / "permuted_consumer.mlir")
    assert run(["optimize", path, "--target", "reference", "--output-format", "json"]) == 0
    assert '"name": "permuted_consumer"' in capsys.readouterr().out
    assert eqsat.read(path).program.op_count == 2


# ---- dynamic sizes -------------------------------------------------------------------------------
DYNAMIC = """
func.func @f(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = arith.addf %a, %b : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
"""


def test_sizes_that_an_op_makes_equal_are_one_symbol() -> None:
    program = read(DYNAMIC, sizes={"a_0": 48}).program
    assert [(s.name, s.size) for s in program.symbols] == [("a_0", 48)]
    assert str(program.nodes[-1].type) == "f32[a_0, 4]"
    assert refused(DYNAMIC, sizes={"b_0": 48}).code == "E385"


def test_a_cast_says_what_a_size_is() -> None:
    program = read("""
    func.func @f(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>) -> tensor<6x4xf32> {
      %0 = arith.addf %a, %b : tensor<?x4xf32>
      %1 = tensor.cast %0 : tensor<?x4xf32> to tensor<6x4xf32>
      return %1 : tensor<6x4xf32>
    }
    """).program
    assert program.symbols == ()
    assert [str(n.type) for n in program.nodes] == ["f32[6, 4]"] * 3


SIZED = """
func.func @f(%a: tensor<?x4xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %z = arith.constant 0.0 : f32
  %d = tensor.dim %a, %c0 : tensor<?x4xf32>
  %h = arith.ceildivsi %d, %c2 : index
  %t = arith.muli %h, %c2 : index
  %p = arith.subi %t, %d : index
  %y = tensor.pad %a low[0, 0] high[%p, 4] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<?x4xf32> to tensor<?x8xf32>
  %e = tensor.empty(%t) : tensor<?x8xf32>
  %0 = linalg.elementwise <exp> ins(%y : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
"""


def test_sizes_are_computed_from_symbols() -> None:
    program = read(SIZED).program
    assert [str(n.type) for n in program.nodes] == [
        "f32[a_0, 4]",
        "f32[(a_0 * -1 // 2) * -2, 8]",
        "f32[(a_0 * -1 // 2) * -2, 8]",
    ]
    assert [t.shape for t in bind_program(program, {"a_0": 5}).nodes[-1].types] == [(6, 8)]


def test_a_size_that_is_not_known_is_no_number() -> None:
    text = """
    func.func @f(%a: tensor<?x4xf32>) -> i32 {
      %c0 = arith.constant 0 : index
      %d = tensor.dim %a, %c0 : tensor<?x4xf32>
      %i = arith.index_cast %d : index to i32
      return %i : i32
    }
    """
    found = refused(text)
    assert found.code == "E375"
    assert "a size that is not known" in found.message


# ---- errors --------------------------------------------------------------------------------------
HEAD = "func.func @f(%a: tensor<4x6xf32>, %c: tensor<4xf32>) -> tensor<4xf32> {\n"
TAIL = "\n  return %0 : tensor<4xf32>\n}\n"
GENERIC = """\
  %0 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> ({})>, affine_map<(i, j) -> ({})>],
      iterator_types = ["parallel", "{}"]}}
    ins(%a : tensor<4x6xf32>) outs({} : tensor<4xf32>) {{
  ^bb0(%x: f32, %o: f32):
    %s = arith.{} %x, %o : f32
    linalg.yield %s : f32
  }} -> tensor<4xf32>"""
BAD = {
    "unknown-op": ("  %0 = arith.adf %c, %c : tensor<4xf32>", "E370", 2, 8, "arith.adf"),
    "unknown-dialect": ("  foo.bar", "E370", 2, 3, "foo"),
    "operands": ("  %0 = arith.addf %a, %c : tensor<4xf32>", "E370", 2, 19, "different type"),
    "no-meaning": (
        "  %i = tensor.bitcast %c : tensor<4xf32> to tensor<4xi32>\n"
        "  %0 = tensor.bitcast %i : tensor<4xi32> to tensor<4xf32>", "E374", 2, 8, "tensor.bitcast",
    ),
    "reduced-by-division": (
        GENERIC.format("i, j", "i", "reduction", "%c", "divf"), "E375", 2, 8, "`div`",
    ),
    "huge": (
        "  %h = tensor.empty() : tensor<99999999999999xf32>\n"
        "  %0 = tensor.extract_slice %h[0] [4] [1] : tensor<99999999999999xf32> to tensor<4xf32>",
        "E371", 2, 8, "dimension",
    ),
    "of-the-data": (
        "  %i = arith.constant 0 : index\n  %v = tensor.extract %c[%i] : tensor<4xf32>\n"
        "  %w = arith.fptosi %v : f32 to i64\n  %n = arith.index_cast %w : i64 to index\n"
        "  %d = tensor.extract_slice %c[0] [%n] [1] : tensor<4xf32> to tensor<?xf32>\n"
        "  %0 = tensor.cast %d : tensor<?xf32> to tensor<4xf32>", "E376", 6, 8, "data decide",
    ),
    "uninitialised": (
        "  %e = tensor.empty() : tensor<4xf32>\n  %0 = arith.addf %e, %c : tensor<4xf32>",
        "E375", 3, 8, "uninitialised",
    ),
    "computed-padding": (
        "  %i = arith.constant 0 : index\n  %v = tensor.extract %c[%i] : tensor<4xf32>\n"
        "  %e = tensor.empty() : tensor<2x3xf32>\n"
        "  %p = linalg.pack %c padding_value(%v : f32) inner_dims_pos = [0] inner_tiles = [3]\n"
        "    into %e : tensor<4xf32> -> tensor<2x3xf32>\n"
        "  %0 = linalg.unpack %p inner_dims_pos = [0] inner_tiles = [3]\n"
        "    into %c : tensor<2x3xf32> -> tensor<4xf32>", "E375", 5, 8, "not constant",
    ),
    "of-two-extents": (
        "  %d = tensor.cast %a : tensor<4x6xf32> to tensor<?x?xf32>\n"
        "  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>,\n"
        "      affine_map<(i, j) -> (i)>], iterator_types = [\"parallel\", \"reduction\"]}\n"
        "    ins(%d : tensor<?x?xf32>) outs(%c : tensor<4xf32>) {\n"
        "  ^bb0(%x: f32, %o: f32):\n    %s = arith.addf %x, %o : f32\n"
        "    linalg.yield %s : f32\n  } -> tensor<4xf32>", "E376", 3, 8, "extents 6 and 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_errors_have_their_place_in_the_users_file(name: str) -> None:
    body, code, line, column, phrase = BAD[name]
    found = refused(HEAD + body + TAIL)
    assert found.code.startswith(code)
    assert found.span is not None
    assert (found.span.line, found.span.column) == (line, column)
    assert phrase in found.message
    assert found.span.text == (HEAD + body + TAIL).split("\n")[line - 1]


def test_places_after_rewritten_spellings_and_wide_characters_are_the_users() -> None:
    line = "  %0 = linalg.matmul_transpose_b ins(%a, %b : tensor<8x6xf32>, tensor<4x6xf32>)"
    line += " outs(%c : tensor<8x4xf32>) -> tensor<8x4xf32> foo.bar // “naïve”"
    head = "func.func @f(%a: tensor<8x6xf32>, %b: tensor<4x6xf32>, %c: tensor<8x4xf32>) {"
    found = refused(f"// naïve “quotes”\n{head}\n{line}\n  return\n}}\n")
    assert (found.code, found.span.line) == ("E370", 3)
    assert found.span.text == line
    assert line[found.span.column - 1 :].startswith("foo.bar")
    wide = 'util.global private @"ö" = "é" foo'
    found = refused(f"{wide}\n")
    assert wide[found.span.column - 1 :].startswith("foo")


def test_without_the_parser_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "iree.compiler.ir", None)
    monkeypatch.setitem(sys.modules, "iree.compiler", None)
    found = refused(TWO)
    assert (found.code, found.help) == ("E372", "pip install 'eqsat[mlir]'")


def test_pipelines_that_fail_say_where() -> None:
    found = refused("""
    func.func @f(%a: tensor<4xf32>) -> tensor<4xcomplex<f32>> {
      %0 = "stablehlo.custom_call"(%a) <{call_target_name = "x"}> : (tensor<4xf32>) -> tensor<4xcomplex<f32>>
      return %0 : tensor<4xcomplex<f32>>
    }
    """)
    assert found.code in ("E378", "E377", "E374")
    assert found.span is not None and found.span.line in (1, 2)


def test_running_sums_and_largest_are_kept_whole() -> None:
    found = read("""
    func.func @f(%x: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<3x2xf32>, tensor<3x2xi32>) {
      %z = arith.constant 0.0 : f32
      %low = arith.constant 0xFF800000 : f32
      %last = arith.constant 2147483647 : i32
      %e = tensor.empty() : tensor<3x8xf32>
      %r = tensor.empty() : tensor<3xf32>
      %f = linalg.fill ins(%z : f32) outs(%r : tensor<3xf32>) -> tensor<3xf32>
      %0:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%x : tensor<3x8xf32>) outs(%e, %f : tensor<3x8xf32>, tensor<3xf32>) {
      ^bb0(%a: f32, %b: f32):
        %s = arith.addf %a, %b : f32
        iree_linalg_ext.yield %s : f32
      } -> tensor<3x8xf32>, tensor<3xf32>
      %v = tensor.empty() : tensor<3x2xf32>
      %i = tensor.empty() : tensor<3x2xi32>
      %g = linalg.fill ins(%low : f32) outs(%v : tensor<3x2xf32>) -> tensor<3x2xf32>
      %h = linalg.fill ins(%last : i32) outs(%i : tensor<3x2xi32>) -> tensor<3x2xi32>
      %1:2 = iree_linalg_ext.topk dimension(1) ins(%x : tensor<3x8xf32>) outs(%g, %h : tensor<3x2xf32>, tensor<3x2xi32>) {
      ^bb0(%a: f32, %b: f32):
        %c = arith.cmpf ogt, %a, %b : f32
        iree_linalg_ext.yield %c : i1
      } -> tensor<3x2xf32>, tensor<3x2xi32>
      return %0#0, %1#0, %1#1 : tensor<3x8xf32>, tensor<3x2xf32>, tensor<3x2xi32>
    }
    """)
    x = np.random.default_rng(0).standard_normal((3, 8)).astype("f4")
    got = evaluate_program(found.program, [x], found.weights, found.opaque)
    order = np.argsort(-x, axis=1)[:, :2]
    np.testing.assert_allclose(got[0], np.cumsum(x, 1), rtol=1e-5)
    np.testing.assert_array_equal(got[1], np.take_along_axis(x, order, 1))
    np.testing.assert_array_equal(got[2], order)


def test_an_exported_program_reads_back_and_computes_the_same(tmp_path: Path) -> None:
    run = eqsat.optimize(eqsat.read(str(PROGRAMS / "two_packs.eqs")), target="avx512-xla")
    run.export("mlir", str(tmp_path / "x.mlir"), weights="arguments")
    back = read_mlir(tmp_path / "x.mlir").program
    types = [back.nodes[i].type for i in back.inputs]
    assert types == [run.program.nodes[i].type for i in run.program.inputs]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape) for t in types]
    got, want = (evaluate_program(p, inputs, {}) for p in (back, run.program))
    assert len(got) == len(want) > 0
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-12)
