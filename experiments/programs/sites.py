"""Parts of models that say something of one place in them, made of the models' own code.

`gpt2_layer` is GPT-2 small with one of its twelve layers: both uses of its table, and the keys and
values that it returns. `gpt2_attention` is what lies between the two dense layers there.
`swin_0` to `swin_3` are the attention inside windows of the four stages of Swin-T, without a mask.
"""

from dataclasses import replace

import gpt2
import jax
import jax.numpy as jnp
import swin

gpt2_layer_weights = ("params",)
swin_0_weights = swin_1_weights = swin_2_weights = swin_3_weights = ("params",)

ONE = replace(gpt2.SMALL, layers=1)


def gpt2_layer(ids, params):
    """i32[128] to f32[50257] and twice f32[12, 128, 64]."""
    return gpt2.prefill(ids, params, ONE)


def gpt2_layer_example():
    return jax.ShapeDtypeStruct((ONE.tokens,), "int32"), gpt2.shapes(ONE)


def gpt2_attention(qkv):
    """f32[128, 2304] to f32[128, 768] and twice f32[12, 128, 64]."""
    q, k, v = (gpt2.heads(part, ONE) for part in jnp.split(qkv, 3, axis=-1))
    places = jnp.arange(ONE.tokens)
    return gpt2.attend(q, k, v, places[:, None] >= places[None, :]), k, v


def gpt2_attention_example():
    return jax.ShapeDtypeStruct((ONE.tokens, 3 * ONE.width), "float32")


def _windows(x, params, stage):
    return swin.attention(x, params, "0", swin.TINY.heads[stage], None, swin.TINY)


def _windows_example(stage):
    """Every window of an image, and the weights of one attention."""
    c = swin.TINY
    width, window = c.width << stage, c.window**2
    shapes = {"0.table": ((2 * c.window - 1) ** 2, c.heads[stage])}
    shapes |= {"0.qkv.w": (width, 3 * width), "0.qkv.b": (3 * width,)}
    shapes |= {"0.out.w": (width, width), "0.out.b": (width,)}
    x = jax.ShapeDtypeStruct((c.places(stage) ** 2 // window, window, width), "float32")
    return x, {k: jax.ShapeDtypeStruct(s, "float32") for k, s in shapes.items()}


def swin_0(x, params):
    """f32[64, 49, 96] to the same."""
    return _windows(x, params, 0)


def swin_0_example():
    return _windows_example(0)


def swin_1(x, params):
    """f32[16, 49, 192] to the same."""
    return _windows(x, params, 1)


def swin_1_example():
    return _windows_example(1)


def swin_2(x, params):
    """f32[4, 49, 384] to the same."""
    return _windows(x, params, 2)


def swin_2_example():
    return _windows_example(2)


def swin_3(x, params):
    """f32[1, 49, 768] to the same."""
    return _windows(x, params, 3)


def swin_3_example():
    return _windows_example(3)
