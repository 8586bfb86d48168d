"""Answers against the plain JAX function, by a TPU's compiler.

    python benchmarks/run.py cycles [NAME …]

Every program is searched with the rules of `full`, `layouts="auto"` and `--check-compile` for a
TPU v5e, at the precision of its source. A row has the cycles that XLA estimates of four programs:
the function, with plain arguments and results (`plain`) and where XLA chooses in which order they
lie (`plain_auto`), and the best program of eqsat in either way (`eqsat`, `eqsat_auto`).
`ratio` is eqsat to plain, `ratio_auto` the same with free orders. `ok`: no answer has more cycles
than its function in the same way, or kernels of unknown cycles that the function has not; at least
three of each ratio are below 0.90. As copies inside of VMEM are 100 cycles whatever they move, a
row says how many more an answer has. Transfers that run beside kernels have no cycles, so a row has
`floor` as well: those that arguments, results and weights take at 819 GB/s.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from gates import Row, say
from layers import TARGETS as SHIPPED

WIN, WINS = 0.90, 3
SECONDS = 20.0  # of a search
BANDWIDTH, HERTZ = 819e9, 1.5e9  # of a v5e
TARGETS = ("tpu-v5e", "sm_90")  # the first that there is
PROGRAMS = (
    "encoder.py:encoder", "mlp.py:mlp_784", "bottlenecks.py:bottlenecks",
    "quantised.py:quantised_mlp", "quantised.py:quantised_bottleneck", "train.py:step",
    "llama.py:llama_decode", "llama.py:llama_64", "denoise.py:denoise", "gates.py:gates",
    "clock:lora", "clock:folded", "clock:attention", "clock:columns", "clock:conv_nhwc",
    "pair:chains.chain_of_four", "pair:merges.heads_in_a_loop",
)  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(PROGRAMS))


def measured(asked: argparse.Namespace) -> Row:
    """All rows, and whether they show what they must."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    rows = [row(name) for name in asked.names]
    wins = {k: sum((r[k] or 1) < WIN for r in rows) for k in ("ratio", "ratio_auto")}
    needed = min(WINS, len(rows))
    return {
        "ok": all(r["ok"] for r in rows) and min(wins.values()) >= needed,
        "never_above": all(r["ok"] for r in rows),
        "below_090": wins,
        "rows": rows,
    }


def row(name: str) -> Row:
    """One program."""
    import eqsat

    begin, cpu = time.monotonic(), cpu_seconds()
    given, args, options = program(name)
    target = next(t for t in TARGETS if t in SHIPPED)
    run = eqsat.optimize(
        given, *args, rules=("full",), target=target, settings=("oracle='libtpu v5e'",),
        check_compile=True, layouts="auto", time_limit=SECONDS, **options,
    )  # fmt: skip
    told = run.checked
    assert told is not None
    plain, kept = told.programs[-1], told.programs[told.kept]
    auto = next((p for p in told.programs if p.origin == plain.origin and p.layouts), plain)
    best = best_of([p for p in told.programs if p.layouts == plain.layouts], plain)
    cycles = {
        "plain": plain.figures.cycles, "plain_auto": auto.figures.cycles,
        "eqsat": best.figures.cycles, "eqsat_auto": kept.figures.cycles,
    }  # fmt: skip
    found = {
        "program": name, "target": target, "kept": kept.name, "weights": told.weights,
        **cycles, "floor": floor(run),
        "ratio": ratio(best.figures.cycles, plain.figures.cycles),
        "ratio_auto": ratio(kept.figures.cycles, auto.figures.cycles),
        "ok": not is_worse(best, plain) and not is_worse(kept, auto),
        "uncounted": list(kept.figures.uncounted),
        "plain_uncounted": list(plain.figures.uncounted),
        "more_copies": (kept.figures.relayout_copies or 0) - (plain.figures.relayout_copies or 0),
        "asked": [[p.name, p.figures.cycles, p.figures.refused] for p in told.programs],
        "seconds": round(time.monotonic() - begin, 1),
        "cpu_seconds": round(cpu_seconds() - cpu, 1),
    }  # fmt: skip
    say(json.dumps(found))
    return found


def best_of(asked: Sequence[Any], plain: Any) -> Any:
    """The one with the fewest cycles that is surely no worse than the function."""
    return min(
        (p for p in asked if not is_worse(p, plain)), key=lambda p: p.figures.cycles, default=plain
    )


def is_worse(one: Any, other: Any) -> bool:
    own, theirs = one.figures, other.figures
    if own.cycles is None or theirs.cycles is None:
        return True
    return own.cycles > theirs.cycles or own.has_more_unknown(theirs)


def ratio(own: int | None, theirs: int | None) -> float | None:
    return round(own / theirs, 4) if own is not None and theirs else None


def floor(run: Any) -> int:
    """Cycles at 1.5 GHz in which main memory moves arguments, results and weights once."""
    program = run.program
    borders = {*program.inputs, *program.results, *program.weights}
    return round(sum(program.nodes[i].type.nbytes for i in borders) / BANDWIDTH * HERTZ)


def cpu_seconds() -> float:
    """Of this process and of those that have ended."""
    return sum(os.times()[:4])


def program(name: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """What is searched, its arguments, and the options that it is searched with."""
    kind, _, rest = name.partition(":")
    if kind == "clock":
        return timed(rest)
    if kind == "pair":
        theme, _, pair = rest.partition(".")
        made = found_pair(theme, pair)(lambda size: size)
        return made.naive, made.specs, {"weights": made.weights}
    from eqsat.lang.experiments import find_program

    return find_program(name), [], {}


def timed(name: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """A function of `clockprograms`, with the shapes of its arguments."""
    import jax
    from clockprograms import programs

    made = programs()[name]
    args = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), list(made.args))
    return made.function, args, made.options


def found_pair(theme: str, name: str) -> Callable[..., Any]:
    """What makes a pair of `pairs`, at a scale."""
    return getattr(import_module(f"fuzz.pairs.{theme}"), name)
