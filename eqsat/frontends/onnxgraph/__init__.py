"""ONNX files: protobuf → checked graph → a jnp function per op → the traced Program.

`proto` alone imports onnx; `graph` is the checked model as plain data, `interpret` runs it under
a JAX trace, `ops` holds one small function per operator.
"""

from eqsat.frontends.onnxgraph.interpret import read_onnx

__all__ = ["read_onnx"]
