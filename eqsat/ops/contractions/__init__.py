"""Contractions and convolutions: their loops by role, and how they are packed."""
