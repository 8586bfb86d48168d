"""Selection × Target → Schedule."""

from eqsat.schedule.build import build

__all__ = ["build"]
