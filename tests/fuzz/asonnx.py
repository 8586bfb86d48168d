"""A written function as an ONNX graph: text, types, bytes, and a file that repeats what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import onnx
import onnx.parser

from fuzz.written import Argument, Types, Written

OPSET = 21
ELEMENTS = {"float32": "float", "int32": "int32", "int64": "int64", "int8": "int8",
            "uint8": "uint8", "bool": "bool"}  # fmt: skip
SNIPPET = """\
import numpy as np
import onnx
import onnx.parser
import onnxruntime

import eqsat

TEXT = '''{text}'''
arrays = {{
{arrays}}}
weights = {weights}
model = onnx.parser.parse_model(TEXT)
for name in weights:
    model.graph.initializer.append(onnx.numpy_helper.from_array(arrays[name], name))
model = onnx.shape_inference.infer_shapes(model, data_prop=True)
onnx.save(model, "f.onnx")
run = eqsat.optimize(eqsat.read("./f.onnx"), {asked})
print(run.verify(samples=1))
inputs = {{n: a for n, a in arrays.items() if n not in weights}}
wanted = onnxruntime.InferenceSession("f.onnx").run(None, inputs)
for got, want in zip(run.compile(check="never")(*inputs.values()), wanted, strict=True):
    print(np.abs(np.asarray(got, "f8") - np.asarray(want, "f8")).max(initial=0))
"""


def text(written: Written) -> str:
    """The graph in ONNX's own text; weights are initializers, which are added to it."""
    inputs = ", ".join(f"{_type(a)} {a.name}" for a in written.arguments if not a.is_weight)
    lines = "".join(f"  {line}\n" for line in written.lines)
    head = f'<ir_version: 10, opset_import: ["" : {OPSET}]>'
    return f"{head}\nf ({inputs}) => ({', '.join(written.results)}) {{\n{lines}}}\n"


def _type(a: Argument) -> str:
    return f"{ELEMENTS[a.dtype]}[{','.join(map(str, a.shape))}]"


def model(written: Written) -> onnx.ModelProto:
    """The graph with all its types; what onnx raises if a line is not valid."""
    found = onnx.parser.parse_model(text(written))
    for a in written.arguments:
        if a.is_weight:
            found.graph.initializer.append(onnx.numpy_helper.from_array(a.array(), a.name))
    return onnx.shape_inference.infer_shapes(found, strict_mode=True, data_prop=True)


def types(written: Written) -> Types:
    """The type of every value; what onnx raises if a line is not valid."""
    found = {a.name: a.type for a in written.arguments}
    known = set(found)
    for line in written.lines:
        assert known.issuperset(line.reads)  # a name that nobody gives is no error for onnx
        known.update(line.names)
    graph = model(written).graph
    held = {v.name: v.type.tensor_type for v in [*graph.value_info, *graph.output]}
    return found | {n: _struct(held[n]) for line in written.lines for n in line.names}


def _struct(t: Any) -> jax.ShapeDtypeStruct:
    """A type of which everything is known."""
    shape = tuple(d.dim_value for d in t.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
    return jax.ShapeDtypeStruct(shape, np.int32 if dtype == np.int64 else dtype)


def snippet(written: Written, target: str, settings: Sequence[str] = ()) -> str:
    """A Python file that runs it on a target and prints what is wrong."""
    asked = f'target="{target}", settings={tuple(settings)}'
    arrays = "".join(f'    "{a.name}": {a.text},\n' for a in written.arguments)
    return SNIPPET.format(text=text(written), arrays=arrays, weights=written.weights, asked=asked)
