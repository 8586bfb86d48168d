"""What rules may mention: ops with the kinds of their attributes, and the attribute functions.

A closed set. The functions stand beside the algebra they belong to; this module puts their tables
together.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.attrs import Shape
from eqsat.ops import contract, layout, lists, propagate
from eqsat.ops.vocabulary import AttrFunction

# every module with attribute functions, and with the rows they return
MODULES = (
    lists,
    layout,
    contract,
    propagate,
)
FUNCTIONS: dict[str, AttrFunction] = {k: f for m in MODULES for k, f in m.FUNCTIONS.items()}
ROWS: dict[str, dict[str, str]] = {
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
}
_LAYOUT_FIELDS = {"pos": "ints", "tiles": "ints", "outer": "ints", "pad": "pads"}
FIELDS: dict[str, dict[str, str]] = {
    "transpose": {"perm": "ints"},
    "reshape": {"shape": "ints"},
    "pack": _LAYOUT_FIELDS,
    "unpack": _LAYOUT_FIELDS,
    "retype": _LAYOUT_FIELDS,
    "relax": _LAYOUT_FIELDS,
    "pad": {"low": "ints", "high": "ints", "value": "str"},
    "slice": {"start": "ints", "limit": "ints", "stride": "ints"},
    "concat": {"axis": "int"},
    "gather": {"axis": "int"},
    "result": {"index": "int"},
}
# the list of a kind, one entry per operand
PLURAL: dict[str, str] = {
    "tensor": "tensors",
    "sig": "sigs",
    "layout": "layouts",
    "groups": "groupings",
    "move": "moves",
    "encoding": "encodings",
    "ints": "perms",
    "tile": "tiles",
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
    "result": 1,
}


@dataclass(frozen=True)
class Operand:
    """What a rule may know of a tensor variable."""

    shape: Shape | None  # None: the op around it does not say
    uses: int = 0  # in the input program
