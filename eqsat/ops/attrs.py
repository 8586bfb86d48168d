"""What rules may mention: ops with the kinds of their attributes, and the attribute functions.

The functions stand beside the algebra they belong to; this module puts their tables together, and
adds what plug-ins bring.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.diag import fail
from eqsat.ops import (
    algebra,
    borders,
    collapse,
    contract,
    convolution,
    encodings,
    fills,
    guards,
    interchange,
    layout,
    lists,
    merging,
    moved_generics,
    moves,
    orders,
    packed_moves,
    permuted_moves,
    propagate,
    reassociate,
    reductions,
    relayout,
    simplify,
    unitdims,
)
from eqsat.ops.custom import CustomOp, custom_ops
from eqsat.ops.declare import one_table, rows_of
from eqsat.ops.vocabulary import AttrFunction
from eqsat.plugins import brought_by

# every module with attribute functions, and with the rows they return
MODULES = (
    lists,
    layout,
    contract,
    propagate,
    relayout,
    collapse,
    convolution,
    orders,
    interchange,
    encodings,
    borders,
    guards,
    moves,
    permuted_moves,
    packed_moves,
    moved_generics,
    unitdims,
    fills,
    algebra,
    merging,
    reassociate,
    reductions,
    simplify,
)
FUNCTIONS: dict[str, AttrFunction] = one_table(m.FUNCTIONS for m in MODULES)
ROWS: dict[str, dict[str, str]] = rows_of(FUNCTIONS.values()) | {
    k: columns for m in MODULES for k, columns in getattr(m, "ROWS", {}).items()
}

# op -> (attribute key, kind) that stands for the complete attribute
WHOLE: dict[str, tuple[str, str]] = {
    "generic": ("sig", "sig"),
    "reshape": ("groups", "groups"),
    "pack": ("layout", "layout"),
    "unpack": ("layout", "layout"),
    "retype": ("layout", "layout"),
    "relax": ("layout", "layout"),
    "pad": ("move", "move"),
    "slice": ("move", "move"),
    "concat": ("move", "move"),
    "gather": ("move", "move"),
    "fill": ("fill", "fill"),
    "weight": ("leaf", "leaf"),
    "set_encoding": ("encoding", "encoding"),
    "unset_encoding": ("encoding", "encoding"),
    "transfer": ("border", "border"),
}
_LAYOUT_FIELDS = {"pos": "ints", "tiles": "ints", "outer": "ints", "pad": "pads"}
FIELDS: dict[str, dict[str, str]] = {
    "transpose": {"perm": "ints", "order": "ints"},
    "reshape": {"shape": "ints"},
    "pack": _LAYOUT_FIELDS,
    "unpack": _LAYOUT_FIELDS,
    "retype": _LAYOUT_FIELDS,
    "relax": _LAYOUT_FIELDS,
    "pad": {"low": "ints", "high": "ints", "value": "str"},
    "slice": {"start": "ints", "limit": "ints", "stride": "ints"},
    "concat": {"axis": "int"},
    "gather": {"axis": "int"},
    "transfer": {"origin": "str", "device": "str"},
    "result": {"index": "int"},
}
# number of tensor operands of ops that rules may mention; None: any number
ARITY: dict[str, int | None] = {
    "generic": None,
    "transpose": 1,
    "reshape": 1,
    "pack": 1,
    "unpack": 1,
    "retype": 1,
    "relax": 1,
    "pad": 1,
    "slice": 1,
    "concat": None,
    "gather": 2,
    "fill": 0,
    "weight": 0,
    "set_encoding": 1,
    "unset_encoding": 1,
    "transfer": 1,
    "result": 1,
}


@dataclass(frozen=True)
class Operand:
    """What a rule may know of a tensor variable."""

    shape: Shape | None  # None: the op around it does not say
    uses: int = 0  # in the input program
    unpacked: bool = False  # an `unpack` gives it, as far as the search has come


def _add(r: CustomOp) -> None:
    """An op of a plug-in with its functions; EqsatError (E600) if a function has a taken name."""
    for name in (*r.functions, *r.rows):
        if name in FUNCTIONS or name in ROWS:
            message = f"{brought_by('ops', r.name)} cannot be used: there is a `{name}` already"
            raise fail("E600", message, help="mend the plug-in, or uninstall its package")
    ARITY[r.name], FIELDS[r.name] = r.operands, dict(r.attributes)
    FUNCTIONS.update(r.functions)
    ROWS.update({k: dict(columns) for k, columns in r.rows.items()})


for _record in custom_ops().values():
    _add(_record)
