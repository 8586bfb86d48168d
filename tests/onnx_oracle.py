"""What onnxruntime computes for an ONNX model: an oracle that shares nothing with eqsat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def run(data: bytes, inputs: Sequence[Array], *, check: bool = True) -> list[Array]:
    """The results of a model on its inputs in order, on one thread; bf16 results come as f32.

    check: `onnx.checker` with shape inference first.
    """
    import onnx
    import onnxruntime

    model = onnx.load_from_string(data)
    if check:
        onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    # without VNNI, sums of products of u8 and i8 would saturate at 16 bits
    options.add_session_config_entry("session.x64quantprecision", "1")
    _widen(onnx, model.graph)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = [np.asarray(x) for x in inputs]
    fed = [x.astype(np.float32) if x.dtype.name == "bfloat16" else x for x in given]
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, fed, strict=True)))


def _widen(onnx: Any, graph: Any) -> None:
    """f32 instead of bf16 at the borders, as onnxruntime exchanges no bf16 with NumPy."""
    bf16, f32 = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    for values, into in ((graph.input, True), (graph.output, False)):
        for v in values:
            if v.type.tensor_type.elem_type != bf16:
                continue
            v.type.tensor_type.elem_type = f32
            inner, name = f"{v.name}.bf16", v.name
            for node in graph.node:
                side = node.input if into else node.output
                side[:] = [inner if n == name else n for n in side]
            ends = [name, inner] if into else [inner, name]
            cast = onnx.helper.make_node("Cast", ends[:1], ends[1:], to=bf16 if into else f32)
            graph.node.insert(0 if into else len(graph.node), cast)
