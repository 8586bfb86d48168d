"""`eqsat.jit` against `jax.jit`, call by call: paired, interleaved, on one pinned core; JSON.

    python benchmarks/clock.py [--rounds 400] [--core N] [--only NAME …]

Not ok if an upper bound of the process time is above what is wanted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gates import CLOCKS, asked_and_told, middle, pin, ratio, say, timed_in_turn

if TYPE_CHECKING:
    from clockprograms import Timed

SAME, ANY = 1.02, 1.05  # upper bounds wanted: where the answer is the input, and everywhere


def compare(left: Callable[[], Any], right: Callable[[], Any], most: int) -> dict[str, Any]:
    """Figures of `right` against `left`."""
    us = timed_in_turn({"left": left, "right": right}, most)
    found: dict[str, Any] = {"rounds": len(us["left"]["cpu"])}
    for clock in CLOCKS:
        a, b = us["left"][clock], us["right"][clock]
        median, low, high = ratio(b, a)
        figures = {"jax_us": middle(a), "eqsat_us": middle(b)}
        found[clock] = figures | {"ratio": median, "interval": [low, high]}
    return found


def measure(timed: Timed, rounds: int) -> dict[str, Any]:
    """One program: `eqsat.jit` against `jax.jit`, and `jax.jit` against a second one of itself."""
    import jax

    import eqsat

    plain, again = jax.jit(timed.function), jax.jit(_copy(timed.function))
    fast = eqsat.jit(timed.function, **timed.options)
    args, kwargs = timed.args, timed.keywords
    found = compare(lambda: plain(*args, **kwargs), lambda: fast(*args, **kwargs), rounds)
    noise = compare(lambda: plain(*args, **kwargs), lambda: again(*args, **kwargs), rounds)
    run = fast.optimize(*args, **kwargs)
    bound = SAME if run.is_input else ANY
    return {"is_input": run.is_input} | found | {"noise": noise["cpu"]["interval"], "bound": bound}


def _copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function under another identity, so that JAX compiles it again."""

    def copy(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return copy


def options(parser: argparse.ArgumentParser) -> None:
    text = "paired rounds at most, for fast programs; never fewer than 30"
    parser.add_argument("--rounds", type=int, default=400, help=text)
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--only", nargs="*", help="names of programs")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    core = pin(o.core)[0]
    from clockprograms import programs

    found = {}
    for name, timed in programs().items():
        if not o.only or name in o.only:
            found[name] = measure(timed, o.rounds)
            say(f"{name} {json.dumps(found[name])}")
    missed = {
        clock: [k for k, f in found.items() if f[clock]["interval"][1] > f["bound"]]
        for clock in ("wall", "cpu")
    }
    return {"ok": not missed["cpu"], "core": core, "programs": found, "missed": missed}


if __name__ == "__main__":
    sys.exit(asked_and_told(__doc__, options, measured))
