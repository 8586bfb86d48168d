"""Dispatches as grids of blocks, for executors of accelerators: pure, from nests and targets."""
