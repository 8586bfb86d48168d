"""Ops that plug-ins bring: one record each, found through the entry point group `eqsat.ops`.

A plug-in's module may import this one, `eqsat.ops.vocabulary` and anything of `eqsat.model`; it
is imported when eqsat first needs to know the ops, so what is heavy belongs inside functions.
"""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.model.attr import Shape, ShapeError
from eqsat.model.diag import EqsatError, fail
from eqsat.model.foreign import Custom
from eqsat.model.ops import OPS
from eqsat.model.target import KINDS
from eqsat.model.tensor import DTYPES, KIND_NAMES
from eqsat.ops import scalar
from eqsat.ops.vocabulary import AttrFunction
from eqsat.plugins import brought_by, load, plugged_in

Array = np.ndarray[Any, Any]
Values = Mapping[str, Any]  # attribute key -> int, float, text or tuple of ints
Sampler = Callable[[np.random.Generator, Shape], Custom | None]

ATTRIBUTE_KINDS = ("int", "ints", "str", "float")
# conversions are a closed set: layouts and the counts of a schedule speak of each of them
FUSIONS = tuple(k for k in KINDS if k != "conversion")
TRIES = ("same", "whole", "near", "far") * 32  # values that lanes are tried with
MOST_OPERANDS = 6  # as of any op that rules make
# words of programs that are no ops of their own
SUGAR = frozenset({"matmul", "relu", "cast", "input", "weight", "return", "program"})
# every part starts with a letter: `op_2` is how egglog tells two arities of an op apart
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*")


@dataclass(frozen=True)
class CustomOp:
    """An op with one result, complete.

    >>> CustomOp("flip", "x with one axis reversed.", 1, {"axis": "int"}, …)

    attributes: key -> int, ints, str or float. shape: (values, operand shapes) -> the result's
    shape; ShapeError or ValueError with a sentence if they do not fit. numpy: (values, *operands)
    -> the result; floats are held as float64, integers and bools in their own type. jax: the same
    on JAX arrays; import jax inside of it. sample: (generator, shape wanted of the result) ->
    values and operand shapes that give it, or None; the hunt for counterexamples asks it.
    dtype: element type of the result, "" for that of operand 0. accepts: per operand, the kinds of
    element types it may have: letters of f (floating), i (signed), u (unsigned), b (bool); () is
    any. kind: how the op fuses, one of
    FUSIONS. operations: scalar operations per element of the result, for its price.
    functions, rows: attribute functions for rules, and the rows they give. rules: a folder of
    rule sets, searched after all others.
    """

    name: str
    doc: str
    operands: int
    attributes: Mapping[str, str]
    shape: Callable[[Values, tuple[Shape, ...]], Shape]
    numpy: Callable[..., Any]
    jax: Callable[..., Any]
    sample: Callable[[np.random.Generator, Shape], tuple[Mapping[str, Any], Sequence[Shape]] | None]
    kind: str = "opaque"
    operations: int = 0
    dtype: str = ""
    accepts: tuple[str, ...] = ()
    functions: Mapping[str, AttrFunction] = field(default_factory=dict)
    rows: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rules: str | Path | None = None


# ---- finding -------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def custom_ops() -> dict[str, CustomOp]:
    """The ops of all plug-ins by name; EqsatError (E600) if one of them is not fit for use."""
    found: dict[str, CustomOp] = {}
    for entry in plugged_in("ops"):
        record = load("ops", entry)
        wrong = _fault(entry, record)
        if wrong:
            raise fail(
                "E600", f"{brought_by('ops', entry)} cannot be used: {wrong}",
                help="mend the plug-in, or uninstall its package",
            )  # fmt: skip
        found[record.name] = record
    return found


def custom_op(name: str) -> CustomOp:
    """The record of an op; EqsatError (E601) if no plug-in brings it."""
    found = custom_ops().get(name)
    if found is None:
        raise fail(
            "E601", f"no plug-in that is installed brings the op `{name}`",
            help="install the package that the program was made with",
        )  # fmt: skip
    return found


def _fault(entry: str, r: object) -> str:
    """Why a record is refused, as a clause; nothing if it is fine."""
    if not isinstance(r, CustomOp):
        return f"it is a {type(r).__name__}, not an eqsat.ops.custom.CustomOp"
    if not isinstance(r.name, str) or not _is_name(r.name):
        return f"`{r.name}` is no name of an op; small letters, as in `roll` or `roll_rows`"
    if r.name != entry:
        return f"its record is named `{r.name}`"
    if r.name in OPS or r.name in scalar.FUNCTIONS or r.name in SUGAR:
        return f"eqsat has a `{r.name}` of its own"
    return next((sentence for good, sentence in _checks(r) if not good), "")


def _checks(r: CustomOp) -> Iterator[tuple[bool, str]]:
    """(whether it holds, what to say if not) for every field but the name."""
    number = type(r.operands) is int and 1 <= r.operands <= MOST_OPERANDS
    yield number, f"`operands` is a number from 1 to {MOST_OPERANDS}, not {r.operands!r}"
    for key, kind in dict(r.attributes).items():
        known = ", ".join(ATTRIBUTE_KINDS)
        yield _is_name(key), f"`{key}` is no name of an attribute"
        yield kind in ATTRIBUTE_KINDS, f"`{key}` is of kind `{kind}`, not one of {known}"
    for part in ("shape", "numpy", "jax", "sample"):
        yield callable(getattr(r, part)), f"`{part}` is no function"
    yield r.kind in FUSIONS, f"`kind` is one of {', '.join(FUSIONS)}, not `{r.kind}`"
    whole = type(r.operations) is int and r.operations >= 0
    yield whole, f"`operations` is a whole number, not {r.operations!r}"
    yield not r.dtype or r.dtype in DTYPES, f"there is no element type `{r.dtype}`"
    kinds = len(r.accepts) in (0, r.operands) and all(
        k and set(k) <= {*KIND_NAMES} for k in r.accepts
    )
    letters = "".join(KIND_NAMES)
    yield kinds, f"`accepts` has some of the letters {letters} for each operand, not {r.accepts!r}"
    for name, function in dict(r.functions).items():
        fits = isinstance(function, AttrFunction)
        yield fits, f"`{name}` is no eqsat.ops.vocabulary.AttrFunction"
    folder = r.rules is None or Path(r.rules).is_dir()
    yield folder, f"its folder of rules, `{r.rules}`, does not exist"


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and not keyword.iskeyword(text)


# ---- instances -----------------------------------------------------------------------------------
def make_custom(op: str, sources: Sequence[Shape], values: Values) -> Custom:
    """The attribute of an op of a plug-in; ShapeError if values and shapes do not fit."""
    r = custom_op(op)
    if len(sources) != r.operands:
        raise ShapeError(f"`{op}` takes {r.operands} operand(s), got {len(sources)}")
    given = {k: _value(op, k, kind, values) for k, kind in sorted(r.attributes.items())}
    shapes = tuple(tuple(s) for s in sources)
    shape = _shape(r, given, shapes)
    price = r.kind, r.operations
    return Custom(op, shapes, tuple(given.items()), shape, r.dtype, *price, tuple(r.accepts))


def _value(op: str, key: str, kind: str, values: Values) -> Any:
    """A value in its one form: equal attributes must be equal records."""
    if key not in values:
        raise ShapeError(f"`{op}` needs attribute `{key}`")
    try:
        return _READERS[kind](values[key])
    except (TypeError, ValueError):
        raise ShapeError(f"`{key}` of `{op}` is of kind {kind}, not `{values[key]}`") from None


def _int(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)


def _float(value: Any) -> float:
    if isinstance(value, str | bool) or not math.isfinite(value):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    """Texts stand in quotes in programs, without escapes."""
    if not isinstance(value, str) or not value.isprintable() or {'"', "\\"} & set(value):
        raise TypeError
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "ints": lambda value: tuple(_int(v) for v in value),
    "str": _text,
    "float": _float,
}


def _shape(r: CustomOp, values: Values, sources: tuple[Shape, ...]) -> Shape:
    """What the plug-in's shape rule says; ShapeError for misfits, E602 for anything else."""
    try:
        shape = tuple(r.shape(values, sources))
    except ValueError as error:  # ShapeError is one
        raise ShapeError(str(error)) from error
    except Exception as error:
        raise broken_op(r, f"its shape rule fails for {values}: {_said(error)}") from error
    if not all(type(s) is int and s >= 0 for s in shape):
        raise broken_op(r, f"its shape rule gives {list(shape)} for {values}")
    return shape


def samplers() -> dict[str, Sampler]:
    """Per op: (generator, shape wanted of the result) -> an instance that has it, or None."""
    return {name: partial(_propose, r) for name, r in custom_ops().items()}


def _propose(r: CustomOp, rng: np.random.Generator, shape: Shape) -> Custom | None:
    try:
        found = r.sample(rng, shape)
        if found is None:
            return None
        values, sources = found
        attr = make_custom(r.name, list(sources), values)
    except ShapeError as error:
        raise broken_op(r, f"its sampler proposes a misfit: {error}") from error
    except EqsatError:
        raise
    except Exception as error:
        raise broken_op(r, f"its sampler fails for {list(shape)}: {_said(error)}") from error
    if attr.shape != tuple(shape):
        raise broken_op(r, f"its sampler gives {list(attr.shape)} where {list(shape)} is wanted")
    return attr


# ---- meaning -------------------------------------------------------------------------------------
def evaluate_custom(attr: Custom, operands: Sequence[Array]) -> Array:
    """The result in held form, by the plug-in's NumPy meaning; E601 or E602 if there is none."""
    r = custom_op(attr.op)
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(r.numpy(dict(attr.values), *operands))
    except Exception as error:
        raise broken_op(r, f"its NumPy meaning fails: {_said(error)}") from error
    if found.shape != attr.shape:
        raise broken_op(
            r, f"its NumPy meaning gives {list(found.shape)}, its shape rule {list(attr.shape)}"
        )
    return scalar.hold(found, attr.dtype) if attr.dtype else found.astype(operands[0].dtype)


def dependent_lanes(attr: Custom, operands: Sequence[Array], marked: Sequence[Array]) -> Array:
    """Lanes of the result that may depend on the marked lanes (bools per operand).

    Found by trying, on random operands of these types: as for other ops, what an operand happens
    to hold elsewhere (a zero that it is multiplied by) does not matter.
    """
    rng = np.random.default_rng(0)
    found = np.zeros(attr.shape, bool)
    for how in TRIES if any(m.any() for m in marked) else ():
        one = [_random(rng, x, how) for x in operands]
        other = [_odd(rng, _random(rng, x, "near")) for x in operands]
        mixed = [np.where(m, b, a) for m, a, b in zip(marked, one, other, strict=True)]
        found |= ~_same(evaluate_custom(attr, one), evaluate_custom(attr, mixed))
    return found


def _random(rng: np.random.Generator, like: Array, how: str) -> Array:
    """An array all of whose values are 1, or small and whole, or about 1, or about 9."""
    if how == "same":
        return np.ones_like(like)
    if like.dtype.kind == "b":
        return rng.random(like.shape) < 0.5
    if like.dtype.kind == "f" and how != "whole":
        return rng.normal(0, 9 if how == "far" else 1, like.shape)
    low = 0 if like.dtype.kind == "u" else -2
    return rng.integers(low, 3, like.shape).astype(like.dtype)


def _odd(rng: np.random.Generator, x: Array) -> Array:
    """With some NaN among the floats."""
    return np.where(rng.random(x.shape) < 0.25, np.nan, x) if x.dtype.kind == "f" else x


def _same(a: Array, b: Array) -> Array:
    """Lane by lane; NaN is NaN."""
    return (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else a == b


def _any(rng: np.random.Generator, x: Array, trial: int) -> Array:
    """Values for one trial: all small, all large, then at random."""
    if x.dtype.kind == "f":
        return np.full(x.shape, (-1e3, 1e3)[trial]) if trial < 2 else rng.normal(0, 9, x.shape)
    low, high = (0, 1) if x.dtype.kind == "b" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    if trial < 2:
        return np.full(x.shape, (low, high)[trial], x.dtype)
    return rng.integers(low, high, x.shape, x.dtype, endpoint=True)


def broken_op(r: CustomOp, what: str) -> EqsatError:
    """The error for an op that does not do what its record promises."""
    return fail("E602", f"{brought_by('ops', r.name)} breaks its word: {what}")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
