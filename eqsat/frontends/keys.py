"""PRNG keys among arguments: programs hold their data, the traced function gets keys again."""

from __future__ import annotations

from typing import Any


def is_key(x: Any) -> bool:
    """Whether this array, tracer or ShapeDtypeStruct holds typed PRNG keys."""
    import jax
    import jax.numpy as jnp

    dtype = getattr(x, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def key_kind(x: Any) -> Any:
    """What `jax.random.wrap_key_data(…, impl=)` wants for keys of this kind; None if x has none."""
    import jax

    if not is_key(x):
        return None
    kinds: list[Any] = []

    def look(keys: Any) -> Any:
        kinds.append(jax.random.key_impl(keys))
        return jax.random.key_data(keys)

    jax.eval_shape(look, jax.ShapeDtypeStruct(x.shape, x.dtype))
    return kinds[0]
