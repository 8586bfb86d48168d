"""Every op by name: eqsat's own, a module of `eqsat.ops.builtin` each, and those of plug-ins.

A plug-in's op has no attribute class of its own: its instances for the hunt, and what they compute.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import numpy as np

from eqsat.model.attr import Shape, ShapeError
from eqsat.model.diag import EqsatError, fail
from eqsat.model.leaves import Custom
from eqsat.model.limits import MOST_OPERANDS
from eqsat.model.target import KINDS
from eqsat.model.tensor import DTYPES, KIND_NAMES
from eqsat.ops import builtin
from eqsat.ops.meaning import scalar
from eqsat.ops.op import READERS, Array, Op, broken_op, said
from eqsat.ops.vocabulary import AttrFunction
from eqsat.plugins import brought_by, load_plugin, plugged_in

# conversions are a closed set: layouts and the counts of a schedule speak of each of them
FUSIONS = tuple(k for k in KINDS if k != "conversion")
# words of programs that are no ops of their own
SUGAR = frozenset({"matmul", "relu", "cast", "return", "program"})
# every part starts with a letter: `op_2` is how egglog tells two arities of an op apart
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*")


@cache
def builtin_ops() -> Mapping[str, Op]:
    """eqsat's own ops by name."""
    names = sorted(m.name for m in iter_modules(builtin.__path__))
    modules = [import_module(f"{builtin.__name__}.{name}") for name in names]
    return {r.name: r for m in modules for r in m.OPS}


@lru_cache(maxsize=1)
def plugged_ops() -> Mapping[str, Op]:
    """The ops of all plug-ins by name; EqsatError (E600) if one of them is not fit for use."""
    ops: dict[str, Op] = {}
    for entry in plugged_in("ops"):
        r = load_plugin("ops", entry)
        wrong = _fault(entry, r)
        if wrong:
            raise fail(
                "E600", f"{brought_by('ops', entry)} cannot be used: {wrong}",
                help="mend the plug-in, or uninstall its package",
            )  # fmt: skip
        ops[r.name] = r
    return ops


def all_ops() -> Mapping[str, Op]:
    """Every op by name, eqsat's own first."""
    return {**builtin_ops(), **plugged_ops()}


def op_record(name: str) -> Op:
    """The record of an op; EqsatError (E601) if neither eqsat nor a plug-in brings it."""
    record = builtin_ops().get(name) or plugged_ops().get(name)
    if record is None:
        raise fail(
            "E601", f"no plug-in that is installed brings the op `{name}`",
            help="install the package that the program was made with",
        )  # fmt: skip
    return record


# ---- what is wrong with a plug-in's --------------------------------------------------------------
def _fault(entry: str, r: object) -> str:
    """Why a record is refused, as a clause; nothing if it is fine."""
    if not isinstance(r, Op):
        return f"it is a {type(r).__name__}, not an eqsat.ops.op.Op"
    if not isinstance(r.name, str) or not _is_name(r.name):
        return f"`{r.name}` is no name of an op; small letters, as in `roll` or `roll_rows`"
    if r.name != entry:
        return f"its record is named `{r.name}`"
    if r.name in builtin_ops() or r.name in scalar.FUNCTIONS or r.name in SUGAR:
        return f"eqsat has a `{r.name}` of its own"
    return next((sentence for good, sentence in _checks(r) if not good), "")


def _checks(r: Op) -> Iterator[tuple[bool, str]]:
    """(whether it holds, what to say if not) for every field but the name."""
    yield r.attr is Custom, f"`attr` is left to eqsat's own ops, not {r.attr!r}"
    number = type(r.operands) is int and 1 <= r.operands <= MOST_OPERANDS
    yield number, f"`operands` is a number from 1 to {MOST_OPERANDS}, not {r.operands!r}"
    for key, kind in dict(r.attributes).items():
        yield _is_name(key), f"`{key}` is no name of an attribute"
        yield kind in READERS, f"`{key}` is of kind `{kind}`, not one of {', '.join(READERS)}"
    for part in ("shape", "numpy", "jax", "sample"):
        yield callable(getattr(r, part)), f"`{part}` is no function"
    yield r.reads is None or callable(r.reads), "`reads` is no function"
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


Sampler = Callable[[np.random.Generator, Shape], Custom | None]
TRIES = ("same", "whole", "near", "far") * 32  # values that lanes are tried with


def sample(r: Op, rng: np.random.Generator, shape: Shape) -> Custom | None:
    """An instance whose result has this shape, by the op's sampler; None if it knows none."""
    if r.sample is None:
        return None
    try:
        sampled = r.sample(rng, shape)
        if sampled is None:
            return None
        values, sources = sampled
        attr = r.attribute(list(sources), values)
    except ShapeError as error:
        raise broken_op(r, f"its sampler proposes a misfit: {error}") from error
    except EqsatError:
        raise
    except Exception as error:
        raise broken_op(r, f"its sampler fails for {list(shape)}: {said(error)}") from error
    assert isinstance(attr, Custom)
    if attr.shape != tuple(shape):
        raise broken_op(r, f"its sampler gives {list(attr.shape)} where {list(shape)} is wanted")
    return attr


# ---- meaning -------------------------------------------------------------------------------------
def evaluate_custom(attr: Custom, operands: Sequence[Array]) -> Array:
    """The result in held form, by the NumPy meaning of the op; E601 or E602 if there is none."""
    r = op_record(attr.op)
    assert r.numpy is not None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(r.numpy(dict(attr.values), *operands))
    except Exception as error:
        raise broken_op(r, f"its NumPy meaning fails: {said(error)}") from error
    if result.shape != attr.shape:
        raise broken_op(
            r, f"its NumPy meaning gives {list(result.shape)}, its shape rule {list(attr.shape)}"
        )
    return scalar.hold(result, attr.dtype) if attr.dtype else result.astype(operands[0].dtype)


def dependent_lanes(attr: Custom, operands: Sequence[Array], marked: Sequence[Array]) -> Array:
    """Lanes of the result that may depend on the marked lanes (bools per operand).

    Found by trying, on random operands of these types: as for other ops, what an operand happens
    to hold elsewhere (a zero that it is multiplied by) does not matter.
    """
    rng = np.random.default_rng(0)
    dependent = np.zeros(attr.shape, bool)
    for how in TRIES if any(m.any() for m in marked) else ():
        one = [_random(rng, x, how) for x in operands]
        other = [_odd(rng, _random(rng, x, "near")) for x in operands]
        mixed = [np.where(m, b, a) for m, a, b in zip(marked, one, other, strict=True)]
        dependent |= ~_same(evaluate_custom(attr, one), evaluate_custom(attr, mixed))
    return dependent


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
