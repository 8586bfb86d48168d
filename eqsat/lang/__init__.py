"""lang."""
