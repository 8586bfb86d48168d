"""One dispatch: whether a target may run these nodes so, and what that costs."""
