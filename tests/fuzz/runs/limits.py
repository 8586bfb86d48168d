"""Does a search come back in time? Every program of the library on every target, as a user runs it.

    python benchmarks/run.py limits [--only NAME …] [--targets T …] [--limit S] [--kill S]
    python benchmarks/run.py limits --cut --targets avx512 avx2 --limit 2   # of limitprograms.py

Each case is a process of its own: `eqsat optimize PROGRAM --target T --time-limit S`, killed at a
limit that is far beyond. `searched` is the wall time from the end of reading to the end of the
schedule, which the time limit bounds; `total` is that of the process, with imports and reading.
A case is `in_time` if it was back `margin` seconds after its limit at the latest, with an answer
and bounds, or with the proof that nothing is admissible (E410). `share` is the proven bound of the
time over its value. Not ok if a case is not in
time. `--limit 0` leaves the limit to the command's default.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from gates import say
from layers import LIBRARY, TARGETS

ROOT = Path(__file__).resolve().parents[3]
CUT = tuple(
    f"tests/fuzz/limitprograms.py:{name}"
    for name in ("deep", "wide", "concat", "tiny", "reductions", "mixed", "convolutions",
                 "attention", "loops", "mlp")
)  # fmt: skip
DEFAULT_LIMIT = 60.0  # of `eqsat optimize`
PHASES = ("saturate", "extract", "schedule")
SHOWN = {b"saturating": "saturate", b"extracting": "extract", b"scheduling": "schedule"}
CLI = "from eqsat.cli import main; main()"


def command(name: str, target: str, limit: float) -> list[str]:
    """What a user types."""
    base = [sys.executable, "-c", CLI, "optimize", name, "--target", target]
    wanted = [] if limit == DEFAULT_LIMIT else ["--time-limit", f"{limit:g}s"]
    return [*base, *wanted, "--output-format", "json"]


def case(name: str, target: str, limit: float, margin: float, kill: float) -> dict[str, Any]:
    """One search in a process of its own."""
    begin = time.monotonic()
    ours, theirs = pty.openpty()  # a search names its phases while a person is watching
    process = subprocess.Popen(
        command(name, target, limit), stdout=subprocess.PIPE, stderr=theirs, text=True,
        cwd=ROOT, env=os.environ | {"COLUMNS": "400"}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    talk = _Talk(ours, begin)
    talk.start()
    killed = threading.Event()
    timer = threading.Timer(kill, _kill, (process, killed))
    timer.start()
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    total = time.monotonic() - begin
    timer.cancel()
    talk.join()
    row: dict[str, Any] = {"program": name, "target": target, "total": round(total, 2)}
    row |= {"exit": os.waitstatus_to_exitcode(status), "killed": killed.is_set()}
    row |= {"cpu": round(usage.ru_utime + usage.ru_stime, 2), "peak_rss": usage.ru_maxrss * 1024}
    row["began"] = {k: round(v, 2) for k, v in talk.began.items()}
    return row | _verdict(row, talk, out, limit + margin)


class _Talk(threading.Thread):
    """What a process says to a person, and when it first named each phase."""

    def __init__(self, terminal: int, begin: float):
        super().__init__(daemon=True)
        self.terminal, self.begin, self.text = terminal, begin, b""
        self.began: dict[str, float] = {}

    def run(self) -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while part := os.read(self.terminal, 1 << 16):
                self.text += part
                for word, phase in SHOWN.items():
                    if word in part:
                        self.began.setdefault(phase, time.monotonic() - self.begin)
        os.close(self.terminal)


def _kill(process: subprocess.Popen[str], killed: threading.Event) -> None:
    killed.set()
    os.killpg(process.pid, signal.SIGKILL)


def _verdict(row: dict[str, Any], talk: _Talk, out: str, most: float) -> dict[str, Any]:
    """What was found, and whether it was in time."""
    codes = sorted(set(re.findall(r"\b(E\d{3})\b", talk.text.decode(errors="replace"))))
    found: dict[str, Any] = {"codes": codes, "answer": None}
    searched = row["total"] - talk.began.get("saturate", 0.0)
    try:
        s = json.loads(out)
    except ValueError:
        s = None
    if s is not None and s.get("goals"):
        seconds = s["seconds"]
        searched = sum(seconds[k] or 0.0 for k in PHASES)
        found["answer"] = {
            "ops": s["program"]["ops"],
            "nodes": s["egraph"]["nodes"],
            "saturation": s["egraph"]["stop"],
            "stop": s["stop"],
            "goals": s["goals"],
            "share": _share(s["goals"].get("time_us")),
            "baseline": s["baseline"],
            "seconds": seconds,
        }
    found["searched"] = round(searched, 2)
    if row["killed"] or found["answer"] is None:
        found["spent_in"] = next(reversed(talk.began), "read")
    bounded = found["answer"] is not None and all(
        g["bound"] is not None for g in found["answer"]["goals"].values()
    )
    refused = row["exit"] == 3 and "E410" in codes
    found["in_time"] = not row["killed"] and searched <= most and (bounded or refused)
    return found


def _share(time_us: dict[str, Any] | None) -> float | None:
    """Bound over value."""
    if time_us is None or not time_us["value"]:
        return None
    return round((time_us["bound"] or 0.0) / time_us["value"], 4)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", default=list(LIBRARY), metavar="NAME")
    parser.add_argument("--cut", action="store_true", help="the programs of limitprograms.py")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds; 0: the default's")
    parser.add_argument("--margin", type=float, default=2.0, help="seconds beyond the limit")
    parser.add_argument("--kill", type=float, default=60.0, help="seconds beyond the limit")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    limit = o.limit or DEFAULT_LIMIT
    rows = []
    for name in CUT if o.cut else o.only:
        for target in o.targets:
            rows.append(row := case(name, target, limit, o.margin, limit + o.kill))
            where = f"{row['answer']['stop']}" if row["answer"] else row.get("spent_in", "")
            share = 100 * ((row["answer"] or {}).get("share") or 0.0)
            say(
                f"{name.rpartition('/')[2]:28} {target:14} {row['searched']:7.2f} s of "
                f"{row['total']:7.2f} s {row['peak_rss'] >> 20:6} MiB  {where:10} bound "
                f"{share:5.1f} % {'' if row['in_time'] else 'LATE'} {' '.join(row['codes'])}"
            )
    late = [r for r in rows if not r["in_time"]]
    return {
        "ok": not late, "limit": limit, "margin": o.margin,
        "cases": len(rows), "late": [f"{r['program']} on {r['target']}" for r in late],
        "slowest": max((r["searched"] for r in rows), default=None),
        "most_rss": max((r["peak_rss"] for r in rows), default=None), "rows": rows,
    }  # fmt: skip
