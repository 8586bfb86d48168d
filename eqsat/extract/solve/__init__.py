"""ExtractionProblem → the best answer, its bounds and proofs; integers only, no e-graph."""
