"""Pipeline: one way in which the compiler of a GPU computes unpacked contractions."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.condition import Condition

CUTS = ("innermost", "any")  # loops of a role that an extent may cut
UNALIGNED = ("refused", "padded", "whole")  # what becomes of a role that no extent divides
Unit = tuple[int, int, int]  # extents of m, n and k that are computed at once


@dataclass(frozen=True)
class Intrinsic:
    """The matrix instruction of a pipeline: what it multiplies at once.

    types: the element type that both operands have is one of these, as `f16` or at a precision as
    `f32/high`.
    """

    mnk: Unit
    types: tuple[str, ...]


@dataclass(frozen=True)
class Pipeline:
    """How contractions are cut into workgroups, with the scratch and the rate of these.

    m, n, k: extents a workgroup may compute, the preferred one first. intrinsics: those of a matrix
    unit, of which extents are multiples and whose types it takes; none: any extents and types.
    rates: operations per second where they are not the target's, by type or `type/precision`.
    rate: the share of that; None: what the target says of unpacked contractions.
    """

    name: str
    m: tuple[int, ...] = (1,)
    n: tuple[int, ...] = (1,)
    k: tuple[int, ...] = (1,)
    cut: str = "innermost"
    collapse: bool = False  # loops that lie together in all operands are one loop
    unaligned: str = "refused"
    promote: tuple[str, ...] = ("lhs", "rhs")  # tiles kept in scratch: lhs, rhs, result
    rate: float | None = None
    rates: tuple[tuple[str, float], ...] = ()
    intrinsics: tuple[Intrinsic, ...] = ()
    when: tuple[Condition, ...] = ()

    def __hash__(self) -> int:  # asked of every dispatch that is priced
        return hash(self.name)

    def extents(self, role: str, unit: Unit = (1, 1, 1)) -> tuple[int, ...]:
        """Those of a role that are multiples of what is computed at once."""
        listed = {"m": self.m, "n": self.n, "k": self.k}[role]
        return tuple(e for e in listed if e % unit["mnk".index(role)] == 0)

    def units(self, dtypes: tuple[str, ...], precision: str) -> tuple[Unit, ...]:
        """What may be computed at once of operands of these types; nothing: it does not take them.

        One element of each where there are no intrinsics.
        """
        if not self.intrinsics:
            return ((1, 1, 1),)
        if len(set(dtypes)) > 1:
            return ()
        keys = {dtypes[0], f"{dtypes[0]}/{precision}"}
        return tuple(i.mnk for i in self.intrinsics if not keys.isdisjoint(i.types))

    def peak(self, dtype: str, precision: str) -> float | None:
        """Its own operations per second for an element type; None: those of the target."""
        rates = dict(self.rates)
        return rates.get(f"{dtype}/{precision}", rates.get(dtype))

    def to_text(self) -> str:
        """Its extents and what it does with the rest, on one line."""
        extents = ", ".join(f"{r} {list(self.extents(r))}" for r in "mnk")
        how = [f"cuts the {self.cut} loop" if self.cut == "innermost" else "cuts any loop"]
        how += ["collapsed first"] * self.collapse + [f"unaligned: {self.unaligned}"]
        units = ("x".join(map(str, i.mnk)) + f" {'|'.join(i.types)}" for i in self.intrinsics)
        how += [f"by {', '.join(units)}"] if self.intrinsics else []
        how += [f"{self.rate:g} of the peak"] if self.rate is not None else []
        return f"pipeline {self.name}: {extents}; {', '.join(how)}"
