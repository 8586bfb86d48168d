"""Arguments and results that cross in layouts: read, resolved, searched, run, and refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import eqsat
from eqsat.cli.app import run as cli
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.layout import Border, Layout
from eqsat.model.program import Program
from eqsat.ops.builtin.layouts import pack, unpack
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.programs.binding import bind_program
from eqsat.ops.programs.border_layouts import packed_borders, resolved, with_open_results

TYPES = 'dtypes=["f32", "f32", "f32"]'
MAPS = "maps=[[d0, d2], [d2, d1], [d0, d1]]"
CONVERSIONS = {"pack", "unpack", "transpose", "retype"}


def encoding(role: str, m: int, n: int, k: int) -> str:
    return f'set_encoding(role="{role}", {TYPES}, loops=[{m}, {n}, {k}], {MAPS})'


def encoded_matmul(m: int, n: int, k: int, *, accumulates: bool = False) -> Program:
    c = f"input c: f32[{m}, {n}] layout={encoding('result', m, n, k)}\n" if accumulates else ""
    return parse_program(
        f"input a: f32[{m}, {k}] layout={encoding('lhs', m, n, k)}\n"
        f"input b: f32[{k}, {n}] layout={encoding('rhs', m, n, k)}\n{c}"
        f"y = matmul(a, b)\nz = {'add(c, y)' if accumulates else 'y'}\n"
        f"return z layout={encoding('result', m, n, k)}\n".replace("z = y\nreturn z", "return y")
    )


def conversions(run: Any) -> list[str]:
    return [n.op for n in run.schedule.program.nodes if n.op in CONVERSIONS]


# ---- as text and JSON ----------------------------------------------------------------------------
TEXT = f"""
program p
symbol s divisor=2 size=6
input a: f32[s, 30] layout=pack(pos=[0, 1], tiles=[2, 16], pad=[none, 0])
input "b c": f32[30, 8] layout=transpose(perm=[1, 0])
input d: f32[8, 4] layout={encoding("rhs", 64, 4, 8)}
y = matmul(a, "b c")
return y layout=pack(pos=[1], tiles=[3], pad=any), d
"""


def test_text_and_json_keep_the_layouts_of_a_border() -> None:
    text = TEXT.replace('matmul(a, "b c")', "matmul(a, b)").replace('"b c"', "b")
    program = parse_program(text)
    program.verify()
    assert parse_program(program.to_text()) == program
    assert Program.from_json(program.to_json()) == program
    bound = bind_program(program, {"s": 6})
    assert [str(program.leaf(i).plain) for i in program.inputs] == [
        "f32[s, 30]", "f32[30, 8]", "f32[8, 4]",
    ]  # fmt: skip
    assert packed_borders(bound) == {
        Border("input", 0): Layout((6, 30), (0, 1), (2, 16), (0, 1), ("-", "0")),
        Border("input", 1): Layout((30, 8), (), (), (1, 0), ()),
        Border("result", 0): Layout((6, 8), (1,), (3,), (0, 1), ("?",)),
    }


def test_what_arrives_packed_is_the_packed_tensor() -> None:
    program = bind_program(parse_program(TEXT.replace('"b c"', "b")), {"s": 6})
    rng = np.random.default_rng(0)
    a, b, d = (rng.standard_normal(s) for s in ((6, 30), (30, 8), (8, 4)))
    layouts = packed_borders(program)
    given = [pack(layouts[Border("input", i)], x) for i, x in enumerate((a, b))]
    y, same = evaluate_program(program, [*given, d], {})
    np.testing.assert_allclose(unpack(layouts[Border("result", 0)], y), a @ b)
    np.testing.assert_array_equal(same, d)


# ---- encodings -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("target", "accumulates"),
    [("avx512-xla", False), ("vmvx-like", True), ("arm64", True), ("riscv64", False)],
)
def test_an_encoded_matmul_is_one_packed_contraction(target: str, accumulates: bool) -> None:
    """Dims that no tile divides: m and n lanes may hold anything, k lanes hold zeros."""
    program = encoded_matmul(40, 20, 18, accumulates=accumulates)
    run = eqsat.optimize(program, target=target)
    assert run.schedule is not None
    assert conversions(run) == []
    (dispatch,) = run.schedule.dispatches
    first = run.schedule.program.nodes[dispatch.members[0]]
    assert isinstance(first.attr, Generic)
    assert first.attr.tile
    assert run.verify(samples=1).ok
    sizes = [b.nbytes for b in run.schedule.buffers if b.role == "argument"]
    types = [run.program.nodes[i].type.nbytes for i in run.program.inputs]
    assert sorted(sizes) == sorted(types)
    assert sum(types) > sum(run.program.leaf(i).plain.nbytes for i in run.program.inputs)
    assert [*run.summary()["program"]["layouts"]] == [*"abc"[: len(types)], "result0"]


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_resolving_changes_layouts_only(seed: int) -> None:
    """Against the program as it was read; lanes of `?` hold NaN, which must not be seen."""
    rng = random.Random(seed)
    m, n, k = (rng.choice((1, 2, 4, 7, 16, 21)) for _ in "mnk")
    program = encoded_matmul(m, n, k, accumulates=seed % 2 == 0)
    found = resolved(
        program, eqsat.target(rng.choice(("avx512-xla", "vmvx-like", "arm64", "riscv64")))
    )
    found.verify()
    draw = np.random.default_rng(seed)
    plain = [draw.standard_normal(program.nodes[i].type.shape) for i in program.inputs]
    layouts = packed_borders(found)
    borders = [Border("input", i) for i in range(len(plain))]
    pairs = zip(borders, plain, strict=True)
    given = [pack(layouts[b], x) if b in layouts else x for b, x in pairs]
    (got,) = evaluate_program(found, given, {})
    (wanted,) = evaluate_program(program, plain, {})
    held = layouts.get(Border("result", 0))
    np.testing.assert_allclose(unpack(held, got) if held else got, wanted)


def test_a_target_without_tiles_turns_encodings_into_nothing() -> None:
    program = encoded_matmul(100, 60, 250)
    found = resolved(program, eqsat.target("no-data-tiling"))
    assert [n.op for n in found.nodes] == ["input", "input", "generic"]
    assert packed_borders(found) == {}
    assert resolved(found, eqsat.target("avx512-xla")) is found


def test_a_lone_encoding_that_is_returned_packs() -> None:
    text = f"input a: f32[64, 48]\nreturn a layout={encoding('lhs', 64, 32, 48)}\n"
    run = eqsat.optimize(parse_program(text), target="avx512-xla")
    assert run.schedule is not None
    assert conversions(run) == ["pack"]
    assert run.summary()["program"]["layouts"] == {
        "result0": "pack(pos=[0], tiles=[16], outer=[0, 1])"
    }


# ---- asked for by the caller ---------------------------------------------------------------------
PLAIN = "program p\ninput a: f32[30, 48]\ny = add(a, a)\nreturn y\n"
ROWS = "pack(pos=[0], tiles=[16], pad=any)"


def test_the_same_open_layout_on_both_sides_converts_nothing() -> None:
    """What serves as a result with open lanes is written as it is."""
    layouts = {"a": ROWS, "result0": ROWS}
    run = eqsat.optimize(parse_program(PLAIN), target="avx512-xla", layouts=layouts)
    assert conversions(run) == []
    assert run.verify(samples=1).ok
    assert run.egraph is not None
    assert run.schedule is not None
    assert run.egraph.holds(run.schedule.program)
    assert with_open_results(run.egraph) == run.egraph


def test_a_traced_function_takes_and_gives_what_was_asked_for() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    layouts = {"x": "transpose(perm=[1, 0])", "result0": "pack(pos=[0], tiles=[2], pad=0)"}
    run = eqsat.optimize(lambda x: (x + 1, x * 2), x, layouts=layouts, target="reference")
    y, z = run.compile()(x.T)
    np.testing.assert_array_equal(y, pack(Layout((3, 4), (0,), (2,), (0, 1), ("0",)), x + 1))
    np.testing.assert_array_equal(z, x * 2)


def test_where_the_answer_is_the_input_the_function_itself_takes_the_layout() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    run = eqsat.optimize(
        lambda x: x + 1, x, layouts={"x": "transpose(perm=[1, 0])"}, target="reference"
    )
    assert run.is_input
    np.testing.assert_array_equal(run.compile()(x.T), x + 1)


@pytest.mark.parametrize(
    ("layouts", "code", "words"),
    [
        ({"b": "plain"}, "E394", "`b` is no argument or result"),
        ({"result1": "plain"}, "E394", "`result1` is no argument or result"),
        ({"a": "free"}, "E394", "`a` has a free layout"),
        ({"a": "free(calls=0)"}, "E394", "a number of calls"),
        ({"a": "relu()"}, "E394", "`relu()` is no layout"),
        ({"a": "pack(pos=[0], tiles=[16])"}, "E301", "need a padding value"),
        ({"a": Layout((8, 8), (), (), (1, 0), ())}, "E394", "is of a tensor of [8, 8]"),
    ],
)
def test_what_is_no_layout_is_refused(layouts: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(EqsatError) as error:
        eqsat.optimize(parse_program(PLAIN), layouts=layouts, target="reference")
    assert error.value.diagnostics[0].code == code
    assert words in str(error.value)


@pytest.mark.parametrize("asked", ["a=plain", "a=transpose(perm=[1, 0])"])
def test_another_layout_than_the_file_says_is_refused_at_its_place(
    asked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.eqs"
    path.write_text(PLAIN.replace("48]\n", f"48] layout={ROWS}\n", 1))
    assert cli(["optimize", str(path), "--layout", asked, "-q"]) == 2
    told = capsys.readouterr().err
    assert f"{path}:2:29" in told
    assert "error[E393]" in told
    assert "help: " in told


# ---- from MLIR -----------------------------------------------------------------------------------
MLIR = "\n".join(
    [
        "#a = affine_map<(m, n, k) -> (m, k)>",
        "#b = affine_map<(m, n, k) -> (k, n)>",
        "#c = affine_map<(m, n, k) -> (m, n)>",
        *(
            f"#{name} = #iree_encoding.encoding<operand_index = {i} : index, op_type = matmul, "
            "element_types = [f32, f32, f32], user_indexing_maps = [#a, #b, #c]>"
            for i, name in enumerate(("lhs", "rhs", "out"))
        ),
        """func.func @matmul(%a: tensor<40x18xf32, #lhs>, %b: tensor<18x20xf32, #rhs>,
    %c: tensor<40x20xf32, #out>) -> tensor<40x20xf32, #out> {
  %y = linalg.matmul ins(%a, %b : tensor<40x18xf32, #lhs>, tensor<18x20xf32, #rhs>)
    outs(%c : tensor<40x20xf32, #out>) -> tensor<40x20xf32, #out>
  return %y : tensor<40x20xf32, #out>
}
func.func @set(%a: tensor<40x18xf32>) -> tensor<40x18xf32, #lhs> {
  %l = iree_encoding.set_encoding %a : tensor<40x18xf32> -> tensor<40x18xf32, #lhs>
  return %l : tensor<40x18xf32, #lhs>
}
func.func @odd(%a: tensor<40x18xf32, #iree_encoding.padding<[64]>>)
    -> tensor<40x18xf32, #iree_encoding.padding<[64]>> {
  return %a : tensor<40x18xf32, #iree_encoding.padding<[64]>>
}""",
    ]
)


@pytest.fixture
def mlir(tmp_path: Path) -> str:
    pytest.importorskip("iree.compiler")
    path = tmp_path / "encoded.mlir"
    path.write_text(MLIR)
    return str(path)


def test_encoded_types_of_mlir_are_read_as_what_they_are(mlir: str) -> None:
    """The extents of loops that a type does not show are those of the contraction that reads it."""
    source = eqsat.read(f"{mlir}:matmul")
    wanted = encoded_matmul(40, 20, 18, accumulates=True)
    layouts = [source.program.leaf(i).layout for i in source.program.inputs]
    assert layouts == [wanted.leaf(i).layout for i in wanted.inputs]
    assert source.program.nodes[source.program.results[0]].op == "set_encoding"
    assert [span.line for span in source.places.values()] == [7, 7, 8, 11]
    lone = eqsat.read(f"{mlir}:set").program
    assert [n.op for n in resolved(lone, eqsat.target("avx512-xla")).nodes] == ["input", "pack"]


def test_an_encoded_argument_asked_for_in_another_layout_is_refused(
    mlir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["optimize", f"{mlir}:matmul", "--target", "avx512-xla", "-q"]
    assert cli([*command, "--layout", "b=pack(pos=[0], tiles=[6])"]) == 2
    told = capsys.readouterr().err
    assert f"{mlir}:7:" in told
    assert "`b` is set_encoding(" in told
    assert cli([*command, "--layout", "result0=plain"]) == 2
    assert f"{mlir}:11:3" in capsys.readouterr().err
    assert cli(["optimize", f"{mlir}:odd", "-q"]) == 2
    assert "E379" in capsys.readouterr().err


# ---- chosen by the search ------------------------------------------------------------------------
STEP = """
input v: f32[32, 16]
input w: f32[16, 32]
input x: f32[16, 32]
h = matmul(x, v)
y = matmul(h, w)
v1 = add(v, v)
w1 = add(w, w)
return y, v1, w1
"""


@pytest.mark.slow  # 5 s; test_state keeps one
def test_states_are_kept_packed_together() -> None:
    """Every combination is searched, also that of two states in two layouts."""
    found = eqsat.keep_state(
        parse_program(STEP), state={"v": 1, "w": 2}, target="vmvx-like", goals=["time"]
    )
    assert len(found.alternatives) == found.combinations
    assert found.combinations == 6
    assert {t.name for t in found.best.layouts} == {"v", "w"}
    alone = [a.values for a in found.alternatives if len(a.layouts) < 2]
    assert found.best.values < min(alone)
    assert found.run.verify(samples=1).ok
    names = [b.number for t in found.ties for b in t.borders if b.kind == "result"]
    assert names == [1, 2]


def test_a_free_argument_is_chosen_at_the_price_of_converting_it() -> None:
    text = "input a: f32[64, 48]\ninput b: f32[48, 64]\ny = matmul(a, b)\nreturn y\n"
    options: dict[str, Any] = {"target": "vmvx-like", "goals": ["time"]}
    program = parse_program(text)
    free = eqsat.keep_state(program, layouts={"b": "free"}, **options)
    once = eqsat.keep_state(program, layouts={"b": "free(calls=1)"}, **options)
    assert [t.name for t in free.best.layouts] == ["b"]
    (held,) = free.best.layouts.values()
    (packed,) = [a for a in once.alternatives if [*a.layouts.values()] == [held]]
    assert packed.caller_ps > 0
    assert packed.values[0] == free.best.values[0] + packed.caller_ps


def test_one_fixed_side_of_a_state_fixes_the_other() -> None:
    program = parse_program("input a: f32[32, 16]\ny = add(a, a)\nreturn y\n")
    layouts: dict[str, Any] = {"a": "pack(pos=[0], tiles=[16])"}
    found = eqsat.keep_state(program, state={"a": 0}, layouts=layouts, target="reference")
    assert [*packed_borders(found.run.program)] == [Border("input", 0), Border("result", 0)]
    assert len(found.alternatives) == 1
    other = layouts | {"result0": "transpose(perm=[1, 0])"}
    with pytest.raises(EqsatError, match="E393"):
        eqsat.keep_state(program, state={"a": 0}, layouts=other, target="reference")
