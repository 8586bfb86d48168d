"""How ops are cut over a mesh of devices, and what a cut op is on one of them."""
