"""Twenty functions with a wrong plan forced into them: what the check of a first call says.

    python benchmarks/run.py first-calls [--target auto] [--cores 1]

What the call without a check gives, and that one with it gives the right result with a warning; and
seconds of first calls with and without the check and its race, kernels being compiled already. Not
ok if a result is wrong, or a warning is missing.
"""

from __future__ import annotations

import argparse
import functools
import time
import warnings
from typing import Any

from gates import pin

from eqsat.model.diag import EqsatWarning
from fuzz.wrongplans import PROGRAMS, drawn, forced


def checked(name: str, number: int, target: str) -> dict[str, Any]:
    """One function with a wrong plan, and the seconds of its first calls with the right one."""
    import jax
    import numpy as np

    import eqsat

    function, shapes = PROGRAMS[name]
    args = drawn(*shapes)
    wanted = jax.tree.leaves(jax.jit(function)(*args))

    def first(**options: Any) -> tuple[float, bool, Any]:
        fast: Any = eqsat.jit(functools.partial(function), target=target, **options)
        start = time.perf_counter()
        got = jax.tree.leaves(jax.block_until_ready(fast(*args)))
        seconds = time.perf_counter() - start
        pairs = zip(got, wanted, strict=True)
        return seconds, all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in pairs), fast

    ways = {"never": {"check": "never"}, "no_race": {"race": False}, "first": {}}
    first(check="never")  # compiles the kernels
    seconds = {way: round(first(**options)[0], 3) for way, options in ways.items()}
    with forced(number) as made:
        _, unchecked, _ = first(check="never")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            _, right, fast = first()
    codes = [w.message.diagnostic.code for w in said if isinstance(w.message, EqsatWarning)]
    return {
        "seconds": seconds,
        "change": made[0],
        "right_unchecked": unchecked,
        "right": right,
        "warnings": codes,
        "reproduces": "shows it" in fast.checks[0].reason,
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="auto")
    parser.add_argument("--cores", type=int, default=1)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """All functions of `wrongplans`."""
    pin(None, options.cores)
    rows = {n: checked(n, i, options.target) for i, n in enumerate(PROGRAMS)}
    missed = [n for n, r in rows.items() if not r["right"] or r["warnings"] != ["E520"]]
    harmless = [n for n, r in rows.items() if r["right_unchecked"]]
    return {"ok": not missed, "programs": rows, "missed": missed, "harmless": harmless}
