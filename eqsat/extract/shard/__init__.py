"""ShardProblem → Sharding: one strategy per node under a limit of usage, with a proven bound.

presolve.py makes one choice of nodes that have to be equal, network.py its arrays, dominance.py
takes strategies out; messages.py and prices.py bound and decode, descent.py and regions.py improve,
exact.py proves small ones, search.py knows their order, check.py checks every answer.
"""

from eqsat.extract.shard.search import least_used, solve_sharding

__all__ = ["least_used", "solve_sharding"]
