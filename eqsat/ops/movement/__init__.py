"""Layouts, moves and reshapes: how they compose, and what one is behind another."""
