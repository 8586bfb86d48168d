"""`eqsat.jit` against `jax.jit`, call by call: paired, interleaved, on one pinned core; JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eqsat.execute.timing import interleave, interval

if TYPE_CHECKING:
    from clockprograms import Timed

SAME, ANY = 1.02, 1.05  # upper bounds wanted: where the answer is the input, and everywhere


def pin(core: int | None, count: int = 1) -> list[int]:
    """Bind the process to `count` cores from this one on, before JAX starts its threads."""
    allowed = sorted(os.sched_getaffinity(0))
    chosen = [c for c in allowed if core is None or c >= core][:count]
    if len(chosen) < count:
        raise SystemExit(f"{count} core(s) from core {core} on: this process has {allowed}")
    os.sched_setaffinity(0, chosen)
    return chosen


def compare(left: Callable[[], Any], right: Callable[[], Any], most: int) -> dict[str, Any]:
    """Figures of `right` against `left`."""
    count, seconds = interleave({"left": left, "right": right}, most)
    found: dict[str, Any] = {"calls": count, "rounds": len(seconds["left"])}
    for at, clock in enumerate(("wall", "cpu")):
        a, b = ([s[at] for s in seconds[k]] for k in ("left", "right"))
        middle, low, high = interval([y / x for x, y in zip(a, b, strict=True)])
        found[clock] = {
            "jax_us": round(statistics.median(a) / count * 1e6, 2),
            "eqsat_us": round(statistics.median(b) / count * 1e6, 2),
            "ratio": round(middle, 4),
            "interval": [round(low, 4), round(high, 4)],
        }
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


def main() -> int:
    """Print the figures as JSON; 1 if an upper bound of process time is above what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds",
        type=int,
        default=400,
        help="paired rounds at most, for fast programs; never fewer than 30",
    )
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--only", nargs="*", help="names of programs")
    args = parser.parse_args()
    core = pin(args.core)[0]
    import jax
    from clockprograms import programs

    found = {}
    for name, timed in programs().items():
        if args.only and name not in args.only:
            continue
        found[name] = measure(timed, args.rounds)
        print(name, json.dumps(found[name]), file=sys.stderr)
    missed = {
        clock: [k for k, f in found.items() if f[clock]["interval"][1] > f["bound"]]
        for clock in ("wall", "cpu")
    }
    machine = f"{platform.machine()}, Python {platform.python_version()}, JAX {jax.__version__}"
    about = {"format": 1, "machine": machine, "core": core}
    load = [round(v, 2) for v in os.getloadavg()]
    print(json.dumps(about | {"load": load, "programs": found, "missed": missed}, indent=1))
    return int(bool(missed["cpu"]))


if __name__ == "__main__":
    sys.exit(main())
