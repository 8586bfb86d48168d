"""`eqsat.jit` as it comes against `jax.jit` on 28 functions and eight models; JSON.

    python benchmarks/run.py never-slower [--core 0] [--rounds 100] [--only NAME …] [--no-race]

Paired and interleaved, as `clock.py`. Per program what its first call kept and what the race said.
Not ok if the interval of a ratio begins above 1.02: slower, and not by the noise.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from typing import Any

from clock import compare
from gates import pin, say

MOST = 1.02


def measure(timed: Any, rounds: int, race: bool) -> dict[str, Any]:
    """One program: seconds of the first calls, and figures of later ones."""
    import jax

    import eqsat

    plain = jax.jit(timed.function)
    fast: Any = eqsat.jit(timed.function, race=race, **timed.options)
    args = timed.args
    seconds = {}
    for name, call in (("jax", plain), ("eqsat", fast)):
        start = time.perf_counter()
        jax.block_until_ready(call(*args))
        seconds[name] = round(time.perf_counter() - start, 3)
    for _ in range(20):  # until its calls are C
        fast(*args)
    found = compare(lambda: plain(*args), lambda: fast(*args), rounds)
    again = jax.jit(functools.partial(timed.function))  # another function to JAX
    noise = compare(lambda: plain(*args), lambda: again(*args), rounds)
    said = fast.checks[0] if fast.checks else None
    return found | {
        "first_call_s": seconds,
        "kept": "the input" if said is None else said.kept,
        "why": "" if said is None else said.why,
        "race": "" if said is None or said.race is None else str(said.race),
        "check_s": {} if said is None else {k: round(v, 3) for k, v in said.seconds.items()},
        "noise": {clock: noise[clock]["interval"] for clock in ("wall", "cpu")},
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=100, help="at most, never fewer than 30")
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--only", nargs="*", help="names of programs")
    parser.add_argument("--no-race", action="store_true")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    core = pin(o.core)[0]
    from unseenprograms import models, small

    found = {}
    for name, timed in {**small(), **models()}.items():
        if not o.only or name in o.only:
            found[name] = measure(timed, o.rounds, not o.no_race)
            say(f"{name} {json.dumps(found[name])}")
    slower = {
        clock: [k for k, f in found.items() if f[clock]["interval"][0] > MOST]
        for clock in ("wall", "cpu")
    }
    return {"ok": not slower["cpu"], "core": core, "programs": found, "slower": slower}
