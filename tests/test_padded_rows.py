"""Rows that are longer in memory: read from MLIR, read as they lie, asked for, priced, written."""

# ruff: noqa: E501 (one op of MLIR is one line)
from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.cli import run as cli
from eqsat.export.mlir.rows import encoded_nodes
from eqsat.export.write import export
from eqsat.frontends.mlir.parser import parse_module
from eqsat.frontends.mlir.reader import MlirProgram, read_module
from eqsat.frontends.mlir.source import ModuleText, modernised
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.layout import Encoding, Layout, padded_layout
from eqsat.model.pipelines import RowPadding
from eqsat.ops.builtin.layouts import pack, unpack
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.targets.rows import has_its_rows, longer_rows, read_padded
from eqsat.report.paddedrows import padded_buffers
from eqsat.schedule import faults

ROWS = "row_padding={line: 8 B, sets: 2, operands: [%s]}"  # a row of 8 f32 gets 2 more
LHS, RHS, BOTH = (ROWS % sides for sides in ("lhs", "rhs", "lhs, rhs"))
GPU = "gfx942-iree"
MLIR = """
#rows = #iree_encoding.padding<[0, 2]>
func.func @gate(%x: tensor<6x8xf32, #rows>, %s: tensor<6x8xf32>, %w: tensor<5x8xf32>) -> tensor<6x5xf32> {
  %zero = arith.constant 0.0 : f32
  %px = iree_encoding.unset_encoding %x : tensor<6x8xf32, #rows> -> tensor<6x8xf32>
  %e = tensor.empty() : tensor<6x8xf32>
  %h = linalg.mul ins(%px, %s : tensor<6x8xf32>, tensor<6x8xf32>) outs(%e : tensor<6x8xf32>) -> tensor<6x8xf32>
  %f = tensor.empty() : tensor<6x5xf32>
  %o = linalg.fill ins(%zero : f32) outs(%f : tensor<6x5xf32>) -> tensor<6x5xf32>
  %y = linalg.matmul_transpose_b ins(%h, %w : tensor<6x8xf32>, tensor<5x8xf32>) outs(%o : tensor<6x5xf32>) -> tensor<6x5xf32>
  return %y : tensor<6x5xf32>
}
"""
PRODUCT = """
program product
input x: f32[6, 8]
input s: f32[6, 8]
weight w: f32[5, 8]
h = mul(x, s)
y = generic(h, w, loops=[6, 5, 8], maps=[[d0, d2], [d1, d2]], body=mul(x0, x1), combine=add, rank=2)
return y
"""


def mlir(text: str) -> MlirProgram:
    pytest.importorskip("iree.compiler")
    source = modernised(ModuleText("x.mlir", text.lstrip("\n")))
    return read_module(parse_module(source), source, "", None)


def passed_on(kind: str) -> str:
    """A function whose argument and result have this encoding."""
    t = f"tensor<6x8xf32, #iree_encoding.{kind}>"
    return f"func.func @f(%x: {t}) -> {t} {{\n  return %x : {t}\n}}"


def searched(program, *settings: str, target: str = GPU, **how) -> eqsat.Run:
    return eqsat.optimize(program, target=target, settings=settings, cache=False, **how)


def verifies(text: bytes) -> bool:
    tool = Path(sys.executable).with_name("iree-opt")
    return subprocess.run([tool, "-"], input=text, capture_output=True, check=False).returncode == 0


def words(run: eqsat.Run) -> list[tuple[str, ...]]:
    """The ops of every dispatch."""
    assert run.schedule is not None
    nodes = run.schedule.program.nodes
    return [tuple(nodes[m].op for m in d.members) for d in run.schedule.dispatches]


# ---- the layout ------------------------------------------------------------------------------------
@pytest.mark.parametrize("padding", [(0, 3), (2, 0), (2, 3), (0, 0, 5), (0, 4, 0), (1, 0, 2)])
def test_a_padded_tensor_is_a_pack_by_one_block(padding: tuple[int, ...]) -> None:
    """In memory it is the tensor with so many elements behind each dim, and nothing moved."""
    shape = (4, 6, 7)[-len(padding) :]
    layout = padded_layout(shape, padding)
    layout.verify()
    assert layout.row_padding == padding
    x = np.random.default_rng(0).standard_normal(shape)
    behind = np.pad(x, [(0, p) for p in padding])
    np.testing.assert_array_equal(pack(layout, x, 0.0).ravel(), behind.ravel())


def test_other_layouts_are_no_padded_rows() -> None:
    row = padded_layout((6, 8), (0, 2))
    others = [
        replace(row, outer=(1, 0)), replace(row, pads=("0",)),
        Layout((6, 8), (1,), (8,), (0, 1), ("-",)), Layout((6, 20), (1,), (12,), (0, 1), ("?",)),
        Layout((6, 8), (0,), (9,), (0, 1), ("?",)), Layout((6, 8), (), (), (0, 1), ()),
    ]  # fmt: skip
    assert [o.row_padding for o in others] == [()] * len(others)


def test_rows_are_whole_lines_that_begin_in_any_set() -> None:
    """The amounts of IREE's resolver for a gfx942: 128-byte lines, 4 sets."""
    rows = RowPadding(128, 4, ("lhs",))
    asked = {(4096, "f16"): 64, (2048, "f32"): 32, (4096, "i8"): 128, (4160, "f16"): 0,
             (1000, "f32"): 56, (100, "f16"): 0, (256, "f16"): 64, (300, "f16"): 20, (4096, "i4"): 0}  # fmt: skip
    assert {k: rows.elements(*k) for k in asked} == asked
    rng = random.Random(1)
    for _ in range(200):
        n, dtype = rng.randint(256, 9000), rng.choice(("f16", "f32", "i8"))
        nbytes = (n + rows.elements(n, dtype)) * {"f16": 2, "f32": 4, "i8": 1}[dtype]
        assert nbytes < 512 or (nbytes % 128 == 0 and nbytes % 512)
    assert longer_rows(rows, (4096,), "f16") is None, "a vector has no rows"


# ---- read --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["padding<[0, 2]>", "layout<[#iree_encoding.padding<[0, 2]>]>"])
def test_padded_borders_of_mlir_are_packed_ones(kind: str) -> None:
    program = mlir(passed_on(kind)).program
    rows = padded_layout((6, 8), (0, 2))
    assert program.leaf(program.inputs[0]).layout == rows
    assert str(program.nodes[program.inputs[0]].type) == "f32[6, 1, 10]"
    assert (program.nodes[program.results[0]].op, program.nodes[-1].attr) == ("pack", rows)


def test_an_older_name_of_padding_is_read() -> None:
    old = mlir(passed_on("pad_encoding_layout<[0, 2]>")).program
    assert old == mlir(passed_on("padding<[0, 2]>")).program


def test_padding_of_none_is_a_plain_tensor() -> None:
    assert [n.op for n in mlir(passed_on("padding<[0, 0]>")).program.nodes] == ["input"]


def test_what_is_set_inside_is_a_pack_for_whoever_wants_it() -> None:
    inside = """
func.func @f(%x: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %p = iree_encoding.set_encoding %x : tensor<6x8xf32> -> tensor<6x8xf32, #iree_encoding.padding<[0, 2]>>
  %e = tensor.empty() : tensor<6x8xf32>
  %u = iree_encoding.unset_encoding %p : tensor<6x8xf32, #iree_encoding.padding<[0, 2]>> -> tensor<6x8xf32>
  %y = linalg.elementwise kind=#linalg.elementwise_kind<exp> ins(%u : tensor<6x8xf32>) outs(%e : tensor<6x8xf32>) -> tensor<6x8xf32>
  return %y : tensor<6x8xf32>
}"""
    assert [n.op for n in mlir(inside).program.nodes] == ["input", "pack", "unpack", "generic"]


def test_an_open_amount_is_the_target_s(tmp_path: Path) -> None:
    pytest.importorskip("iree.compiler")
    path = tmp_path / "open.mlir"
    body = passed_on("padding<[0, ?]>").replace("return %x", "%y = math.exp %x : T\n  return %y")
    path.write_text(body.replace(": T\n", ": tensor<6x8xf32, #iree_encoding.padding<[0, ?]>>\n"))
    program = eqsat.read(str(path)).program
    asked = program.leaf(program.inputs[0]).layout
    assert asked == Encoding((6, 8), "rows", "", ("f32",))
    assert Encoding.from_json(asked.to_json(), {}) == asked
    run = searched(str(path), LHS)
    assert run.program.leaf(run.program.inputs[0]).layout == padded_layout((6, 8), (0, 2))
    plain = searched(str(path))
    assert plain.program.leaf(plain.program.inputs[0]).layout is None


def test_eqs_text_asks_for_the_target_s_rows() -> None:
    text = 'program p\ninput x: f32[6, 8] layout=set_encoding(role="rows")\nreturn relu(x)'
    run = searched(parse_program(text), LHS)
    assert str(run.program.nodes[run.program.inputs[0]].type) == "f32[6, 1, 10]"
    assert 'set_encoding(role="rows"' in parse_program(text).to_text()
    assert parse_program(parse_program(text).to_text()) == parse_program(text)


# ---- read as they lie ----------------------------------------------------------------------------
def test_padded_rows_are_read_without_a_conversion_and_what_is_behind_is_not() -> None:
    """What is behind a row is NaN here; the product is that of NumPy in float64."""
    run = searched(mlir(MLIR).program)
    assert words(run) == [("generic",), ("generic",)]
    assert run.schedule is not None
    draw = np.random.default_rng(2).standard_normal
    x, s, w = draw((6, 8)), draw((6, 8)), draw((5, 8))
    lying = pack(padded_layout((6, 8), (0, 2)), x, np.nan)
    (got,) = evaluate_program(run.schedule.program, [lying, s, w], {})
    np.testing.assert_allclose(got, (x * s) @ w.T, rtol=1e-6)


def test_any_op_reads_padded_rows_as_they_lie() -> None:
    """A window and a sum over what is padded, too."""
    text = """
program conv
input x: f32[4, 9] layout=pack(pos=[1], tiles=[12], pad=any)
y = generic(x, loops=[4, 4, 3], maps=[[d0, 2*d1 + d2]], body=x0, combine=add, rank=2)
return y
"""
    program = parse_program(text)
    run = searched(program, target="reference")
    assert words(run) == [("generic",)]
    x = np.random.default_rng(3).standard_normal((4, 9))
    lying = pack(program.leaf(program.inputs[0]).layout, x, np.inf)
    (got,) = evaluate_program(run.schedule.program, [lying], {})
    wanted = np.stack([x[:, 2 * i : 2 * i + 3].sum(1) for i in range(4)], 1)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_generic_in_place_is_that_of_the_unpacked_operand() -> None:
    rng, programs = (
        random.Random(5),
        [PRODUCT, PRODUCT.replace("[d0, d2]", "[d2, d0]").replace("f32[6, 8]", "f32[8, 6]")],
    )
    for text in programs:
        g = next(n.attr for n in parse_program(text).nodes if n.op == "generic" and n.attr.combine)
        for i in range(2):
            padding = tuple(rng.randint(0, 3) for _ in g.shapes[i][1:])
            layout = padded_layout(g.shapes[i], (1, *padding))
            moved = read_padded(g, i, layout)
            assert moved is not None
            assert (moved.shapes[i], moved.sizes) == (layout.packed_shape, g.sizes)
            assert (
                read_padded(moved, i, padded_layout(layout.packed_shape, (1, 0, 0, 0))) is not None
            )
        assert read_padded(g, 0, replace(layout, pads=tuple("0" for _ in layout.pads))) is None


def test_an_unknown_number_of_rows_is_padded() -> None:
    text = (
        PRODUCT.replace("program product", "program product\nsymbol m size=6")
        .replace("f32[6, 8]", "f32[m, 8]")
        .replace("loops=[6", "loops=[m")
    )
    run = searched(parse_program(text), LHS)
    assert [b.padding_bytes for b in padded_buffers(run.schedule)] == [6 * 2 * 4]
    bound = eqsat.bind(run, {"m": 9})
    assert [b.padding_bytes for b in padded_buffers(bound.schedule)] == [9 * 2 * 4]


# ---- asked for -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("asked", "padding"),
    [
        (LHS, {("lhs",): 6 * 8}),
        (RHS, {("rhs",): 5 * 8}),
        (BOTH, {("lhs",): 6 * 8, ("rhs",): 5 * 8}),
    ],
)
def test_a_target_gets_the_rows_it_asks_for_and_no_others(asked: str, padding: dict) -> None:
    run, plain = searched(parse_program(PRODUCT), asked), searched(parse_program(PRODUCT))
    assert run.schedule is not None
    found = padded_buffers(run.schedule)
    assert {b.sides: b.padding_bytes for b in found} == padding
    assert {b.role for b in found} == {{"lhs": "temporary", "rhs": "weight"}[s[0]] for s in padding}
    assert len(words(run)) == 2, "who computes the left operand writes it so; weights are ahead"
    assert not faults(run.schedule, run.target)
    extra = padding.get(("rhs",), 0)
    assert run.schedule.resident_bytes == plain.schedule.resident_bytes + extra
    assert run.schedule.bytes_moved >= plain.schedule.bytes_moved + sum(padding.values())
    assert run.schedule.time_ps >= plain.schedule.time_ps, "what it costs is its bytes"
    draw = np.random.default_rng(4).standard_normal
    x, s, w = draw((6, 8)), draw((6, 8)), draw((5, 8))
    (got,) = evaluate_program(run.schedule.program, [x, s], {"w": w})
    np.testing.assert_allclose(got, (x * s) @ w.T, rtol=1e-6)


def test_a_padded_answer_runs_and_is_verified() -> None:
    run = searched(parse_program(PRODUCT), BOTH, verify=True)
    assert run.verification is not None
    assert run.verification.ok


def test_short_and_uneven_rows_are_left_alone() -> None:
    g = next(n.attr for n in parse_program(PRODUCT).nodes if n.op == "generic" and n.attr.combine)
    machine = override(eqsat.target(GPU), [BOTH])
    assert isinstance(g, Generic)
    assert not has_its_rows(machine, g)
    assert has_its_rows(override(machine, ["row_padding.line=64 B"]), g), "shorter than all sets"
    assert has_its_rows(override(machine, ["row_padding=null"]), g)
    lhs = override(machine, ["row_padding.operands=[lhs]"])
    assert lhs.row_padding == RowPadding(8, 2, ("lhs",))


def test_without_the_rules_the_target_says_what_it_asks_for() -> None:
    with pytest.raises(
        EqsatError, match=r"`row_padding` \(--set row_padding\) rules out generic %y"
    ) as e:
        searched(parse_program(PRODUCT), LHS, rules="layout/transpose")
    assert e.value.exit_code == 3


def test_a_schedule_with_other_rows_is_a_fault() -> None:
    plain = searched(parse_program(PRODUCT))
    (said,) = faults(plain.schedule, override(plain.target, [LHS]))
    assert "reads rows that are not padded as asked (--set row_padding)" in said


def test_explain_tells_the_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "product.eqs"
    path.write_text(PRODUCT)
    command = ["optimize", str(path), "--target", GPU, "--set", BOTH, "-o", str(tmp_path / "run")]
    assert cli(command) == 0
    told = capsys.readouterr().out
    assert (
        "rows padded: 40 B of 200 B for rhs (1 weight); 48 B of 240 B for lhs (1 temporary)" in told
    )
    assert cli(["explain", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert [line.split()[-1] for line in told.splitlines() if ".padany  " in line] == ["rhs", "lhs"]
    assert cli(["explain", str(tmp_path / "run"), "--output-format", "json"]) == 0
    assert '"padding_bytes": 48' in capsys.readouterr().out


def test_a_llama_block_costs_little_on_the_left_and_much_on_the_right() -> None:
    """The target that is shipped pads what products read of activations, as IREE does."""
    run = searched("llama.py:llama_64", target="gfx942-rows")
    assert {(b.sides, b.role) for b in padded_buffers(run.schedule)} == {(("lhs",), "temporary")}
    right = searched("llama.py:llama_64", "row_padding.operands=[rhs]", target="gfx942-rows")
    left_bytes, right_bytes = (
        sum(b.padding_bytes for b in padded_buffers(r.schedule)) for r in (run, right)
    )
    assert 0 < 4 * left_bytes < right_bytes
    assert {b.role for b in padded_buffers(right.schedule)} == {"weight"}


# ---- written -------------------------------------------------------------------------------------
def test_exported_padding_is_read_back(tmp_path: Path) -> None:
    """Weights, temporaries, an argument and a result; the text is IREE's."""
    pytest.importorskip("iree.compiler")
    text = PRODUCT.replace("x: f32[6, 8]", "x: f32[6, 8] layout=pack(pos=[1], tiles=[10], pad=any)")
    text = text.replace("return y", "return y layout=pack(pos=[1], tiles=[7], pad=any)")
    run = searched(parse_program(text), BOTH)
    weights = {"w": np.random.default_rng(6).standard_normal((5, 8)).astype("float32")}
    for how in ("arguments", "constants"):
        path = tmp_path / f"{how}.mlir"
        exported = export(run.schedule, "mlir", weights, {}, weights=how)
        assert not exported.missing
        written = exported.data.decode()
        path.write_text(written)
        assert written.count("padding<[0, 2]>") >= 6
        assert written.count("#iree_encoding.padding<[0, 2]>> {eqsat.name") == 1
        assert "linalg.pack" not in written
        assert verifies(exported.data)
        again = eqsat.read(str(path))
        x, s = (np.random.default_rng(7).standard_normal((6, 8)) for _ in range(2))
        given = [pack(padded_layout((6, 8), (0, 2)), x, np.nan), s]
        given += [weights["w"]] if how == "arguments" else []
        (got,) = evaluate_program(again.program, given, again.weights)
        got = unpack(padded_layout((6, 5), (0, 2)), got)
        np.testing.assert_allclose(got, (x * s) @ weights["w"].T, rtol=1e-5)
        if how == "arguments":  # a weight that is one is padded in every run
            continue
        second = searched(again, BOTH)
        assert second.schedule.time_ps == run.schedule.time_ps
        assert len(words(second)) == len(words(run))


def test_a_block_that_is_read_as_one_is_exported_as_a_pack() -> None:
    """A tile that is larger than the tensor pads rows as well, but who reads it walks the tile."""
    text = """
program tiled
input x: f32[3, 16]
p = pack(x, pos=[0, 1], tiles=[16, 16], pad=[any, none])
q = relu(p)
u = unpack(q, pos=[0, 1], tiles=[16, 16], pad=[any, none], shape=[3, 16])
return u
"""
    program = parse_program(text)
    assert padded_layout((3, 16), (13, 0)) == program.nodes[1].attr
    assert encoded_nodes(program) == {}
    read = parse_program(text.replace("q = relu(p)\n", "").replace("unpack(q", "unpack(p"))
    assert [*encoded_nodes(read)] == [1]
    twice = text.replace("u = unpack(q", "r = pack(p, pos=[3], tiles=[20], pad=any)\nu = unpack(q")
    twice = parse_program(twice.replace("return u", "return u, r"))
    assert [twice.nodes[i].op for i in encoded_nodes(twice)] == ["pack"], "the outer one alone"
    assert verifies(export(twice, "mlir", {}, {}).data)


# ---- refused -------------------------------------------------------------------------------------
BAD = [
    ("padding<[0, -64]>", "E379", "no dim can be padded by -64 elements", 1),
    ("padding<[64]>", "E379", "`padding<[64]>` pads 1 dims of a tensor that has 2", 1),
    ("padding<[0, 0, 2]>", "E379", "pads 3 dims of a tensor that has 2", 1),
    ("padding<[?, 2]>", "E379", "leaves more open than the last dim", 1),
    ("padding<[2, ?]>", "E379", "or pads others beside it", 1),
    ("padding<[0, x]>", "E370", "", 1),
]


@pytest.mark.parametrize(("kind", "code", "said", "line"), BAD)
def test_impossible_padding_is_refused_with_its_place(
    kind: str, code: str, said: str, line: int
) -> None:
    with pytest.raises(EqsatError) as caught:
        mlir(passed_on(kind))
    (found,) = caught.value.diagnostics
    assert (found.code, found.span.line) == (code, line)
    assert said in found.message
    assert found.span.column > 1


def test_a_dim_of_unknown_size_is_not_padded() -> None:
    text = passed_on("padding<[0, 2]>").replace("6x8", "6x?")
    with pytest.raises(EqsatError, match="pads a dim without a known size") as caught:
        mlir(text)
    assert caught.value.diagnostics[0].code == "E379"
    assert mlir(passed_on("padding<[0, 2]>").replace("6x8", "?x8")).program.symbols


def test_an_encoded_tensor_is_not_encoded_again() -> None:
    t = "tensor<6x8xf32, #iree_encoding.padding<[0, 2]>>"
    text = f"func.func @f(%x: {t}) -> {t} {{\n  %y = iree_encoding.set_encoding %x : {t} -> {t}\n  return %y : {t}\n}}"
    with pytest.raises(EqsatError, match="cannot have a tensor encoding") as caught:
        mlir(text)
    (found,) = caught.value.diagnostics
    assert (found.code, found.span.line, found.span.column) == ("E370", 2, 8)


def test_a_tensor_without_a_rank_has_no_padding() -> None:
    with pytest.raises(EqsatError) as caught:
        mlir(passed_on("padding<[0, 2]>").replace("6x8x", "*x"))
    assert caught.value.diagnostics[0].span.line == 1


@pytest.mark.parametrize(
    ("written", "code"),
    [("{line: 128 B, sets: 3, operands: [lhs]}", "E221"), ("{line: 0 B, sets: 4, operands: [lhs]}", "E201"),
     ("{line: 128 B, sets: 4, operands: []}", "E005"), ("{line: 128 B, sets: 4, operands: [result]}", "E005"),
     ("{line: 128 B, operands: [lhs]}", "E004")],
)  # fmt: skip
def test_a_target_that_asks_for_impossible_rows_is_refused(written: str, code: str) -> None:
    with pytest.raises(EqsatError, match="row_padding") as caught:
        override(eqsat.target(GPU), [f"row_padding={written}"])
    assert caught.value.diagnostics[0].code == code
