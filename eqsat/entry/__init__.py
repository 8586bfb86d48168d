"""What Python calls beside `api`: a search per shape, per trade-off, per layout of a state."""
