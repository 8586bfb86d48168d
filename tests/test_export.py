"""MLIR: the text verifies, and IREE computes from it what the float64 reference does."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import iree_oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import check, function_case, function_groups, in_iree
from fuzz.searches import APART
from seeds import seeds

import eqsat
from eqsat.cli import run as command
from eqsat.execute.draw import random_inputs
from eqsat.export.mlir import syntax
from eqsat.export.mlir.ops import common_groups
from eqsat.export.write import export
from eqsat.frontends.source import Source
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import evaluate_program

FORCED = ("tiles_forced=true",)
TEXTS = ("padded_chain", "residual")


def code(error: pytest.ExceptionInfo[EqsatError]) -> str:
    return error.value.diagnostics[0].code


@pytest.fixture(scope="module")
def sorting() -> eqsat.Run:
    """A run with one op nobody modelled."""

    def f(x):
        return jnp.sort(x * 2.0, axis=0) + 1.0

    return eqsat.optimize(f, np.ones((4, 3), np.float32), target="reference")


@pytest.fixture(scope="module")
def packed() -> eqsat.Run:
    """A run whose contractions are packed, weights ahead of time: in a dispatch that would cost."""
    said = (*FORCED, APART)
    return eqsat.optimize(eqsat.read("padded_chain"), target="avx512-xla", settings=said)


# ---- meaning -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", seeds(1, TEXTS))
def test_packed_programs_compute_the_same_in_iree(name: str):
    source = eqsat.read(f"{name}.eqs")
    run = eqsat.optimize(source, target="avx512-xla", settings=FORCED)
    assert run.schedule is not None
    program = run.schedule.program
    assert any(n.op == "pack" for n in program.nodes)
    inputs = random_inputs(run.program, np.random.default_rng(1))
    (got,) = in_iree([(program, source.weights, inputs)])
    check(program, got, evaluate_program(run.program, inputs, source.weights), 1e-4)


FLOATS = np.array([-2.5, -1.0, -0.5, 0.0, 0.25, 0.5, 1.5, 2.5, 300.0, 3e9, np.nan, -np.inf, np.inf])
INTS = np.array([[0, 1, -1, 7, -128, 127, -7, 3], [0, 0, -1, -2, -1, 0, 7, 5]])
EDGES = """program edges
input x: f32[13]
input a: i8[8]
input b: i8[8]
%3 = generic(x, loops=[13], maps=[[d0]], body=[cast(x0, i8), cast(x0, i32), cast(x0, u8)])
%4 = result(%3, index=0)
%5 = result(%3, index=1)
%6 = result(%3, index=2)
%7 = generic(a, b, loops=[8], maps=[[d0], [d0]], body=[div(x0, x1), rem(x0, x1)])
%8 = result(%7, index=0)
%9 = result(%7, index=1)
%10 = generic(a, loops=[8], maps=[[d0]], body=[cast(x0, u8), mul(x0, x0), pow(x0, 3)])
%11 = result(%10, index=0)
%12 = result(%10, index=1)
%13 = result(%10, index=2)
%14 = generic(x, loops=[13], maps=[[d0]], body=[sign(x0), round_even(x0), is_finite(x0)])
%15 = result(%14, index=0)
%16 = result(%14, index=1)
%17 = result(%14, index=2)
%18 = generic(a, loops=[8], maps=[[d0]], body=shift_left(x0, and(x0, 15)))
%19 = generic(x, loops=[13], maps=[[d0]], body=max(x0, 0.25))
return %4, %5, %6, %8, %9, %11, %12, %13, %15, %16, %17, %18, %19
"""


def edge_inputs() -> list[np.ndarray]:
    return [FLOATS.astype(np.float32), *INTS.astype(np.int8)]


def test_what_arith_leaves_undefined_is_written_out():
    program = parse_program(EDGES)
    wanted = evaluate_program(program, edge_inputs(), {})
    (got,) = in_iree([(program, {}, edge_inputs())])
    check(program, got, wanted, 1e-6)


def test_every_function_of_floats_computes_the_same_in_iree():
    cases = [function_case(*names) for names in function_groups()]
    for (program, _, inputs), got in zip(cases, in_iree(cases), strict=True):
        check(program, got, evaluate_program(program, inputs, {}), 1e-5)


def controlled(x, w, k):
    """Every kind of loop and branch, one inside of another."""

    def step(c, s):
        return jnp.tanh(c @ w) + s, c.sum(0)

    c, y = jax.lax.scan(step, x, jnp.ones((3, 4, 4)), reverse=True)
    _, d = jax.lax.while_loop(lambda t: t[0] < 5, lambda t: (t[0] + k, t[1] * 1.5), (0, c))
    return y, jax.lax.switch(k, [lambda a: a + 1, lambda a: a * 2, lambda a: a - 3], d)


@pytest.mark.parametrize("of", seeds(1, ["schedule", "program"]))
def test_loops_and_branches_are_scf_ops_around_functions(of):
    args = np.ones((4, 4), np.float32), np.full((4, 4), 0.1, np.float32), np.int32(1)
    run = eqsat.optimize(controlled, *args, target="reference")
    text = run.export("mlir", of=of).data.decode()
    assert all(f"scf.{op} " in text for op in ("for", "while", "if"))
    got = iree_oracle.run(text, [np.asarray(a) for a in args])
    wanted = evaluate_program(run.program, [np.asarray(a) for a in args], run.source.weights)
    check(run.program, got, wanted, 1e-5)


# ---- the text ----------------------------------------------------------------------------------
def test_scalars_are_written_as_mlir_reads_them():
    assert syntax.scalar(1e-05, "f32") == "1.0e-05"
    assert syntax.scalar(float("-inf"), "f32") == "0xFF800000"
    assert syntax.scalar(float("inf"), "bf16") == "0x7F80"
    assert syntax.scalar(True, "bool") == "true"
    assert syntax.scalar(200, "u8") == "200"
    assert syntax.quoted('a"\\\n') == '"a\\22\\5C\\0A"'
    zero = TensorType("f32", (0, 4))
    assert syntax.dense(np.zeros((0, 4), np.float32), zero) == "dense<> : tensor<0x4xf32>"


def test_groups_of_a_reshape_are_as_fine_as_can_be():
    assert common_groups((2, 3, 4), (6, 4)) == [([0, 1], [0]), ([2], [1])]
    assert common_groups((6, 1), (2, 3)) == [([0, 1], [0, 1])]
    assert common_groups((), (1, 1)) == []
    assert common_groups((4, 6), (3, 8)) == [([0, 1], [0, 1])]


def test_the_same_bytes_every_time_and_every_dispatch_is_named(packed):
    first, second = packed.export("mlir"), packed.export("mlir")
    assert first.data == second.data
    text = first.data.decode()
    assert packed.schedule is not None
    for number, d in enumerate(packed.schedule.dispatches):
        assert f"// dispatch {number}, {d.name}: {d.ops}" in text
    assert 'eqsat.name = "' in text
    assert text.count("linalg.pack") < sum(n.op == "pack" for n in packed.schedule.program.nodes)


@pytest.mark.parametrize("weights", ["auto", "constants", "resources", "arguments"])
def test_weights_go_where_they_are_asked_to(packed, weights):
    text = packed.export("mlir", weights=weights).data.decode()
    assert ("dialect_resources" in text) == (weights in ("auto", "resources"))
    count = len(packed.program.inputs)
    count += len(packed.program.weights) if weights == "arguments" else 0
    assert text.count("eqsat.name") == count
    assert ("computed from weights alone" in text) == (weights == "arguments")


def test_the_input_program_can_be_exported_too(packed):
    assert "linalg.pack" not in packed.export("mlir", of="program").data.decode()


def test_names_of_any_kind_are_kept():
    text = "program p\ninput x: f32[4]\nreturn x\n"
    program = parse_program(text)
    leaf = replace(program.leaf(0), name='a "b" é/%\n')
    odd = replace(program, nodes=(replace(program.nodes[0], attr=leaf),), name="9 -> {")
    found = export(odd, "mlir", {}, {}).data.decode()
    assert 'eqsat.name = "a \\22b\\22 \\C3\\A9/%\\0A"' in found
    assert verifies(found)


def verifies(text: str) -> bool:
    tool = Path(sys.executable).with_name("iree-opt")
    done = subprocess.run([tool, "-"], input=text, capture_output=True, text=True, check=False)
    return done.returncode == 0


# ---- what cannot be said -----------------------------------------------------------------------
def test_what_cannot_be_written_is_listed_and_counted(sorting, tmp_path):
    with pytest.raises(EqsatError, match=r"1 of \d+ ops .* opaque: a JAX primitive") as error:
        sorting.export("mlir", tmp_path / "x.mlir")
    assert code(error) == "E380"
    assert not list(tmp_path.iterdir())


def test_partial_exports_call_undefined_functions(sorting):
    found = sorting.export("mlir", partial=True)
    assert [m.op for m in found.missing] == ["opaque"]
    text = found.data.decode()
    assert "func.func private @eqsat.sort" in text
    assert verifies(text)


def test_weights_without_values_are_arguments_or_refused():
    program = parse_program("program p\nweight w: f32[4]\nreturn w\n")
    with pytest.raises(EqsatError) as error:
        export(program, "mlir", {}, {})
    assert code(error) == "E381"
    assert b"eqsat.name" in export(program, "mlir", {}, {}, weights="arguments").data


def test_what_is_there_ahead_is_not_computed_again():
    """A dispatch may hold, too, what another one reads as a weight: merged ops are one node."""
    largest = "n = generic(v, loops=[4, 4], maps=[[d0, d1]], body=x0, combine=max)"
    ops = f"v = transpose(w, perm=[1, 0])\n{largest} : f32[4]\ny = mul(x, n)"
    text = f"program p\ninput x: f32[4]\nweight w: f32[4, 4]\n{ops}\nreturn y\n"
    w = np.ones((4, 4), np.float32)
    source = Source(parse_program(text), {"w": w})
    schedule = eqsat.optimize(source, target="reference", rules=()).schedule
    assert schedule is not None
    (d,) = schedule.dispatches
    assert len(schedule.ahead) > 1
    again = replace(d, members=(*schedule.ahead, *d.members))
    written = export(replace(schedule, dispatches=(again,)), "mlir", {"w": w}, {})
    assert not written.missing
    assert written.data == export(schedule, "mlir", {"w": w}, {}).data


@pytest.mark.parametrize("asked", [{"to": "c"}, {"of": "egraph"}, {"weights": "somewhere"}])
def test_unknown_words_are_refused(packed, asked):
    with pytest.raises(EqsatError) as error:
        packed.export(**({"to": "mlir"} | asked))
    assert code(error) == "E383"


# ---- the command -------------------------------------------------------------------------------
def test_command_writes_a_file_and_prints_its_path(packed, tmp_path, capsys):
    folder = packed.save(tmp_path / "run")
    assert command(["export", str(folder), "--to", "mlir"]) == 0
    printed = capsys.readouterr()
    path = Path(printed.out.strip())
    assert path == folder / "export.mlir"
    assert path.read_bytes() == packed.export("mlir").data
    assert "iree-opt" in printed.err
    again = ["export", str(folder), "--to", "mlir", "-o", str(tmp_path / "a" / "b.mlir")]
    assert command([*again, "--output-format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["expressible"] == facts["ops"] > 0
    assert facts["files"] == {str(tmp_path / "a" / "b.mlir"): path.stat().st_size}


def test_command_says_why_it_cannot(sorting, packed, tmp_path, capsys):
    folder = sorting.save(tmp_path / "run")
    assert command(["export", str(folder), "--to", "mlir"]) == 2
    assert "E380" in capsys.readouterr().err
    assert command(["export", str(folder), "--to", "mlir", "--partial"]) == 0
    assert "not written: " in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    other = packed.save(tmp_path / "other")
    at = str(tmp_path / "file" / "x.mlir")
    assert command(["export", str(other), "--to", "mlir", "-o", at]) == 2
    assert "E384" in capsys.readouterr().err
    assert command(["export", str(tmp_path / "no"), "--to", "mlir"]) == 2
    assert "E309" in capsys.readouterr().err


def test_iree_text_is_read_back_as_the_same_function(packed, tmp_path):
    path = tmp_path / "x.mlir"
    packed.export("mlir", path)
    back = eqsat.read(str(path))
    assert any(n.op == "pack" for n in back.program.nodes)
    inputs = random_inputs(packed.program, np.random.default_rng(2))
    wanted = evaluate_program(packed.program, inputs, packed.source.weights)
    check(packed.program, evaluate_program(back.program, inputs, back.weights), wanted, 1e-9)
