"""Answers beside their inputs, where kernels have no plan for a dispatch of one or the other; JSON.

    python benchmarks/run.py unplanned [--core 0] [--rounds 100] [--only NAME …]
                                       [FILE …]

Paired and interleaved by process time, as `clock.py`: the answer and the input program by the
target's own executor, and `jax.jit` of the function. An answer that is its input is not timed. Per
program the dispatches that have no plan, with the reason. FILE: what `eqsat optimize` takes, timed
as well. Not ok if an answer is slower than its input by more than 3 %, and not by the noise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gates import middle, pin, ratio, say, timed_in_turn

if TYPE_CHECKING:
    from eqsat.model.schedule import Schedule
    from eqsat.run import Run

MOST = 1.03
TIME_LIMIT = 30.0
ANSWER, INPUT, JAX = "answer", "input", "jax"


def measure(searched: Any, args: tuple[Any, ...], rounds: int, target: str) -> dict[str, Any]:
    """One program: figures of the answer against the input, and against `jax.jit`."""
    import eqsat
    from eqsat.run.contenders import input_contenders

    run = eqsat.optimize(searched, *args, target=target, time_limit=TIME_LIMIT)
    assert run.schedule is not None, "it was not stopped before"
    own = list(input_contenders(run, by_xla=False))
    found: dict[str, Any] = {
        "target": run.target.name,
        "is_input": not own,
        "predicted_us": round(run.schedule.time_ps / 1e6, 2),
        "unplanned": _unplanned(run.schedule),
    }
    if not own:
        return found
    found["input_predicted_us"] = round(own[0].schedule.time_ps / 1e6, 2)
    found["input_unplanned"] = _unplanned(own[0].schedule)
    values = _inputs(run)
    sides = {ANSWER: _call(run, run.schedule, values), INPUT: _call(run, own[0].schedule, values)}
    sides |= {JAX: _jitted(searched, values)} if callable(searched) else {}
    us = {name: times["cpu"] for name, times in timed_in_turn(sides, rounds).items()}
    found |= {f"{name}_us": middle(times) for name, times in us.items()}
    return found | {f"to_{o}": ratio(us[ANSWER], us[o]) for o in (INPUT, JAX) if o in us}


def _call(run: Run, schedule: Schedule, values: list[Any]) -> Callable[[], Any]:
    from eqsat.execute.draw import drawn_weights
    from eqsat.execute.executors import build_executable

    weights = {**run.weights, **drawn_weights(run.program, run.weights)}
    flat = build_executable(schedule, run.source.opaque, weights, run.target).flat
    return lambda: flat(*values)


def _inputs(run: Run) -> list[Any]:
    import jax
    import numpy as np

    from eqsat.execute.draw import random_inputs

    return list(jax.device_put(random_inputs(run.program, np.random.default_rng(0))))


def _jitted(function: Callable[..., Any], values: list[Any]) -> Callable[[], Any]:
    import jax

    jitted = jax.jit(function)
    return lambda: jitted(*values)


def _unplanned(schedule: Schedule) -> list[str]:
    return [f"{d.ops}: {d.no_plan}" for d in schedule.dispatches if d.no_plan]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=100, help="at most, never fewer than 30")
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--only", nargs="*", help="names of programs; none: files alone")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    core = pin(o.core)[0]
    from unplannedprograms import PROGRAMS

    cases: dict[str, tuple[Any, tuple[Any, ...]]] = {f: (f, ()) for f in o.files}
    cases |= {n: c for n, c in PROGRAMS.items() if o.only is None or n in o.only}
    found = {}
    for name, case in cases.items():
        found[name] = measure(*case, o.rounds, o.target)
        say(f"{name} {json.dumps(found[name])}")
    slower = [n for n, f in found.items() if "to_input" in f and f["to_input"][1] > MOST]
    return {"ok": not slower, "core": core, "programs": found, "slower": slower}
