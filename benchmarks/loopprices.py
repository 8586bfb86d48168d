"""Loops: what the model says of the input, and what `jax.jit` of it takes on one pinned core.

    python benchmarks/loopprices.py [--target T] [--only NAME …] [--core N] [--rounds N] [--out F]

Every program comes in two forms: as it is written, and with what needs no state computed for all
steps ahead of the loop. So the figures tell whether a gain that is predicted is there: `gain` is
the time of the form as written over that of the other. Prints one JSON object; `log_error` is the
mean of |log(predicted / measured)| over all forms. A shipped target is of another machine; a file
that `eqsat calibrate --executor xla` wrote is of this one.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from clock import pin
from seeded import tell

Form = tuple[Callable[..., Any], tuple[Any, ...]]  # function of the arguments, arguments
AS_WRITTEN, AHEAD = "as written", "ahead"


def real(seed: int, *shape: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32)


def lstm(steps: int, batch: int, size: int, form: str) -> Form:
    """Gates in one product, cut into four."""
    import jax
    from jax import numpy as jnp

    w, u, b = real(1, size, 4 * size), real(2, size, 4 * size), real(3, 4 * size)

    def step(state: Any, x: Any) -> Any:
        h, c = state
        z = x + h @ u if form == AHEAD else x @ w + h @ u + b
        i, f, g, o = jnp.split(z, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def call(xs: Any) -> Any:
        start = jnp.zeros((batch, size)), jnp.zeros((batch, size))
        return jax.lax.scan(step, start, xs @ w + b if form == AHEAD else xs)[1]

    return call, (real(4, steps, batch, size),)


def gru(steps: int, batch: int, size: int, form: str) -> Form:
    """Gates in three products each."""
    import jax
    from jax import numpy as jnp

    ws, us = ([real(i + k, size, size) for i in range(3)] for k in (0, 3))

    def step(h: Any, x: Any) -> Any:
        a = x if form == AHEAD else [x @ w for w in ws]
        z, r = (jax.nn.sigmoid(a[i] + h @ us[i]) for i in (0, 1))
        h = (1 - z) * jnp.tanh(a[2] + r * (h @ us[2])) + z * h
        return h, h

    def call(xs: Any) -> Any:
        given = [xs @ w for w in ws] if form == AHEAD else xs
        return jax.lax.scan(step, jnp.zeros((batch, size)), given)[1]

    return call, (real(9, steps, batch, size),)


def rnn(steps: int, batch: int, size: int, form: str) -> Form:
    import jax
    from jax import numpy as jnp

    w, u = real(1, size, size), real(2, size, size)

    def step(h: Any, x: Any) -> Any:
        return jnp.tanh((x if form == AHEAD else x @ w) + h @ u), None

    def call(xs: Any) -> Any:
        given = xs @ w if form == AHEAD else xs
        return jax.lax.scan(step, jnp.zeros((batch, size)), given)[0]

    return call, (real(3, steps, batch, size),)


def counted(steps: int, batch: int, size: int, form: str) -> Form:
    """A `fori_loop` over rows that it looks up."""
    import jax
    from jax import numpy as jnp

    w = real(2, size, size)

    def call(xs: Any) -> Any:
        if form == AHEAD:
            return jnp.tanh(xs @ w).sum(0)
        start = jnp.zeros((batch, size))
        return jax.lax.fori_loop(0, steps, lambda i, c: c + jnp.tanh(xs[i] @ w), start)

    return call, (real(1, steps, batch, size),)


KINDS: dict[str, tuple[Callable[..., Form], tuple[int, int, int]]] = {
    "lstm of 256": (lstm, (64, 8, 256)),
    "lstm of 64": (lstm, (64, 4, 64)),
    "gru of 256": (gru, (64, 8, 256)),
    "gru of 64": (gru, (64, 4, 64)),
    "rnn of 512": (rnn, (64, 8, 512)),
    "rnn of 128, one row": (rnn, (64, 1, 128)),
    "fori_loop of 128": (counted, (64, 8, 128)),
}


def predicted_us(form: Form, target: str) -> float:
    """Of the input: no rule that would change it is asked for."""
    import eqsat

    run = eqsat.optimize(form[0], *form[1], rules="layout/fill", target=target, goals=("time",))
    assert run.baseline_schedule is not None
    return run.baseline_schedule.time_ps / 1e6


def measured_us(forms: dict[str, Form], rounds: int) -> dict[str, float]:
    """Medians of process time per call, in interleaved rounds."""
    import jax

    from eqsat.execute.timing import interleave

    calls = {k: (jax.jit(f), [jax.device_put(a) for a in args]) for k, (f, args) in forms.items()}
    count, seconds = interleave(
        {k: lambda f=f, xs=xs: f(*xs) for k, (f, xs) in calls.items()}, rounds
    )
    return {k: statistics.median(s[1] / count for s in v) * 1e6 for k, v in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="avx512-xla")
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument(
        "--out", type=Path, metavar="F", help="write the JSON there instead of printing it"
    )
    options = parser.parse_args()
    pin(options.core)
    rows: dict[str, Any] = {}
    errors: list[float] = []
    for name in options.only or KINDS:
        make, sizes = KINDS[name]
        forms = {form: make(*sizes, form) for form in (AS_WRITTEN, AHEAD)}
        predicted = {k: predicted_us(f, options.target) for k, f in forms.items()}
        measured = measured_us(forms, options.rounds)
        errors += [abs(math.log(predicted[k] / measured[k])) for k in forms]
        sides = {"predicted": predicted, "measured": measured}
        rows[name] = {f"{w}_us": {k: round(v, 1) for k, v in s.items()} for w, s in sides.items()}
        rows[name]["gain"] = {w: round(s[AS_WRITTEN] / s[AHEAD], 3) for w, s in sides.items()}
    found = {"format": 1, "target": options.target, "log_error": statistics.mean(errors)}
    tell(found | {"programs": rows}, options.out)


if __name__ == "__main__":
    main()
