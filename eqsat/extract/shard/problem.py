"""The record of a sharding problem, for callers within eqsat that make their own."""

from __future__ import annotations

from eqsat.model.sharding import (
    FORBIDDEN,
    LARGEST_TOTAL,
    ShardEdge,
    Sharding,
    ShardNode,
    ShardProblem,
)

__all__ = ["FORBIDDEN", "LARGEST_TOTAL", "ShardEdge", "ShardNode", "ShardProblem", "Sharding"]
