"""Programs that nothing of a target was fitted to, for `accelbytes.py`: blocks of networks.

Those of the library fit into a TPU's VMEM, the others mostly not.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from accelprograms import Case, shape
from jax import lax

ROWS, WIDTH, HEADS = 16384, 1024, 16
IMAGES = ("NHWC", "HWIO", "NHWC")
LIBRARY = (
    "encoder.py:encoder", "mlp.py:mlp_784", "bottlenecks.py:bottlenecks", "gates.py:gates",
    "stack.py:encoder_2",
)  # fmt: skip


def layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def rms_norm(x: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def attend(q: Any, k: Any, v: Any) -> Any:
    """Rows of 512 tokens, heads of 64."""
    q, k, v = (a.reshape(-1, 512, HEADS, WIDTH // HEADS) for a in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
    return mixed.reshape(-1, WIDTH)


def transformer(x: Any, q: Any, k: Any, v: Any, o: Any, up: Any, down: Any) -> Any:
    """Pre-norm, with GELU."""
    y = layer_norm(x)
    x = x + attend(y @ q, y @ k, y @ v) @ o
    return x + jax.nn.gelu(layer_norm(x) @ up) @ down


def llama_mlp(x: Any, gate: Any, up: Any, down: Any) -> Any:
    y = rms_norm(x)
    return x + (jax.nn.silu(y @ gate) * (y @ up)) @ down


def post_norm(x: Any, up: Any, down: Any) -> Any:
    return layer_norm(x + jax.nn.relu(x @ up) @ down)


def bottleneck(x: Any, a: Any, b: Any, c: Any) -> Any:
    """Of ResNet: 1 x 1, 3 x 3, 1 x 1."""
    y = jax.nn.relu(jnp.einsum("bhwc,cd->bhwd", x, a))
    y = jax.nn.relu(lax.conv_general_dilated(y, b, (1, 1), "SAME", dimension_numbers=IMAGES))
    return jax.nn.relu(x + jnp.einsum("bhwc,cd->bhwd", y, c))


def depthwise(x: Any, a: Any, b: Any, c: Any) -> Any:
    """Of MobileNet: wide, 3 x 3 of each channel, narrow."""
    y = jax.nn.relu6(jnp.einsum("bhwc,cd->bhwd", x, a))
    y = lax.conv_general_dilated(
        y, b, (1, 1), "SAME", dimension_numbers=IMAGES, feature_group_count=y.shape[-1]
    )
    return x + jnp.einsum("bhwc,cd->bhwd", jax.nn.relu6(y), c)


def classifier(x: Any, table: Any) -> Any:
    """The logarithm of what a softmax sums, for every row."""
    return jax.nn.logsumexp((x @ table).astype(jnp.float32), axis=-1)


def quantised(x: Any, a: Any, b: Any) -> Any:
    """i8, requantised between."""
    y = jnp.matmul(x, a, preferred_element_type=jnp.int32)
    y = jnp.clip(jnp.round(y * 0.01), 0, 127).astype(jnp.int8)
    return jnp.matmul(y, b, preferred_element_type=jnp.int32)


def experts(x: Any, up: Any, down: Any) -> Any:
    return jnp.einsum("etf,efd->etd", jax.nn.relu(jnp.einsum("etd,edf->etf", x, up)), down)


def autoencoder(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """The error of every row, f32."""
    y = jnp.tanh(jnp.tanh(x @ a) @ b)
    return ((jnp.tanh(y @ c) @ d - x) ** 2).mean(-1)


def geglu(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return (jax.nn.gelu(x @ gate) * (x @ up)) @ down


def heads(x: Any, q: Any, k: Any, v: Any) -> Any:
    """Three projections of a normed value."""
    y = rms_norm(x)
    return y @ q, y @ k, y @ v


def towers(x: Any, y: Any, a: Any, b: Any) -> Any:
    """How alike two batches are, row by row."""
    u, v = jax.nn.relu(x @ a) @ b, jax.nn.relu(y @ a) @ b
    return (u * v).sum(-1)


def deep_and_wide(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """f32, with biases of a kind and a shortcut."""
    y = jnp.tanh(x @ a + 0.5)
    y = jnp.tanh(y @ b - 0.5)
    return jnp.tanh(y @ c) @ d + x


def softmax_head(x: Any, a: Any, b: Any) -> Any:
    return jax.nn.softmax(jax.nn.relu(x @ a) @ b, -1)


def gated_experts(x: Any, gate: Any, up: Any, down: Any) -> Any:
    y = jax.nn.silu(jnp.einsum("etd,edf->etf", x, gate)) * jnp.einsum("etd,edf->etf", x, up)
    return jnp.einsum("etf,efd->etd", y, down)


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    mixed = jnp.einsum("bkd,bke->bde", jax.nn.relu(k), v)
    return jnp.einsum("bqd,bde->bqe", jax.nn.relu(q), mixed)


def patches(x: Any, filters: Any, up: Any, down: Any) -> Any:
    """An image cut into patches of 16 x 16, and a layer on them."""
    y = lax.conv_general_dilated(x, filters, (16, 16), "VALID", dimension_numbers=IMAGES)
    y = y.reshape(-1, y.shape[-1])
    return y + jax.nn.relu(y @ up) @ down


def last() -> dict[str, Case]:
    """Those that were written when all of `further` had been looked at."""
    x, up, down = shape(32768, WIDTH), shape(WIDTH, 4 * WIDTH), shape(4 * WIDTH, WIDTH)
    square, wide = shape(WIDTH, WIDTH), shape(65536, WIDTH)
    f32 = [
        shape(*s, dtype="float32")
        for s in ((65536, 512), (512, 2048), (2048, 2048), (2048, 1024), (1024, 512))
    ]
    tokens, gate = shape(8, 8192, WIDTH), shape(8, WIDTH, 4096)
    return {
        "geglu": (geglu, [x, up, up, down], ("gate", "up", "down")),
        "heads": (heads, [wide, square, square, square], ("q", "k", "v")),
        "towers": (towers, [wide, wide, up, down], ("a", "b")),
        "deep_and_wide": (deep_and_wide, f32, ("a", "b", "c", "d")),
        "softmax_head": (softmax_head, [x, up, shape(4 * WIDTH, 2048)], ("a", "b")),
        "gated_experts": (gated_experts, [tokens, gate, gate, shape(8, 4096, WIDTH)],
                          ("gate", "up", "down")),
        "linear_attention": (linear_attention, [shape(64, 8192, 128)] * 3, ()),
        "patches": (patches, [shape(256, 224, 224, 3), shape(16, 16, 3, 768), shape(768, 3072),
                              shape(3072, 768)], ("filters", "up", "down")),
    }  # fmt: skip


def further() -> dict[str, Case]:
    """Name → case, as `accelprograms.cases`."""
    x, square = shape(ROWS, WIDTH), shape(WIDTH, WIDTH)
    up, down = shape(WIDTH, 4 * WIDTH), shape(4 * WIDTH, WIDTH)
    f32 = [
        shape(*s, dtype="float32")
        for s in ((ROWS, 2048), (2048, 1024), (1024, 256), (256, 1024), (1024, 2048))
    ]
    i8 = [shape(*s, dtype="int8") for s in ((65536, 1024), (1024, 4096), (4096, 1024))]
    image, places = shape(128, 56, 56, 256), shape(128, 56, 56, 32)
    return {
        "transformer": (transformer, [x, *[square] * 4, up, down],
                        ("q", "k", "v", "o", "up", "down")),
        "llama_mlp": (llama_mlp, [shape(32768, WIDTH), up, up, down], ("gate", "up", "down")),
        "post_norm": (post_norm, [shape(65536, WIDTH), up, down], ("up", "down")),
        "bottleneck": (bottleneck, [image, shape(256, 64), shape(3, 3, 64, 64), shape(64, 256)],
                       ("a", "b", "c")),
        "depthwise": (depthwise, [places, shape(32, 192), shape(3, 3, 1, 192), shape(192, 32)],
                      ("a", "b", "c")),
        "classifier": (classifier, [shape(8192, WIDTH), shape(WIDTH, 32768)], ("table",)),
        "quantised": (quantised, i8, ("a", "b")),
        "experts": (experts, [shape(8, 8192, WIDTH), shape(8, WIDTH, 4096), shape(8, 4096, WIDTH)],
                    ("up", "down")),
        "autoencoder": (autoencoder, f32, ("a", "b", "c", "d")),
    }  # fmt: skip
