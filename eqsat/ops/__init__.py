"""What ops mean: scalar functions, NumPy meaning, layout algebra, attribute functions."""
