"""Part a of `accelerators.py`: answers against the plain JAX function, by a TPU's compiler.

    python benchmarks/accelcycles.py [NAME …]

Every program is searched with the rules of `full` and `--check-compile` for a TPU v5e, at the
precision of its source. A row has the cycles that XLA estimates for the function and for the
answer, and the kernels for which it has none. `ok`: no answer has more cycles than its function, or
a kernel of unknown cycles that the function has not; at least three have less than 0.90 of them. As
copies inside of VMEM are 100 cycles whatever they move, a row says how many more an answer has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

Row = dict[str, Any]
NEEDS = ("libtpu",)
MINUTES = 4
WIN, WINS = 0.90, 3
SECONDS = 20.0  # of a search
TARGETS = ("tpu-v5e", "sm_90")  # the first that there is
PROGRAMS = (
    "encoder.py:encoder", "mlp.py:mlp_784", "bottlenecks.py:bottlenecks",
    "quantised.py:quantised_mlp", "quantised.py:quantised_bottleneck", "train.py:step",
    "clock:lora", "clock:folded", "clock:attention", "clock:columns", "clock:conv_nhwc",
    "pair:chains.chain_of_four", "pair:merges.heads_in_a_loop",
)  # fmt: skip


def measured(names: Sequence[str] = PROGRAMS) -> Row:
    """All rows, and whether they show what they must."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    rows = [row(name) for name in names]
    known = [r["ratio"] for r in rows if r["ratio"] is not None]
    return {
        "ok": all(r["ok"] for r in rows) and sum(r < WIN for r in known) >= min(WINS, len(known)),
        "never_above": all(r["ok"] for r in rows),
        "below_090": sum(r < WIN for r in known),
        "rows": rows,
    }


def row(name: str) -> Row:
    """One program."""
    import eqsat

    begin = time.monotonic()
    given, args, options = program(name)
    target = next(t for t in TARGETS if t in shipped())
    run = eqsat.optimize(
        given, *args, rules=("full",), target=target, settings=("oracle='libtpu v5e'",),
        check_compile=True, time_limit=SECONDS, **options,
    )  # fmt: skip
    told = run.checked
    assert told is not None
    kept, plain = told.programs[told.kept].figures, told.programs[-1].figures
    new = Counter(kept.uncounted) - Counter(plain.uncounted)
    ratio = None
    if kept.cycles is not None and plain.cycles:
        ratio = round(kept.cycles / plain.cycles, 4)
    found = {
        "program": name, "target": target, "kept": told.programs[told.kept].name,
        "weights": told.weights, "cycles": kept.cycles, "plain_cycles": plain.cycles,
        "ratio": ratio, "ok": ratio is not None and ratio <= 1 and not new,
        "uncounted": list(kept.uncounted), "plain_uncounted": list(plain.uncounted),
        "more_copies": (kept.relayout_copies or 0) - (plain.relayout_copies or 0),
        "asked": [[p.name, p.figures.cycles, p.figures.refused] for p in told.programs],
        "seconds": round(time.monotonic() - begin, 1),
    }  # fmt: skip
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def shipped() -> set[str]:
    """The names of the targets that come with eqsat."""
    return {p.stem for p in (Path(__file__).parent.parent / "targets").glob("*.yaml")}


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
    return getattr(import_module(f"pairs.{theme}"), name)


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]
    print(json.dumps(measured(sys.argv[1:] or PROGRAMS), indent=1))
