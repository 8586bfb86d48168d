"""Vocabulary of rules: ops with the kinds of their attributes, and the attribute functions.

The functions stand beside the algebra they belong to; this module puts their tables together, and
adds what plug-ins bring.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.diag import fail
from eqsat.ops.algebra import (
    deltas,
    demand,
    laws,
    picks,
    quantised,
    reassociate,
    reductions,
    repeats,
    simplify,
    structure,
    sums,
    windows,
    zeros,
)
from eqsat.ops.algebra import scales as algebra
from eqsat.ops.algebra import siblings as merging
from eqsat.ops.contractions import convolution, encodings
from eqsat.ops.contractions import packing as contract
from eqsat.ops.declare import one_table, rows_of
from eqsat.ops.generics import guards, interchange, namedops, propagate
from eqsat.ops.movement import (
    collapse,
    crossing,
    layout,
    lists,
    moved_generics,
    moves,
    relayout,
    view,
)
from eqsat.ops.op import Op
from eqsat.ops.registry import all_ops
from eqsat.ops.targets import inorder, rows
from eqsat.ops.vocabulary import AttrFunction
from eqsat.plugins import brought_by

# every module with attribute functions, and with the rows they return
MODULES = (
    inorder,
    lists,
    layout,
    contract,
    propagate,
    relayout,
    collapse,
    convolution,
    interchange,
    encodings,
    guards,
    namedops,
    moves,
    crossing,
    view,
    moved_generics,
    algebra,
    demand,
    reductions,
    merging,
    repeats,
    zeros,
    simplify,
    sums,
    laws,
    deltas,
    structure,
    reassociate,
    windows,
    picks,
    quantised,
    rows,
)
FUNCTIONS: dict[str, AttrFunction] = one_table(m.FUNCTIONS for m in MODULES)
ROWS: dict[str, dict[str, str]] = rows_of(FUNCTIONS.values()) | {
    k: columns for m in MODULES for k, columns in getattr(m, "ROWS", {}).items()
}

# the ops that rules may mention
RULE_OPS: dict[str, Op] = {name: r for name, r in all_ops().items() if r.in_rules}


@dataclass(frozen=True)
class Operand:
    """Facts that a rule may use of a tensor variable."""

    shape: Shape | None  # None: the op around it does not say
    uses: int = 0  # in the input program
    unpacked: bool = False  # an `unpack` gives it, as far as the search has come
    facts: frozenset[str] = frozenset()  # names of those that hold, of those that were asked for

    @property
    def rank(self) -> int | None:
        """The number of dims."""
        return None if self.shape is None else len(self.shape)


# what rules may read of a value with a dot: kind of the value -> field -> kind of the field
FIELDS: dict[str, dict[str, str]] = {
    "tensor": {"shape": "ints", "rank": "int"},
    "sig": {"is_elementwise": "bool", "is_tiled": "bool", "precision": "str"},
    "layout": {"is_padded": "bool", "is_outer_identity": "bool"},
    "tile": {"m": "int", "n": "int", "k": "int"},
    "axis": {"name": "str", "devices": "int"},
    "cut": {
        "op": "str", "kind": "str", "role": "str", "argument_dim": "int", "of_argument": "bool",
        "of_weight": "bool",
    },
    "block": {"dim": "int", "argument_dim": "int", "of_argument": "bool", "of_weight": "bool"},
    "value": {"role": "str", "name": "str", "rank": "int", "divides": "bool"},
}  # fmt: skip
# what conditions of a spread rule may name: verb -> variable -> its kind
SPREAD_SCOPES: dict[str, dict[str, str]] = {
    "cut": {"axis": "axis", "cut": "cut"},
    "keep": {"axis": "axis", "value": "value", "block": "block"},
    "convert": {"axis": "axis", "value": "value"},
}


def _add(r: Op) -> None:
    """The functions an op brings; EqsatError (E600) if one has a taken name."""
    for name in (*r.functions, *r.rows):
        if name in FUNCTIONS or name in ROWS:
            message = f"{brought_by('ops', r.name)} cannot be used: there is a `{name}` already"
            raise fail("E600", message, help="mend the plug-in, or uninstall its package")
    FUNCTIONS.update(r.functions)
    ROWS.update({k: dict(columns) for k, columns in r.rows.items()})


for _record in RULE_OPS.values():
    _add(_record)
