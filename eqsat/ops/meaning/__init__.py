"""What ops compute, in NumPy."""
