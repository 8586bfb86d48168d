"""Placement: the offset of every buffer in one arena, and how far it is proven."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from eqsat.model.restore import restored


@dataclass(frozen=True)
class Lifetime:
    """A buffer to place: `size` bytes, live from step `lower` up to, not including, `upper`."""

    name: str
    lower: int
    upper: int
    size: int


@dataclass(frozen=True)
class Placement:
    """One offset per buffer, in the order of the request.

    status: optimal (no placement is lower) | feasible | infeasible (nothing fits the capacity,
    proven) | unknown (nothing found that fits it). stop: proof | capacity (it fits, so the search
    ended) | work | wall | interrupted | memory. `height` is of these offsets, in bytes, whether
    they fit or not; no placement is lower than `bound`.
    """

    offsets: tuple[int, ...]
    height: int
    bound: int
    status: str
    stop: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"offsets": list(self.offsets)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Placement:
        return restored(cls, data)
