"""`eqsat.jit` against `jax.jit`, call by call: paired, interleaved, on one pinned core; JSON.

    python benchmarks/clock.py [--unseen] [--rounds 400] [--core N] [--only NAME …] [--no-race]

Twenty programs, or with `--unseen` 28 functions and eight models that nobody tuned eqsat to. Per
program what its first call kept and what the race said. Not ok if an upper bound of the process
time is above what is wanted (`bound`); with `--unseen`, if the interval of a ratio begins above
1.02: slower, and not by the noise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gates import CLOCKS, asked_and_told, middle, pin, ratio, say, timed_in_turn

if TYPE_CHECKING:
    from clockprograms import Timed

SAME, ANY = 1.02, 1.05  # upper bounds wanted: where the answer is the input, and everywhere
MOST = 1.02  # lower bound, of what nobody tuned to


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


def measure(timed: Timed, rounds: int, race: bool) -> dict[str, Any]:
    """One program: seconds of the first calls, figures of later ones, and those of `jax.jit`
    against a second one of itself."""
    import jax

    import eqsat

    plain, again = jax.jit(timed.function), jax.jit(_copy(timed.function))
    fast: Any = eqsat.jit(timed.function, race=race, **timed.options)
    args, kwargs = timed.args, timed.keywords
    seconds = {}
    for name, call in (("jax", plain), ("eqsat", fast)):
        start = time.perf_counter()
        jax.block_until_ready(call(*args, **kwargs))
        seconds[name] = round(time.perf_counter() - start, 3)
    for _ in range(20):  # until its calls are C
        fast(*args, **kwargs)
    found = compare(lambda: plain(*args, **kwargs), lambda: fast(*args, **kwargs), rounds)
    noise = compare(lambda: plain(*args, **kwargs), lambda: again(*args, **kwargs), rounds)
    is_input = fast.optimize(*args, **kwargs).is_input
    said = fast.checks[0] if fast.checks else None
    return found | {
        "is_input": is_input,
        "first_call_s": seconds,
        "kept": "the input" if said is None else said.kept,
        "why": "" if said is None else said.why,
        "race": "" if said is None or said.race is None else str(said.race),
        "check_s": {} if said is None else {k: round(v, 3) for k, v in said.seconds.items()},
        "noise": {clock: noise[clock]["interval"] for clock in CLOCKS},
        "bound": SAME if is_input else ANY,
    }


def _copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function under another identity, so that JAX compiles it again."""

    def copy(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return copy


def options(parser: argparse.ArgumentParser) -> None:
    text = "paired rounds at most, for fast programs; never fewer than 30"
    parser.add_argument("--unseen", action="store_true", help="programs that nobody tuned to")
    parser.add_argument("--rounds", type=int, default=400, help=text)
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--only", nargs="*", help="names of programs")
    parser.add_argument("--no-race", action="store_true")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    core = pin(o.core)[0]
    from clockprograms import programs, unseen

    found = {}
    for name, timed in (unseen() if o.unseen else programs()).items():
        if not o.only or name in o.only:
            found[name] = measure(timed, o.rounds, not o.no_race)
            say(f"{name} {json.dumps(found[name])}")
    missed = {clock: [n for n, f in found.items() if _misses(f, clock, o)] for clock in CLOCKS}
    told = {"core": core, "programs": found, "slower" if o.unseen else "missed": missed}
    return {"ok": not missed["cpu"]} | told


def _misses(figures: dict[str, Any], clock: str, o: argparse.Namespace) -> bool:
    low, high = figures[clock]["interval"]
    return low > MOST if o.unseen else high > figures["bound"]


if __name__ == "__main__":
    sys.exit(asked_and_told(__doc__, options, measured))
