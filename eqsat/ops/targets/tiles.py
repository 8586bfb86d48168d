"""Which tiles of a target's vocabulary a contraction may be packed by."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

from eqsat.model.generic import Generic
from eqsat.model.target import Condition, Target, Tile
from eqsat.ops.contractions.convolution import Convolution, convolution, has_windows
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.targets.strategies import contraction_of, strategy_tiles

COMPARE: dict[str, Callable[[int | str, int | str], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Facts = dict[str, int | str]


def vocabulary_kinds(g: Generic) -> tuple[str, ...]:
    """The op kinds of a target's `tiles:` a contraction looks in.

    One with windows is a convolution; one with several spatial loops and no windows (1x1) is both.
    """
    roles, found = contraction_roles(g), convolution(g)
    if roles is None:
        return ()
    kinds = () if found is None else (f"conv{len(found.spatial)}d",)
    return kinds if has_windows(g, roles) else ("matmul", *kinds)


def target_tiles(target: Target) -> Callable[[Generic], tuple[Tile, ...]]:
    """The attribute function `target.tiles` for this target."""
    return lambda g: tiles_of(target, g)


def tiles_of(target: Target, g: Generic) -> tuple[Tile, ...]:
    """Tiles for this contraction, in the order of the vocabularies."""
    if g.tile:
        return ()
    if target.devices:  # every device's; which of them fits is judged where it is known
        return tuple(dict.fromkeys(t for _, d in target.devices for t in tiles_of(d, g)))
    return tuple(t for kind in vocabulary_kinds(g) for t in _vocabulary(target, kind, g))


def _vocabulary(target: Target, kind: str, g: Generic) -> tuple[Tile, ...]:
    """Tiles whose `when` holds, or what the plugged-in strategy says."""
    if target.strategy(kind):
        return _computed(target, kind, g)
    listed = target.vocabulary(kind)
    return tuple(t for t in listed if all(is_met(c, regime(g, kind)) for c in t.when))


@lru_cache(maxsize=10_000)
def _computed(target: Target, kind: str, g: Generic) -> tuple[Tile, ...]:
    """A strategy is asked once per distinct generic."""
    facts = contraction_of(g, kind, regime(g, kind))
    return strategy_tiles(target.strategy(kind), facts, target)


def regime(g: Generic, kind: str = "matmul") -> Facts:
    """What a `when` may ask: the extents a tile would cut, and the element types."""
    found = None if kind == "matmul" else convolution(g)
    return _contraction_regime(g) if found is None else _convolution_regime(g, found)


def _contraction_regime(g: Generic) -> Facts:
    roles = contraction_roles(g)
    facts: Facts = {r: _last(g, getattr(roles, r)) for r in ("m", "n", "k", "batch")}
    facts["acc"] = g.yields[0].dtype
    facts["lhs"], facts["rhs"] = g.dtypes
    return facts


def _convolution_regime(g: Generic, found: Convolution) -> Facts:
    """c input channels and k filters per group; lhs is the image."""
    facts: Facts = {
        "c": _last(g, found.channels),
        "k": _last(g, found.filters),
        "batch": _last(g, found.groups),
    }
    facts["acc"] = g.yields[0].dtype
    facts["lhs"], facts["rhs"] = g.dtypes[found.image], g.dtypes[1 - found.image]
    return facts


def _last(g: Generic, loops: tuple[int, ...]) -> int:
    """The extent a tile would cut: the last one that is not 1."""
    large = [g.sizes[d] for d in loops if g.sizes[d] > 1]
    return large[-1] if large else 1


def is_met(condition: Condition, facts: Facts) -> bool:
    return COMPARE[condition.op](facts[condition.left], condition.right)
