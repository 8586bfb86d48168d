"""What gates share: options, rows that a log keeps, processes with a limit, pinned cores, the JSON.

A gate is a module with `options(parser)`, which adds what one may ask, and `measured(options)`,
which returns one JSON object with `ok`. `benchmarks/run.py` has the table of all gates.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Options = Callable[[argparse.ArgumentParser], None]
Measured = Callable[[argparse.Namespace], Row]
CLOCKS = ("wall", "cpu")
os.environ.setdefault("EQSAT_ANSWERS", "never")  # a gate is about searches; `answers` says so
TASKS_PER_PROCESS = 100  # then a new one: XLA keeps what it has compiled


# ---- asked and told ------------------------------------------------------------------------------
def seeded(parser: argparse.ArgumentParser, most: int, a_line_per: str) -> None:
    """`--seeds`, `--jobs` and `--log`; seeds 0 to `most` if nobody says otherwise."""
    parser.add_argument("--seeds", type=seeds, default=range(most), help="FROM:TO, or one seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    logs(parser, a_line_per)


def logs(parser: argparse.ArgumentParser, a_line_per: str) -> None:
    text = f"a line per {a_line_per}; what is there is not repeated"
    parser.add_argument("--log", type=Path, help=text)


def seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def asked_and_told(
    doc: str | None, options: Options, measured: Measured, words: Sequence[str] | None = None,
    about: Mapping[str, Any] | None = None, one: Measured | None = None,
) -> int:  # fmt: skip
    """Parse the words, measure, print or write one JSON object; 0 if it is `ok`.

    one: what a process of its own says in a line, where `--one` asks for it.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options(parser)
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    asked = parser.parse_args(words)
    if one is not None and asked.one:
        print(json.dumps(one(asked)))
        return 0
    begin = time.perf_counter()
    found = measured(asked)
    told = {"format": 1, **(about or {}), "machine": machine(), **taken(begin)}
    text = json.dumps(told | found, indent=1, ensure_ascii=False) + "\n"
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return int(not found.get("ok", "skipped" in found))


def taken(begin: float) -> Row:
    """Seconds since a moment, those of the processors, the largest process, the load meanwhile."""
    usage = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    unit = 1 if sys.platform == "darwin" else 1024  # of what getrusage tells
    return {
        "seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(sum(u.ru_utime + u.ru_stime for u in usage), 1),
        "peak_rss_bytes": max(u.ru_maxrss for u in usage) * unit,
        "load": [round(v, 2) for v in os.getloadavg()],
    }


def say(text: str) -> None:
    """For people: stdout is for the JSON object alone."""
    print(text, file=sys.stderr, flush=True)


# ---- rows ----------------------------------------------------------------------------------------
class Log(dict[Any, Row]):
    """Rows by the values of some of their keys; each is a line of a file as soon as it is added."""

    def __init__(self, path: Path | None, *keys: str):
        super().__init__()
        self.path, self.keys_of_a_row = path, keys
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._hold(json.loads(line))

    def _hold(self, row: Row) -> None:
        values: list[Any] = [row[k] for k in self.keys_of_a_row]
        self[tuple(values) if len(values) > 1 else values[0]] = row

    def add(self, row: Row) -> None:
        self._hold(row)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def rows_of_seeds(
    ask: Callable[[int], list[Row]], asked: range, jobs: int, log: Path | None
) -> list[Row]:
    """The rows of all seeds, in order; those in the log are taken from there."""
    known = Log(log, "seed")
    missing = [s for s in asked if s not in known]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for seed, rows in zip(missing, pool.map(ask, missing), strict=True):
            known.add({"seed": seed, "rows": rows})
    return [row for s in asked for row in known[s]["rows"]]


def as_they_come(ask: Callable[[Any], Row], tasks: Iterable[Any], jobs: int) -> Iterator[Row]:
    """Rows of tasks, in processes that are made anew after some of them.

    Not a ProcessPoolExecutor: it hangs when a process has had its share and tasks wait.
    """
    context = get_context("spawn")
    with context.Pool(jobs, maxtasksperchild=TASKS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(ask, tasks)


def grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for r in rows:
        found.setdefault(key(r), []).append(r)
    return dict(sorted(found.items()))


# ---- processes and clocks ------------------------------------------------------------------------
class TooSlow(BaseException):
    """Not an Exception: nobody on the way may take it for an answer."""


@contextmanager
def left_after(seconds: float) -> Iterator[None]:
    """TooSlow where the body takes longer, by the clock (not on Windows)."""

    def ring(*_: object) -> None:
        raise TooSlow

    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def alone(file: str, words: Sequence[str], kill: float) -> Row:
    """What a script's process prints last, or `killed` or `error`; it is left after `kill` s."""
    process = subprocess.Popen(
        [sys.executable, file, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[1], start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=kill)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"killed": kill}
    if process.returncode:
        return {"error": err.strip().splitlines()[-1:]}
    return json.loads(out.splitlines()[-1])


def pin(core: int | None, count: int = 1) -> list[int]:
    """Bind the process to `count` cores from this one on, before JAX starts its threads."""
    allowed = sorted(os.sched_getaffinity(0))
    chosen = [c for c in allowed if core is None or c >= core][:count]
    if len(chosen) < count:
        raise SystemExit(f"{count} core(s) from core {core} on: this process has {allowed}")
    os.sched_setaffinity(0, chosen)
    return chosen


def timed_in_turn(sides: Mapping[str, Callable[[], Any]], most: int) -> dict[str, Any]:
    """Paired, interleaved rounds: per side and clock (`wall`, `cpu`) the microseconds of a call."""
    from eqsat.execute.timing import interleave

    count, seconds = interleave(dict(sides), most)
    return {
        name: {clock: [s[at] / count * 1e6 for s in found] for at, clock in enumerate(CLOCKS)}
        for name, found in seconds.items()
    }


def middle(values: Sequence[float]) -> float:
    return round(statistics.median(values), 2)


def ratio(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Median of the ratios of paired rounds, and its 95 % interval."""
    from eqsat.execute.timing import interval

    return [round(v, 4) for v in interval([a / b for a, b in zip(over, under, strict=True)])]


def exponent(first: tuple[float, float], last: tuple[float, float]) -> float:
    """Of the power law through two points (size, seconds): 1.0 is linear."""
    return round(math.log(last[1] / first[1]) / math.log(last[0] / first[0]), 3)
