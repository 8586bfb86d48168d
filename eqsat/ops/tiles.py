"""Which tiles of a target's vocabulary a contraction may be packed by."""

from __future__ import annotations

import operator
from collections.abc import Callable

from eqsat.model.attrs import Generic
from eqsat.model.target import Condition, Target, Tile
from eqsat.ops.contraction import Roles, contraction_roles

COMPARE: dict[str, Callable[[int | str, int | str], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def vocabulary_kind(roles: Roles) -> str:
    """The op kind of a target's `tiles:` a contraction looks in."""
    return "conv2d" if roles.other else "matmul"


def target_tiles(target: Target) -> Callable[[Generic], tuple[Tile, ...]]:
    """The attribute function `target.tiles` for this target."""
    return lambda g: tiles_of(target, g)


def tiles_of(target: Target, g: Generic) -> tuple[Tile, ...]:
    """Tiles whose `when` holds for this contraction, in the order of the vocabulary."""
    roles = contraction_roles(g)
    if roles is None or g.tile:
        return ()
    facts = regime(g, roles)
    return tuple(
        t for t in target.vocabulary(vocabulary_kind(roles)) if all(holds(c, facts) for c in t.when)
    )


def regime(g: Generic, roles: Roles) -> dict[str, int | str]:
    """What a `when` may ask: the extents a tile would cut, and the element types."""
    facts: dict[str, int | str] = {}
    for name in ("m", "n", "k", "batch"):
        large = [g.sizes[d] for d in getattr(roles, name) if g.sizes[d] > 1]
        facts[name] = large[-1] if large else 1
    facts["acc"] = g.yields[0].dtype
    facts["lhs"], facts["rhs"] = g.dtypes
    return facts


def holds(condition: Condition, facts: dict[str, int | str]) -> bool:
    return COMPARE[condition.op](facts[condition.left], condition.right)
