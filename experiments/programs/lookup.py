"""Queries look up a memory by content: cosine similarity with each of its slots.

The memory is transposed once. The product packs what it reads, the norms only add it up: folding
the transpose into the pack is right for the one, and keeps it alive for the other.
"""

import jax
import jax.numpy as jnp


def lookup(queries, memory):
    """f32[m, d], f32[n, d] -> f32[m, n]; not divided by the lengths of the queries."""
    slots = memory.T
    return queries @ slots / jnp.sqrt((slots * slots).sum(axis=0))


def shapes(queries, width, slots):
    return tuple(jax.ShapeDtypeStruct((rows, width), "float32") for rows in (queries, slots))


def lookup_example():
    """A memory of 1 MiB."""
    return shapes(16, 256, 1024)


def lookup_large(queries, memory):
    return lookup(queries, memory)


def lookup_large_example():
    """A memory of 4 MiB."""
    return shapes(8, 512, 2048)
