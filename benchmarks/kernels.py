"""What the search chooses, run by kernels, against `jax.jit` of the input: clocks, bytes, errors.

    python benchmarks/kernels.py [--target auto] [--only NAME …] [--cores 1|2] [--out FILE]

Every program is searched freely on the target. Its sides are timed interleaved on pinned cores, a
batch of each a round, at least 30 rounds: the answer (eqsat), `jax.jit` of the input with its
weights closed over (jax) and, where weights are arguments, as they come with every call
(jax_arguments). A ratio is the other side's time over eqsat's, with the 95 % interval of its
median; a win is a lower bound above 1. Beside the clocks: bytes of XLA's temporaries and the
schedule's arena, dispatches that are no kernels and why, and the errors of both against float64.
Exit code 1 if a bound is not kept.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clock import pin
from seeded import tell

from eqsat.execute.timing import interleave, interval

if TYPE_CHECKING:
    import eqsat

PROGRAMS = Path(__file__).resolve().parent.parent / "experiments" / "programs"
MOST_ERROR = 2.0  # times that of `jax.jit`
MOST_BYTES = 1.15  # XLA's temporaries over the arena


@dataclass(frozen=True)
class Wanted:
    """A program of `experiments/programs` and the ratio to `jax.jit` that is asked of it."""

    file: str
    function: str
    ratio: float


WANTED = {
    "mlp_784": Wanted("mlp", "mlp_784", 1.2),
    "mlp_1024": Wanted("mlp", "mlp_1024", 1.1),
    "encoder": Wanted("encoder", "encoder", 1.3),
    "minilm": Wanted("minilm", "minilm", 1.4),
    "transposed_pack": Wanted("transposed_pack", "transposed_pack", 1.5),
}


def measure(wanted: Wanted, target: str, settings: Sequence[str], options: Any) -> dict[str, Any]:
    """All figures of one program."""
    import jax

    import eqsat

    function, args, weights = _read(wanted)
    closed = _closing(function, args, weights)
    xs = [a for a, w in zip(args, weights, strict=True) if not w]
    run = eqsat.optimize(
        closed, *xs, target=target, settings=settings, time_limit=options.time_limit
    )
    inputs = _inputs(run, xs)
    sides: dict[str, Callable[..., Any]] = {
        "eqsat": run.compile(check="never"),
        "jax": jax.jit(closed),
    }
    calls = {name: functools.partial(f, *inputs) for name, f in sides.items()}
    if any(weights):
        left = iter(inputs)
        every = [jax.device_put(a) if w else next(left) for a, w in zip(args, weights, strict=True)]
        calls["jax_arguments"] = functools.partial(jax.jit(function), *every)
    errors = _errors(run, inputs, {k: calls[k] for k in sides})
    count, seconds = interleave(calls, options.rounds)
    found = {
        "target": run.target.name,
        "target_reason": run.target.chosen or None,
        "wanted": wanted.ratio,
        "calls": count,
        "rounds": len(seconds["eqsat"]),
        "predicted_us": round(run.schedule.time_ps / 1e6, 1) if run.schedule else None,
        "sides": _sides(count, seconds),
        "ratios": {k: _ratio(seconds[k], seconds["eqsat"]) for k in calls if k != "eqsat"},
        "errors": errors,
        "bytes": _bytes(run, inputs),
        "dispatches": _dispatches(run),
    }
    return found | {"missed": _missed(found)}


# ---- programs --------------------------------------------------------------------------------
def _read(wanted: Wanted) -> tuple[Callable[..., Any], Sequence[Any], Sequence[bool]]:
    """The function, its example arguments, and which of them are weights."""
    sys.path.insert(0, str(PROGRAMS))  # programs import their neighbours
    module = importlib.import_module(wanted.file)
    function = getattr(module, wanted.function)
    named = getattr(module, f"{wanted.function}_weights", ())
    names = function.__code__.co_varnames
    args = getattr(module, f"{wanted.function}_example")()
    return function, args, [names[i] in named for i in range(len(args))]


def _closing(
    function: Callable[..., Any], args: Sequence[Any], weights: Sequence[bool]
) -> Callable[..., Any]:
    """The function of its other arguments; weights are constants of what XLA compiles."""
    if not any(weights):
        return function

    def closed(*xs: Any) -> Any:
        left = iter(xs)
        return function(*(a if w else next(left) for a, w in zip(args, weights, strict=True)))

    return closed


def _inputs(run: eqsat.Run, shapes: Sequence[Any]) -> list[Any]:
    """Random arguments, on the device."""
    import jax
    import numpy as np

    from eqsat.execute.draw import random_inputs

    drawn = random_inputs(run.program, np.random.default_rng(0))
    assert len(drawn) == len(shapes), "an argument of each program is one array"
    return [jax.device_put(x) for x in drawn]


# ---- figures ---------------------------------------------------------------------------------
Seconds = Sequence[tuple[float, float]]


def _sides(count: int, seconds: Mapping[str, Seconds]) -> dict[str, dict[str, float]]:
    """Microseconds of a call, medians."""
    return {
        name: {
            clock: round(statistics.median(s[at] for s in found) / count * 1e6, 2)
            for at, clock in enumerate(("wall_us", "cpu_us"))
        }
        for name, found in seconds.items()
    }


def _ratio(other: Seconds, ours: Seconds) -> dict[str, list[float]]:
    """Per clock: the median ratio of the rounds, and its 95 % interval."""
    found = {}
    for at, clock in enumerate(("wall", "cpu")):
        ratios = [a[at] / b[at] for a, b in zip(other, ours, strict=True)]
        found[clock] = [round(v, 4) for v in interval(ratios)]
    return found


def _errors(
    run: eqsat.Run, inputs: Sequence[Any], calls: Mapping[str, Callable[[], Any]]
) -> dict[str, float]:
    """The largest error of each side's results, of the largest element of the same result."""
    import jax
    import numpy as np

    from eqsat.execute.reference import reference
    from eqsat.execute.work import WorkBudget

    source = run.source
    arrays, work = [np.asarray(x) for x in inputs], WorkBudget(1e13)
    wide = reference(run.program, arrays, source.weights, source.opaque, work)
    found = {}
    for name, call in calls.items():
        results = jax.tree_util.tree_leaves(call())
        found[name] = max(
            float(np.max(np.abs(np.asarray(r, "f8") - w)) / max(np.max(np.abs(w)), 1e-300))
            for r, w in zip(results, wide, strict=True)
        )
    found["ratio"] = round(found["eqsat"] / found["jax"], 3) if found["jax"] else None
    return found


def _bytes(run: eqsat.Run, inputs: Sequence[Any]) -> dict[str, Any]:
    """What XLA allocates beside arguments and results, and the schedule's arena."""
    executable = run.executable
    compiled = executable.jitted.lower(executable.packed, *inputs).compile()
    found = compiled.memory_analysis()
    held = None if run.schedule is None else run.schedule.arena_bytes
    temporaries = None if found is None else int(found.temp_size_in_bytes)
    ratio = round(temporaries / held, 3) if temporaries is not None and held else None
    return {"arena": held, "temporaries": temporaries, "ratio": ratio}


def _dispatches(run: eqsat.Run) -> dict[str, Any]:
    """How many there are, and which are no kernels."""
    assert run.schedule is not None
    told = run.execution.to_json()
    return {"count": len(run.schedule.dispatches), "executor": told["name"]} | {
        "declined": told["declined"]
    }


def _missed(found: Mapping[str, Any]) -> list[str]:
    """What is wanted and was not found."""
    missed = []
    for side, clocks in found["ratios"].items():
        middle, low, _ = clocks["cpu"]
        if middle < found["wanted"] or low <= 1:
            missed.append(f"{side}: {middle} [{low}, …], wanted {found['wanted']}")
    if (error := found["errors"]["ratio"]) is not None and error > MOST_ERROR:
        missed.append(f"error: {error} times that of jax.jit")
    if (ratio := found["bytes"]["ratio"]) is not None and ratio > MOST_BYTES:
        missed.append(f"temporaries: {ratio} times the arena")
    if declined := found["dispatches"]["declined"]:
        missed.append(f"dispatches that are no kernels: {len(declined)}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="auto")
    parser.add_argument("--set", action="append", default=[], help="as `eqsat optimize --set`")
    parser.add_argument("--only", nargs="+", default=list(WANTED), choices=list(WANTED))
    parser.add_argument("--rounds", type=int, default=400, help="at most; never fewer than 30")
    parser.add_argument("--core", type=int, help="the first core to run on")
    parser.add_argument("--cores", type=int, default=1, help="how many")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of a search")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    cores = pin(options.core, options.cores)
    import jax

    settings = [*options.set, *([f"kernels.cores={options.cores}"] if options.cores > 1 else [])]
    found = {}
    for name in options.only:
        found[name] = measure(WANTED[name], options.target, settings, options)
        print(name, json.dumps(found[name]["ratios"]), found[name]["missed"], file=sys.stderr)
    machine = f"{platform.machine()}, Python {platform.python_version()}, JAX {jax.__version__}"
    load = [round(v, 2) for v in os.getloadavg()]
    about = {"format": 1, "machine": machine, "cores": cores, "load": load}
    tell(about | {"programs": found}, options.out)
    return int(any(f["missed"] for f in found.values()))


if __name__ == "__main__":
    sys.exit(main())
