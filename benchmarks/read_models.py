"""How long the applications of Keras take to read, and what of them is kept opaque; and chains.

    python benchmarks/read_models.py [NAME …]

One JSON line per application: the ops of its program, weights in bytes, opaque primitives by count,
and the CPU seconds of `trace`, JAX's own tracing included. Weights are shapes: none is computed.
Three programs of scalar work alone (`doublings_200`, `squares_60`, `chain_20000`) say besides what
JAX's tracing took (`jax_cpu_s`) and what merging the chain took (`merge_cpu_s`).
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections import Counter
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

NAMES = (
    "ResNet50", "ResNet50V2", "MobileNet", "MobileNetV2", "MobileNetV3Small", "EfficientNetB0",
    "EfficientNetV2B0", "DenseNet121", "VGG16", "InceptionV3", "Xception", "ConvNeXtTiny",
    "NASNetMobile",
)  # fmt: skip
IMAGE = 224  # pixels a side, where the application does not say


def read(name: str) -> dict[str, Any]:
    """The row of one application."""
    import jax
    import keras

    from eqsat.frontends.jaxpr import trace
    from eqsat.model.foreign import Opaque

    with keras.StatelessScope(initialize_variables=False):
        model = getattr(keras.applications, name)(weights=None)
    sides = model.trainable_variables, model.non_trainable_variables
    weights = [[jax.ShapeDtypeStruct(v.shape, v.dtype) for v in side] for side in sides]
    image = tuple(d or IMAGE for d in model.input_shape[1:-1])
    x = jax.ShapeDtypeStruct((1, *image, model.input_shape[-1]), "float32")

    def call(weights: Any, x: Any) -> Any:
        return model.stateless_call(*weights, x, training=False)[0]

    start = time.process_time()
    program = trace(call, (weights, x), weights=("weights",), name=name).program
    seconds = time.process_time() - start
    kept = Counter(n.attr.primitive for n in program.nodes if isinstance(n.attr, Opaque))
    return {
        "model": name,
        "ops": program.op_count,
        "weight_bytes": program.weight_bytes,
        "opaque": dict(kept),
        "read_cpu_s": round(seconds, 2),
    }


def doublings_200(v: Any, w: Any) -> Any:
    for _ in range(200):
        v = v + v
    return v


def squares_60(v: Any, w: Any) -> Any:
    for _ in range(60):
        v = v * v
    return v


def chain_20000(v: Any, w: Any) -> Any:
    import jax.numpy as jnp

    steps = (lambda v, i: v * (0.5 + i * 1e-6), lambda v, i: v + w, lambda v, i: jnp.tanh(v))
    for i in range(20_000):
        v = steps[i % len(steps)](v, i)
    return v


CHAINS = {f.__name__: f for f in (doublings_200, squares_60, chain_20000)}


def read_chain(name: str) -> dict[str, Any]:
    """The row of a program of scalar work."""
    import jax

    from eqsat.frontends.jaxpr import trace
    from eqsat.ops.spelling.passes import canonical

    x = jax.ShapeDtypeStruct((4, 8), "float32")
    at = [time.process_time()]
    jax.make_jaxpr(CHAINS[name])(x, x)
    at.append(time.process_time())
    program = trace(CHAINS[name], (x, x)).program
    at.append(time.process_time())
    merged = canonical(program)
    at.append(time.process_time())
    jax_s, read_s, merge_s = (round(b - a, 2) for a, b in itertools.pairwise(at))
    return {
        "model": name,
        "ops": program.op_count,
        "merged_ops": merged.op_count,
        "jax_cpu_s": jax_s,
        "read_cpu_s": read_s,
        "merge_cpu_s": merge_s,
    }


if __name__ == "__main__":
    for name in sys.argv[1:] or (*NAMES, *CHAINS):
        print(json.dumps(read_chain(name) if name in CHAINS else read(name)), flush=True)
