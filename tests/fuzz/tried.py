"""A function on one machine, judged: what eqsat makes of it, beside float64 and somebody else."""

from __future__ import annotations

import logging
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

import eqsat
from eqsat.api import DEFAULT_GOALS, Run
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.execute.verify import MISMATCH, verify
from eqsat.model.diag import EqsatError
from fuzz.asjax import function
from fuzz.asonnx import model
from fuzz.children import serve
from fuzz.written import Written

Row = dict[str, Any]
Flat = Callable[..., Sequence[Any]]  # a program's inputs to its results
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
WRONG, FOREIGN, SHAPE, VARIES, ALARM, ERROR, EXCEPTION = FOUND = (
    "wrong", "front end", "shape", "varies", "alarm", "internal", "exception",
)  # fmt: skip
REFUSED = "refused"


def tried_in_jax(
    f: Callable[..., Any],
    arrays: Sequence[Any],
    machine: str,
    weights: Sequence[str] = (),
    goals: Sequence[str] = DEFAULT_GOALS,
) -> Row:
    """What became of a JAX function: its outcome, and a sentence where that is not `ok`."""

    def judge(**options: Any) -> Row:
        run = eqsat.optimize(f, *arrays, weights=weights, goals=goals, **options)
        return judged(run, flat(run, jax.jit(f)), flat(run, run.compile(check="never")))

    return _caught(judge, machine)


def tried_in_onnx(data: bytes, machine: str) -> Row:
    """The same of an ONNX model, beside onnxruntime."""

    def judge(**options: Any) -> Row:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "f.onnx"
            path.write_bytes(data)
            run = eqsat.optimize(eqsat.read(str(path)), **options)
            return judged(run, _session(path), run.compile(check="never"))

    return _caught(judge, machine)


def _caught(judge: Callable[..., Row], machine: str) -> Row:
    target, settings = MACHINES[machine]
    try:
        with _alarms() as said:
            row = judge(target=target, settings=settings, time_limit=LIMIT)
        fine = row["outcome"] not in FOUND
        return row | {"outcome": ALARM, "reason": said[0][:600]} if said and fine else row
    except EqsatError as error:
        code = error.diagnostics[0].code
        outcome = ERROR if code.startswith(INTERNAL) else REFUSED
        return {"outcome": outcome, "reason": str(error)[:600]}
    except Exception as error:  # whatever else a valid function raises is a finding
        last = traceback.format_exc().splitlines()[-8:]
        what = f"{type(error).__name__}: {error}"[:300]
        return {"outcome": EXCEPTION, "reason": what, "trace": last}


@contextmanager
def _alarms() -> Iterator[list[str]]:
    """What the checks of nests and plans refuse meanwhile: a nest, a plan or a check is wrong."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    log = logging.getLogger("eqsat.check")
    log.addHandler(handler)
    try:
        yield said
    finally:
        log.removeHandler(handler)


def judged(run: Run, plain: Flat, chosen: Flat) -> Row:
    """Types first, then the values of both, then whether a second call does the same."""
    schedule, program = run.need_schedule(), run.source.program
    row: Row = {"dispatches": len(schedule.dispatches)}
    inputs = random_inputs(program, np.random.default_rng(0))
    want, got, again = (list(map(np.asarray, f(*inputs))) for f in (plain, chosen, chosen))
    reason = _other_type(got, want)
    if reason:
        return row | {"outcome": SHAPE, "reason": reason}
    found = _verified(run, plain)
    if found.outcome == MISMATCH:
        return row | {"outcome": FOREIGN, "reason": found.reason}
    found = _verified(run, chosen, chosen=schedule.program, schedule=schedule)
    row |= {"declined": sorted(getattr(run.executable, "refused", {}).values())}
    row |= {"outcome": found.outcome, "reason": found.reason, "error": found.max_error}
    if found.outcome == MISMATCH:
        return row | {"outcome": WRONG}
    if all(a.tobytes() == b.tobytes() for a, b in zip(got, again, strict=True)):
        return row
    return row | {"outcome": VARIES, "reason": "a second call with the same arguments differs"}


def _other_type(got: Sequence[Any], want: Sequence[Any]) -> str:
    """Why results are not of the types that are wanted; "" if they are."""
    for r, (g, w) in enumerate(zip(got, want, strict=True)):
        dtype = jax.dtypes.canonicalize_dtype(w.dtype)
        if (g.shape, g.dtype) != (w.shape, dtype):
            return f"result {r} is {g.dtype}{list(g.shape)}, wanted {dtype}{list(w.shape)}"
    return ""


def _verified(run: Run, call: Flat, **options: Any) -> Any:
    source = run.source
    weights = {**run.weights, **drawn_weights(source.program, run.weights)}
    return verify(source.program, call, weights, source.opaque, samples=1, **options)


def flat(run: Run, call: Callable[..., Any]) -> Flat:
    """A function that takes the arguments as they were traced, as one of the program's inputs."""
    assert run.source.traced is not None
    bindings = run.source.traced.bindings
    weights = {**run.weights, **drawn_weights(run.source.program, run.weights)}

    def of_inputs(*inputs: Any) -> list[Any]:
        bound = [
            inputs[int(key)] if kind == "input" else weights[str(key)] for kind, key in bindings
        ]
        return jax.tree.leaves(call(*bound))

    return of_inputs


def _session(path: Path) -> Flat:
    """A model in onnxruntime, on one thread, without its own rewrites."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def answer(request: Row) -> Row:
    """The row of a function that comes as data."""
    begin = time.process_time()
    written, machine = Written.from_json(request["written"]), request["machine"]
    if request["language"] == "onnx":
        row = tried_in_onnx(model(written).SerializeToString(), machine)
    else:
        row = tried_in_jax(function(written), written.arrays, machine, written.weights)
    return row | {"cpu_seconds": round(time.process_time() - begin, 3)}


if __name__ == "__main__":
    serve(answer)
