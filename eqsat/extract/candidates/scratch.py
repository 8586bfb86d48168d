"""Bytes a dispatch keeps in scratch (shared) memory on a target with `workgroup:` keys.

Every loop of a contraction gets the extent one workgroup computes; tiles of operands and results
follow from the maps. The formula is written down in docs/targets.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.affine import Map, loops_of
from eqsat.model.generic import Generic
from eqsat.model.target import Workgroup
from eqsat.model.tensor import DTYPES, cdiv
from eqsat.ops.contraction import contraction_roles, inner_loops

NOT_READ, ALONG, APART = range(3)  # how the other members of a dispatch read a root's result


@dataclass(frozen=True)
class Cut:
    """What one workgroup computes of a contraction: an extent per loop."""

    extents: tuple[int, ...]
    # role -> its loops, held whole as no tile divides the innermost one
    whole: tuple[tuple[str, tuple[int, ...]], ...]

    def whole_text(self, g: Generic) -> str:
        """`no tile divides 56x56 of m, 64x3x3 of k`; nothing if all roles are cut."""
        sizes = ["x".join(str(g.sizes[d]) for d in loops) for _, loops in self.whole]
        texts = [f"{s} of {role}" for s, (role, _) in zip(sizes, self.whole, strict=True)]
        return f"no tile divides {', '.join(texts)}" if texts else ""


@lru_cache(maxsize=50_000)
def cut(g: Generic, workgroup: Workgroup) -> Cut:
    """A packed contraction is cut into its own tiles, a reduction into single results."""
    if contraction_roles(g) is None:
        return Cut(tuple(1 if d < g.rank else s for d, s in enumerate(g.sizes)), ())
    if g.tile:
        return Cut(_packed_extents(g), ())
    extents, whole = [1] * len(g.sizes), []
    for role, loops in _roles(g).items():
        large = [d for d in loops if g.sizes[d] > 1]
        if not large:
            continue
        listed = workgroup.extents(role)
        fits = [e for e in listed if g.sizes[large[-1]] % e == 0]
        if fits or workgroup.unaligned == "padded":
            extents[large[-1]] = fits[0] if fits else min(listed)
            continue
        whole.append((role, tuple(large)))
        for d in large:
            extents[d] = g.sizes[d]
    return Cut(tuple(extents), tuple(whole))


def _packed_extents(g: Generic) -> tuple[int, ...]:
    """The kernel's tile; blocks of k may be longer than that, and are read a piece at a time."""
    inner = inner_loops(g)
    extents = [s if d in inner else 1 for d, s in enumerate(g.sizes)]
    blocks = [d for d in inner if d >= g.rank]
    if len(blocks) == 1:
        extents[blocks[0]] = min(extents[blocks[0]], g.tile[2])
    return tuple(extents)


def _roles(g: Generic) -> dict[str, list[int]]:
    """Loops by role; those of windows too, by the operand that has them. Batch loops are cut to 1.

    A loop of an output that both operands have is a batch loop.
    """
    lhs, rhs = (loops_of(m) for m in g.maps)
    return {
        "m": sorted(d for d in lhs - rhs if d < g.rank),
        "n": sorted(d for d in rhs - lhs if d < g.rank),
        "k": list(g.reductions),
    }


def tile_bytes(indices: Map, shape: Sequence[int], dtype: str, extents: Sequence[int]) -> int:
    """Bytes of the part of an operand that a workgroup reads."""
    reach = [1 + sum(abs(s) * (extents[d] - 1) for d, s in e.terms) for e in indices]
    elements = math.prod(min(r, s) for r, s in zip(reach, shape, strict=True))
    return cdiv(elements * DTYPES[dtype][0], 8)


def root_bytes(g: Generic, workgroup: Workgroup, reading: int) -> int:
    """Scratch bytes of a contraction or reduction whose result the other members read so."""
    found = cut(g, workgroup)
    total = 0
    if contraction_roles(g) is not None and not found.whole:
        for side, m, shape, dtype in zip(("lhs", "rhs"), g.maps, g.shapes, g.dtypes, strict=True):
            if side in workgroup.promote:
                total += tile_bytes(m, shape, dtype, found.extents)
    if reading == NOT_READ:
        return total
    if reading == ALONG and not found.whole and "result" not in workgroup.promote:
        return total
    held = g.result_shape if reading == APART else found.extents[: g.rank]
    return total + sum(cdiv(math.prod(held) * DTYPES[y.dtype][0], 8) for y in g.yields)
