"""Rewrites of what is computed: scales, sums, products, bodies."""
