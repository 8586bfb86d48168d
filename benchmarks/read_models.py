"""How long the applications of Keras take to read, and what of them is kept opaque.

    python benchmarks/read_models.py [NAME …]

One JSON line per application: the ops of its program, weights in bytes, opaque primitives by count,
and the CPU seconds of `trace`, JAX's own tracing included. Weights are shapes: none is computed.
"""

from __future__ import annotations

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
    kept = Counter(n.attr.primitive for n in program.nodes if n.op == "opaque")
    return {
        "model": name,
        "ops": program.op_count,
        "weight_bytes": program.weight_bytes,
        "opaque": dict(kept),
        "read_cpu_s": round(seconds, 2),
    }


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        print(json.dumps(read(name)), flush=True)
