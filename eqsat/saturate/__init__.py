"""saturate."""
