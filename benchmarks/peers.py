"""eqsat beside `jax.jit`, onnxruntime, OpenVINO, IREE and torch.compile, call by call; JSON.

    make peers    or    python benchmarks/peers.py [--models NAME …] [--sides NAME …] [--threads N]
    make peers-further    24 further models, one core; goes on where it was stopped

Every side is a process of its own on the same cores. It reads the program and weights that eqsat
exports, is compared with a float64 reference, and then runs batches of calls when it is told, so
that all sides are timed in turn, round by round. IREE has several settings, and onnxruntime and
OpenVINO have two files where one was written by hand; each loads alone first, and the quickest goes
into the rounds. Ratios are of process time on one thread and of
wall time on more; a win is a lower bound of the 95 % interval above 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peerpage
from peermodels import FURTHER, HELD, MODELS, OPEN, ROOT, prepare
from peersides import NATURAL

from eqsat.execute.timing import interval

HERE = Path(__file__).resolve().parent
OURS = ("eqsat", "jax", "jax_closed", "jax_nhwc")  # run by the Python of eqsat
FAMILIES: dict[str, tuple[str, ...]] = {
    "eqsat": ("eqsat",),
    "jax": ("jax",),
    "jax_closed": ("jax_closed",),
    "jax_nhwc": ("jax_nhwc",),
    "onnxruntime": ("onnxruntime", "onnxruntime_natural"),
    "openvino": ("openvino", "openvino_natural"),
    "iree": ("iree_o1", "iree_o3", "iree_o1_tiled", "iree_o3_tiled"),
    "torch": ("torch",),
}
GROUPS = {"page": tuple(MODELS), "further": tuple(FURTHER), "open": OPEN, "held": HELD}
ONLY = {"jax_nhwc": ("resnet50",)}  # sides that know these models alone
BATCH_SECONDS, ROUNDS_SECONDS = 0.02, 25.0
LEAST_ROUNDS, MOST_ROUNDS = 30, 40
LOAD_SECONDS = 900.0  # of one side, compiling included
ERROR = 1e-3  # relative to the largest element; above it a side computes something else
# a value halfway between two steps may round to either
TIES = {
    "q18": 0.05,
    "conv_qdq": 2 / 127, "quantised_mlp": 2 / 255, "quantised_bottleneck": 2 / 255,
}  # fmt: skip


@dataclass
class Side:
    """A running process of one side."""

    name: str
    process: subprocess.Popen[str]
    about: dict[str, Any] = field(default_factory=dict)

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """What it answers; RuntimeError if it has ended.

        It is stopped as soon as it has answered: threads of onnxruntime wait for the next call
        without giving up their core, which then belongs to no other side.
        """
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def threads(self) -> Iterator[int]:
        """Numbers of its threads."""
        for path in Path(f"/proc/{self.process.pid}/task").iterdir():
            yield int(path.name)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()  # closes its pipes


@dataclass(frozen=True)
class Settings:
    """What does not change from model to model."""

    folder: Path
    python: Path  # of the peers
    target: str
    time_limit: float
    cores: tuple[int, ...]
    lock: Path | None
    realtime: int


def start(name: str, model: str, answer: str, s: Settings) -> Side:
    """The side, loaded; `about` says why where it failed."""
    python = sys.executable if name in OURS else str(s.python)
    cores = ",".join(map(str, s.cores))
    command = [python, str(HERE / "peersides.py"), name, model]
    command += [str(s.folder / model), answer, cores]
    env = dict(os.environ) | {
        "TORCHINDUCTOR_CACHE_DIR": str(s.folder / "inductor"), "OMP_NUM_THREADS": str(len(s.cores)),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]), "EQSAT_ANSWERS": "never",
    }  # fmt: skip
    if len(s.cores) == 1:
        env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    pipe = subprocess.PIPE
    log = (s.folder / model / f"{name}.log").open("w", encoding="utf-8")
    with log:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=env)
    side = Side(name, process)
    try:
        side.about = side.answer()
    except RuntimeError as e:
        side.about = {"failed": str(e)}
    if side.about.get("error", 0.0) > TIES.get(model, ERROR):
        side.about["failed"] = f"computes something else: error {side.about['error']:.2g}"
    if "failed" in side.about:
        side.end()
    return side


def has(name: str, model: str, s: Settings) -> bool:
    """Whether a side knows the model."""
    if name.endswith("_natural") and not (s.folder / model / NATURAL).exists():
        return False
    return model in ONLY.get(name, (model,))


def quickest(family: str, model: str, answer: str, s: Settings) -> tuple[Side | None, Any]:
    """The quickest of a family, running, and what each of them said."""
    best, said = None, {}
    for name in FAMILIES[family]:
        if not has(name, model, s):
            continue
        side = start(name, model, answer, s)
        said[name] = side.about
        print(model, name, json.dumps(side.about), file=sys.stderr)
        if "failed" in side.about:
            continue
        if best is not None and best.about["call_s"] <= side.about["call_s"]:
            side.end()
            continue
        if best is not None:
            best.end()
        best = side
    return best, said


@contextmanager
def undisturbed(sides: Sequence[Side], s: Settings) -> Iterator[None]:
    """One measurement at a time on this machine, at real-time priority where that is asked for."""
    import fcntl

    if s.realtime:
        for side in sides:
            for thread in side.threads():
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(s.realtime))
    if s.lock is None:
        yield
        return
    with s.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def rounds(sides: Mapping[str, Side], s: Settings) -> tuple[int, dict[str, list[dict[str, float]]]]:
    """Calls of a batch, and the seconds of each side's batches, one of each a round, in any order.

    A side that is much slower than the quickest one makes fewer calls; its seconds are scaled.
    """
    each = {k: side.about["call_s"] for k, side in sides.items()}
    calls = {k: max(1, round(BATCH_SECONDS / v)) for k, v in each.items()}
    count = max(calls.values())
    one_round = sum((calls[k] + 1) * v for k, v in each.items())
    wanted = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(ROUNDS_SECONDS / one_round)))
    found: dict[str, list[dict[str, float]]] = {k: [] for k in sides}
    order, drawn = list(sides), random.Random(0)
    with undisturbed(list(sides.values()), s):
        for _ in range(wanted):
            drawn.shuffle(order)
            for k in order:
                seconds = sides[k].ask({"calls": calls[k]})
                found[k].append({c: v * count / calls[k] for c, v in seconds.items()})
    return count, found


def measure(model: str, names: Sequence[str], s: Settings) -> dict[str, Any]:
    """All figures of one model on one choice of cores."""
    facts = prepare(model, s.folder / model, s.target, s.time_limit)
    sides, said = {}, {}
    try:
        for family in names:
            best, said[family] = quickest(family, model, facts["folder"], s)
            if best is not None:
                sides[family] = best
        count, seconds = rounds(sides, s)
        memory = {k: side.ask({}) for k, side in sides.items()}
    finally:
        for side in sides.values():
            side.end()
    clock = "cpu" if len(s.cores) == 1 else "wall"
    found: dict[str, Any] = {"answer": facts, "calls": count, "clock": clock, "sides": {}}
    for k, side in sides.items():
        batches = [b[clock] / count for b in seconds[k]]
        row = {"setting": side.name, "ms": round(statistics.median(batches) * 1e3, 4)}
        found["sides"][k] = row | side.about | memory[k] | {"rounds": len(batches)}
    found["ratios"] = ratios(seconds, clock)
    found |= {"date": time.strftime("%Y-%m-%d %H:%M"), "commit": commit()}
    found["others"] = said
    return found


def checked(model: str, names: Sequence[str], s: Settings) -> dict[str, Any]:
    """Every setting of every side: its error, or why it failed; no times."""
    facts = prepare(model, s.folder / model, s.target, s.time_limit)
    found = {}
    for name in (name for family in names for name in FAMILIES[family] if has(name, model, s)):
        side = start(name, model, facts["folder"], s)
        found[name] = side.about.get("failed", side.about.get("error"))
        if "failed" not in side.about:
            side.end()
    return found


def ratios(seconds: Mapping[str, Any], clock: str) -> dict[str, list[float]]:
    """Side → (median, lower, upper) of its time over eqsat's, round by round."""
    if "eqsat" not in seconds:
        return {}
    ours = [b[clock] for b in seconds["eqsat"]]
    found = {}
    for k, batches in seconds.items():
        pairs = zip((b[clock] for b in batches), ours, strict=True)
        found[k] = [round(v, 3) for v in interval([a / b for a, b in pairs])]
    return {k: v for k, v in found.items() if k != "eqsat"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["page"], help=f"or {', '.join(GROUPS)}")
    parser.add_argument("--sides", nargs="*", default=list(FAMILIES))
    parser.add_argument("--threads", nargs="*", type=int, default=[1])
    parser.add_argument("--core", type=int, help="the first core; the first allowed one")
    parser.add_argument("--target", default="avx512")
    parser.add_argument("--time-limit", type=float, default=120.0)
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-peers" / "bin" / "python")
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "peers")
    parser.add_argument("--lock", type=Path, help="a file to lock while rounds are timed")
    parser.add_argument("--realtime", type=int, default=0, help="priority while rounds are timed")
    parser.add_argument("--check", action="store_true", help="errors of every side, no times")
    parser.add_argument(
        "--page", action="store_true", help="write the tables of benchmarks/peers.md"
    )
    parser.add_argument("--out", type=Path, help="write the JSON there, model by model")
    parser.add_argument("--resume", action="store_true", help="leave out what is in --out")
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    found = earlier(options.out if options.resume else None) or about(options.target)
    models = [m for name in options.models for m in GROUPS.get(name, (name,))]
    for threads in options.threads:
        cores = [c for c in allowed if options.core is None or c >= options.core][:threads]
        if len(cores) < threads:
            cores = allowed[:threads]
        s = Settings(
            options.folder, options.python, options.target, options.time_limit, tuple(cores),
            options.lock, options.realtime,
        )  # fmt: skip
        for model in models:
            done = found["models"].setdefault(model, {})
            if options.resume and str(threads) in done:
                continue
            row = (checked if options.check else measure)(model, options.sides, s)
            done[str(threads)] = row
            if options.out:
                options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(model, threads, json.dumps(row.get("ratios", row)), file=sys.stderr)
    if options.page:
        peerpage.write(found)
    print(json.dumps(found, indent=1))
    return 0


def earlier(path: Path | None) -> dict[str, Any] | None:
    """What was measured before."""
    has_any = path is not None and path.exists()
    return json.loads(path.read_text(encoding="utf-8")) if path and has_any else None


def commit() -> str:
    """What is checked out, with a `+` where files differ from it."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def about(target: str) -> dict[str, Any]:
    """Machine and date; versions are those that each side says."""
    cpu = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
    machine = f"{cpu[0].split(':')[1].strip() if cpu else platform.machine()}"
    date = time.strftime("%Y-%m-%d")
    return {"format": 1, "machine": machine, "date": date, "target": target, "models": {}}


if __name__ == "__main__":
    sys.exit(main())
