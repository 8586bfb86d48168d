"""Dims that an ONNX model leaves open are symbols of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnxmodels import FLOAT, value

import eqsat
from eqsat.frontends.onnxgraph import read_onnx
from eqsat.frontends.onnxgraph.opensizes import read_sized
from eqsat.model.diag import EqsatError
from eqsat.model.program import is_same
from eqsat.model.symbols import Size, sizes_of
from eqsat.ops.programs.binding import bind_program

RNG = np.random.default_rng(5)


def rows(folder: Path, *more: Any, result: str = "h") -> Path:
    """x: f32[N, S, 8] @ w, and further nodes."""
    weight = numpy_helper.from_array(RNG.normal(size=(8, 4)).astype(np.float32), "w")
    shape = numpy_helper.from_array(np.array([-1, 8]), "flat")
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["h"]),
        *more,
    ]
    inputs, outputs = [value("x", FLOAT, "N", "S", 8)], [value(result, FLOAT, "R", 4)]
    graph = helper.make_graph(nodes, "rows", inputs, outputs, [weight, shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "rows.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_open_dims_are_symbols(tmp_path: Path) -> None:
    """Their product too; at any sizes the program is what a reading at these sizes gives."""
    path = rows(tmp_path)
    program = read_sized(path).program
    assert sizes_of(program.symbols) == {"N": 128, "S": 128}
    assert "f32[N * S, 4]" in str(program)
    for sizes in ({"N": 2, "S": 9}, {"N": 6, "S": 5}):
        assert is_same(bind_program(program, sizes), read_onnx(path, sizes).program)


def test_a_search_serves_every_size(tmp_path: Path) -> None:
    path = rows(tmp_path)
    read = eqsat.read(str(path), {"N": Size.of(8, 4), "S": 3})
    assert [str(s) for s in read.program.symbols] == ["symbol N divisor=4 size=8"]
    run = eqsat.optimize(read, target="reference", time_limit=10)
    x = RNG.normal(size=(12, 3, 8)).astype(np.float32)
    (result,) = eqsat.bind(run, {"N": 12})(x)
    wanted = x.reshape(-1, 8) @ read.weights[read.program.leaf(read.program.weights[0]).key]
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_what_a_symbol_does_not_say_is_told(tmp_path: Path) -> None:
    mean = helper.make_node("ReduceMean", ["h"], ["m"], axes=[0])
    with pytest.raises(EqsatError, match=r"E367.*`N`, `S`; no symbol.*%m \(`generic`\)"):
        read_sized(rows(tmp_path, mean, result="m"))
