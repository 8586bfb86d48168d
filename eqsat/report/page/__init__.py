"""The page of a run: data in Python, drawn by scripts that ship beside it, in one HTML file."""
