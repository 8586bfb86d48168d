"""Kernels: a nest and its plan become LLVM IR, an object and a call inside `jax.jit`."""
