"""What a target's tables say of an op."""
