"""The UNet of Stable Diffusion XL: 2.57 billion weights, known by their shapes.

Podell et al. 2023, with the sizes of the public `unet/config.json` of stable-diffusion-xl-base-1.0:
levels of 320, 640 and 1280 channels with 0, 2 and 10 transformer blocks per place, heads of 64, a
prompt of 77 vectors of 2048. `sdxl` is all of it for a latent of 128 x 128 (1024 x 1024 pixels),
`transformer` one transformer block of 1280 channels on 32 x 32 places, `residual` a residual block
beside it. The embeddings of the time step and of the image's size come in as sines and cosines.
Images are NCHW, filters OIHW, matrices [in, out].
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from unet import centred

sdxl_weights = residual_weights = transformer_weights = ("params",)


@dataclass(frozen=True)
class Config:
    """Sizes of the whole."""

    size: int = 128  # of the latent
    latent: int = 4
    channels: tuple[int, ...] = (320, 640, 1280)
    blocks: tuple[int, ...] = (0, 2, 10)  # transformer blocks per level
    layers: int = 2  # residual blocks per level going down; one more going up
    head: int = 64
    groups: int = 32
    prompt: int = 77
    context: int = 2048
    added: int = 2816  # pooled prompt and six sizes
    epsilon: float = 1e-5

    @property
    def time(self):
        """Width of the embedding of the time step."""
        return 4 * self.channels[0]


XL = Config()


# ---- weights -------------------------------------------------------------------------------------
def _dense(inner, outer, bias=True):
    return {"w": (inner, outer)} | ({"b": (outer,)} if bias else {})


def _convolution(inner, outer, size=3):
    return {"w": (outer, inner, size, size), "b": (outer,)}


def _norm(width):
    return {"scale": (width,), "shift": (width,)}


def _attention(width, context):
    kinds = {"q": width, "k": context, "v": context}
    return {n: _dense(i, width, bias=False) for n, i in kinds.items()} | {"o": _dense(width, width)}


def _transformer(width, c: Config):
    return {
        "norm1": _norm(width), "own": _attention(width, width),
        "norm2": _norm(width), "cross": _attention(width, c.context),
        "norm3": _norm(width), "gated": _dense(width, 8 * width), "down": _dense(4 * width, width),
    }  # fmt: skip


def _residual(inner, outer, c: Config):
    found = {
        "norm1": _norm(inner), "conv1": _convolution(inner, outer), "time": _dense(c.time, outer),
        "norm2": _norm(outer), "conv2": _convolution(outer, outer),
    }  # fmt: skip
    return found if inner == outer else found | {"short": _convolution(inner, outer, 1)}


def _step(inner, outer, blocks, c: Config):
    """A residual block and, where the level has some, its transformer blocks."""
    found = {"residual": _residual(inner, outer, c)}
    if blocks:
        found["places"] = {
            "norm": _norm(outer), "into": _dense(outer, outer), "out": _dense(outer, outer),
            "blocks": [_transformer(outer, c)] * blocks,
        }  # fmt: skip
    return found


def shapes(c: Config):
    """Every weight as a `jax.ShapeDtypeStruct`, in a tree."""
    width, last = c.channels[0], c.channels[-1]
    kept, down, up = [width], [], []
    for level, (outer, blocks) in enumerate(zip(c.channels, c.blocks, strict=True)):
        steps = [_step(kept[-1] if i == 0 else outer, outer, blocks, c) for i in range(c.layers)]
        kept += [outer] * c.layers
        down.append({"steps": steps})
        if level < len(c.channels) - 1:
            down[-1]["sample"] = _convolution(outer, outer)
            kept.append(outer)
    inner = last
    for level, (outer, blocks) in enumerate(
        zip(reversed(c.channels), reversed(c.blocks), strict=True)
    ):
        steps = []
        for _ in range(c.layers + 1):
            steps.append(_step(inner + kept.pop(), outer, blocks, c))
            inner = outer
        up.append({"steps": steps})
        if level < len(c.channels) - 1:
            up[-1]["sample"] = _convolution(outer, outer)
    middle = [_step(last, last, c.blocks[-1], c), _step(last, last, 0, c)]
    tree = {
        "time": [_dense(width, c.time), _dense(c.time, c.time)],
        "added": [_dense(c.added, c.time), _dense(c.time, c.time)],
        "into": _convolution(c.latent, width), "down": down, "middle": middle, "up": up,
        "norm": _norm(width), "out": _convolution(width, c.latent),
    }  # fmt: skip
    return structs(tree)


def structs(tree):
    """Tuples of extents as `jax.ShapeDtypeStruct`."""

    def is_shape(x):
        return isinstance(x, tuple) and isinstance(x[0], int)

    return jax.tree_util.tree_map(
        lambda s: jax.ShapeDtypeStruct(s, "float32"), tree, is_leaf=is_shape
    )


# ---- the model -----------------------------------------------------------------------------------
def dense(x, p):
    y = x @ p["w"]
    return y + p["b"] if "b" in p else y


def convolve(x, p, stride=1):
    pad = "SAME" if p["w"].shape[-1] == 1 else ((1, 1), (1, 1))
    y = jax.lax.conv_general_dilated(
        x, p["w"], (stride, stride), pad, dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return y + p["b"][:, None, None]


def layer_norm(x, p, c: Config):
    return centred(x, (-1,), c.epsilon) * p["scale"] + p["shift"]


def group_norm(x, p, c: Config):
    split = x.reshape(x.shape[0], c.groups, -1, *x.shape[2:])
    y = centred(split, (2, 3, 4), c.epsilon).reshape(x.shape)
    return y * p["scale"][:, None, None] + p["shift"][:, None, None]


def attention(x, source, p, c: Config):
    """Of places to the vectors of a source, [batch, places, channels]."""
    batch, _, width = x.shape
    q, k, v = (
        dense(y, p[n]).reshape(batch, -1, width // c.head, c.head)
        for y, n in ((x, "q"), (source, "k"), (source, "v"))
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * c.head**-0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
    return dense(mixed.reshape(x.shape), p["o"])


def transform(x, prompt, p, c: Config):
    """One transformer block: to itself, to the prompt, and a gated feed-forward."""
    y = layer_norm(x, p["norm1"], c)
    x = x + attention(y, y, p["own"], c)
    x = x + attention(layer_norm(x, p["norm2"], c), prompt, p["cross"], c)
    value, gate = jnp.split(dense(layer_norm(x, p["norm3"], c), p["gated"]), 2, axis=-1)
    return x + dense(value * jax.nn.gelu(gate, approximate=False), p["down"])


def resolve(x, time, p, c: Config):
    """One residual block; time is the embedding after its activation."""
    y = convolve(jax.nn.silu(group_norm(x, p["norm1"], c)), p["conv1"])
    y = y + dense(time, p["time"])[:, :, None, None]
    y = convolve(jax.nn.silu(group_norm(y, p["norm2"], c)), p["conv2"])
    return y + (convolve(x, p["short"]) if "short" in p else x)


def step(x, time, prompt, p, c: Config):
    x = resolve(x, time, p["residual"], c)
    if "places" not in p:
        return x
    own = p["places"]
    y = group_norm(x, own["norm"], c).reshape(*x.shape[:2], -1).transpose(0, 2, 1)
    y = dense(y, own["into"])
    for block in own["blocks"]:
        y = transform(y, prompt, block, c)
    return x + dense(y, own["out"]).transpose(0, 2, 1).reshape(x.shape)


def doubled(x):
    """Every place four times."""
    return jnp.repeat(jnp.repeat(x, 2, axis=2), 2, axis=3)


def denoise(x, time, added, prompt, p, c: Config):
    """The noise in a latent; time and added are the embeddings' sines and cosines."""
    first, second = (
        dense(jax.nn.silu(dense(v, a)), b) for v, (a, b) in ((time, p["time"]), (added, p["added"]))
    )
    embedding = jax.nn.silu(first + second)
    x = convolve(x, p["into"])
    kept = [x]
    for level in p["down"]:
        for own in level["steps"]:
            x = step(x, embedding, prompt, own, c)
            kept.append(x)
        if "sample" in level:
            x = convolve(x, level["sample"], stride=2)
            kept.append(x)
    for own in p["middle"]:
        x = step(x, embedding, prompt, own, c)
    for level in p["up"]:
        for own in level["steps"]:
            x = step(jnp.concatenate([x, kept.pop()], axis=1), embedding, prompt, own, c)
        if "sample" in level:
            x = convolve(doubled(x), level["sample"])
    return convolve(jax.nn.silu(group_norm(x, p["norm"], c)), p["out"])


def example(c: Config):
    """The arguments of `denoise`: latent, time, sizes, prompt, weights."""
    latent = (1, c.latent, c.size, c.size)
    given = structs((latent, (1, c.channels[0]), (1, c.added), (1, c.prompt, c.context)))
    return *given, shapes(c)


# ---- programs ------------------------------------------------------------------------------------
def sdxl(x, time, added, prompt, params):
    """f32[1, 4, 128, 128], f32[1, 320], f32[1, 2816] and f32[1, 77, 2048] to the first's shape."""
    return denoise(x, time, added, prompt, params, XL)


def sdxl_example():
    return example(XL)


def transformer(x, prompt, params):
    """f32[1, 1024, 1280] and f32[1, 77, 2048] to the shape of the first."""
    return transform(x, prompt, params, XL)


def transformer_example():
    width, places = XL.channels[-1], (XL.size // 4) ** 2
    return structs(((1, places, width), (1, XL.prompt, XL.context), _transformer(width, XL)))


def residual(x, time, params):
    """f32[1, 1280, 32, 32] and the activated f32[1, 1280] to the shape of the first."""
    return resolve(x, time, params, XL)


def residual_example():
    width, size = XL.channels[-1], XL.size // 4
    return structs(((1, width, size, size), (1, XL.time), _residual(width, width, XL)))
