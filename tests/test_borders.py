"""Arguments and results that cross in layouts: read, resolved, searched, run, and refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.cli.app import run as cli
from eqsat.lang.programs import parse_program
from eqsat.model.border import Border
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.program import Program
from eqsat.ops.binding import bind_program
from eqsat.ops.border_layouts import stated, with_open_results
from eqsat.ops.meaning import evaluate_program, pack, unpack
from eqsat.ops.resolution import resolved

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
    assert stated(bound) == {
        Border("input", 0): Layout((6, 30), (0, 1), (2, 16), (0, 1), ("-", "0")),
        Border("input", 1): Layout((30, 8), (), (), (1, 0), ()),
        Border("result", 0): Layout((6, 8), (1,), (3,), (0, 1), ("?",)),
    }


def test_what_arrives_packed_is_the_packed_tensor() -> None:
    program = bind_program(parse_program(TEXT.replace('"b c"', "b")), {"s": 6})
    rng = np.random.default_rng(0)
    a, b, d = (rng.standard_normal(s) for s in ((6, 30), (30, 8), (8, 4)))
    layouts = stated(program)
    given = [pack(layouts[Border("input", i)], x) for i, x in enumerate((a, b))]
    y, same = evaluate_program(program, [*given, d], {})
    np.testing.assert_allclose(unpack(layouts[Border("result", 0)], y), a @ b)
    np.testing.assert_array_equal(same, d)


# ---- encodings -----------------------------------------------------------------------------------
@pytest.mark.parametrize("target", ["avx512", "vmvx-like"])
@pytest.mark.parametrize("accumulates", [False, True])
def test_an_encoded_matmul_is_one_packed_contraction(target: str, accumulates: bool) -> None:
    """Dims that no tile divides: m and n lanes may hold anything, k lanes hold zeros."""
    program = encoded_matmul(40, 20, 18, accumulates=accumulates)
    run = eqsat.optimize(program, target=target, time_limit=10)
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


@pytest.mark.parametrize("seed", range(12))
def test_resolving_changes_layouts_only(seed: int) -> None:
    """Against the program as it was read; lanes of `?` hold NaN, which must not be seen."""
    rng = random.Random(seed)
    m, n, k = (rng.choice((1, 2, 4, 7, 16, 21)) for _ in "mnk")
    program = encoded_matmul(m, n, k, accumulates=seed % 2 == 0)
    found = resolved(program, eqsat.target(rng.choice(("avx512", "vmvx-like"))))
    found.verify()
    draw = np.random.default_rng(seed)
    plain = [draw.standard_normal(program.nodes[i].type.shape) for i in program.inputs]
    layouts = stated(found)
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
    assert stated(found) == {}
    assert resolved(found, eqsat.target("avx512")) is found


def test_a_lone_encoding_that_is_returned_packs() -> None:
    text = f"input a: f32[64, 48]\nreturn a layout={encoding('lhs', 64, 32, 48)}\n"
    run = eqsat.optimize(parse_program(text), target="avx512", time_limit=5)
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
    run = eqsat.optimize(parse_program(PLAIN), target="avx512", layouts=layouts, time_limit=5)
    assert conversions(run) == []
    assert run.verify(samples=1).ok
    assert run.egraph is not None
    assert run.schedule is not None
    assert run.egraph.holds(run.schedule.program)
    assert with_open_results(run.egraph) == run.egraph


def test_a_traced_function_takes_and_gives_what_was_asked_for() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    layouts = {"x": "transpose(perm=[1, 0])", "result0": "pack(pos=[0], tiles=[2], pad=0)"}
    run = eqsat.optimize(lambda x: (x + 1, x * 2), x, layouts=layouts, time_limit=5)
    y, z = run.compile()(x.T)
    np.testing.assert_array_equal(y, pack(Layout((3, 4), (0,), (2,), (0, 1), ("0",)), x + 1))
    np.testing.assert_array_equal(z, x * 2)


def test_where_the_answer_is_the_input_the_function_itself_takes_the_layout() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    run = eqsat.optimize(lambda x: x + 1, x, layouts={"x": "transpose(perm=[1, 0])"}, time_limit=5)
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
        eqsat.optimize(parse_program(PLAIN), layouts=layouts)
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
