"""Loops of real models, searched inside: recurrent layers of three libraries, layers under a scan.

    python benchmarks/control.py [NAME…]

One JSON object per line: what is read (loops, opaque ops), the modelled time of the bodies as they
came in and as chosen, packs of weights before the loop and packs left inside of it, the error
against the float64 reference and against the library's own call, seconds of CPU time of the search.
Contractions that are not packed are priced at a tenth of the peak, so that packing pays.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "jax")
Model = tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...]]  # function, arguments, weights
SETTINGS = ("untiled_rate=0.1",)
STEPS, BATCH, SIZE = 20, 16, 64


def sequence(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((BATCH, STEPS, SIZE)).astype(np.float32)


def keras_layer(name: str) -> Model:
    import keras

    layer = getattr(keras.layers, name)(SIZE, return_sequences=True)
    layer(sequence())
    return layer, (sequence(),), ()


def flax_layer(cell: str) -> Model:
    from flax import nnx

    rnn = nnx.RNN(getattr(nnx, cell)(SIZE, SIZE, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(rnn)

    def call(state: Any, x: Any) -> Any:
        return nnx.merge(graph, state)(x)

    return call, (state, sequence()), ("state",)


def equinox_layer(cell: str) -> Model:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    own = getattr(eqx.nn, cell)(SIZE, SIZE, key=jax.random.key(0))
    start = jnp.zeros(SIZE) if cell == "GRUCell" else (jnp.zeros(SIZE), jnp.zeros(SIZE))

    def call(x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = own(row, h)
            return h, h if cell == "GRUCell" else h[0]

        return jax.vmap(lambda rows: jax.lax.scan(step, start, rows)[1])(x)

    return call, (sequence(),), ()


def encoder(count: int, scanned: bool) -> Model:
    """The encoder layer of experiments/programs so many times, under a scan or one by one."""
    import jax
    from layers import _module

    module = _module("encoder")
    rng = np.random.default_rng(0)
    shapes = module.params()
    stacks = {k: rng.standard_normal((count, *v.shape)).astype(v.dtype) * 0.05 for k, v in
              shapes.items()}  # fmt: skip

    def call(x: Any, params: Any) -> Any:
        if scanned:
            return jax.lax.scan(lambda h, p: (module.layer(h, p), None), x, params)[0]
        for i in range(count):
            x = module.layer(x, {k: v[i] for k, v in params.items()})
        return x

    (x,) = module.encoder_example()
    return call, (np.ones(x.shape, x.dtype), stacks), ("params",)


MODELS: dict[str, Callable[[], Model]] = {
    **{f"keras {n}": lambda n=n: keras_layer(n) for n in ("LSTM", "GRU", "SimpleRNN")},
    **{f"flax {n}": lambda n=n: flax_layer(n) for n in ("OptimizedLSTMCell", "GRUCell")},
    **{f"equinox {n}": lambda n=n: equinox_layer(n) for n in ("LSTMCell", "GRUCell")},
    "encoder-12 scan": lambda: encoder(12, True),
    "encoder-12 unrolled": lambda: encoder(12, False),
}


def measure(name: str) -> dict[str, Any]:
    """Everything about one model."""
    import jax
    from hunts.worst import worst_error

    import eqsat
    from eqsat.model.control import CONTROL, every_program

    function, args, weights = MODELS[name]()
    begin = time.process_time()
    run = eqsat.optimize(function, *args, weights=weights, target="avx512-xla", settings=SETTINGS)
    searched = time.process_time() - begin
    assert run.schedule is not None
    assert run.baseline_schedule is not None
    nodes = [n.op for p in every_program(run.program) for n in p.nodes]
    counts, checked = run.schedule.counts(), run.verify(samples=1)
    got, want = (jax.tree.leaves(f(*args)) for f in (run.compile(check="never"), function))
    errors = [worst_error(np.asarray(a), np.asarray(b, np.float64))[0]
              for a, b in zip(got, want, strict=True)]  # fmt: skip
    return {
        "model": name,
        "loops": sum(op in CONTROL for op in nodes),
        "opaque": nodes.count("opaque"),
        "baseline_us": run.baseline_schedule.time_ps / 1e6,
        "time_us": run.schedule.time_ps / 1e6,
        "gap": run.summary()["goals"]["time_us"]["gap"],
        "weight_packs": counts["weight_packs"],
        "packs_inside": counts["packs"] + counts["fused_conversions"],
        "peak_bytes": run.schedule.peak_bytes,
        "resident_bytes": run.schedule.resident_bytes,
        "error": checked.max_error,
        "error_of_library": max(errors),
        "cpu_seconds": round(searched, 2),
    }


def main(names: list[str]) -> None:
    for name in names or MODELS:
        print(json.dumps(measure(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
