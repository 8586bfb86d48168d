"""Models of Keras, Flax NNX and Equinox are read whole: from abstract weights, with equal numbers.

Each library's way to say "this model, its weights not allocated" is the function named after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.worst import worst_error
from seeds import seeds, some

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.frontends.source import Traced
from eqsat.model.control import every_program
from eqsat.ops.meaning.programs import evaluate_program

LIMIT = 5e-5  # the variance as a difference of two means, as JAX libraries do it, cancels in f32
IMAGE, SEQUENCE, TOKENS = (2, 9, 8, 4), (2, 10, 6), (2, 10)


@dataclass(frozen=True)
class Model:
    """A function of (weights, *inputs), and the shapes and types of all of them."""

    call: Callable[..., Any]
    weights: Any
    inputs: tuple[jax.ShapeDtypeStruct, ...]

    def arrays(self) -> tuple[Any, ...]:
        """Weights and inputs: floats in 0.05 … 0.4, which a variance may be, small integers."""
        rng = np.random.default_rng(7)
        return jax.tree.map(lambda s: drawn(s, rng), (self.weights, *self.inputs))


def drawn(s: jax.ShapeDtypeStruct, rng: np.random.Generator) -> Any:
    if jnp.issubdtype(s.dtype, jax.dtypes.prng_key):
        return jax.random.key(0)
    if not jnp.issubdtype(s.dtype, jnp.floating):
        return jnp.asarray(rng.integers(0, 8, s.shape), s.dtype)
    return jnp.asarray(rng.uniform(0.05, 0.4, s.shape), s.dtype)


def real(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def ids(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def of_keras(make: Callable[[], Any], *inputs: Any) -> Model:
    """Variables of a `StatelessScope` have no arrays; `stateless_call` takes them as arguments."""
    import keras

    with keras.StatelessScope(initialize_variables=False):
        model = make()
    sides = model.trainable_variables, model.non_trainable_variables
    weights = [[jax.ShapeDtypeStruct(v.shape, v.dtype) for v in side] for side in sides]

    def call(weights, *xs):
        return model.stateless_call(*weights, *xs, training=False)[0]

    return Model(call, weights, inputs)


def of_flax(make: Callable[[], Any], *inputs: Any, call: Any = None) -> Model:
    """`nnx.eval_shape` makes a module without arrays; `nnx.split` parts it into graph and state."""
    from flax import nnx

    graph, state = nnx.split(nnx.eval_shape(make))

    def function(weights, *xs):
        module = nnx.merge(graph, weights)
        module.eval()
        return (call or type(module).__call__)(module, *xs)

    return Model(function, state, inputs)


def of_equinox(make: Callable[[Any], Any], *inputs: Any) -> Model:
    """`filter_eval_shape` makes a module without arrays; `partition` parts them from the rest."""
    import equinox as eqx

    shapes = eqx.filter_eval_shape(make, jax.random.key(0))
    weights, rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def call(weights, *xs):
        return eqx.combine(weights, rest)(*xs)

    return Model(call, weights, inputs)


# ---- Keras -------------------------------------------------------------------------------------


def keras_images():
    import keras
    from keras import layers as k

    return of_keras(
        lambda: keras.Sequential(
            [
                k.Input(IMAGE[1:]),
                k.Rescaling(1 / 2),
                k.Conv2D(8, 3, strides=2, padding="same", use_bias=False),
                k.BatchNormalization(),
                k.ReLU(6),
                k.Conv2D(8, 3, padding="same", groups=2, dilation_rate=2, activation="silu"),
                k.DepthwiseConv2D(3, depth_multiplier=2, padding="same"),
                k.GroupNormalization(4),
                k.Conv2DTranspose(6, 3, strides=2, padding="same"),
                k.LeakyReLU(),
                k.SeparableConv2D(5, 3),
                k.ZeroPadding2D(1),
                k.MaxPooling2D(3, 2, padding="same"),
                k.UpSampling2D(2, interpolation="bilinear"),
                k.AveragePooling2D(3, 2, padding="same"),
                k.PReLU(),
                k.Dropout(0.3),
                k.GlobalAveragePooling2D(),
                k.Dense(7, activation="softmax"),
            ]
        ),
        real(*IMAGE),
    )


def keras_text():
    import keras
    from keras import layers as k

    def make():
        tokens = k.Input(TOKENS[1:], dtype="int32")
        x = k.Embedding(11, 8)(tokens) + k.Embedding(10, 8)(keras.ops.arange(10))
        a = k.LayerNormalization()(x)
        x = x + k.MultiHeadAttention(2, 4)(a, a, use_causal_mask=True)
        x = x + k.EinsumDense("abc,cd->abd", (None, 8), bias_axes="d", activation="gelu")(x)
        x = k.RMSNormalization()(x)
        x = k.Conv1D(6, 3, padding="causal", dilation_rate=2)(x)
        x = k.GroupQueryAttention(3, 4, 2)(x, x)
        return keras.Model(tokens, [k.GlobalMaxPooling1D()(x), x])

    return of_keras(make, ids(*TOKENS))


def keras_recurrent():
    import keras
    from keras import layers as k

    def make():
        both_ways = k.Bidirectional(k.LSTM(3, return_sequences=True))
        return keras.Sequential([k.Input(SEQUENCE[1:]), both_ways, k.GRU(4)])

    return of_keras(make, real(*SEQUENCE))


def keras_volumes():
    import keras
    from keras import layers as k

    def make():
        convolved = [k.Conv3D(3, 3), k.MaxPooling3D(), k.Conv3DTranspose(2, 2, 2)]
        return keras.Sequential([k.Input((5, 6, 7, 2)), *convolved])

    return of_keras(make, real(1, 5, 6, 7, 2))


# ---- Flax --------------------------------------------------------------------------------------


def flax_images():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(4, 8, (3, 3), strides=2, feature_group_count=2, rngs=rngs)
            self.batch_norm = nnx.BatchNorm(8, rngs=rngs)
            self.group_norm = nnx.GroupNorm(8, 2, rngs=rngs)
            self.around = nnx.Conv(8, 8, (3, 3), padding="CIRCULAR", rngs=rngs)
            self.up = nnx.ConvTranspose(8, 4, (3, 3), strides=2, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            x = nnx.relu(self.batch_norm(self.conv(x)))
            x = nnx.gelu(self.group_norm(self.around(x)))
            x = nnx.avg_pool(x, (2, 2), (1, 1), "SAME", count_include_pad=False)
            return nnx.max_pool(self.drop(self.up(x)), (2, 2), (2, 2)).mean((1, 2))

    return of_flax(lambda: Net(nnx.Rngs(0)), real(*IMAGE))


def flax_text():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(11, 8, rngs=rngs)
            self.norm = nnx.RMSNorm(8, rngs=rngs)
            self.attend = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
            self.low_rank = nnx.LoRA(8, 2, 8, rngs=rngs)
            self.out = nnx.LinearGeneral((10, 8), (3, 2), axis=(1, 2), rngs=rngs)

        def __call__(self, tokens):
            x = self.embed(tokens)
            x = x + self.attend(self.norm(x), mask=nnx.make_causal_mask(tokens))
            return self.out(x + self.low_rank(x)), self.embed.attend(x)

    return of_flax(lambda: Net(nnx.Rngs(0)), ids(*TOKENS))


def flax_decoding():
    """One token into a cache that is part of the state and comes back with it."""
    from flax import nnx

    def make():
        m = nnx.MultiHeadAttention(2, 6, qkv_features=8, decode=True, rngs=nnx.Rngs(0))
        m.init_cache(SEQUENCE)
        return m

    def step(module, x):
        return module(x), module.cached_key[...], module.cache_index[...]

    return of_flax(make, real(2, 1, 6), call=step)


def flax_recurrent():
    from flax import nnx

    return of_flax(lambda: nnx.RNN(nnx.LSTMCell(6, 5, rngs=nnx.Rngs(0))), real(*SEQUENCE))


# ---- Equinox -----------------------------------------------------------------------------------


def equinox_images():
    import equinox as eqx

    def make(key):
        n, (a, b, c, d) = eqx.nn, jax.random.split(key, 4)
        return n.Sequential(
            [
                n.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, key=a),
                n.GroupNorm(2, 6),
                n.Lambda(jax.nn.elu),
                n.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, key=b),
                n.Conv2d(4, 4, 3, padding="SAME", padding_mode="REFLECT", key=c),
                n.MaxPool2d(3, 2, padding=1, use_ceil=True),
                n.AdaptiveAvgPool2d((2, 2)),
                n.Lambda(n.PReLU()),
                n.Lambda(jnp.ravel),
                n.Dropout(0.4, inference=True),
                n.MLP(16, 3, 8, 2, key=d),
            ]
        )

    return of_equinox(make, real(4, 9, 8))


def equinox_text():
    import equinox as eqx

    class Net(eqx.Module):
        embed: Any
        rotary: Any
        attend: Any
        norm: Any
        cell: Any

        def __init__(self, key):
            a, b, c = jax.random.split(key, 3)
            self.embed = eqx.nn.Embedding(11, 8, key=a)
            self.rotary = eqx.nn.RotaryPositionalEmbedding(8)
            self.attend = eqx.nn.MultiheadAttention(2, 8, key=b)
            self.norm = eqx.nn.RMSNorm(8)
            self.cell = eqx.nn.GRUCell(8, 4, key=c)

        def __call__(self, tokens):
            x = self.rotary(jax.vmap(self.embed)(tokens))
            x = x + self.attend(x, x, x, mask=jnp.tri(10, dtype=bool))
            x = jax.vmap(self.norm)(x)
            state, _ = jax.lax.scan(lambda h, y: (self.cell(y, h), None), jnp.zeros(4), x)
            return state, x[tokens[0]]

    return of_equinox(Net, ids(10))


MODELS = [
    keras_images, keras_text, keras_recurrent, keras_volumes,
    flax_images, flax_text, flax_decoding, flax_recurrent,
    equinox_images, equinox_text,
]  # fmt: skip


def opaque(traced: Traced) -> set[str]:
    programs = every_program(traced.program)
    return {n.attr.primitive for p in programs for n in p.nodes if n.op == "opaque"}


@pytest.mark.parametrize(
    "make", some([equinox_text], MODELS), ids=lambda f: f.__name__
)  # keras takes 4 s, one of flax is below
def test_models_are_read_whole(make):
    model = make()
    traced = trace(model.call, (model.weights, *model.inputs), weights=("weights",))
    assert opaque(traced) == set()
    args = model.arrays()
    got = evaluate_program(
        traced.program,
        traced.flat_inputs(tuple(args)),
        traced.flat_weights(tuple(args)),
        traced.opaque,
    )
    want = jax.tree.leaves(jax.jit(model.call)(*args))
    for g, w in zip(got, want, strict=True):
        error, where = worst_error(np.asarray(w), g)
        assert error < LIMIT, where


@pytest.mark.parametrize("make", seeds(1, [flax_decoding, keras_volumes]), ids=lambda f: f.__name__)
def test_models_run_after_a_search(make):
    model = make()
    run = eqsat.optimize(
        model.call, model.weights, *model.inputs, weights=("weights",), target="reference"
    )
    args = model.arrays()
    got = jax.tree.leaves(run.compile()(*args))
    for g, w in zip(got, jax.tree.leaves(jax.jit(model.call)(*args)), strict=True):
        error, where = worst_error(np.asarray(g), np.asarray(w).astype(np.float64))
        assert error < LIMIT, where


def test_reading_allocates_no_weights():
    """A layer of 4 TB is read from its shapes."""
    from flax import nnx

    shapes = nnx.eval_shape(lambda: nnx.Linear(10**6, 10**6, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(shapes)
    traced = trace(
        lambda weights, x: nnx.merge(graph, weights)(x),
        (state, real(1, 10**6)),
        weights=("weights",),
    )
    assert traced.program.weight_bytes > 4 * 10**12
    assert not traced.weights
