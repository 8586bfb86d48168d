"""Element types and precisions, as keys of a target file name them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from eqsat.lang.problems import coded
from eqsat.model.diag import did_you_mean
from eqsat.model.precision import PRECISIONS
from eqsat.model.tensor import DTYPES


def _dtype(name: str) -> str:
    if name not in DTYPES:
        raise coded("E202", f"no element type named `{name}`", did_you_mean(name, DTYPES))
    return name


def _precision(name: str) -> str:
    if name not in PRECISIONS:
        raise coded("E215", f"no precision named `{name}`", did_you_mean(name, PRECISIONS))
    return name


def _rated(name: str) -> str:
    """`f32`, or `f32/high` for contractions of that precision."""
    dtype, slash, precision = name.partition("/")
    _dtype(dtype)
    if slash:
        _precision(precision)
    return name


_TYPE = {"type": "string", "description": "an element type, such as `bf16`"}
ElementType = Annotated[str, AfterValidator(_dtype), WithJsonSchema(_TYPE)]
Precision = Annotated[
    str, AfterValidator(_precision), WithJsonSchema({"type": "string", "enum": list(PRECISIONS)})
]
_RATED = {
    "type": "string",
    "description": "an element type, or one and a precision of contractions: `f32/high`",
}
Rated = Annotated[str, AfterValidator(_rated), WithJsonSchema(_RATED)]
