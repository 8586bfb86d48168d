"""The execution order of chosen dispatches: least peak, alone and together with their choice."""

from eqsat.extract.order.least import Order, best_order
from eqsat.extract.order.work import Work, peak_bytes, work_of

__all__ = ["Order", "Work", "best_order", "peak_bytes", "work_of"]
