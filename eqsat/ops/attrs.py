"""Attribute functions: what a rule may compute, with the type of every argument and result.

A closed set. Functions get plain values (tuples of ints, `Layout`, `Generic`, …) and return one,
or None where the condition behind them does not hold: then the rule has no row there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eqsat.model.attrs import Generic, Layout, Shape
from eqsat.ops import layout as algebra
from eqsat.ops.contraction import contraction_roles

# Kinds of values: tensor tensors sig layout layouts groups move encoding ints int bool tile tiles
# pads str, and rows (a `let:` variable whose columns are read with a dot).
ROWS: dict[str, dict[str, str]] = {
    "packed-loops": {"operands": "layouts", "sig": "sig", "result": "layout"},
    "packed-result": {"operands": "layouts", "sig": "sig"},
    "packed-operand": {"before": "layouts", "after": "layouts", "sig": "sig", "result": "layout"},
    "packed-reshape": {"layout": "layout", "groups": "groups"},
}

# op -> attribute key -> kind; the first key marked "whole" stands for the complete attribute
WHOLE: dict[str, tuple[str, str]] = {
    "generic": ("sig", "sig"),
    "reshape": ("groups", "groups"),
    "pack": ("layout", "layout"),
    "unpack": ("layout", "layout"),
    "retype": ("layout", "layout"),
    "relax": ("layout", "layout"),
    "pad": ("move", "move"),
    "slice": ("move", "move"),
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
    "set_encoding": 1,
    "unset_encoding": 1,
    "result": 1,
}


@dataclass(frozen=True)
class Operand:
    """What a rule may know of a tensor variable."""

    shape: Shape
    uses: int = 0  # in the input program


@dataclass(frozen=True)
class AttrFunction:
    """Argument kinds (alternatives with `|`), result kind (a row is `row:NAME`), and meaning."""

    args: tuple[str, ...]
    result: str
    doc: str
    meaning: Callable[..., Any]


def _compose(p: tuple[int, ...], d: tuple[int, ...]) -> tuple[int, ...] | None:
    return tuple(p[i] for i in d) if all(i < len(p) for i in d) else None


def _is_identity(p: tuple[int, ...]) -> bool:
    return p == tuple(range(len(p)))


def _same_tiles(a: Layout, b: Layout) -> bool:
    return (a.source, a.pos, a.tiles, a.outer) == (b.source, b.pos, b.tiles, b.outer)


def _relaxes(a: Layout, b: Layout) -> bool:
    """b is a with some zero padding forgotten."""
    pads = list(zip(a.pads, b.pads, strict=True)) if _same_tiles(a, b) else []
    return a != b and bool(pads) and all(x == y or (y == "?" and x != "-") for x, y in pads)


def _is_contraction(g: Generic) -> bool:
    return contraction_roles(g) is not None


FUNCTIONS: dict[str, AttrFunction] = {
    # permutations and lists
    "compose": AttrFunction(("ints", "ints"), "ints", "[p[i] for i in d]", _compose),
    "inverse": AttrFunction(("ints",), "ints", "the inverse permutation", algebra.inverse),
    "identity": AttrFunction(("int",), "ints", "[0 … n-1]", lambda n: tuple(range(n))),
    "take": AttrFunction(("ints", "int"), "ints", "the first n", lambda p, n: p[:n]),
    "inner": AttrFunction(
        ("ints", "int"), "ints", "entries from n on, minus n", algebra.inner_entries
    ),
    "len": AttrFunction(("ints|tensors",), "int", "how many", len),
    "rank": AttrFunction(("tensor",), "int", "number of dims", lambda x: len(x.shape)),
    "shape": AttrFunction(("tensor",), "ints", "extents", lambda x: x.shape),
    "uses": AttrFunction(("tensor",), "int", "uses in the input program", lambda x: x.uses),
    # conditions
    "is_identity": AttrFunction(("ints",), "bool", "p is 0 … n-1", _is_identity),
    "is_block_diagonal": AttrFunction(
        ("ints", "int"), "bool", "the first n entries are below n", algebra.is_block_diagonal
    ),
    "same_layout": AttrFunction(
        ("layout", "layout"), "bool", "equal, padding included", lambda a, b: a == b
    ),
    "same_tiles": AttrFunction(
        ("layout", "layout"), "bool", "equal but for what the padding holds", _same_tiles
    ),
    "relaxes": AttrFunction(
        ("layout", "layout"), "bool", "the second forgets padding of the first", _relaxes
    ),
    "is_same_shape": AttrFunction(
        ("groups",), "bool", "a reshape that changes nothing", lambda r: r.source == r.shape
    ),
    "is_contraction": AttrFunction(
        ("sig",), "bool", "a sum of products with m, n or k loops", _is_contraction
    ),
    "is_elementwise": AttrFunction(
        ("sig",), "bool", "no reduction loop", lambda g: g.rank == len(g.sizes)
    ),
    "is_tiled": AttrFunction(("sig",), "bool", "already packed by a tile", lambda g: bool(g.tile)),
    # the target's vocabulary
    "target.tiles": AttrFunction(
        ("sig",), "tiles", "the target's tiles for this contraction", algebra.no_tiles
    ),
    # layout algebra
    "pack_loops": AttrFunction(
        ("sig", "tile"), "row:packed-loops", "pack m, n and k loops", algebra.pack_loops
    ),
    "pack_result": AttrFunction(
        ("sig", "layout"), "row:packed-result", "give the result a layout", algebra.pack_result
    ),
    "pack_operand": AttrFunction(
        ("sig", "int", "layout"),
        "row:packed-operand",
        "read operand i in a layout",
        algebra.pack_operand,
    ),
    "permute_operand": AttrFunction(
        ("sig", "int", "ints"), "sig", "read operand i untransposed", algebra.permute_operand
    ),
    "permute_result": AttrFunction(
        ("sig", "ints"), "sig", "write the result transposed", algebra.permute_result
    ),
    "pack_reshape": AttrFunction(
        ("layout", "groups"),
        "row:packed-reshape",
        "the layout of a reshape's operand that gives this layout of its result",
        algebra.pack_reshape,
    ),
    "unpack_reshape": AttrFunction(
        ("groups", "layout"),
        "row:packed-reshape",
        "the layout a reshape's result has if its operand has this one",
        algebra.unpack_reshape,
    ),
    "before_transpose": AttrFunction(
        ("layout", "ints"),
        "layout",
        "L' with pack(x, L') = pack(transpose(x, p), L)",
        algebra.before_transpose,
    ),
    "after_transpose": AttrFunction(
        ("layout", "ints"),
        "layout",
        "L' with unpack(y, L') = transpose(unpack(y, L), p)",
        algebra.after_transpose,
    ),
    "packed_transpose": AttrFunction(
        ("layout", "ints"),
        "layout",
        "L' with pack(x, L') = transpose(pack(x, L), p)",
        algebra.packed_transpose,
    ),
}
