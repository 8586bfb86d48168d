"""Planner: from a nest and a machine to the plan its kernel follows, and the plan's price."""
