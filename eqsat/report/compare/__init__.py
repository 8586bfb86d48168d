"""Two extracted programs side by side: what differs, by how much, and the rules behind it."""

from eqsat.report.compare.comparison import Comparison, compare_runs

__all__ = ["Comparison", "compare_runs"]
