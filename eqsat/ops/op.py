"""The record of an op: all that eqsat has to know of it but what a back end does with it.

Ops of eqsat (`eqsat.ops.builtin`, a file each) and of plug-ins (entry point group `eqsat.ops`) are
such records, and `eqsat.ops.registry` finds both. A module with one may import this one,
`eqsat.ops.vocabulary` and anything of `eqsat.model`; what is heavy belongs inside functions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.model.attr import Attr, Shape, ShapeError
from eqsat.model.diag import EqsatError, fail
from eqsat.model.leaves import Custom
from eqsat.model.region import Region
from eqsat.model.tensor import TensorType
from eqsat.ops.vocabulary import AttrFunction
from eqsat.plugins import brought_by

Array = np.ndarray[Any, Any]
Values = Mapping[str, Any]  # attribute key -> its value
Sample = tuple[Mapping[str, Any], Sequence[Shape]]  # attributes, and shapes of the operands
# (op, its attribute, number of an operand, region of the result) -> what it reads of the operand
Reads = Callable[[str, Attr, int, Region], Region | None]


@dataclass(frozen=True)
class Op:
    """An op, complete.

    >>> Op("flip", "x with one axis reversed.", 1, {"axis": "int"}, …)

    operands: None is any number. attributes: key -> kind (`ops.vocabulary`), as terms and programs
    write them; those of a plug-in are int, ints, str or float. shape: (values, operand shapes) ->
    the result's shape; ShapeError or ValueError with a sentence if they do not fit. numpy: (values,
    *operands) -> the result; floats are held as float64, integers and bools in their own type. jax:
    the same on JAX arrays; import jax inside of it. sample: (generator, shape wanted of the result)
    -> values and operand shapes that give it, or None; the hunt for counterexamples asks it. dtype:
    element type of the result, "" for that of operand 0. accepts: per operand, the kinds of element
    types it may have: letters of f (floating), i (signed), u (unsigned), b (bool); () is any. kind:
    how the op fuses, one of `registry.FUSIONS`. operations: scalar operations per element of the
    result, for its price. functions, rows: attribute functions for rules, and the rows they give.
    rules: a folder of rule sets, searched after all others.

    An op whose attribute is a class of its own, `attr`, has no `shape`: `make` makes the attribute
    from values and operand shapes, `numpy` gets it in place of values, and the class knows `kind`.
    whole: the key, and the kind, that stands for the complete attribute in rules. optional: keys
    that may be left out. in_rules: whether rules may name the op. reads: what of an operand a
    region of the result needs; without it that is all of every operand.
    """

    name: str
    doc: str
    operands: int | None
    attributes: Mapping[str, str] = field(default_factory=dict)
    shape: Callable[[Values, tuple[Shape, ...]], Shape] | None = None
    numpy: Callable[..., Any] | None = None
    jax: Callable[..., Any] | None = None
    sample: Callable[[np.random.Generator, Shape], Sample | None] | None = None
    kind: str = "opaque"
    operations: int = 0
    dtype: str = ""
    accepts: tuple[str, ...] = ()
    functions: Mapping[str, AttrFunction] = field(default_factory=dict)
    rows: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rules: str | Path | None = None
    attr: type[Attr] = Custom
    make: Callable[[Sequence[Shape], Values], Attr] | None = None
    whole: str = ""
    optional: tuple[str, ...] = ()
    in_rules: bool = True
    reads: Reads | None = None

    def __post_init__(self) -> None:
        if self.attr is not Custom:
            object.__setattr__(self, "kind", self.attr.ops[self.name])

    @property
    def keys(self) -> dict[str, str]:
        """Keys that a rule may write between the parentheses, with the kind of each."""
        whole = {self.whole: self.whole} if self.whole else {}
        return whole | dict(self.attributes)

    def attribute(self, sources: Sequence[Shape], values: Values) -> Attr:
        """The attribute that these values are; ShapeError if they do not fit the operands.

        NeedsPadding for a pack without a padding value.
        """
        if self.make is None:
            return _custom(self, sources, values)
        attr = self.make(tuple(sources), values)
        shapes = attr.operand_shapes(self.name)
        if shapes is not None:
            attr.infer(self.name, tuple(TensorType("f32", s) for s in shapes))
        return attr


def broken_op(r: Op, what: str) -> EqsatError:
    """The error for an op that does not do what its record promises."""
    return fail("E602", f"{brought_by('ops', r.name)} breaks its word: {what}")


def said(error: Exception) -> str:
    """An error of a plug-in's code, for a message."""
    return f"{type(error).__name__}: {error}"


# ---- attributes that are values ------------------------------------------------------------------
def _custom(r: Op, sources: Sequence[Shape], values: Values) -> Custom:
    if len(sources) != r.operands:
        raise ShapeError(f"`{r.name}` takes {r.operands} operand(s), got {len(sources)}")
    given = {k: _value(r.name, k, kind, values) for k, kind in sorted(r.attributes.items())}
    shapes = tuple(tuple(s) for s in sources)
    shape = _shape(r, given, shapes)
    price = r.kind, r.operations
    return Custom(r.name, shapes, tuple(given.items()), shape, r.dtype, *price, tuple(r.accepts))


def _value(op: str, key: str, kind: str, values: Values) -> Any:
    """A value in its one form: equal attributes must be equal records."""
    if key not in values:
        raise ShapeError(f"`{op}` needs attribute `{key}`")
    try:
        return READERS[kind](values[key])
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


# kinds of the attributes of an op without an attribute class of its own, and how each is held
READERS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "ints": lambda value: tuple(_int(v) for v in value),
    "str": _text,
    "float": _float,
}


def _shape(r: Op, values: Values, sources: tuple[Shape, ...]) -> Shape:
    """Shape by the op's shape rule; ShapeError for misfits, E602 for anything else."""
    assert r.shape is not None
    try:
        shape = tuple(r.shape(values, sources))
    except ValueError as error:  # ShapeError is one
        raise ShapeError(str(error)) from error
    except Exception as error:
        raise broken_op(r, f"its shape rule fails for {values}: {said(error)}") from error
    if not all(type(s) is int and s >= 0 for s in shape):
        raise broken_op(r, f"its shape rule gives {list(shape)} for {values}")
    return shape
