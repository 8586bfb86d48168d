"""An executable against the float64 reference on random inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.execute.rounding import quanta
from eqsat.model.control import every_program
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.program import Program
from eqsat.model.tensor import DTYPES, TensorType, is_float
from eqsat.ops.meaning import element_dtype, evaluate_program

Array = np.ndarray[Any, Any]
# the narrowest type anywhere in the program decides; f32 and wider, and integers, use the default
LIMITS = {"bf16": 3e-2, "f16": 5e-3} | dict.fromkeys(
    ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"), 0.25
)
DEFAULT_LIMIT = 1e-5


@dataclass(frozen=True)
class Verification:
    """max_error: max|a − b| / max|b| over samples and results; `where` names the worst element."""

    ok: bool
    max_error: float
    limit: float
    samples: int
    where: str

    def to_json(self) -> dict[str, Any]:
        """The keys of a run's summary, and `where`."""
        return dict(vars(self))


def verify(
    program: Program,
    call: Callable[..., Sequence[Any]],
    weights: Mapping[str, Any],
    opaque: Mapping[str, Callable[..., Sequence[Any]]],
    *,
    samples: int = 4,
    seed: int = 0,
    limit: float | None = None,
) -> Verification:
    """Call `call(*inputs)` and the NumPy reference on `samples` random inputs and compare.

    NaN and infinities must sit in the same places, integers and bools must be equal. After an op
    that rounds, one quantum is allowed where the pre-image lies within the bound of a tie.
    """
    bound = error_limit(program) if limit is None else limit
    rng = np.random.default_rng(seed)
    worst, where, ok = 0.0, "", True
    for sample in range(samples):
        inputs = random_inputs(program, rng)
        wanted = evaluate_program(program, inputs, weights, opaque)
        got = call(*inputs)
        found = [compare(np.asarray(a), b) for a, b in zip(got, wanted, strict=True)]
        if any(error > bound for error, _ in found):
            slack = quanta(program, inputs, weights, opaque, wanted, bound)
            if slack is not None:
                sides = zip(got, wanted, slack, strict=True)
                found = [compare(np.asarray(a), b, s) for a, b, s in sides]
        for r, (error, at) in enumerate(found):
            ok = ok and error <= bound
            if error > worst or not where:
                worst, where = error, f"sample {sample}, result {r}{at}"
    return Verification(ok, worst, bound, samples, where)


def error_limit(program: Program) -> float:
    """The relative error allowed for the element types this program computes in."""
    nodes = [n for p in every_program(program) for n in p.nodes]
    used = {t.dtype for n in nodes for t in n.types}
    used |= {
        e.value
        for n in nodes
        if isinstance(n.attr, Generic)
        for y in n.attr.yields
        for e in _casts(y.body)
    }
    return max([LIMITS[d] for d in used if d in LIMITS], default=DEFAULT_LIMIT)


def _casts(body: Expr) -> list[Expr]:
    return [e for e in body.walk() if e.fn == "cast"]


def random_inputs(program: Program, rng: np.random.Generator) -> list[Array]:
    """Normal floats, small integers, fair bools, in the inputs' element types.

    Integers of an input named `…mask` are 0 or 1: models turn them into `(1 - mask) * -1e4` and
    add that to scores, where any other integer leaves 32-bit floats no digits to compare.
    """
    return [_random_input(program.leaf(i), rng) for i in program.inputs]


def _random_input(leaf: Leaf, rng: np.random.Generator) -> Array:
    if leaf.name.lower().endswith("mask") and not is_float(leaf.type.dtype):
        return rng.integers(0, 2, leaf.type.shape).astype(element_dtype(leaf.type.dtype))
    return random_array(leaf.type, rng)


def random_array(t: TensorType, rng: np.random.Generator) -> Array:
    """One random tensor of this type."""
    dtype = element_dtype(t.dtype)
    if is_float(t.dtype):
        return rng.standard_normal(t.shape).astype(dtype)
    low, high = {"i": (-4, 5), "u": (0, 8), "b": (0, 2)}[DTYPES[t.dtype][1]]
    return rng.integers(low, high, t.shape).astype(dtype)


def compare(got: Array, wanted: Array, slack: Array | None = None) -> tuple[float, str]:
    """(relative error, text of the worst element); inf if shapes, integers, NaN or inf differ.

    slack: how far each element may be off without that being an error.
    """
    if got.shape != wanted.shape:
        return float("inf"), f": shape {list(got.shape)}, wanted {list(wanted.shape)}"
    if not wanted.size:
        return 0.0, ""
    if wanted.dtype.kind in "iub":
        return _exact(got.astype(wanted.dtype), wanted, slack)
    value = got.astype(np.float64)
    finite = np.isfinite(wanted)
    strange = np.where(finite, ~np.isfinite(value), ~_same(value, wanted))
    if strange.any():
        return float("inf"), _element(value, wanted, np.argmax(strange))
    distance = np.abs(np.where(finite, value, 0.0) - np.where(finite, wanted, 0.0))
    if slack is not None:
        distance = np.maximum(distance - slack, 0.0)
    scale = float(np.max(np.abs(np.where(finite, wanted, 0.0))))
    error = float(distance.max()) / (scale or 1.0)
    return error, _element(value, wanted, np.argmax(distance))


def _same(a: Array, b: Array) -> Array:
    """Equal, or both NaN."""
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _exact(got: Array, wanted: Array, slack: Array | None) -> tuple[float, str]:
    different = got != wanted
    if slack is not None and wanted.dtype.kind != "b":
        different &= np.abs(got.astype(np.float64) - wanted.astype(np.float64)) > slack
    if not different.any():
        return 0.0, ""
    return float("inf"), _element(got, wanted, np.argmax(different))


def _element(got: Array, wanted: Array, flat: Any) -> str:
    at = np.unravel_index(int(flat), wanted.shape)
    place = ", ".join(str(int(i)) for i in at)
    return f" [{place}]: got {got[at]}, wanted {wanted[at]}"
