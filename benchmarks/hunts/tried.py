"""A function on one machine, judged: what eqsat makes of it beside the float64 reference and JAX."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import eqsat
from eqsat.api import Run
from eqsat.execute.draw import drawn_weights
from eqsat.execute.verify import MISMATCH, verify
from eqsat.model.diag import EqsatError
from hunts.children import serve
from hunts.written import Written

Row = dict[str, Any]
Function = Callable[..., Any]
# by name: a target, and settings of it
MACHINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "avx512": ("avx512", ()),
    "avx512-vnni": ("avx512-vnni", ()),
    "avx2": ("avx2", ()),
    "xla": ("avx512-xla", ()),
    "pallas": ("avx512", ("executor=pallas",)),
    "pallas-gpu": ("sm_90", ("executor=pallas",)),
}
LIMIT = 10.0  # seconds of a search; small programs end by themselves
INTERNAL = "E9"  # how the codes of internal errors begin
# outcomes that are findings; the others are `ok`, `unproven` and `refused`
WRONG, FOREIGN, SHAPE, VARIES, ERROR, EXCEPTION = FOUND = (
    "wrong", "front end", "shape", "varies", "internal", "exception",
)  # fmt: skip
REFUSED = "refused"


def tried(
    function: Function, arrays: Sequence[Any], machine: str, weights: Sequence[str] = ()
) -> Row:
    """What became of a function: its outcome, and a sentence where that is not `ok`."""
    target, settings = MACHINES[machine]
    try:
        run = eqsat.optimize(
            function, *arrays, weights=weights, target=target, settings=settings, time_limit=LIMIT
        )
        return {"dispatches": _dispatches(run), **_judged(run, function, arrays)}
    except EqsatError as error:
        code = error.diagnostics[0].code
        outcome = ERROR if code.startswith(INTERNAL) else REFUSED
        return {"outcome": outcome, "reason": str(error)[:600]}
    except Exception as error:  # whatever else a valid function raises is a finding
        last = traceback.format_exc().splitlines()[-8:]
        what = f"{type(error).__name__}: {error}"[:300]
        return {"outcome": EXCEPTION, "reason": what, "trace": last}


def _dispatches(run: Run) -> int:
    return 0 if run.schedule is None else len(run.schedule.dispatches)


def _judged(run: Run, function: Function, arrays: Sequence[Any]) -> Row:
    """Types first, then values of JAX's own program and of the answer, then whether calls repeat."""
    plain, chosen = jax.jit(function), run.compile()
    want, got = jax.tree.leaves(plain(*arrays)), jax.tree.leaves(chosen(*arrays))
    for r, (g, w) in enumerate(zip(got, want, strict=True)):
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            reason = f"result {r} is {g.dtype}{list(g.shape)}, wanted {w.dtype}{list(w.shape)}"
            return {"outcome": SHAPE, "reason": reason}
    found = _verified(run, plain)
    if found.outcome == MISMATCH:
        return {"outcome": FOREIGN, "reason": f"JAX's own: {found.reason}"}
    found = _verified(run, chosen, chosen=run.need_schedule().program, schedule=run.schedule)
    row = {"outcome": found.outcome, "reason": found.reason, "error": found.max_error}
    if found.outcome == MISMATCH:
        return row | {"outcome": WRONG}
    again = jax.tree.leaves(chosen(*arrays))
    if all(_same_bits(a, b) for a, b in zip(got, again, strict=True)):
        return row
    return row | {"outcome": VARIES, "reason": "a second call with the same arguments differs"}


def _same_bits(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def _verified(run: Run, call: Function, **options: Any) -> Any:
    """`verify` with a function that takes the arguments as they were traced."""
    source, traced = run.source, run.source.traced
    assert traced is not None
    weights = {**run.weights, **drawn_weights(source.program, run.weights)}

    def flat(*inputs: Any) -> list[Any]:
        bound = [
            inputs[int(key)] if kind == "input" else weights[str(key)]
            for kind, key in traced.bindings
        ]
        return jax.tree.leaves(call(*bound))

    return verify(source.program, flat, weights, source.opaque, samples=1, **options)


def answer(request: Row) -> Row:
    """The row of a function that comes as data."""
    begin = time.process_time()
    function = Written.from_json(request["written"])
    row = tried(function.function(), function.arrays, request["machine"], function.weights)
    return row | {"cpu_seconds": round(time.process_time() - begin, 3)}


if __name__ == "__main__":
    serve(answer)
