"""Spreads of the values of a schedule over a mesh: prices, the choice, and its front."""
