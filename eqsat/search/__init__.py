"""The search of one run: its phases in order, and the parts that may be asked alone."""
