"""ShardProblem → Sharding: one strategy per node under a limit of usage, with a proven bound.

presolve.py makes one choice of nodes that have to be equal, and arrays of these; prices.py bounds
and decodes what is large, descent.py improves it; search.py knows their order and has CP-SAT prove.
The problem checks every answer.
"""

from eqsat.extract.shard.search import least_used, solve_sharding

__all__ = ["least_used", "solve_sharding"]
