"""What the compilers of GPUs and TPUs say about eqsat's answers, on a machine without either.

    python benchmarks/accelerators.py [--only a b …] [--out FILE]

One module per part, by the letter of what it shows; each runs in a process of its own, as one
needs a TPU's compiler and another one eight devices. A module has `NEEDS`, the packages that it
cannot do without; `MINUTES`, its limit, all of them together 20; and `measured()`, which returns an
object with `ok`. It imports JAX and the like only there, so that the environment can be set first.
What is not installed is skipped: the object then says what to install, and so does stderr. Prints
one JSON object; exit code 1 if a part is not `ok` or broke off, 2 if there is no such part.
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
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Row = dict[str, Any]
# letter -> the modules that show it; those of them that do not exist are said to be missing
PARTS: dict[str, tuple[str, ...]] = {
    "a": ("accelcycles",),  # never above the cycles of the plain JAX function
    "b": ("accelbytes", "accelscratch"),  # peak bytes, dispatches, scratch
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=None, metavar="LETTER")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--module", default=None, help=argparse.SUPPRESS)  # of a child
    args = parser.parse_args(argv)
    if args.module is not None:
        args.out.write_text(json.dumps(import_module(args.module).measured()), encoding="utf-8")
        return 0
    letters = args.only or list(PARTS)
    if unknown := sorted(set(letters) - PARTS.keys()):
        print(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    rows = {f"{letter}/{m}": part(m) for letter in letters for m in PARTS[letter]}
    text = json.dumps({"format": 1, "parts": rows}, indent=1)
    print(text)
    if args.out:
        args.out.write_text(f"{text}\n", encoding="utf-8")
    return 0 if all(row.get("ok") or "skipped" in row for row in rows.values()) else 1


def part(module: str) -> Row:
    """One module in a process of its own, within its minutes."""
    if find_spec(module) is None:
        return skipped(module, f"there is no benchmarks/{module}.py")
    own = import_module(module)
    if missing := [p for p in own.NEEDS if not is_installed(p)]:
        what = " ".join(f"'{PACKAGES.get(p, p)}'" for p in missing)
        return skipped(module, f"{', '.join(missing)} not installed: pip install {what}")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, __file__, "--module", module, "--out", str(out)]
        paths = os.pathsep.join([str(HERE), str(HERE.parent / "tests"), str(HERE.parent)])
        there = os.environ.get("PYTHONPATH", "")
        env = os.environ | {"PYTHONPATH": f"{paths}{os.pathsep}{there}"}
        try:
            code = subprocess.run(
                command, env=env, check=False, timeout=60 * own.MINUTES, stdout=sys.stderr
            ).returncode
        except subprocess.TimeoutExpired:
            return {"ok": False, "broke_off": f"not done in {own.MINUTES} minutes"}
        if code or not out.is_file():
            return {"ok": False, "broke_off": f"exit code {code}"}
        found = json.loads(out.read_text(encoding="utf-8"))
    return found | {"seconds": round(time.monotonic() - begin, 1)}


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported, but what it is inside of is."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def skipped(module: str, why: str) -> Row:
    print(f"SKIPPED {module}: {why}", file=sys.stderr)
    return {"skipped": why}


if __name__ == "__main__":
    sys.exit(main())
