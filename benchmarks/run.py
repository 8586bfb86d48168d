"""Gates: what is held beyond the tests, one table and one runner.

    python benchmarks/run.py                          the table: name, minutes, threshold, decision
    python benchmarks/run.py GATE [OPTION …]          one gate; `GATE --help` says what may be asked
    python benchmarks/run.py GATE GATE … [--minutes N] [--out FILE]

Prints one JSON object: `format`, the gate, the decision it guards, its threshold, machine, load,
`seconds`, `cpu_seconds`, `ok`, and what the gate found. Exit code 0 if it is ok, 1 if it is not, 2
if there is no such gate.

Several gates run in a process each, as one needs a TPU's compiler and another one eight devices;
two at a time, each on a core of its own, the longest first; those that time a device after all
others. What is not done in `--minutes` is broken off. What needs a package that is not installed is
skipped, and says what to install.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(p) for p in (HERE, HERE.parent / "tests") if str(p) not in sys.path]

from gates import Row, asked_and_told, say  # noqa: E402

from eqsat.execute.compilers.ask import (  # noqa: E402
    BESIDE,
    TPUS,
    is_installed,
)
from eqsat.model.diag import EqsatError  # noqa: E402


@dataclass(frozen=True)
class Gate:
    """One row of the table: what is run, what it has to show, and the decision that rests on it."""

    module: str  # with `options(parser)` and `measured(options)`
    threshold: str
    decision: int  # its number in docs/decisions
    minutes: float  # on an idle core
    needs: tuple[str, ...] = ()  # packages
    times_a_device: bool = False
    words: tuple[str, ...] = ()  # asked ahead of what a person asks


LIBTPU, CUDA, IREE = "libtpu", "jax_plugins.xla_cuda12", "iree.compiler"
TORCH = ("torch", "onnxscript", "torchvision", "timm", "transformers")
GATES: dict[str, Gate] = {
    # ---- answers: hunts over seeds
    "rules": Gate("fuzz.runs.rules", "no rule refuted, no mutant missed, no chain fails", 62, 30),
    "never-worse": Gate("fuzz.runs.never_worse", "no answer worse than its input", 107, 40),
    "equal": Gate("fuzz.runs.equal", "equal programs: 0.5 % of optima differ at most", 67, 20),
    "meshresults": Gate("fuzz.runs.meshresults", "one more result is never quicker", 60, 10),
    "monotone": Gate("fuzz.runs.monotone", "no identity makes an answer better", 72, 10),
    "arena": Gate("fuzz.runs.arena", "no schedule or kernel wrong, every fault caught", 82, 60),
    "nests": Gate("fuzz.runs.nests", "every nest means what its ops do", 84, 30),
    "edges": Gate("fuzz.runs.edges", "no kernel wrong, none leaves its buffers", 282, 15),
    "plan-mutants": Gate("fuzz.runs.planmutants", "no check refuses a right plan", 282, 60),
    "mutants": Gate("fuzz.runs.brokenfiles", "broken files end in a sentence", 63, 30),
    "strangers": Gate("fuzz.runs.strangers", "broken runs end in a sentence", 106, 30),
    "gridded": Gate("fuzz.griddedkernels", "random Pallas kernels right", 250, 5),
    "fuzz": Gate("fuzz.runs.functions", "every function as float64 has it", 283, 60),
    "algebra": Gate("fuzz.runs.pairs", "95 % of better forms are found from naive ones", 162, 5),
    "published": Gate("fuzz.runs.published", "95 % of public rules proven or matched", 24, 10),
    "verify": Gate("fuzz.runs.verify", "wrong programs caught, right ones passed", 60, 20),
    "first-calls": Gate("fuzz.runs.firstcalls", "every wrong plan caught by a first call", 287, 5),
    "export": Gate("fuzz.runs.export", "no export wrong, 80 % verify", 48, 40),
    "conformance": Gate("fuzz.runs.conformance", "no ONNX node test wrong", 47, 10),
    "answers": Gate("fuzz.runs.answers", "no kept answer lost, none wrong under kills", 382, 10),
    "store": Gate("fuzz.runs.store", "no row lost or run twice under kills", 294, 10),
    "pages": Gate("fuzz.runs.pages", "pages work in a browser, MiniLM's within 2 s", 176, 5),
    # ---- searches
    "optima": Gate("optima", "no proven optimum moved", 347, 25),
    "iree": Gate("ireedispatches", "IREE's dispatches legal on `iree-like`", 390, 10, (IREE,)),
    "permutes": Gate("permutes", "fewer permutes than by hand, each number proven", 389, 5),
    "cores": Gate("cores", "no proven optimum of another checkout moved", 347, 60),
    "scale": Gate("scale", "whole models within their seconds, bytes and gaps", 348, 60),
    "limits": Gate("fuzz.runs.limits", "a search is back two seconds after its limit", 59, 30),
    "busy": Gate("fuzz.runs.busy", "busy or idle, one answer; the first within a second", 381, 15),
    "sets": Gate("sets", "`full` never worse, at most three times the seconds", 24, 10),
    # ---- clocks
    "clock": Gate("clock", "at most 1.05 times `jax.jit`, 1.02 where the input is kept", 56, 5),
    "never-slower": Gate(
        "clock", "no unseen program surely 2 % slower than `jax.jit`", 287, 10,
        words=("--unseen", "--rounds", "100"),
    ),
    "unplanned": Gate("unplanned", "no answer surely 3 % slower than its input", 93, 5),
    "prices": Gate("prices", "median error 10 %, 90 % within a quarter, tau 0.9", 342, 20),
    "torch": Gate("torchmodels", "results of eager, nothing left in torch", 384, 30, TORCH),
    # ---- accelerators
    "cycles": Gate("accelcycles", "never above the cycles of the function", 247, 9, (LIBTPU,)),
    "scratch": Gate("accelscratch", "36 of 40 kernels to the byte", 245, 0.5, (LIBTPU, CUDA)),
    "pallas": Gate("accelpallas", "kernels right, 90 % of dispatches, compile", 250, 1.5),
    "meshes": Gate("accelmesh", "collectives of the hand plans, bytes within 5 %", 255, 3),
    "sharding": Gate("acceliopddl", "public problems within 10 % of the best known", 256, 8.5),
    "device": Gate(
        "acceldevice", "no model 3 % slower than `jax.jit`, tau 0.8", 241, 6, times_a_device=True
    ),
}  # fmt: skip
# package that is imported -> what to install
PACKAGES = {LIBTPU: "eqsat[tpu]", CUDA: "eqsat[cuda]", IREE: "eqsat[mlir]", **{p: p for p in TORCH}}
CORES = 2  # gates at a time
STDERR = 2  # stdout is for the JSON object alone
LIMIT = 20.0  # minutes for all gates that time no device
TO_END = 10  # seconds from an interrupt to the end of a gate, and of the compilers it has started


def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    names = [*_leading(words)]
    if not names:
        if words and not words[0].startswith("-"):
            print(f"no gate {words[0]}: there are {', '.join(GATES)}", file=sys.stderr)
            return 2
        print(table(GATES))
        return 0
    if len(names) == 1:
        gate = GATES[names[0]]
        about = {"gate": names[0], "threshold": gate.threshold, "decision": gate.decision}
        return one(gate.module, [*gate.words, *words[1:]], about)
    return several(names, words[len(names) :])


def _leading(words: Sequence[str]) -> Sequence[str]:
    """The gates that the words begin with."""
    count = next((i for i, w in enumerate(words) if w not in GATES), len(words))
    return words[:count]


def table(gates: Mapping[str, Gate]) -> str:
    return "\n".join(
        f"{name:12} {g.minutes:4g} min  {g.threshold} (decision {g.decision})"
        for name, g in gates.items()
    )


def one(module: str, words: Sequence[str], about: Mapping[str, object]) -> int:
    """A gate in this process, with its options."""
    by = import_module(module)
    try:
        return asked_and_told(by.__doc__, by.options, by.measured, words, about)
    except EqsatError as error:  # a file is wrong
        print(error, file=sys.stderr)
        return error.exit_code


# ---- several -------------------------------------------------------------------------------------
def several(names: Sequence[str], words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--minutes", type=float, default=LIMIT, metavar="N")
    asked = parser.parse_args(words)
    rows = shown(names, asked.minutes)
    text = json.dumps({"format": 1, "gates": rows}, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(f"{text}\n", encoding="utf-8")
    return 0 if all(row.get("ok") or "skipped" in row for row in rows.values()) else 1


def shown(names: Sequence[str], minutes: float) -> dict[str, Row]:
    """What each gate shows."""
    missing = {n: why for n in names if (why := missing_for(n)) is not None}
    for name, why in missing.items():
        say(f"SKIPPED {name}: {why}")
    rows = on_cores(in_turn([n for n in names if n not in missing]), cores(), minutes)
    rows |= {n: {"skipped": why} for n, why in missing.items()}
    return {n: rows[n] for n in names}


def missing_for(name: str) -> str | None:
    """What a gate lacks, and what to do about it."""
    if not (missing := [p for p in GATES[name].needs if not is_installed(p)]):
        return None
    what = " ".join(f"'{PACKAGES.get(p, p)}'" for p in missing)
    return f"{', '.join(missing)} not installed: make accelerators, or pip install {what}"


def in_turn(names: Sequence[str]) -> list[str]:
    """The longest first, so that the last ones end at about the same time."""
    return sorted(names, key=lambda n: -GATES[n].minutes)


def cores() -> list[int | None]:
    """Those that gates run on; None is any, where a system cannot bind a process to one."""
    if not hasattr(os, "sched_getaffinity"):
        return [None]
    return sorted(os.sched_getaffinity(0))[:CORES]  # type: ignore[return-value]


def on_cores(names: Sequence[str], among: Sequence[int | None], minutes: float) -> dict[str, Row]:
    """Gates on the first core that is free; those that time a device after the others."""
    end = time.monotonic() + 60 * minutes
    free: SimpleQueue[int | None] = SimpleQueue()
    for core in among:
        free.put(core)

    def on_a_core(name: str) -> Row:
        core = free.get()
        try:
            return apart(name, core, end)
        finally:
            free.put(core)

    alone = [n for n in names if GATES[n].times_a_device]
    beside = [n for n in names if n not in alone]
    with ThreadPoolExecutor(len(among)) as pool:
        rows = dict(zip(beside, pool.map(on_a_core, beside), strict=True))
    return rows | {n: apart(n, None, time.monotonic() + 60 * minutes) for n in alone}


def apart(name: str, core: int | None, end: float) -> Row:
    """One gate in a process of its own, until this moment of the monotonic clock."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-c", CHILD, GATES[name].module, *GATES[name].words]
        command += ["--out", str(out)]
        code = ended(command, core, end - begin)
        if code is None:
            left = max(end - begin, 0)
            found = {"ok": False, "broke_off": f"not done in the {left:.0f} seconds left for it"}
        elif code not in (0, 1) or not out.is_file():
            found = {"ok": False, "broke_off": f"exit code {code}"}
        else:
            found = json.loads(out.read_text(encoding="utf-8"))
    found |= {"seconds": round(time.monotonic() - begin, 1)}
    told = found.get("broke_off") or found.get("skipped") or ("ok" if found["ok"] else "NOT OK")
    say(f"{name}, {found['seconds']} s: {told}")
    return found


CHILD = "import run, sys; sys.exit(run.one(sys.argv[1], sys.argv[2:], {}))"


def ended(command: Sequence[str], core: int | None, seconds: float) -> int | None:
    """The exit code of a process, or None if it was not done in time."""
    if seconds <= 0:
        return None
    with subprocess.Popen(command, env=environment(), stdout=STDERR) as process:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})  # before it starts a thread
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that it ends the compilers it has started
            try:
                process.wait(TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
            return None


def environment() -> dict[str, str]:
    """Of a gate: where its modules and the compilers are, and what libtpu must not ask for."""
    paths = [HERE, HERE.parent / "tests", HERE.parent, os.environ.get("PYTHONPATH", ""), BESIDE]
    joined = os.pathsep.join(str(p) for p in paths if p)
    return {**os.environ, **TPUS["v5e"].environment, "PYTHONPATH": joined}


if __name__ == "__main__":
    sys.exit(main())
