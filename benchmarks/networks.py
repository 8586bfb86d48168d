"""Whole networks, searched and timed: the input, `jax.jit` of it, and the answer by two executors.

    python benchmarks/networks.py [--only NAME …] [--rules SET] [--core N] [--out FILE]

Each network (`networkprograms.py`) is searched for `avx512-xla`, whose answers XLA runs, and for
`avx512`, whose answers eqsat's kernels run. Predicted: microseconds of the input and of the answer,
the gap, and whether the answer is proven to be the best of a complete e-graph. Measured: process
time of `jax.jit` of the input and of both answers, interleaved on one pinned core, at least 30
rounds; ratios are of paired rounds, with their 95 % interval. Weights are ready ahead of time
for answers, and lie in memory for `jax.jit`. Prints a line per network and one JSON object.

`held`: the answer is quicker by the model and by the clock, or it is the input and proven to be the
best; an input with a gap is not. Exit code 1 if one is not held, or if numbers differ.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clock import pin
from hunts.worst import largest_difference
from seeded import tell

from eqsat.execute.timing import interleave, interval

if TYPE_CHECKING:
    from networkprograms import Network

    import eqsat

TARGETS = {"xla": "avx512-xla", "kernels": "avx512"}
MOST_ERROR = 1e-3  # of the largest number; sums are reordered

Row = dict[str, Any]


def row(name: str, network: Network, options: argparse.Namespace) -> Row:
    """All figures of one network."""
    runs = {k: searched(network, target, options) for k, target in TARGETS.items()}
    found: Row = {"network": name, "source": network.source}
    found |= {k: predicted(run) | {"search_cpu_s": s} for k, (run, s) in runs.items()}
    calls = {k: run.compile(check="never") for k, (run, _) in runs.items()}
    found["clock"] = measured(network, calls, options.rounds)
    return found | {"held": all(_holds(found, k) for k in TARGETS)}


def searched(network: Network, target: str, options: argparse.Namespace) -> tuple[eqsat.Run, float]:
    """The run, and its seconds of process time."""
    import eqsat

    begin = time.process_time()
    run = eqsat.optimize(
        network.function, *network.specs, rules=options.rules, target=target, goals=("time",),
        weights=("params",), time_limit=options.time_limit,
    )  # fmt: skip
    return run, round(time.process_time() - begin, 2)


def predicted(run: eqsat.Run) -> Row:
    """What the model says of one answer."""
    summary = run.summary()
    goal = summary["goals"]["time_us"]
    return {
        "input_us": summary["baseline"]["time_us"],
        "answer_us": goal["value"],
        "bound_us": goal["bound"],
        "gap": goal["gap"],
        "claim": summary["claim"],
        "egraph_stop": summary["egraph"]["stop"],
        "is_input": run.is_input,
    }


def measured(network: Network, answers: dict[str, Callable[..., Any]], rounds: int) -> Row:
    """Medians in microseconds, ratios to `jax.jit`, and errors against it."""
    import jax

    arrays = jax.device_put(network.draw())
    calls = {"jax": jax.jit(network.function)} | answers
    wanted = calls["jax"](*arrays)
    errors = {k: largest_difference(f(*arrays), wanted) for k, f in answers.items()}
    count, seconds = interleave({k: lambda f=f: f(*arrays) for k, f in calls.items()}, rounds)
    cpu = {k: [s[1] / count for s in batches] for k, batches in seconds.items()}
    found: Row = {"rounds": len(cpu["jax"])}
    found |= {f"{k}_us": round(statistics.median(v) * 1e6, 1) for k, v in cpu.items()}
    for k in answers:
        ratios = [a / b for a, b in zip(cpu[k], cpu["jax"], strict=True)]
        found[k] = {"error": errors[k], "to_jax": [round(v, 4) for v in interval(ratios)]}
    return found


def _holds(found: Row, executor: str) -> bool:
    """Numbers are equal, and the answer is quicker by model and clock, or the input and proven."""
    model, clock = found[executor], found["clock"][executor]
    if clock["error"] > MOST_ERROR:
        return False
    if model["is_input"]:
        return model["claim"] == "optimal"
    return model["answer_us"] < model["input_us"] and clock["to_jax"][2] < 1


def line(r: Row) -> str:
    """One row of the table."""
    text = f"{r['network']:10}"
    for k in TARGETS:
        m, c = r[k], r["clock"][k]
        state = "proven" if m["claim"] == "optimal" else f"gap {m['gap']:.1%}"
        state += ", the input" if m["is_input"] else ""
        text += f" | {k}: {m['input_us']:.0f} -> {m['answer_us']:.0f} {state}"
        low, high = c["to_jax"][1:]
        text += f"; {r['clock'][f'{k}_us']:.0f}, {c['to_jax'][0]:.2f} [{low:.2f}, {high:.2f}]"
        text += "" if c["error"] <= MOST_ERROR else f", WRONG by {c['error']:.3g}"
    return f"{text} | jax.jit {r['clock']['jax_us']:.0f}{'' if r['held'] else ' | NOT HELD'}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="networks; all of them")
    parser.add_argument("--rules", nargs="+", default=["full"], metavar="SET")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds of each search")
    parser.add_argument("--core", type=int, help="the core to time on; the first allowed one")
    parser.add_argument("--rounds", type=int, default=60, help="at most; never fewer than 30")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    pin(options.core)
    from networkprograms import networks

    known = networks()
    if unknown := set(options.only or ()) - known.keys():
        parser.error(f"no network named {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    rows = []
    for name in options.only or known:
        rows.append(row(name, known[name], options))
        print(line(rows[-1]), file=sys.stderr, flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    tell({"format": 1, "machine": machine, "rules": options.rules, "rows": rows}, options.out)
    return int(not all(r["held"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
