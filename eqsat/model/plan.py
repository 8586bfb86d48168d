"""Plan: how a kernel runs a nest, and what that costs in parts.

A plan is chosen from the nest and a target's `Machine` alone. The generator of kernels follows it,
and the price of a dispatch is that of its plan: `Work` counts what the kernel does, the target's
`constants` turn the counts into `Parts`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Machine:
    """What a planner knows of a core: `kernels:` of a target, and its memory levels.

    caches: bytes of each level that is a core's own or shared, nearest first, without the last
    level, which holds everything.
    """

    vector_bytes: int  # of a vector register
    registers: int  # vector registers
    caches: tuple[int, ...]
    cores: int = 1
    features: tuple[str, ...] = ()  # of LLVM, such as avx512f; what kernels may use

    def lanes(self, nbytes: int = 4) -> int:
        """Elements of `nbytes` bytes in a vector."""
        return self.vector_bytes // nbytes


@dataclass(frozen=True)
class Work:
    """What a kernel does in one call, counted over all of its work items.

    fma: vector multiply-adds issued, lanes of tails and stalls of short dependence chains included.
    loads: vector loads and broadcasts of the innermost loops. scalar: arithmetic of bodies, in
    additions of whole vectors (`ops.scalar` says what a function costs). strided: elements read or
    written one by one, because no vector lies along a unit stride. tiles: register tiles begun.
    items: work items. copied: bytes copied to scratch. streams: bytes that come from each level,
    (bytes of the level that holds them → bytes read from there), each byte as often as it is
    fetched into the nearest cache; writes count like reads.
    """

    fma: float = 0
    loads: float = 0
    scalar: float = 0
    strided: float = 0
    tiles: float = 0
    items: int = 1
    copied: float = 0
    streams: tuple[tuple[str, float], ...] = ()  # name of the memory level → bytes


@dataclass(frozen=True)
class Parts:
    """The price of a dispatch: compute, traffic per memory level, relayout and launch.

    The time is max(compute, sum of traffic) + relayout + launch unless the target's constants say
    how much of the traffic hides behind the arithmetic; `time_ps` is the sum as it was priced.
    bound: what most of the time is: compute, the name of a memory level, relayout or launch.
    """

    time_ps: int
    compute_ps: int
    traffic_ps: tuple[tuple[str, int], ...]
    relayout_ps: int
    launch_ps: int
    peak_share: float = 0.0  # of the peak rate that the arithmetic reaches; 0: no arithmetic

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"traffic_ps": dict(self.traffic_ps)}


@dataclass(frozen=True)
class Plan:
    """Base of plans. kind: which generator takes it; kinds register with `eqsat.plan.planner`."""

    kind: ClassVar[str] = ""
    items: int = 1  # work items that may run on different cores
    scratch_bytes: int = 0  # of one core
    work: Work = field(default_factory=Work)

    def to_text(self) -> str:
        """One line, in the field's words: vector and row loop, register tile, blocks, scratch."""
        raise NotImplementedError
