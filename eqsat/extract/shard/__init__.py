"""ShardProblem → Sharding: one strategy per node under a limit of usage, with a proven bound."""
