"""A transpose whose result is packed for a matmul and needed by others too."""

import jax
import jax.numpy as jnp


def transposed_pack(a, b):
    t = a.T
    y = jnp.einsum("mk,nk->mn", t, b)
    return y, t, t + t


def transposed_pack_example():
    return jax.ShapeDtypeStruct((512, 256), "float32"), jax.ShapeDtypeStruct((256, 512), "float32")
