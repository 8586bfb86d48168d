"""A new user's ten minutes by the clock: each step a process as the user would start it.

    python benchmarks/stopwatch.py [--here] [--out FILE]

The clone has a virtual environment and caches of its own. `--here` leaves out clone, demo and
installations, and uses this interpreter and this checkout. Seconds are those of the step and of the
processes that it started; on a busy machine the CPU seconds count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gates import Row, machine

ROOT = Path(__file__).resolve().parent.parent
CALLS = 1000
ROUNDS, BATCH = 30, 10
MODEL = """
import jax
import jax.numpy as jnp
import numpy as np

TOKENS, WIDTH, LAYERS = 128, 256, 4
SHAPES = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
SHAPES |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
rng = np.random.default_rng(0)
weight = lambda shape: rng.standard_normal(shape, "f4") / np.sqrt(shape[0], dtype="f4")
params = [{k: weight(s) for k, s in SHAPES.items()} for _ in range(LAYERS)]
x = rng.standard_normal((TOKENS, WIDTH), "f4")


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def transformer(params, x):
    for p in params:
        parts = jnp.split(norm(x) @ p["qkv"], 3, -1)
        q, k, v = (t.reshape(TOKENS, 4, -1).swapaxes(0, 1) for t in parts)
        scores = jax.nn.softmax(q @ k.swapaxes(1, 2) / 8)
        x = x + (scores @ v).swapaxes(0, 1).reshape(TOKENS, WIDTH) @ p["out"]
        x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
    return x
"""
TIMES = f'''
import json, statistics, time


def race(**sides):
    """Median milliseconds of a call, wall and CPU, of each side; in turns."""
    seconds = {{name: [] for name in sides}}
    for call in sides.values():
        call()
    for _ in range({ROUNDS}):
        for name, call in sides.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range({BATCH}):
                call()
            seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    of = lambda rows, at: round(statistics.median(r[at] for r in rows) / {BATCH} * 1e3, 3)
    return {{k: {{"wall_ms": of(v, 0), "cpu_ms": of(v, 1)}} for k, v in seconds.items()}}


def step(call):
    wall, cpu = time.perf_counter(), time.process_time()
    value = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return value, {{"wall_s": round(wall, 2), "cpu_s": round(cpu, 2)}}
'''
DECORATE = """
import numpy as np
from model import jax, params, transformer, x
from times import json, race, step

import eqsat

fast, plain = eqsat.jit(transformer, weights=["params"]), jax.jit(transformer)
weights = jax.device_put(params)  # NumPy arrays would be packed at each call
y, first = step(lambda: jax.block_until_ready(fast(weights, x)))
times = race(
    jax_jit=lambda: plain(weights, x).block_until_ready(),
    eqsat=lambda: fast(weights, x).block_until_ready(),
)
_, saved = step(lambda: fast.optimize(params, x).save("transformer.eqsat"))
wanted = np.asarray(plain(weights, x))
np.savez("wanted.npz", x=x, y=wanted)
error = float(np.abs(np.asarray(y) - wanted).max() / np.abs(wanted).max())
told = {"first call": first, "save": saved, "times": times, "error": error}
print(json.dumps(told | {"kept": fast.checks[0].kept}))
"""
SERVE = f"""
import jax
import numpy as np
from times import json, step

import eqsat

held = np.load("wanted.npz")
serve, load = step(lambda: eqsat.load("transformer.eqsat"))
y, first = step(lambda: jax.block_until_ready(serve(x=held["x"])))
_, calls = step(lambda: [serve(x=held["x"]).block_until_ready() for _ in range({CALLS})])
error = float(np.abs(np.asarray(y) - held["y"]).max() / np.abs(held["y"]).max())
print(json.dumps({{"load": load, "first call": first, "calls": calls, "error": error}}))
"""
ONNX = """
import numpy as np
from times import json, race, step
import onnxruntime

held = np.load("wanted.npz")
made = lambda: onnxruntime.InferenceSession("transformer.onnx", providers=["CPUExecutionProvider"])
session, load = step(made)
name = session.get_inputs()[0].name
run = lambda: session.run(None, {name: held["x"]})
error = float(np.abs(run()[0] - held["y"]).max() / np.abs(held["y"]).max())
print(json.dumps({"load": load, "times": race(onnxruntime=run), "error": error}))
"""


class Watch:
    """Steps with their seconds, in a folder of the user."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.steps: list[Row] = []
        (folder / "model.py").write_text(MODEL)
        (folder / "times.py").write_text(TIMES)
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        self.environment = kept | {"EQSAT_CACHE": str(folder / "cache")}

    def step(self, name: str, words: Sequence[str | Path], where: Path | None = None) -> Row:
        """Run a command; its seconds, and what its last line of JSON says."""
        start = time.perf_counter()
        with subprocess.Popen(
            list(map(str, words)), cwd=where or self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            out, err = process.communicate()
            used = process_seconds()
        row: Row = {"step": name, "wall_s": round(time.perf_counter() - start, 1)}
        row["cpu_s"] = round(used - sum(r["cpu_s"] for r in self.steps), 1)
        lines = out.strip().splitlines()
        if process.returncode:
            row["failed"] = (err or out)[-500:]
        elif lines and lines[-1].startswith("{"):
            row |= json.loads(lines[-1])
        elif name == "demo":
            row["printed"] = out.splitlines()
        self.steps.append(row)
        print(f"{name:28} {row['wall_s']:8.1f} s {row['cpu_s']:8.1f} s CPU", file=sys.stderr)
        return row


def process_seconds() -> float:
    """CPU seconds of all processes that ended below this one."""
    used = os.times()
    return used.children_user + used.children_system


def measured(here: bool) -> Row:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        watch = Watch(Path(place))
        python, clone = Path(sys.executable), watch.folder / "eqsat"
        if here:
            watch.environment["PYTHONPATH"] = str(ROOT)
        else:
            watch.step("clone", ["git", "clone", "--quiet", ROOT, clone])
            watch.step("demo", ["make", "demo"], clone)
            python = clone / ".venv" / "bin" / "python"
        decorated = watch.step("decorate, race, save", [python, "-c", DECORATE])
        served = [
            watch.step(f"load, serve {CALLS:,} calls ({when})", [python, "-c", SERVE])
            for when in ("first process", "second process")
        ]
        if not here:
            words = [
                "pip",
                "install",
                "--quiet",
                "--editable",
                f"{clone}[onnx]",
                "onnxruntime>=1.24,<2",
            ]
            watch.step("install ONNX", [python, "-m", *words])
        export = ["eqsat", "export", "transformer.eqsat", "--to", "onnx", "-o", "transformer.onnx"]
        watch.step("export", [python, "-m", *export])
        onnx = watch.step("onnxruntime", [python, "-c", ONNX])
    return summary(load, watch.steps, decorated, served[-1], onnx)


def summary(load: float, steps: Sequence[Row], decorated: Row, served: Row, onnx: Row) -> Row:
    """The steps, and how much faster than `jax.jit` a call is, by CPU seconds and by the wall."""
    times = decorated.get("times", {})
    ratios = {}
    for clock in ("wall_ms", "cpu_ms") if times else ():
        one = times["eqsat"][clock]
        ratios[f"jax.jit / eqsat, {clock}"] = round(times["jax_jit"][clock] / one, 2)
        if "times" in onnx:
            ratios[f"onnxruntime / eqsat, {clock}"] = round(
                onnx["times"]["onnxruntime"][clock] / one, 2
            )
    right = all(row.get("error", 1.0) < 1e-4 for row in (decorated, served))
    failed = [row["step"] for row in steps if "failed" in row]
    return {
        "ok": right and not set(failed) - {"install ONNX", "export", "onnxruntime"},
        "machine": machine(), "load": round(load, 1), "failed": failed,
        "seconds": round(sum(row["wall_s"] for row in steps), 1),
        "cpu_seconds": round(sum(row["cpu_s"] for row in steps), 1),
        "speed_up": ratios, "steps": list(steps),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--here", action="store_true", help="no clone: this interpreter and checkout"
    )
    parser.add_argument("--out", type=Path, help="JSON; else it is printed")
    options = parser.parse_args()
    result: dict[str, Any] = measured(options.here)
    text = json.dumps(result, indent=1)
    if options.out is None:
        print(text)
    else:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
