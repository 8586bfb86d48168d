"""Random functions of the ops of real models, through eqsat and beside JAX.

    python benchmarks/fuzz.py [--seeds 0:5000] [--machines avx512 …] [--each] [--jobs N]
                              [--time-limit S] [--shrink N] [--log FILE] [--out FILE]

Function number s runs on machine s mod their count, or with `--each` on all of them. Its types have
to be JAX's, its values and JAX's own within the rounding bound of `verify`, a second call the same
as the first. Functions run in processes of their own: one that dies or does not come back is a
finding, and the hunt goes on. The first N failures are made as small as they go and printed as
Python files. Prints one JSON object: outcomes per machine, failures with what repeats them,
programs per hour, CPU hours. Exit code 1 if there is a failure. After `--time-limit` seconds no
function is begun. With `--log FILE` each function is a line of that file, and is not run again.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hunts.children import CRASH, HANG, Child
from hunts.smallest import smallest
from hunts.tried import FOUND, MACHINES
from hunts.writer import draw
from hunts.written import Written
from hunts.writtenlayers import STEPS
from seeded import add_to, logged, parser_of, tell

Row = dict[str, Any]
FAILURES = (*FOUND, CRASH, HANG)
INTERPRETED = ("pallas", "pallas-gpu")  # small functions only
CPUS = tuple(m for m in MACHINES if m not in INTERPRETED)


def function(seed: int, machine: str) -> Written:
    """Function number `seed`; smaller where an interpreter runs it."""
    small = machine in INTERPRETED
    return draw(Random(f"written {seed} {'small' if small else ''}"), STEPS, small)


@dataclass
class Hunt:
    """Children by thread, and how many failures are still made small."""

    end: float
    shrink: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    own: threading.local = field(default_factory=threading.local)
    children: list[Child] = field(default_factory=list)

    @property
    def child(self) -> Child:
        if not hasattr(self.own, "child"):
            self.own.child = Child("hunts.tried")
            with self.lock:
                self.children.append(self.own.child)
        return self.own.child

    def row(self, case: tuple[int, str]) -> Row | None:
        """The row of one function on one machine; None when the time is over."""
        if time.monotonic() > self.end:
            return None
        seed, machine = case
        written = function(seed, machine)
        row = {"seed": seed, "machine": machine} | self._asked(written, machine)
        if row["outcome"] not in FAILURES:
            return row
        return row | {"python": self._small(written, row).snippet(*MACHINES[machine])}

    def _asked(self, written: Written, machine: str) -> Row:
        return self.child.ask({"machine": machine, "written": written.to_json()})

    def _small(self, written: Written, row: Row) -> Written:
        with self.lock:
            self.shrink -= 1
            if self.shrink < 0:
                return written

        def fails(smaller: Written) -> bool:
            return self._asked(smaller, row["machine"])["outcome"] == row["outcome"]

        return smallest(written, fails)


def hunt(cases: Sequence[tuple[int, str]], options: Any) -> list[Row]:
    """A row per function and machine that was run or is in the log."""
    known = {(r["seed"], r["machine"]): r for rows in logged(options.log).values() for r in rows}
    missing = [c for c in cases if c not in known]
    state = Hunt(time.monotonic() + options.time_limit, options.shrink)
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(state.row, missing):
                if row is not None:
                    known[row["seed"], row["machine"]] = row
                    add_to(options.log, row["seed"], [row])
                    _say(row)
    finally:
        for child in state.children:
            child.close()
    return [known[c] for c in cases if c in known]


def _say(row: Row) -> None:
    if row["outcome"] in FAILURES:
        head = f"{row['outcome']}: seed {row['seed']} on {row['machine']}: {row['reason']}"
        print(f"{head}\n{row['python']}", file=sys.stderr, flush=True)


def again(row: Row) -> str:
    """The command that repeats one row."""
    return f"python benchmarks/fuzz.py --seeds {row['seed']} --machines {row['machine']}"


def report(rows: Sequence[Row], wanted: int, seconds: float) -> Row:
    cpu = sum(
        u.ru_utime + u.ru_stime
        for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    machines = dict.fromkeys(r["machine"] for r in rows)
    return {
        "format": 1,
        "programs": len(rows),
        "not_run": wanted - len(rows),
        "outcomes": Counter(r["outcome"] for r in rows),
        "by_machine": {
            m: Counter(r["outcome"] for r in rows if r["machine"] == m) for m in machines
        },
        "dispatches": sum(r.get("dispatches", 0) for r in rows),
        "seconds": round(seconds, 1),
        "cpu_hours": round(cpu / 3600, 3),
        "programs_per_hour": round(len(rows) / max(seconds, 1e-9) * 3600),
        "refused": Counter(r["reason"][:80] for r in rows if r["outcome"] == "refused"),
        "failures": [r | {"again": again(r)} for r in rows if r["outcome"] in FAILURES],
    }


def main() -> int:
    parser = parser_of(__doc__, 5000, "function")
    parser.add_argument("--machines", nargs="+", choices=list(MACHINES), default=list(CPUS))
    parser.add_argument("--each", action="store_true", help="every function on every machine")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--shrink", type=int, default=20, help="failures that are made small")
    options = parser.parse_args()
    cases = list(_cases(options.seeds, options.machines, options.each))
    begin = time.monotonic()
    rows = hunt(cases, options)
    found = report(rows, len(cases), time.monotonic() - begin)
    tell(found, options.out)
    return 1 if found["failures"] else 0


def _cases(seeds: range, machines: Sequence[str], each: bool) -> Iterator[tuple[int, str]]:
    for seed in seeds:
        for machine in machines if each else [machines[seed % len(machines)]]:
            yield seed, machine


if __name__ == "__main__":
    sys.exit(main())
