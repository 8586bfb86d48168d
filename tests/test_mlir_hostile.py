"""Hostile MLIR: a sentence with its place, bounded time and memory, no crash of this process."""

# ruff: noqa: E501 (one op of MLIR is one line)
from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import mlir_mutants
import mlir_programs
import pytest

from eqsat.frontends.mlir import reader
from eqsat.frontends.mlir import source as source_module
from eqsat.frontends.mlir.parser import parse_module
from eqsat.frontends.mlir.reader import read_mlir, read_module
from eqsat.frontends.mlir.source import ModuleText, load_text, modernised
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic

HERE = Path(__file__).parent
MOST_SECONDS = 20  # of CPU, for one text; all need far less


def refused(path: Path, text: str | bytes) -> Any:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    begin = time.process_time()
    with pytest.raises(EqsatError) as caught:
        read_mlir(path)
    assert time.process_time() - begin < MOST_SECONDS
    assert caught.value.exit_code == 2
    return caught.value.diagnostics[0]


DEEP = 100_000
NESTED = {
    "attributes": "module attributes {a = " + "[" * DEEP + "]" * DEEP + "} {}",
    "regions": "module {" * DEEP + "}" * DEEP,
    "expressions": "#m = affine_map<(d0) -> (" + "(" * DEEP + "d0" + ")" * DEEP + ")>",
    "sums": "#m = affine_map<(d0) -> (" + "d0 + " * DEEP + "d0)>",
    "sums-over-lines": "#m = affine_map<(d0) -> (" + "d0 +\n" * DEEP + "d0)>",
    "types": "func.func private @f(" + "tuple<" * DEEP + ">" * DEEP + ")",
    "open": "(" * DEEP,
}


@pytest.mark.parametrize("name", NESTED)
def test_nesting_is_refused_before_the_parser_recurses(name: str, tmp_path: Path) -> None:
    assert refused(tmp_path / "x.mlir", NESTED[name]).code == "E371"


def test_a_crash_of_the_parser_is_not_ours(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(source_module, "DEEPEST", 10 * DEEP)
    assert refused(tmp_path / "x.mlir", NESTED["regions"]).code == "E371"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"\xff\xfe\x00", "E370"),
        (b"module {\0}", "E370"),
        (b"", "E373"),
        (b"module", "E370"),
        (b"ML\xefR\x01\x02", "E370"),
        ("func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = arith.addf %1, %a : tensor<4xf32>\n"
         "  %1 = arith.addf %0, %a : tensor<4xf32>\n  return %1 : tensor<4xf32>\n}", "E370"),
        ("func.func @f() -> tensor<3xf32> {\n  %0 = arith.constant dense<\"0x00\"> : tensor<3xf32>\n"
         "  return %0 : tensor<3xf32>\n}", "E370"),
        ("func.func @f() -> tensor<3xf32> {\n  %0 = arith.constant dense_resource<b> : tensor<3xf32>\n"
         "  return %0 : tensor<3xf32>\n}\n{-# dialect_resources: { builtin: { b: \"0x0400000000\" } } #-}",
         "E370"),
        ("func.func @f() -> tensor<*xf32> {\n  %0 = \"tensor.empty\"() : () -> tensor<*xf32>\n"
         "  return %0 : tensor<*xf32>\n}", "E370"),
        ("func.func @f(%a: tensor<*xf32>) -> tensor<*xf32> {\n  return %a : tensor<*xf32>\n}", "E377"),
        ("func.func @f(%a: memref<4xf32>) {\n  return\n}", "E377"),
        ("func.func @f(%a: tensor<4x!util.buffer>) {\n  return\n}", "E377"),
        ("func.func @f(%a: tensor<4xi1000>) {\n  return\n}", "E377"),
        ("func.func @f(%a: tensor<9000000000000000000xf32>) {\n  return\n}", "E371"),
        ("func.func @f(%c: i1) {\n  cf.cond_br %c, ^a, ^b\n^a:\n  return\n^b:\n  return\n}", "E374"),
    ],
)  # fmt: skip
def test_odd_texts_are_refused(text: str | bytes, code: str, tmp_path: Path) -> None:
    assert refused(tmp_path / "x.mlir", text).code == code


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: Any) -> None:
    for path in (tmp_path, tmp_path / "none.mlir"):
        with pytest.raises(EqsatError) as caught:
            load_text(path)
        assert caught.value.diagnostics[0].code == "E370"
    monkeypatch.setattr(source_module, "LARGEST_FILE_BYTES", 10)
    assert "at most 10" in refused(tmp_path / "x.mlir", "module {          }").message


@pytest.mark.parametrize("share", range(1, 10))
def test_truncated_files_are_refused(share: int, tmp_path: Path) -> None:
    text = mlir_programs.module(["conv_nchw", "softmax", "encoded"])
    assert refused(tmp_path / "x.mlir", text[: len(text) * share // 10]).code in ("E370", "E373")


def test_recursion_and_growth_by_calls_are_bounded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(reader, "MOST_OPS", 5_000)
    call = "  %0 = func.call @{0}(%a) : (tensor<4xf32>) -> tensor<4xf32>\n"
    head = "func.func {1} @{0}(%a: tensor<4xf32>) -> tensor<4xf32> {{\n"
    tail = "  return %0 : tensor<4xf32>\n}\n"
    own = head.format("f", "") + call.format("f") + tail
    assert refused(tmp_path / "x.mlir", own).message == "`@f` calls itself"
    parts = [head.format("f0", "private") + "  %0 = math.exp %a : tensor<4xf32>\n" + tail]
    for i in range(1, 60):
        twice = call.format(f"f{i - 1}") + call.format(f"f{i - 1}").replace("%0", "%1")
        visibility = "" if i == 59 else "private"
        parts.append(head.format(f"f{i}", visibility) + twice + tail)
    assert refused(tmp_path / "x.mlir", "".join(parts)).code == "E371"


@pytest.mark.parametrize("op", ["arith.addf %{0}, %{0}", "math.exp %{0}"])
def test_bodies_that_double_or_run_deep_are_read(op: str) -> None:
    """What a body names twice exists once, and nothing that walks bodies recurses."""
    length = 3_000
    lines = [f"    %{i + 1} = {op.format(i)} : f32" for i in range(length)]
    text = (
        "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],\n"
        '      iterator_types = ["parallel"]} ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) {\n'
        "  ^bb0(%x: f32, %o: f32):\n    %0 = arith.mulf %x, %x : f32\n" + "\n".join(lines) + "\n"
        f"    linalg.yield %{length} : f32\n  }} -> tensor<4xf32>\n  return %r : tensor<4xf32>\n}}\n"
    )
    source = modernised(ModuleText("x.mlir", text))
    program = read_module(parse_module(source), source, "", None).program
    attr = program.nodes[-1].attr
    assert isinstance(attr, Generic)
    assert attr.body.count() == length + 1


def test_reductions_of_what_doubles_are_read() -> None:
    lines = [f"    %{i + 1} = arith.addf %{i}, %{i} : f32" for i in range(64)]
    text = (
        "func.func @f(%a: tensor<4xf32>) -> tensor<f32> {\n"
        "  %z = arith.constant dense<0.0> : tensor<f32>\n"
        "  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>],\n"
        '      iterator_types = ["reduction"]} ins(%a : tensor<4xf32>) outs(%z : tensor<f32>) {\n'
        "  ^bb0(%x: f32, %o: f32):\n    %0 = arith.mulf %x, %x : f32\n" + "\n".join(lines) + "\n"
        "    %s = arith.addf %64, %o : f32\n    %t = arith.addf %s, %x : f32\n"
        "    linalg.yield %t : f32\n  } -> tensor<f32>\n  return %r : tensor<f32>\n}\n"
    )
    source = modernised(ModuleText("x.mlir", text))
    attr = read_module(parse_module(source), source, "", None).program.nodes[-1].attr
    assert isinstance(attr, Generic)
    assert (attr.combine, attr.body.count()) == ("add", 66)


def test_nothing_is_allocated_for_absurd_sizes() -> None:
    text = (
        "func.func @f(%a: tensor<1099511627776x1099511627776xf32>) -> tensor<1099511627776xf32> {\n"
        "  %z = arith.constant dense<1.0> : tensor<1099511627776xf32>\n"
        "  %0 = linalg.reduce { arith.addf } ins(%a : tensor<1099511627776x1099511627776xf32>)\n"
        "    outs(%z : tensor<1099511627776xf32>) dimensions = [1]\n"
        "  return %0 : tensor<1099511627776xf32>\n}\n"
    )
    source = modernised(ModuleText("x.mlir", text))
    assert read_module(parse_module(source), source, "", None).program.op_count == 2


MUTANTS = 60


def test_mutants_are_read_or_refused_with_a_sentence(tmp_path: Path) -> None:
    """In a process of their own, without the guard; what kills it, the guard has to catch."""
    outcomes: list[str] = []
    while len(outcomes) < MUTANTS:
        seed = len(outcomes)
        script = [sys.executable, str(HERE / "mlir_mutants.py"), str(seed), str(MUTANTS - seed)]
        done = subprocess.run(script, capture_output=True, text=True, timeout=300, check=False)
        lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
        outcomes += [words[1] for words in lines if words[1:] and words[1]]
        if done.returncode < 0:
            text = mlir_mutants.mutant_of(len(outcomes), mlir_mutants.texts())
            outcomes.append(refused(tmp_path / "x.mlir", text).code)
            assert outcomes[-1] == "E371"
        else:
            assert done.returncode == 0, done.stderr[-2000:]
    found = Counter(outcomes)
    assert all(re.fullmatch(r"read|E3[78]\d", k) for k in found), found
    assert found["read"] >= 2 and found["E370"] >= 12


def test_a_text_that_crashes_the_parser_is_refused(tmp_path: Path) -> None:
    """Today's parser dereferences nothing where an array of dims holds a question mark."""
    text = mlir_programs.module(["reduce"]).replace("dimensions = [1]", "dimensions = [?]")
    assert refused(tmp_path / "x.mlir", text).code == "E371"
