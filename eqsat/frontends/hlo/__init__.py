"""XLA's HLO text after optimization, as `jax.jit(f).lower(…).compile().as_text()` prints it."""
