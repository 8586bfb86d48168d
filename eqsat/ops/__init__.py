"""Meaning of ops: scalar functions, NumPy meaning, layout algebra, attribute functions."""
