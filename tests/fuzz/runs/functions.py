"""Random functions of the ops of real models, through eqsat and beside JAX or onnxruntime.

    python benchmarks/run.py fuzz [--seeds 0:5000] [--language jax|onnx] [--machines avx512 …]
                                  [--each] [--jobs N] [--time-limit S] [--shrink N] [--log FILE]

Function number s runs on machine s mod their count, or with `--each` on all of them. Its types have
to be JAX's, its values and JAX's own within the rounding bound of `verify`, a second call the same
as the first. Functions run in processes of their own: one that dies or does not come back is a
finding, and the hunt goes on. The first N failures are made as small as they go and printed as
Python files. Prints one JSON object: outcomes per machine, failures with what repeats them,
programs per hour, CPU hours. Not ok if there is a failure. After `--time-limit` seconds no
function is begun.
"""

from __future__ import annotations

import argparse
import re
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

from gates import Log, say, seeded

from fuzz import asjax, asonnx
from fuzz.children import CRASH, HANG, Child
from fuzz.onnxlines import ONNX_STEPS
from fuzz.smallest import smallest
from fuzz.tried import FOUND, MACHINES
from fuzz.writer import Infer, Steps, draw
from fuzz.written import Written
from fuzz.writtenlayers import JAX_STEPS

Row = dict[str, Any]
Case = tuple[int, str]  # a seed, a machine
FAILURES = (*FOUND, CRASH, HANG)
INTERPRETED = ("pallas", "pallas-gpu")  # small functions only
CPUS = tuple(m for m in MACHINES if m not in INTERPRETED)


@dataclass(frozen=True)
class Language:
    """Steps that are drawn, the types of what they write, and a file that repeats it."""

    name: str
    steps: Steps
    types: Infer
    snippet: Callable[..., str]


LANGUAGES = {
    "jax": Language("jax", JAX_STEPS, asjax.types, asjax.snippet),
    "onnx": Language("onnx", ONNX_STEPS, asonnx.types, asonnx.snippet),
}


def function(seed: int, machine: str, language: Language = LANGUAGES["jax"]) -> Written:
    """Function number `seed`; smaller where an interpreter runs it."""
    small = machine in INTERPRETED
    rng = Random(f"{language.name} {seed} {'small' if small else ''}")
    return draw(rng, language.steps, language.types, small)


@dataclass
class Hunt:
    """A child per thread, and how many failures are still made small."""

    language: Language
    end: float
    shrink: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    own: threading.local = field(default_factory=threading.local)
    children: list[Child] = field(default_factory=list)

    def row(self, case: Case) -> Row | None:
        """The row of one function on one machine; None when the time is over."""
        if time.monotonic() > self.end:
            return None
        seed, machine = case
        written = function(seed, machine, self.language)
        row = {"seed": seed, "machine": machine} | self._asked(written, machine)
        if row["outcome"] not in FAILURES:
            return row
        small = self._small(written, row)
        return row | {"python": self.language.snippet(small, *MACHINES[machine])}

    def _asked(self, written: Written, machine: str) -> Row:
        if not hasattr(self.own, "child"):
            self.own.child = Child("fuzz.tried")
            self.children.append(self.own.child)
        request = {"language": self.language.name, "machine": machine}
        return self.own.child.ask(request | {"written": written.to_json()})

    def _small(self, written: Written, row: Row) -> Written:
        with self.lock:
            self.shrink -= 1
            if self.shrink < 0:
                return written

        def fails(smaller: Written) -> bool:
            return self._asked(smaller, row["machine"])["outcome"] == row["outcome"]

        return smallest(written, self.language.types, fails)


def hunt(cases: Sequence[Case], options: Any) -> list[Row]:
    """A row per function and machine that was run or is in the log."""
    known = Log(options.log, "seed", "machine")
    missing = [c for c in cases if c not in known]
    language = LANGUAGES[options.language]
    state = Hunt(language, time.monotonic() + options.time_limit, options.shrink)
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(state.row, missing):
                if row is not None:
                    known.add(row)
                    _say(row)
    finally:
        for child in state.children:
            child.close()
    return [known[c] for c in cases if c in known]


def _say(row: Row) -> None:
    if row["outcome"] in FAILURES:
        head = f"{row['outcome']}: seed {row['seed']} on {row['machine']}: {row['reason']}"
        say(f"{head}\n{row['python']}")


def report(rows: Sequence[Row], options: Any, seconds: float) -> Row:
    """Everything but the rows that are fine."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    machines = dict.fromkeys(r["machine"] for r in rows)
    again = f"python benchmarks/run.py fuzz --language {options.language} --seeds"
    failures = [
        r | {"again": f"{again} {r['seed']} --machines {r['machine']}"}
        for r in rows
        if r["outcome"] in FAILURES
    ]
    return {
        "language": options.language,
        "programs": len(rows),
        "outcomes": Counter(r["outcome"] for r in rows),
        "by_machine": {
            m: Counter(r["outcome"] for r in rows if r["machine"] == m) for m in machines
        },
        "dispatches": sum(r.get("dispatches", 0) for r in rows),
        "declined": Counter(
            re.sub(r"%\d+ ", "", why)[:80] for r in rows for why in r.get("declined", ())
        ),
        "cpu_hours": round(sum(u.ru_utime + u.ru_stime for u in used) / 3600, 3),
        "programs_per_hour": round(len(rows) / seconds * 3600),
        "refused": Counter(r["reason"][:80] for r in rows if r["outcome"] == "refused"),
        "unproven": [r["seed"] for r in rows if r["outcome"] == "unproven"],
        "failures": failures,
    }


def options(parser: argparse.ArgumentParser) -> None:
    seeded(parser, 5000, "function")
    parser.add_argument("--language", choices=list(LANGUAGES), default="jax")
    parser.add_argument("--machines", nargs="+", choices=list(MACHINES), default=list(CPUS))
    parser.add_argument("--each", action="store_true", help="every function on every machine")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--shrink", type=int, default=20, help="failures that are made small")


def measured(options: argparse.Namespace) -> Row:
    cases = list(_cases(options.seeds, options.machines, options.each))
    begin = time.monotonic()
    rows = hunt(cases, options)
    found = report(rows, options, time.monotonic() - begin) | {"not_run": len(cases) - len(rows)}
    return {"ok": not found["failures"]} | found


def _cases(seeds: range, machines: Sequence[str], each: bool) -> Iterator[Case]:
    for seed in seeds:
        for machine in machines if each else [machines[seed % len(machines)]]:
            yield seed, machine
