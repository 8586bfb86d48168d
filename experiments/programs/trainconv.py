"""Steps of training of a small convolution net: forward pass, backward pass and update.

Two convolutions with ReLU, the second of them with stride 2, a mean over the image and a product
to ten classes. `sgd` subtracts the gradients; `adam` keeps two moments of every weight. All state
comes in and goes out, so a layout of it can be kept from step to step.
"""

import jax
import jax.numpy as jnp

BATCH, SIZE, INPUTS, FIRST, SECOND, CLASSES = 16, 32, 16, 32, 64, 10
RATE, DECAY_1, DECAY_2, TINY = 1e-3, 0.9, 0.999, 1e-8


def convolve(x, filters, stride):
    """Images as NHWC, filters as HWIO."""
    return jax.lax.conv_general_dilated(
        x, filters, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def loss(weights, x, y):
    """Mean cross entropy with one-hot classes."""
    w1, w2, w3 = weights
    h = jax.nn.relu(convolve(x, w1, 1))
    h = jax.nn.relu(convolve(h, w2, 2))
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(h.mean((1, 2)) @ w3) * y, axis=-1))


def sgd(w1, w2, w3, x, y):
    """New weights, and the loss before them."""
    error, gradients = jax.value_and_grad(loss)((w1, w2, w3), x, y)
    return *(w - RATE * g for w, g in zip((w1, w2, w3), gradients, strict=True)), error


def adam(w1, w2, w3, m1, m2, m3, v1, v2, v3, x, y):
    """New weights, new first and second moments, and the loss before them; no bias correction."""
    error, gradients = jax.value_and_grad(loss)((w1, w2, w3), x, y)
    ms = [DECAY_1 * m + (1 - DECAY_1) * g for m, g in zip((m1, m2, m3), gradients, strict=True)]
    vs = [DECAY_2 * v + (1 - DECAY_2) * g * g for v, g in zip((v1, v2, v3), gradients, strict=True)]
    ws = [w - RATE * m / (jnp.sqrt(v) + TINY) for w, m, v in zip((w1, w2, w3), ms, vs, strict=True)]
    return *ws, *ms, *vs, error


def _shapes(times):
    weights = (3, 3, INPUTS, FIRST), (3, 3, FIRST, SECOND), (SECOND, CLASSES)
    shapes = *(weights * times), (BATCH, SIZE, SIZE, INPUTS), (BATCH, CLASSES)
    return tuple(jax.ShapeDtypeStruct(s, "float32") for s in shapes)


def sgd_example():
    return _shapes(1)


def adam_example():
    return _shapes(3)


sgd_state = {f"w{i}": i - 1 for i in (1, 2, 3)}  # argument → the result that takes its place
adam_state = {f"{k}{i}": 3 * j + i - 1 for j, k in enumerate("wmv") for i in (1, 2, 3)}
