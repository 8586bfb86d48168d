"""The loop nest of a dispatch."""
