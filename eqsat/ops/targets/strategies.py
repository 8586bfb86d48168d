"""Tile vocabularies that plug-ins compute: entry point group `eqsat.strategies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.model.diag import EqsatError, fail
from eqsat.model.generic import Generic
from eqsat.model.target import Target, Tile
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
    """What a strategy says of a contraction.

    EqsatError E601 if no plug-in brings it, E602 if it fails or what it gives are no tiles.
    """
    strategy: Strategy = load_plugin("strategies", name)
    try:
        found = tuple(strategy(facts, target))
    except Exception as error:
        raise _broken(name, facts, f"it fails: {type(error).__name__}: {error}") from error
    fault = next((f for f in (_fault(tile, facts.kind) for tile in found) if f), "")
    if fault:
        raise _broken(name, facts, fault)
    return found


def _fault(tile: object, kind: str) -> str:
    """What is wrong with a tile, as a clause; nothing if it is fine."""
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
