"""What the compilers of GPUs and TPUs say about eqsat's answers, on a machine without either.

    python benchmarks/accelerators.py [--only a b …] [--out FILE] [--minutes N]

One module per part, by the letter of what it shows; each runs in a process of its own, as one needs
a TPU's compiler and another one eight devices. Two run at a time, each on a core of its own, the
longest first, and what is not done in `--minutes` (20) is broken off. A part with `ALONE`, as it
times a device, runs after all others. A module has `NEEDS`, the packages that it cannot do without;
`MINUTES`, what it takes on an idle core; and `measured()`, which returns an object with `ok`. It
imports JAX and the like only there, so that the environment can be set first. What is not installed
is skipped: the object then says what to install, and so does stderr. Every object has the `seconds`
that its part took, the `cpu_seconds` of all of its processes and the `peak_rss_bytes` of the
largest one. Prints one JSON object; exit code 1 if a part is not `ok` or broke off, 2 if there is
no such part.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from eqsat.execute.compilers.chips import TPUS
from eqsat.execute.compilers.packages import BESIDE, is_installed

HERE = Path(__file__).parent
Row = dict[str, Any]
# letter -> the modules that show it; those of them that do not exist are said to be missing
PARTS: dict[str, tuple[str, ...]] = {
    "a": ("accelcycles",),  # never above the cycles of the plain JAX function
    "b": ("accelbytes", "accelscratch", "accellds"),  # peak bytes, dispatches, scratch, LDS
    "c": ("accelpallas",),  # dispatches as Pallas kernels
    "d": ("acceltimes",),  # the model's time against cycles
    "e": ("accelmesh",),  # collectives, bytes per chip
    "f": ("acceliopddl",),  # public sharding problems
    "g": ("acceldevice",),  # a GPU that is there
    "layouts": ("accellayouts",),  # orders of arguments, results and state in memory
}
# package that is imported -> what to install
PACKAGES = {
    "libtpu": "eqsat[tpu]",
    "jax_plugins.xla_cuda12": "eqsat[cuda]",
    "iree.compiler": "eqsat[mlir]",
}
CORES = 2  # parts at a time
STDERR = 2  # stdout is for the JSON object alone
LIMIT = 20  # minutes for all parts that need no device
TO_END = 10  # seconds from an interrupt to the end of a part, and of the compilers it has started


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=None, metavar="LETTER")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--minutes", type=float, default=LIMIT, metavar="N")
    parser.add_argument("--module", default=None, help=argparse.SUPPRESS)  # of a child
    parser.add_argument("--core", type=int, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.module is not None:
        args.out.write_text(json.dumps(child(args.module, args.core)), encoding="utf-8")
        return 0
    letters = args.only or list(PARTS)
    if unknown := sorted(set(letters) - PARTS.keys()):
        print(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    rows = shown([(letter, m) for letter in letters for m in PARTS[letter]], args.minutes)
    text = json.dumps({"format": 1, "parts": rows}, indent=1)
    print(text)
    if args.out:
        args.out.write_text(f"{text}\n", encoding="utf-8")
    return 0 if all(row.get("ok") or "skipped" in row for row in rows.values()) else 1


def shown(parts: Sequence[tuple[str, str]], minutes: float) -> dict[str, Row]:
    """What each part shows, by letter and module."""
    modules = [m for _, m in parts]
    missing = {m: why for m in modules if (why := missing_for(m)) is not None}
    for module, why in missing.items():
        print(f"SKIPPED {module}: {why}", file=sys.stderr)
    rows = on_cores(in_turn([m for m in modules if m not in missing]), cores(), minutes)
    rows |= {m: {"skipped": why} for m, why in missing.items()}
    return {f"{letter}/{m}": rows[m] for letter, m in parts}


def missing_for(module: str) -> str | None:
    """What a part lacks, and what to do about it."""
    if find_spec(module) is None:
        return f"there is no benchmarks/{module}.py"
    if not (missing := [p for p in import_module(module).NEEDS if not is_installed(p)]):
        return None
    what = " ".join(f"'{PACKAGES.get(p, p)}'" for p in missing)
    return f"{', '.join(missing)} not installed: make accelerators, or pip install {what}"


def in_turn(modules: Sequence[str]) -> list[str]:
    """The longest first, so that the last ones end at about the same time."""
    return sorted(modules, key=lambda m: -import_module(m).MINUTES)


def cores() -> list[int | None]:
    """Those that parts run on; None is any, where a system cannot bind a process to one."""
    if not hasattr(os, "sched_getaffinity"):
        return [None]
    return sorted(os.sched_getaffinity(0))[:CORES]  # type: ignore[return-value]


def on_cores(modules: Sequence[str], among: Sequence[int | None], minutes: float) -> dict[str, Row]:
    """Parts on the first core that is free; those that want to be alone after the others."""
    end = time.monotonic() + 60 * minutes
    free: SimpleQueue[int | None] = SimpleQueue()
    for core in among:
        free.put(core)

    def on_a_core(module: str) -> Row:
        core = free.get()
        try:
            return part(module, core, end)
        finally:
            free.put(core)

    alone = [m for m in modules if getattr(import_module(m), "ALONE", False)]
    beside = [m for m in modules if m not in alone]
    with ThreadPoolExecutor(len(among)) as pool:
        rows = dict(zip(beside, pool.map(on_a_core, beside), strict=True))
    return rows | {m: part(m, None, time.monotonic() + 60 * minutes) for m in alone}


def part(module: str, core: int | None, end: float) -> Row:
    """One module in a process of its own, until this moment of the monotonic clock."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, __file__, "--module", module, "--out", str(out)]
        command += [] if core is None else ["--core", str(core)]
        code = ended(command, end - begin)
        if code is None:
            left = max(end - begin, 0)
            found = {"ok": False, "broke_off": f"not done in the {left:.0f} seconds left for it"}
        elif code or not out.is_file():
            found = {"ok": False, "broke_off": f"exit code {code}"}
        else:
            found = json.loads(out.read_text(encoding="utf-8"))
    found |= {"seconds": round(time.monotonic() - begin, 1)}
    told = found.get("broke_off") or found.get("skipped") or ("ok" if found["ok"] else "NOT OK")
    print(f"{module}, {found['seconds']} s: {told}", file=sys.stderr, flush=True)
    return found


def ended(command: Sequence[str], seconds: float) -> int | None:
    """The exit code of a process, or None if it was not done in time."""
    if seconds <= 0:
        return None
    with subprocess.Popen(command, env=environment(), stdout=STDERR) as process:
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
    """Of a part: where its modules and the compilers are, and what libtpu must not ask for."""
    paths = [HERE, HERE.parent / "tests", HERE.parent, os.environ.get("PYTHONPATH", ""), BESIDE]
    joined = os.pathsep.join(str(p) for p in paths if p)
    return {**os.environ, **TPUS["v5e"].environment, "PYTHONPATH": joined}


def child(module: str, core: int | None) -> Row:
    """What a part shows, and what it takes."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    found = import_module(module).measured()
    usage = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    unit = 1 if sys.platform == "darwin" else 1024  # of what getrusage tells
    return found | {
        "cpu_seconds": round(sum(u.ru_utime + u.ru_stime for u in usage), 1),
        "peak_rss_bytes": max(u.ru_maxrss for u in usage) * unit,
    }


if __name__ == "__main__":
    sys.exit(main())
