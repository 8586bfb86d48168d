"""Every op by name: eqsat's own, a module of `eqsat.ops.builtin` each, and those of plug-ins."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from eqsat.model.diag import fail
from eqsat.model.foreign import Custom
from eqsat.model.limits import MOST_OPERANDS
from eqsat.model.target import KINDS
from eqsat.model.tensor import DTYPES, KIND_NAMES
from eqsat.ops import builtin
from eqsat.ops.meaning import scalar
from eqsat.ops.op import READERS, Op
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
