"""The Python interface: a request read and searched, a run asked again, shown or called."""

from eqsat.api.alone import extract_egraph, place_buffers, shard_graph
from eqsat.api.optimization import DEFAULT_GOALS, DEFAULT_TARGET, optimize, read, rules, target
from eqsat.frontends.source import Source
from eqsat.model.limits import Limits
from eqsat.model.selection import GoalRequest, GoalResult
from eqsat.run import Run

__all__ = [
    "DEFAULT_GOALS", "DEFAULT_TARGET", "GoalRequest", "GoalResult", "Limits", "Run", "Source",
    "extract_egraph", "optimize", "place_buffers", "read", "rules", "shard_graph", "target",
]  # fmt: skip
