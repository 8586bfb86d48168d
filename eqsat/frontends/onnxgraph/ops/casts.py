"""Cast and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall
from eqsat.frontends.onnxgraph.registry import operator
from eqsat.frontends.onnxgraph.tensors import stored_type
from eqsat.ops.meaning.programs import element_dtype

SMALL_FLOATS = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
)  # fmt: skip


@operator("Cast", newest=28, fold=True)
def cast(c: OnnxCall) -> Any:
    stored = stored_type(int(c.needed("to")), c.node.label)
    return cast_to(c, c[0], element_dtype(stored.name))


@operator("CastLike", newest=25, fold=True)
def cast_like(c: OnnxCall) -> Any:
    return cast_to(c, c[0], c.dtype(1))


def cast_to(c: OnnxCall, x: Any, dtype: np.dtype[Any]) -> Any:
    """x in another element type; floats of 8 bits or less saturate unless the node says
    otherwise. To 4-bit integers: the low bits of the whole number.
    """
    if dtype.name in SMALL_FLOATS and x.dtype.kind != "b" and c.attribute("saturate", 1):
        import ml_dtypes

        most = float(ml_dtypes.finfo(dtype).max)
        wide = x.astype(np.float32) if x.dtype.kind in "iu" else x
        x = c.xp.where(c.xp.isnan(wide), wide, c.xp.clip(wide, -most, most))
    if dtype.kind == "b":
        return x != 0
    if dtype.name == "float8_e8m0fnu" and x.dtype != dtype:
        raise c.node.error("E365", "rounds to float8e8m0, which is read but not computed")
    if dtype.name == "uint4" and x.dtype.name not in ("uint4", "bool"):
        return (x.astype(np.int32) & 15).astype(dtype)
    if dtype.name == "int4" and x.dtype.name not in ("int4", "bool"):
        return ((x.astype(np.int32) & 15 ^ 8) - 8).astype(dtype)
    return x.astype(dtype)
