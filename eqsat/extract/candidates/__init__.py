"""E-graph × Target → candidates: which dispatches may be chosen, and what each is worth."""
