"""The choice of dispatches as an integer program: columns, rows, relaxation, solver."""
