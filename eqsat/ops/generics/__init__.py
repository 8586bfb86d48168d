"""The structured op: its canonical form, and what moves through it."""
