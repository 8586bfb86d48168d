"""Python functions → attribute functions of rules: kinds are annotations, docs are docstrings.

A frozen dataclass that a function returns is a row whose columns are its fields; its name is the
row's, in words: `PackedResult` is `packed-result`. One name may have several functions, for
arguments of different kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from inspect import Parameter, getdoc, signature
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from eqsat.model.devices import Transfer
from eqsat.model.generic import Generic
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.movement import Move, Reshape
from eqsat.model.target import Tile
from eqsat.ops.vocabulary import PLURAL, AttrFunction

_KINDS: dict[Any, str] = {
    Generic: "sig", Layout: "layout", Reshape: "groups", Move: "move", Encoding: "encoding",
    Tile: "tile", Fill: "fill", Leaf: "leaf", Transfer: "border", tuple[int, ...]: "ints",
    int: "int", float: "float", bool: "bool", str: "str",
}  # fmt: skip
_TYPES = {kind: tuple if kind == "ints" else hint for hint, kind in _KINDS.items()}
Meaning = Callable[..., Any]


def attr_functions(
    *meanings: Meaning | tuple[str, Meaning], orders: bool = False
) -> dict[str, AttrFunction]:
    """The table of these functions, each by its own name or by the one that stands before it."""
    named = (m if isinstance(m, tuple) else (m.__name__, m) for m in meanings)
    return one_table({name: _declared(meaning, orders)} for name, meaning in named)


def _declared(meaning: Meaning, orders: bool) -> AttrFunction:
    hints = get_type_hints(meaning)
    parameters = signature(meaning).parameters.values()
    return AttrFunction(
        tuple(_kind(hints[p.name]) for p in parameters),
        _kind(hints["return"]),
        (getdoc(meaning) or "").split("\n\n")[0].replace("\n", " ").removesuffix("."),
        meaning,
        orders,
        sum(p.default is not Parameter.empty for p in parameters),
        _columns(hints["return"]),
    )


# ---- kinds ---------------------------------------------------------------------------------------
def _kind(hint: Any) -> str:
    """The kind of values that an annotation names; `| None` says that there may be no answer."""
    if isinstance(hint, UnionType):
        return "|".join(_kind(h) for h in get_args(hint) if h is not NoneType)
    if hint in _KINDS:
        return _KINDS[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return "row:" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", hint.__name__).lower()
    one = _kind(get_args(hint)[0])
    return PLURAL[one] if get_origin(hint) is tuple else one.replace("row:", "rows:")


@cache
def _columns(hint: Any) -> dict[str, str]:
    """Of the row that an annotation is, or of those that it lists."""
    while not is_dataclass(hint) and get_args(hint) and get_origin(hint) is not tuple:
        hint = get_args(hint)[0]
    if hint in _KINDS or not is_dataclass(hint):
        return {}
    hints = get_type_hints(hint)
    return {f.name: _kind(hints[f.name]) for f in fields(hint)}


# ---- tables --------------------------------------------------------------------------------------
def one_table(tables: Iterable[Mapping[str, AttrFunction]]) -> dict[str, AttrFunction]:
    """The union of tables; functions of one name are the cases of one function."""
    functions: dict[str, list[AttrFunction]] = {}
    for table in tables:
        for name, function in table.items():
            functions.setdefault(name, []).extend(function.cases or (function,))
    return {k: fs[0] if len(fs) == 1 else _of_cases(fs) for k, fs in functions.items()}


def _of_cases(cases: list[AttrFunction]) -> AttrFunction:
    """One function that does what its case for the types of the arguments does."""
    most = max(len(c.args) for c in cases)
    args = ["|".join({c.args[i]: 0 for c in cases if i < len(c.args)}) for i in range(most)]
    (at,) = (i for i, kinds in enumerate(args) if "|" in kinds)
    by_type = {_TYPES[c.args[at]]: c.meaning for c in cases}

    def meaning(*values: Any) -> Any:
        return by_type[type(values[at])](*values)

    return replace(
        cases[0],
        args=tuple(args),
        result="|".join(dict.fromkeys(c.result for c in cases)),
        doc="; ".join(c.doc for c in cases),
        meaning=meaning,
        optional=most - min(len(c.args) - c.optional for c in cases),
        columns={},
        cases=tuple(cases),
    )


def rows_of(functions: Iterable[AttrFunction]) -> dict[str, dict[str, str]]:
    """The columns of every row that functions give, by its name."""
    cases = (c for f in functions for c in f.cases or (f,))
    return {c.result.partition(":")[2]: dict(c.columns) for c in cases if c.columns}
