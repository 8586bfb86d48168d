"""Models of opsets before 13: onnx converts them as they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper
from onnxmodels import FLOAT, value
from test_onnx import agree


def test_what_an_old_opset_says_is_converted(tmp_path: Path) -> None:
    """Until opset 12 axes are attributes, and a softmax is over all dims from its axis on."""
    weight = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=1),
        helper.make_node("MatMul", ["s", "w"], ["h"]),
        helper.make_node("ReduceSum", ["h"], ["y"], axes=[1], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "old", [value("x", FLOAT, 2, 3, 6)], [value("y", FLOAT, 2, 4)],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    x = np.random.default_rng(1).normal(size=(2, 3, 6)).astype(np.float32)
    read = agree(model, {"x": x}, tmp_path)
    assert [read.program.leaf(i).name for i in read.program.weights] == ["w"]
