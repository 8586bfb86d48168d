"""IREE's dispatches, as `iree-compile --compile-to=dispatch-creation` prints them."""
