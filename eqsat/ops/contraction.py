"""Contractions inside generics: batch, m, n and k loops (MLIR's `inferContractionDims`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.attrs import Generic, Map
from eqsat.model.expr import Expr


@dataclass(frozen=True)
class Roles:
    """Loops by role, ascending; loops that occur in non-bare expressions (windows) are `other`."""

    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    other: tuple[int, ...]


def bare_dims(m: Map) -> set[int]:
    """Loops that are a whole result of this map."""
    return {e.dim for e in m if e.dim is not None}


def mixed_dims(m: Map) -> set[int]:
    """Loops inside expressions like `d0 + d3` or `2*d0`."""
    return {d for e in m if e.dim is None for d, _ in e.terms}


def _strip_casts(e: Expr) -> Expr:
    return _strip_casts(e.args[0]) if e.fn == "cast" else e


@lru_cache(maxsize=100_000)
def contraction_roles(g: Generic) -> Roles | None:
    """The roles of a sum of products of two operands, or None if `g` is not one.

    Casts around the operands and the product are allowed (mixed-precision contractions).
    """
    if len(g.maps) != 2 or len(g.yields) != 1 or g.combine != "add":
        return None
    product = _strip_casts(g.body)
    if product.fn != "mul":
        return None
    factors = [_strip_casts(a) for a in product.args]
    if sorted(repr(f.value) for f in factors if f.fn == "arg") != ["0", "1"]:
        return None
    return _roles(g)


def _roles(g: Generic) -> Roles | None:
    lhs, rhs = g.maps
    mixed = mixed_dims(lhs) | mixed_dims(rhs)
    a, b = bare_dims(lhs) - mixed, bare_dims(rhs) - mixed
    parallel, reduced = set(range(g.rank)), set(g.reductions)
    roles = [a & b & parallel, (a - b) & parallel, (b - a) & parallel, a & b & reduced]
    rest = set(range(len(g.sizes))) - set().union(*roles)
    batch, m, n, k, other = (tuple(sorted(r)) for r in (*roles, rest))
    return Roles(batch, m, n, k, other)


def kind(op: str, attr: object) -> str:
    """The kind of an op as fusion sees it (see `model.target.KINDS`), or "view" or "leaf"."""
    if op == "generic":
        assert isinstance(attr, Generic)
        if attr.rank == len(attr.sizes):
            return "elementwise"
        return "contraction" if contraction_roles(attr) else "reduction"
    return _KINDS[op]


_KINDS = (
    dict.fromkeys(("input", "weight", "fill"), "leaf")
    | dict.fromkeys(("reshape", "relax", "result"), "view")
    | dict.fromkeys(
        ("pack", "unpack", "transpose", "retype", "set_encoding", "unset_encoding"), "conversion"
    )
    | dict.fromkeys(("pad", "slice", "concat", "gather"), "move")
    | {"opaque": "opaque"}
)
