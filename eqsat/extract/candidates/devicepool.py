"""The nodes that may be chosen, as one device sees them: its limits and its prices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.legality import Legality
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space


@dataclass(frozen=True)
class DevicePool:
    """A pool on one device; `device` says whose dispatches are made, if there are several."""

    pool: Pool
    costs: Costs
    device: str = ""

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def legality(self) -> Legality:
        return self.pool.legality.part(self.device)
