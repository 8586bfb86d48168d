"""E-graph × Target → ExtractionProblem: which dispatches may be chosen, and what each is worth."""
