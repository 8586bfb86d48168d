"""A finished run as text, JSON and pages; `explain.py` words what limits removed."""
