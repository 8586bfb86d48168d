"""Tables of a target for an op."""
