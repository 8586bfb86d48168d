"""Selection × Target → Schedule, and whether a schedule is legal on a target."""

from eqsat.schedule.build import build
from eqsat.schedule.legal import faults

__all__ = ["build", "faults"]
