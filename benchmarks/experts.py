"""A block of experts, predicted and measured: one dispatch against its gather written out; JSON.

    python benchmarks/experts.py [--target avx512-xla] [--rounds N]

A top-k router picks 2 of 8 experts per token, and each token is multiplied by its experts' weights:
`y[t, n] = sum of p[t, j] * x[t, k] * w[i[t, j], k, n]`; and the same by one expert per token, whose
number is given. `predicted` is how much faster the target says the program is than with the gather
as a dispatch of its own, and than the input. `measured` is the same on this CPU, process time of
interleaved rounds: `jax.jit` of all against `jax.jit` of each side of the gather, and `eqsat.jit`
against `jax.jit`. They are `together` if both are on the same side of 1, where a gain of up to
`--same` is none. Exit code 1 if some are not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import eqsat

TOKENS, DEPTH, WIDTH, EXPERTS, CHOSEN = 32, 256, 256, 8, 2
APART = "fusion.join.move=[]"  # a gather is a dispatch of its own


def route(x: Any, gate: Any) -> tuple[Any, Any]:
    """(share, number) of each token's experts."""
    share, number = jax.lax.top_k(jax.nn.softmax(x @ gate), CHOSEN)
    return share, number


def mix(x: Any, share: Any, taken: Any) -> Any:
    """taken: f32[tokens, chosen, depth, width], the weights of each token's experts."""
    return jnp.einsum("tk,tj,tjkn->tn", x, share, taken)


def experts(x: Any, gate: Any, w: Any) -> Any:
    share, number = route(x, gate)
    return mix(x, share, w[number])


def one_expert(x: Any, number: Any, w: Any) -> Any:
    """Every token by the weights of one expert."""
    return jnp.einsum("tk,tkn->tn", x, w[number])


def cpu_seconds(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    for _ in range(3):
        jax.block_until_ready(call())
    return (time.process_time() - begin) / 3


def ratio(left: Callable[[], Any], right: Callable[[], Any], rounds: int) -> float:
    """Median of left / right, round by round."""
    for call in (left, right):
        jax.block_until_ready(call())
    return statistics.median(cpu_seconds(left) / cpu_seconds(right) for _ in range(rounds))


def predicted(function: Any, arguments: tuple[Any, ...], target: str) -> dict[str, float]:
    """Gains the model sees: over the gather as a dispatch of its own, and over the input."""
    shapes = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in arguments]
    found = eqsat.optimize(function, *shapes, target=target)
    apart = eqsat.optimize(function, *shapes, target=target, settings=(APART,))
    own = found.summary()
    time_us = own["goals"]["time_us"]["value"]
    return {
        "time_us": time_us,
        "over_gather_apart": apart.summary()["goals"]["time_us"]["value"] / time_us,
        "over_input": own["baseline"]["time_us"] / time_us,
    }


def block(name: str, target: str, rounds: int, same: float) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((TOKENS, DEPTH)), "float32")
    gate = jnp.asarray(rng.standard_normal((DEPTH, EXPERTS)), "float32")
    w = jnp.asarray(rng.standard_normal((EXPERTS, DEPTH, WIDTH)), "float32")
    take = jax.jit(lambda w, i: w[i])
    if name == "experts":
        function, arguments = experts, (x, gate, w)
        routed, mixed = jax.jit(route), jax.jit(mix)

        def explicit() -> Any:
            share, number = routed(x, gate)
            return mixed(x, share, take(w, number))
    else:
        number = jnp.asarray(rng.integers(0, EXPERTS, TOKENS), "int32")
        function, arguments = one_expert, (x, number, w)
        multiplied = jax.jit(lambda x, taken: jnp.einsum("tk,tkn->tn", x, taken))

        def explicit() -> Any:
            return multiplied(x, take(w, number))

    whole, ours = jax.jit(function), eqsat.jit(function, target=target, check="never")
    model = predicted(function, arguments, target)
    measured = {
        "over_gather_apart": ratio(explicit, lambda: whole(*arguments), rounds),
        "over_input": ratio(lambda: whole(*arguments), lambda: ours(*arguments), rounds),
    }
    together = {k: _side(model[k], same) * _side(m, same) >= 0 for k, m in measured.items()}
    return {"predicted": model, "measured": measured, "together": together}


def _side(gain: float, same: float) -> int:
    return 0 if 1 / same <= gain <= same else 1 if gain > 1 else -1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="avx512-xla")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--same", type=float, default=1.05, help="a gain up to this is none")
    options = parser.parse_args()
    found = {
        name: block(name, options.target, options.rounds, options.same)
        for name in ("experts", "one_expert")
    }
    sys.stdout.write(json.dumps({"format": 1, "target": options.target, **found}, indent=1) + "\n")
    return 0 if all(all(f["together"].values()) for f in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
