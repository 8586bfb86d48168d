"""One step of training: forward pass, backward pass and the update of both weights by SGD.

The weights come in and go out, so they are the state of the loop around this step: a layout pays if
the forward product, the transposed ones of the backward pass and the update can all live with it.
"""

import jax
import jax.numpy as jnp

RATE = 0.1
BATCH, INPUTS, HIDDEN, OUTPUTS = 64, 128, 256, 64


def loss(weights, x, y):
    """Mean squared error of two layers with a ReLU between them."""
    first, second = weights
    found = jnp.maximum(x @ first, 0) @ second
    return jnp.mean((found - y) ** 2)


def step(w1, w2, x, y):
    """New weights, and the loss before them."""
    error, (d1, d2) = jax.value_and_grad(loss)((w1, w2), x, y)
    return w1 - RATE * d1, w2 - RATE * d2, error


def step_example():
    shapes = (INPUTS, HIDDEN), (HIDDEN, OUTPUTS), (BATCH, INPUTS), (BATCH, OUTPUTS)
    return tuple(jax.ShapeDtypeStruct(s, "float32") for s in shapes)


step_state = {"w1": 0, "w2": 1}  # argument → the result that is its value in the next step
