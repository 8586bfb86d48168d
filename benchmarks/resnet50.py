"""ResNet-50 as imported (NCHW), and what the search makes of it, side by side on one core.

    python benchmarks/resnet50.py [--target FILE] [--rounds N] [--forced] [--out FILE]

Without `--target` this machine is calibrated first. Prints one JSON object: medians of process time
over interleaved rounds of `jax.jit` of the imported program, of the same network written in NHWC by
hand, of the imported ops and layouts on eqsat's executor, and of the searched program, all with the
same random weights; how far the results differ; and the search's summary. `--forced`: conversions
left at run time where every convolution has to be packed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np

import eqsat

PROGRAMS = Path(__file__).parent.parent / "experiments" / "programs"
FORCED = ("tiles_forced=true", "tiles.conv2d=[{c: 16, k: 16, rate: 0.68}]")
NHWC = ("NHWC", "HWIO", "NHWC")


def load_program() -> Any:
    """The module of the imported program."""
    sys.path.insert(0, str(PROGRAMS))
    import resnet50

    return resnet50


def random_weights(shapes: Any, seed: int) -> Any:
    """Filters of variance 2 / fan-in (He et al. 2015), scales near a half, small shifts."""
    import jax

    rng = np.random.default_rng(seed)

    def draw(s: Any) -> np.ndarray:
        fan = int(np.prod(s.shape[1:])) if len(s.shape) == 4 else max(s.shape[0], 1)
        if len(s.shape) == 1:
            return (0.5 + 0.1 * rng.standard_normal(s.shape)).astype("f4")
        return (rng.standard_normal(s.shape) * np.sqrt(2 / fan)).astype("f4")

    return jax.tree.map(draw, shapes)


def by_hand(program: Any) -> Callable[..., Any]:
    """The network over NHWC images and HWIO filters."""
    import jax
    import jax.numpy as jnp

    def convolve(x: Any, weights: Any, stride: int = 1) -> Any:
        filters, scale, shift = weights
        pad = ((filters.shape[0] // 2,) * 2,) * 2
        y = jax.lax.conv_general_dilated(x, filters, (stride,) * 2, pad, dimension_numbers=NHWC)
        return y * scale + shift

    def bottleneck(x: Any, p: Any, stride: int) -> Any:
        y = jax.nn.relu(convolve(x, p["reduce"]))
        y = convolve(jax.nn.relu(convolve(y, p["spatial"], stride)), p["expand"])
        return jax.nn.relu(y + (convolve(x, p["project"], stride) if "project" in p else x))

    def network(x: Any, params: Any) -> Any:
        _, strides = program.parameters()
        x = jax.nn.relu(convolve(x, params["stem"], 2))
        pad = ((0, 0), (1, 1), (1, 1), (0, 0))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pad)
        for p, stride in zip(params["blocks"], strides, strict=True):
            x = bottleneck(x, p, stride)
        weights, bias = params["head"]
        return x.mean((1, 2)) @ weights + bias

    return network


def channels_last(params: Any) -> Any:
    """Filters as HWIO, everything else as it is."""
    import jax

    return jax.tree.map(
        lambda w: np.ascontiguousarray(w.transpose(2, 3, 1, 0)) if w.ndim == 4 else w, params
    )


def compiled(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """A call of the compiled function on arguments that are on the device."""
    import jax

    held = jax.device_put(args)
    call = jax.jit(function).lower(*held).compile()
    return lambda: jax.block_until_ready(call(*held))


def scheduled(schedule: Any, run: Any, weights: dict[str, Any], x: Any) -> Callable[[], Any]:
    """A call of a schedule of the run; its weights are packed before."""
    import jax

    from eqsat.execute.xla import xla_executable

    executable = xla_executable(schedule, run.source.opaque, weights)
    packed, image = jax.device_put((executable.packed, x))
    call = executable.jitted.lower(packed, image).compile()
    return lambda: jax.block_until_ready(call(packed, image)[0])


def medians(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of process time per call: medians over interleaved rounds, after one of each."""
    found: dict[str, list[float]] = {k: [] for k in calls}
    for i in range(rounds + 1):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            if i:
                found[name].append(time.process_time() - begin)
    return {k: round(statistics.median(v) * 1e3, 2) for k, v in found.items()}


def measure(run: Any, rounds: int, seed: int = 0) -> dict[str, Any]:
    """Times and differences of four forms: `as_read` is the import on eqsat's executor."""
    program = load_program()
    rng = np.random.default_rng(seed)
    params = random_weights(program.parameters()[0], seed)
    x = rng.standard_normal((1, 3, program.SIZE, program.SIZE)).astype("f4")
    weights = run.source.traced.flat_weights((x, params))
    calls = {
        "imported": compiled(program.resnet50, x, params),
        "nhwc_by_hand": compiled(
            by_hand(program), np.ascontiguousarray(x.transpose(0, 2, 3, 1)), channels_last(params)
        ),
        "as_read": scheduled(run.baseline_schedule, run, weights, x),
        "searched": scheduled(run.schedule, run, weights, x),
    }
    results = {k: np.asarray(c()) for k, c in calls.items()}
    wanted = results["imported"]
    times = medians(calls, rounds)
    return {
        "ms": times,
        "speedup": round(times["imported"] / times["searched"], 3),
        "relative_difference": {
            k: float(np.abs(r - wanted).max() / np.abs(wanted).max()) for k, r in results.items()
        },
    }


def orders(run: Any) -> dict[str, int]:
    """How many convolutions with windows read their image in which order of dims."""
    from eqsat.ops.contractions.dimorders import orders as orders_of
    from eqsat.ops.targets.kernels import kernel_kind

    found: dict[str, int] = {}
    for n in run.schedule.program.nodes:
        if n.op == "generic" and (o := orders_of(n.attr)):
            kind = "windows" if kernel_kind(n.attr) == "conv2d" else "1x1"
            key = f"{kind} {''.join(o.image)} to {''.join(o.result)}"
            found[key] = found.get(key, 0) + 1
    return dict(sorted(found.items()))


def summary(run: Any) -> dict[str, Any]:
    """The parts of a run's summary that this benchmark is about."""
    keys = ("target", "egraph", "goals", "baseline", "counts", "bytes", "stop", "seconds")
    return {k: v for k, v in run.summary().items() if k in keys}


def conversions(run: Any) -> dict[str, int]:
    """Packs, unpacks and transposes at run time, within dispatches or not."""
    from eqsat.execute.weights import run_time_nodes

    ops = [run.schedule.program.nodes[i].op for i in run_time_nodes(run.schedule)]
    return {op: ops.count(op) for op in ("pack", "unpack", "transpose")}


def calibrated() -> str:
    """A target file of this machine, written to a temporary folder."""
    from eqsat.lab.calibrate import calibrate

    path = Path(tempfile.mkdtemp()) / "host.yaml"
    path.write_text(calibrate(quick=True).to_yaml(), encoding="utf-8")
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", help="a target; this machine is calibrated if none is given")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--forced", action="store_true", help="count conversions with forced tiles")
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    source, limit = eqsat.read("resnet50"), options.time_limit
    run = eqsat.optimize(source, target=options.target or calibrated(), time_limit=limit)
    found: dict[str, Any] = {"format": 1, "machine": platform.machine(), "search": summary(run)}
    found |= {"orders": orders(run)} | measure(run, options.rounds)
    if options.forced:
        forced = eqsat.optimize(source, target="avx512-xla", settings=FORCED, time_limit=limit)
        found["forced"] = {"run_time": conversions(forced)} | summary(forced)
    text = json.dumps(found, indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
