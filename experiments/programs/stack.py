"""Encoder layers of `encoder.py` behind each other, each with weights of its own, as arguments."""

import jax
from encoder import encoder_example, layer, params

encoder_1_weights = encoder_2_weights = encoder_4_weights = ("weights",)
encoder_8_weights = encoder_16_weights = ("weights",)


def stack(x, weights):
    """f32[128, 384] to the same."""
    for p in weights:
        x = layer(x, p)
    return x


def example(layers):
    found = {k: jax.ShapeDtypeStruct(v.shape, "float32") for k, v in params().items()}
    return *encoder_example(), [found] * layers


def encoder_1(x, weights):
    return stack(x, weights)


def encoder_1_example():
    return example(1)


def encoder_2(x, weights):
    return stack(x, weights)


def encoder_2_example():
    return example(2)


def encoder_4(x, weights):
    return stack(x, weights)


def encoder_4_example():
    return example(4)


def encoder_8(x, weights):
    return stack(x, weights)


def encoder_8_example():
    return example(8)


def encoder_16(x, weights):
    return stack(x, weights)


def encoder_16_example():
    return example(16)
