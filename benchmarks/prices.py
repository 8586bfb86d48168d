"""Prices of plans against the clock: dispatches that no fit has seen, and variants of programs.

    python benchmarks/prices.py [--target auto] [--only dispatches | NAME] [--out FILE]

Dispatches: shapes, forms and rows that `eqsat calibrate` does not measure, each timed alone on one
pinned core (CPU time, medians of interleaved rounds) beside what the target predicts; the errors,
Kendall's tau, and of the pairs of one shape that are more than 5 % apart how many are ordered
right. Programs: `optimize --measure`, so that every variant is timed interleaved with the chosen
one; the regret is how much slower the one that is predicted best is than the fastest. The input as
XLA runs it is no variant. Exit code 1 if a bound is not kept.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clock import pin
from kernels import WANTED, _closing, _read
from seeded import tell

if TYPE_CHECKING:
    from eqsat.lab.calibrate.kernelprograms import ProbedProgram
    from eqsat.model.target import Target

MEDIAN_ERROR, TAU, ORDERED, REGRET = 0.10, 0.9, 0.8, 0.03
VARIANTS = 22  # of a program, the input by the target's executor and by XLA among them
# rows, reduction, columns; none of them is measured by `eqsat calibrate`
PRODUCTS = (
    (192, 192, 192), (320, 320, 320), (96, 640, 640), (160, 256, 1024), (64, 1024, 256),
    (200, 500, 120), (48, 768, 768), (128, 512, 2048), (16, 1024, 1024), (6, 640, 2560),
    (2, 1024, 3072), (1, 1536, 1536),
)  # fmt: skip
ROWS = ((96, 640), (300, 256), (40, 2000))


def sources() -> Iterator[ProbedProgram]:
    """Programs of one dispatch each, all forms of a shape one after the other."""
    import jax
    from jax import numpy as jnp

    from eqsat.lab.calibrate.kernelprograms import product_program, traced

    for sizes in PRODUCTS:
        for form in ("kn", "nk", "panels"):
            yield product_program(sizes, form, "")
        yield product_program(sizes, "panels", "bias")
    for shape in ROWS:
        yield traced("gelu", jax.nn.gelu, shape)
        yield traced("relu of a sum", lambda x, b: jax.nn.relu(x + b), shape, shape[1:])
        yield traced("softmax", lambda x: jax.nn.softmax(x, axis=-1), shape)
        yield traced("sum of rows", lambda x: x.sum(1), shape)
        yield traced("transpose", jnp.transpose, shape)


def dispatches(target: Target, rounds: int) -> dict[str, Any]:
    """Predicted and measured times, and how far they are apart."""
    from eqsat.lab.calibrate.fit import predict, quality
    from eqsat.lab.calibrate.kernels import observe
    from eqsat.plan.price import rates

    observed, declined = observe(tuple(sources()), target, rounds)
    predicted = [predict(o, rates(target)) for o in observed]
    listed = zip(observed, predicted, strict=True)
    found = quality(observed, predicted)
    return {
        "count": len(observed),
        "declined": declined,
        "quality": found.to_json(),
        "dispatches": [
            {
                "name": o.name,
                "measured_us": round(o.time_ps / 1e6, 3),
                "predicted_us": round(p / 1e6, 3),
            }
            for o, p in listed
        ],
        "missed": [
            name
            for name, is_kept in (
                ("median_error", found.median_error <= MEDIAN_ERROR),
                ("kendall_tau", found.kendall_tau >= TAU),
                ("ordered", found.ordered >= ORDERED * found.pairs),
            )
            if not is_kept
        ],
    }


def program(name: str, target: str, time_limit: float) -> dict[str, Any]:
    """The variants of a program, and the regret of following the model."""
    import eqsat
    from eqsat.model.measured import INPUT_BY_XLA

    function, args, weights = _read(WANTED[name])
    xs = [a for a, w in zip(args, weights, strict=True) if not w]
    run = eqsat.optimize(
        _closing(function, args, weights), *xs,
        target=target, measure=VARIANTS, time_limit=time_limit,
    )  # fmt: skip
    assert run.measured is not None, "it was asked for"
    timed = [p for p in run.measured.programs if p.origin != INPUT_BY_XLA]
    # ratio: the time of the chosen one, which is predicted best, over this one's
    regret = max(p.ratio[0] for p in timed) - 1
    return {
        "variants": len(timed),
        "rounds": run.measured.rounds,
        "regret": round(regret, 4),
        "programs": [vars(p) for p in timed],
        "missed": ["regret"] if regret > REGRET else [],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="auto")
    parser.add_argument("--only", choices=("dispatches", *WANTED), action="append")
    parser.add_argument("--rounds", type=int, default=15, help="of the dispatches")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of a search")
    parser.add_argument("--core", type=int, help="the first that may be used")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    cores = pin(options.core)
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    from eqsat.lang.targets import load_target

    target = load_target(options.target)
    found: dict[str, Any] = {
        "target": target.name,
        "source": target.kernels.source if target.kernels else "",
        "cores": cores,
        "processor": platform.processor(),
    }
    for name in options.only or ("dispatches", *WANTED):
        sys.stderr.write(f"{name}\n")
        if name == "dispatches":
            found[name] = dispatches(target, options.rounds)
        else:
            found[name] = program(name, options.target, options.time_limit)
    tell(found, options.out)
    return int(any(v["missed"] for v in found.values() if isinstance(v, dict)))


if __name__ == "__main__":
    sys.exit(main())
