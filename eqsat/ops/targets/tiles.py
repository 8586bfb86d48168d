"""Tiles of a target's vocabulary by which a contraction may be packed, and those of plug-ins.

Plug-ins compute vocabularies: entry point group `eqsat.strategies`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.diag import EqsatError, fail
from eqsat.model.generic import Generic
from eqsat.model.target import Condition, Target, Tile
from eqsat.ops.contractions.convolution import Convolution, convolution, has_windows
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.plugins import brought_by, load_plugin

WINDOW = "window"  # the role of loops that walk a dim together, as in a convolution
# kind of vocabulary -> roles a tile of it has an extent for
TILE_ROLES: dict[str, tuple[str, ...]] = {
    "matmul": ("m", "n", "k"),
    "conv1d": ("c", "k"),
    "conv2d": ("c", "k"),
}


@dataclass(frozen=True)
class Contraction:
    """The argument of a strategy: a generic that is a sum of products.

    kind: the key of the target's `tiles:` that is asked for. extents: per role of such a tile (and
    `batch`), the extent that a tile would cut. batch, m, n, k, window: extents of all loops of
    each role, the outermost first. operands: per operand, the role of each of its dims, e.g.
    (("m", "k"), ("n", "k")) for a transposed right side. lhs, rhs, acc: element types of the
    operands (lhs is the image of a convolution) and of the result.
    """

    kind: str
    extents: Mapping[str, int]
    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    window: tuple[int, ...]
    operands: tuple[tuple[str, ...], ...]
    lhs: str
    rhs: str
    acc: str


Strategy = Callable[[Contraction, Target], Sequence[Tile]]


def contraction_of(g: Generic, kind: str, regime: Mapping[str, int | str]) -> Contraction:
    """The facts of a contraction; `regime` is what a `when` of this kind may ask."""
    roles = contraction_roles(g)
    assert roles is not None, "only contractions have tiles"
    named = {d: r for r in ("batch", "m", "n", "k") for d in getattr(roles, r)}
    operands = tuple(
        tuple(WINDOW if e.dim is None else named.get(e.dim, WINDOW) for e in m) for m in g.maps
    )
    batch, m, n, k, window = (
        tuple(g.sizes[d] for d in loops)
        for loops in (roles.batch, roles.m, roles.n, roles.k, roles.other)
    )
    extents = {role: size for role, size in regime.items() if isinstance(size, int)}
    types = (str(regime[t]) for t in ("lhs", "rhs", "acc"))
    return Contraction(kind, extents, batch, m, n, k, window, operands, *types)


def strategy_tiles(name: str, facts: Contraction, target: Target) -> tuple[Tile, ...]:
    """Tiles that a strategy gives for a contraction.

    EqsatError E601 if no plug-in brings it, E602 if it fails or what it gives are no tiles.
    """
    strategy: Strategy = load_plugin("strategies", name)
    try:
        tiles = tuple(strategy(facts, target))
    except Exception as error:
        raise _broken(name, facts, f"it fails: {type(error).__name__}: {error}") from error
    fault = next((f for f in (_fault(tile, facts.kind) for tile in tiles) if f), "")
    if fault:
        raise _broken(name, facts, fault)
    return tiles


def _fault(tile: object, kind: str) -> str:
    """Fault of a tile, as a clause; "" if it is fine."""
    if not isinstance(tile, Tile):
        return f"it gives {tile!r}, which is no eqsat.model.target.Tile"
    sizes, wanted = dict(tile.sizes), TILE_ROLES[kind]
    if sorted(sizes) != sorted(wanted):
        return f"a tile has extents for {', '.join(wanted)}, not for {', '.join(sizes)}"
    if any(type(s) is not int or s < 1 for s in sizes.values()):
        return f"the extents of a tile are whole numbers from 1 on, not {sizes}"
    if type(tile.rate) not in (int, float) or not 0 < tile.rate <= 1:
        return f"the rate of a tile is a share of the peak between 0 and 1, not {tile.rate!r}"
    if sorted(tile.order) != ["k", "m", "n"] or type(tile.vnni) is not int or tile.vnni < 1:
        return f"no tile has the order {tile.order!r} and vnni {tile.vnni!r}"
    if sizes["k"] % tile.vnni:
        return f"vnni {tile.vnni} does not divide k = {sizes['k']}"
    return "its tiles have conditions; it should leave such tiles out" if tile.when else ""


def _broken(name: str, facts: Contraction, what: str) -> EqsatError:
    extents = ", ".join(f"{role} = {size}" for role, size in facts.extents.items())
    word = f"{brought_by('strategies', name)} breaks its word"
    return fail("E602", f"{word} for a {facts.kind} of {extents}: {what}")


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
    roles, conv = contraction_roles(g), convolution(g)
    if roles is None:
        return ()
    kinds = () if conv is None else (f"conv{len(conv.spatial)}d",)
    return kinds if has_windows(g, roles) else ("matmul", *kinds)


def target_tiles(target: Target) -> Callable[[Generic], tuple[Tile, ...]]:
    """The attribute function `target.tiles` for this target."""
    return lambda g: tiles_of(target, g)


def tiles_of(target: Target, g: Generic) -> tuple[Tile, ...]:
    """Tiles for this contraction, in the order of the vocabularies; of a packed one those that cut
    what its tile cut."""
    if g.tile and not target.is_layered:
        return ()
    if target.devices:  # every device's; which of them fits is judged where it is known
        return tuple(dict.fromkeys(t for _, d in target.devices for t in tiles_of(d, g)))
    found = (t for kind in vocabulary_kinds(g) for t in _vocabulary(target, kind, g))
    return tuple(t for t in found if t.inside == g.tile)


def _vocabulary(target: Target, kind: str, g: Generic) -> tuple[Tile, ...]:
    """Tiles whose `when` holds, or what the plugged-in strategy says."""
    if target.strategy(kind):
        return () if g.tile else _computed(target, kind, g)
    listed = target.vocabulary(kind)
    return tuple(t for t in listed if all(is_met(c, regime(g, kind)) for c in t.when))


@lru_cache(maxsize=10_000)
def _computed(target: Target, kind: str, g: Generic) -> tuple[Tile, ...]:
    """A strategy is asked once per distinct generic."""
    facts = contraction_of(g, kind, regime(g, kind))
    return strategy_tiles(target.strategy(kind), facts, target)


def regime(g: Generic, kind: str = "matmul") -> Facts:
    """Facts that a `when` may use: the extents a tile would cut, and the element types."""
    conv = None if kind == "matmul" else convolution(g)
    return _contraction_regime(g) if conv is None else _convolution_regime(g, conv)


def _contraction_regime(g: Generic) -> Facts:
    roles = contraction_roles(g)
    facts: Facts = {r: _last(g, getattr(roles, r)) for r in ("m", "n", "k", "batch")}
    facts["acc"] = g.yields[0].dtype
    facts["lhs"], facts["rhs"] = g.dtypes
    return facts


def _convolution_regime(g: Generic, conv: Convolution) -> Facts:
    """c input channels and k filters per group; lhs is the image."""
    facts: Facts = {
        "c": _last(g, conv.channels),
        "k": _last(g, conv.filters),
        "batch": _last(g, conv.groups),
    }
    facts["acc"] = g.yields[0].dtype
    facts["lhs"], facts["rhs"] = g.dtypes[conv.image], g.dtypes[1 - conv.image]
    return facts


def _last(g: Generic, loops: tuple[int, ...]) -> int:
    """The extent a tile would cut: the last one that is not 1."""
    large = [g.sizes[d] for d in loops if g.sizes[d] > 1]
    return large[-1] if large else 1


def is_met(condition: Condition, facts: Facts) -> bool:
    return COMPARE[condition.op](facts[condition.left], condition.right)
