"""The execution order of chosen dispatches: least peak, alone and together with their choice."""

from eqsat.extract.order.least import Order, best_order
from eqsat.extract.order.work import DispatchGraph, graph_of, peak_bytes

__all__ = ["DispatchGraph", "Order", "best_order", "graph_of", "peak_bytes"]
