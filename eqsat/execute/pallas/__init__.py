"""Dispatches as Pallas kernels."""
