"""A run: what one search was asked and what it made; used, explained, saved and read back."""

from eqsat.run.run import Run, RunUse

__all__ = ["Run", "RunUse"]
