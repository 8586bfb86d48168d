"""Entry points for Python besides `api`: a search per shape, trade-off, or layout of a state."""
