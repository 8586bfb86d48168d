"""Meaning of ops in NumPy."""
