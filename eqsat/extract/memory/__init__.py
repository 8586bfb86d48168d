"""Bytes: what every answer holds when, what fits into a cap, the order of least peak."""
