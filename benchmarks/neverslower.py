"""`eqsat.jit` as it comes against `jax.jit` on 28 functions and eight models; JSON.

    python benchmarks/neverslower.py [--core 0] [--rounds 100] [--only NAME …] [--no-race]

Paired and interleaved, as `clock.py`. Per program what its first call kept and what the race said.
Exit code 1 if the interval of a ratio begins above 1.02: slower, and not by the noise.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import sys
import time
from typing import Any

from clock import compare, pin

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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100, help="at most, never fewer than 30")
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--only", nargs="*", help="names of programs")
    parser.add_argument("--no-race", action="store_true")
    options = parser.parse_args()
    core = pin(options.core)[0]
    import jax
    from unseenprograms import models, small

    found = {}
    for name, timed in {**small(), **models()}.items():
        if not options.only or name in options.only:
            found[name] = measure(timed, options.rounds, not options.no_race)
            print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    slower = {
        clock: [k for k, f in found.items() if f[clock]["interval"][0] > MOST]
        for clock in ("wall", "cpu")
    }
    about = {"format": 1, "machine": platform.machine(), "jax": jax.__version__, "core": core}
    load = [round(v, 2) for v in os.getloadavg()]
    print(json.dumps(about | {"load": load, "programs": found, "slower": slower}, indent=1))
    return int(bool(slower["cpu"]))


if __name__ == "__main__":
    sys.exit(main())
