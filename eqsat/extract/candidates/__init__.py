"""E-graph × Target → a pool of candidates: which dispatches may be chosen, and what each is worth."""
