"""Extremes, their places and running sums: XLA:CPU beside eqsat, and what becomes of a NaN; JSON.

    python benchmarks/reductions.py [--only TEXT …] [--core N] [--out FILE]

Every op is a JAX function of rows, f32[256, n], along one of its dims. `ratio`: the process time of
`eqsat.jit` over that of `jax.jit`, the median of at least 30 interleaved rounds with its 95 %
interval. `loses_nan`: where a NaN at the first, the middle or the last place of a row does not show
in the result as it does in NumPy's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from clock import compare, pin
from seeded import tell

ROWS = 256
SIZES = (16, 48, 64, 100, 1000, 4096)
OPS: dict[str, Callable[..., Any]] = {
    name: lambda x, axis, name=name: getattr(sys.modules["jax.numpy"], name)(x, axis=axis)
    for name in ("max", "min", "argmax", "argmin", "cumsum", "cumprod")
}


def measure(name: str, n: int, axis: int, rounds: int) -> dict[str, Any]:
    """Figures of one op; axis 1 is along rows, axis 0 across them."""
    import jax

    import eqsat

    op = OPS[name]

    def f(x: Any) -> Any:
        return op(x, axis)

    rng = np.random.default_rng(0)
    x = rng.uniform(0.9, 1.1, (ROWS, n) if axis == 1 else (n, ROWS)).astype("f4")
    theirs, ours = jax.jit(f), eqsat.jit(f, target="auto", check="never")
    held = jax.device_put(x)
    clock = compare(lambda: theirs(held), lambda: ours(held), rounds)["cpu"]
    row = {"op": name, "n": n, "axis": axis} | clock
    return row | {"loses_nan": {"jax": lost(theirs, op, x, axis), "eqsat": lost(ours, op, x, axis)}}


def lost(call: Callable[..., Any], op: Any, x: Any, axis: int) -> list[int]:
    """Places of a row at which a NaN does not show in the result as it does in NumPy's."""
    places, n = [], x.shape[axis]
    for at in (0, n // 2, n - 1):
        with_nan = x.copy()
        with_nan[(0, at) if axis == 1 else (at, 0)] = np.nan
        wanted = getattr(np, op.__defaults__[0])(with_nan, axis=axis)
        found = np.asarray(call(with_nan))
        if not np.array_equal(np.isnan(found), np.isnan(wanted)) or (
            found.dtype.kind == "i" and not np.array_equal(found, wanted)
        ):
            places.append(at)
    return places


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=list(OPS), help="these ops")
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--rounds", type=int, default=30, help="never fewer than 30")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args(arguments)
    core = pin(options.core)[0]
    rows: list[dict[str, Any]] = []
    for name in options.only or OPS:
        for axis in (1, 0):
            for n in SIZES:
                rows.append(measure(name, n, axis, options.rounds))
                print(rows[-1], file=sys.stderr)
    tell({"core": core, "rows": ROWS, "figures": rows}, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
