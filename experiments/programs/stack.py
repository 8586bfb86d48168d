"""Encoder layers of `encoder.py` behind each other, each with weights of its own."""

import jax
from encoder import encoder_example, layer, params


def _stack(x, weights):
    for p in weights:
        x = layer(x, p)
    return x


def _example(layers):
    found = {k: jax.ShapeDtypeStruct(v.shape, "float32") for k, v in params().items()}
    return *encoder_example(), [found] * layers


def _named(layers):
    """A function of its own for each depth, as programs are named by their functions."""

    def stack(x, weights):
        return _stack(x, weights)

    stack.__name__ = f"encoder_{layers}"
    return stack


for _layers in (1, 2, 4, 8, 16):
    _name = f"encoder_{_layers}"
    globals()[_name] = _named(_layers)
    globals()[f"{_name}_weights"] = ("weights",)
    globals()[f"{_name}_example"] = lambda _n=_layers: _example(_n)
