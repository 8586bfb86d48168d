"""What kernels add to the first call of a program: with an empty cache of objects, then with it.

    python benchmarks/firstcall.py [--target auto] [--only NAME …] [--cores 2] [--out FILE]
    python benchmarks/firstcall.py --checks [--target auto] [--cores 1] [--out FILE]

Every program is searched and called in two processes that share one new cache folder. Prints a JSON
object with, per process, the seconds (and those of its CPU, without the compilers' processes) of
the search, of making the kernels (`kernels`: nests, IR, object code, loading), of packing the
weights, of JAX and XLA (`jit`) and of the first run; `added` is all after the search. Also the
objects in the cache after it (more after the second: its search, cut off by the clock, chose
otherwise), how much of the time of its dispatches is in kernels (`kernel_share`, each dispatch
timed alone), and which are none, with the reason. Exit code 1 if the second process adds a second
or more, the first needs ten seconds for its kernels, or less than 95 % of the time is in kernels.

With `--checks` twenty functions are called that have a wrong plan forced into them: what the call
without a check gives, and that one with it gives the right result with a warning; and seconds of
first calls with and without the check and its race, kernels being compiled already. Exit code 1 if
a result is wrong, or a warning is missing.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clock import pin
from kernels import WANTED, _closing, _inputs, _read
from wrongplans import PROGRAMS, drawn, forced

from eqsat.model.diag import EqsatWarning

MOST_ADDED_S = 1.0  # warm
MOST_KERNELS_S = 10.0  # cold
LEAST_SHARE = 0.95


def child(name: str, target: str, time_limit: float, shares: bool) -> dict[str, Any]:
    """One process: the figures of a program's first call."""
    import jax

    import eqsat

    function, args, weights = _read(WANTED[name])
    closed = _closing(function, args, weights)
    xs = [a for a, w in zip(args, weights, strict=True) if not w]
    seconds: dict[str, float] = {}
    cpu: dict[str, float] = {}

    def timed(what: str, action: Callable[[], Any]) -> Any:
        start, began = time.perf_counter(), time.process_time()
        found = action()
        seconds[what] = round(time.perf_counter() - start, 3)
        cpu[what] = round(time.process_time() - began, 3)
        return found

    run = timed("search", lambda: eqsat.optimize(closed, *xs, target=target, time_limit=time_limit))
    inputs = _inputs(run, xs)
    executable = run.executable
    refused = timed("kernels", lambda: getattr(executable, "refused", {}))
    packed = timed("pack", lambda: jax.block_until_ready(executable.packed))
    compiled = timed("jit", lambda: executable.jitted.lower(packed, *inputs).compile())
    timed("run", lambda: jax.block_until_ready(compiled(packed, *inputs)))
    for clock in (seconds, cpu):
        clock["added"] = round(sum(v for k, v in clock.items() if k != "search"), 3)
    found = {"seconds": seconds, "cpu_seconds": cpu, "dispatches": len(run.schedule.dispatches)}
    found["not_kernels"] = {str(i): why for i, why in refused.items()}
    if shares:
        found["kernel_share"] = _share(run, packed, inputs, refused)
    return found


def _share(run: Any, packed: Any, inputs: Any, refused: Any) -> float:
    """Share of the dispatches' times, each compiled alone, that is in kernels."""
    import jax

    executable, schedule = run.executable, run.schedule
    held = dict(packed) | dict(zip(schedule.program.inputs, inputs, strict=True))
    times = []
    for i, d in enumerate(schedule.dispatches):
        reads = [executable.buffer(held, r) for r in d.reads]
        call = jax.jit(executable.dispatch(i)).lower(*reads).compile()
        held.update(zip(d.writes, jax.block_until_ready(call(*reads)), strict=True))
        best = 1e9
        for _ in range(20):
            start = time.perf_counter()
            jax.block_until_ready(call(*reads))
            best = min(best, time.perf_counter() - start)
        times.append(best)
    return round(sum(t for i, t in enumerate(times) if i not in refused) / sum(times), 4)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both processes of one program."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for state in ("cold", "warm"):
            command = [sys.executable, __file__, "--child", name, "--target", options.target]
            command += ["--time-limit", str(options.time_limit), "--cores", str(options.cores)]
            command += ["--shares"] if state == "warm" else []
            environment = os.environ | {"EQSAT_CACHE": folder}
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
            found[state] = json.loads(done.stdout.splitlines()[-1])
            found[state]["objects"] = len(list(Path(folder, "kernels").glob("*.o")))
    missed = []
    if found["warm"]["seconds"]["added"] >= MOST_ADDED_S:
        missed.append("added")
    if found["cold"]["seconds"]["kernels"] >= MOST_KERNELS_S:
        missed.append("kernels")
    if found["warm"]["kernel_share"] < LEAST_SHARE:
        missed.append("kernel_share")
    return found | {"missed": missed}


# ---- checks --------------------------------------------------------------------------------------
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


def checks(options: argparse.Namespace) -> int:
    """All functions of `wrongplans`."""
    rows = {n: checked(n, i, options.target) for i, n in enumerate(PROGRAMS)}
    missed = [n for n, r in rows.items() if not r["right"] or r["warnings"] != ["E520"]]
    harmless = [n for n, r in rows.items() if r["right_unchecked"]]
    _print({"programs": rows, "missed": missed, "harmless": harmless}, options.out)
    return 1 if missed else 0


def _print(found: dict[str, Any], out: Path | None) -> None:
    text = json.dumps(found, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="auto")
    parser.add_argument("--only", nargs="*", default=list(WANTED), choices=list(WANTED))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", choices=list(WANTED), help=argparse.SUPPRESS)
    parser.add_argument("--shares", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--checks", action="store_true")
    options = parser.parse_args()
    if options.checks:
        pin(None, options.cores)
        return checks(options)
    if options.child:
        pin(None, options.cores)
        found = child(options.child, options.target, options.time_limit, options.shares)
        print(json.dumps(found))
        return 0
    rows = {name: measure(name, options) for name in options.only}
    _print({"programs": rows}, options.out)
    return 1 if any(r["missed"] for r in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
