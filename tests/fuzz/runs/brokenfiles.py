"""Broken and hostile files through the whole pipeline: no traceback, no E900, no hang.

    python benchmarks/run.py mutants [--onnx 0:500] [--mlir 0:500] [--wall 60] [--memory 8]
                                     [--keep FOLDER] [--log FILE] [--out FILE]

Every file is a seeded mutant of a small model or module (tests/onnx_mutants.py,
tests/mlir_mutants.py). What a user would type runs on it in one worker process with limits on
memory and time: `optimize --verify -o`, `run`, `explain`, `export` to both languages, `report`.
Prints one JSON object: how often each outcome was seen, and every failure with the command that
repeats it. Not ok if there are any.

Outcomes: `ok` (every command did its work), `refused` (a diagnostic of ours), `mismatch` (--verify
says that the result is wrong); failures are `traceback`, `bug` (E900 to E909), `hang` (longer than
`--wall`), `memory` (an allocation failed), `killed` (the worker died) and `silent` (an exit code
without a sentence).
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gates import Log, logs, say, seeds

Row = dict[str, Any]
Task = tuple[str, int]  # onnx | mlir, seed
FAILURES = ("traceback", "bug", "hang", "memory", "killed", "silent", "mismatch")
FILES_PER_PROCESS = 60  # then a new one: XLA keeps what it has compiled
STARTING = 400  # seconds for a worker's imports on a busy machine
_CODE = re.compile(r"^(?:error|warning)\[(E\d+)\]: (.*)", re.M)


# ---- in the worker -------------------------------------------------------------------------------
def text_of(task: Task) -> bytes:
    """The bytes of a mutated file."""
    kind, seed = task
    if kind == "onnx":
        import onnx_mutants

        return onnx_mutants.mutant_of(seed)
    import mlir_mutants

    return mlir_mutants.whole_mutant_of(seed, mlir_mutants.texts()).encode()


def commands(file: Path, seconds: float) -> list[tuple[str, list[str]]]:
    """What a user would type, one command after the other."""
    out = str(file.parent / "run")
    return [
        ("optimize", ["optimize", str(file), "-o", out, "--time-limit", f"{seconds}s"]),
        ("verify", ["run", out, "--samples", "1"]),
        ("explain", ["explain", out]),
        ("export mlir", ["export", out, "--to", "mlir"]),
        ("export onnx", ["export", out, "--to", "onnx"]),
        ("report", ["report", out, "-q"]),
    ]


def attempt(
    task: Task, folder: Path, seconds: float, without: Sequence[str], tell: Connection
) -> Row:
    """One file through all commands, until one of them refuses it."""
    from eqsat.cli.app import run

    file = folder / f"m{task[1]}.{task[0]}"
    file.write_bytes(text_of(task))
    row: Row = {"outcome": "ok", "codes": []}
    for name, args in commands(file, seconds):
        if name in without:
            continue
        tell.send(("command", name))
        said, printed = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
            code = run([*args, "-v"])
        outcome, text = judged(code, said.getvalue())
        row["codes"] += [c for c, _ in _CODE.findall(said.getvalue())][:3]
        if outcome != "ok":
            row |= {"outcome": outcome, "command": name, "text": text}
            if not (name.startswith("export") and outcome == "refused"):
                return row
            row["outcome"] = "ok"  # an op without a word in the other language
    return row


def warm_up(folder: Path, without: Sequence[str]) -> None:
    """All commands that are run, once on a program of the library."""
    from eqsat.cli.app import run

    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        for name, args in commands(folder / "none", 5.0):
            if name not in without:
                run([a.replace(str(folder / "none"), "transposed_pack") for a in args])


def judged(code: int, said: str) -> tuple[str, str]:
    """What an exit code and the text beside it mean."""
    found = _CODE.findall(said)
    first = next((f"{c} {text}" for c, text in found), "")
    errors = [c for c, _ in re.findall(r"^error\[(E\d+)\](.)", said, re.M)]
    if code == 4 or any(c.startswith("E90") for c in errors):
        return "bug", _tail(said)
    if "Traceback (most recent call last)" in said:
        return "traceback", _tail(said)
    if "E413" in errors:
        return "memory", _tail(said)
    if "E500" in errors:
        return "mismatch", _tail(said)
    if code == 0:
        return "ok", first
    return ("refused", first) if errors else ("silent", _tail(said) or f"exit code {code}")


def _tail(text: str) -> str:
    return text[-3000:]


def work(tell: Connection, memory_gib: float, seconds: float, without: Sequence[str]) -> None:
    """Files one by one as the parent sends them; ends when it closes the pipe."""
    import resource

    most = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setpgrp()  # so that the parser's own process ends with this one
    with tempfile.TemporaryDirectory() as folder:  # so that no file pays for imports
        warm_up(Path(folder), without)
    tell.send(("ready", None))
    with contextlib.suppress(EOFError):
        while True:
            task, trace, wall = tell.recv()
            with tempfile.TemporaryDirectory() as folder, Path(trace).open("w") as stack:
                faulthandler.dump_traceback_later(wall, file=stack)
                try:
                    row = attempt(task, Path(folder), seconds, without, tell)
                except Exception as error:  # the harness's own, or past the command line's net
                    text = f"{type(error).__name__}: {error}"
                    row = {"outcome": "traceback", "codes": [], "text": text[:2000]}
                faulthandler.cancel_dump_traceback_later()
            tell.send(("row", row))


# ---- the parent ----------------------------------------------------------------------------------
class Worker:
    """One process; made anew when it died, hung or did its share."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.done = options, 0
        context = get_context("spawn")
        self.pipe, end = context.Pipe()
        args = (end, options.memory, options.time_limit, options.without)
        self.process = context.Process(target=work, args=args, daemon=False)
        self.process.start()
        end.close()
        if not self.pipe.poll(STARTING) or self.pipe.recv()[0] != "ready":
            raise RuntimeError("the worker did not start")

    def one(self, task: Task, trace: Path) -> Row:
        """What became of one file; the worker is gone if that was `hang` or `killed`."""
        begin, command, wall = time.monotonic(), "read", self.options.wall
        self.done += 1
        trace.write_text("", encoding="utf-8")
        with contextlib.suppress(BrokenPipeError):  # it died meanwhile: the next read says so
            self.pipe.send((task, str(trace), wall))
        while True:
            if not self.pipe.poll(max(0.0, begin + wall + 5 - time.monotonic())):
                self.end()
                stack = trace.read_text(encoding="utf-8", errors="replace")[-3000:]
                return {"outcome": "hang", "codes": [], "command": command, "text": stack}
            try:
                kind, value = self.pipe.recv()
            except (EOFError, ConnectionResetError):
                self.process.join()
                text = f"the worker ended with {self.process.exitcode}"
                return {"outcome": "killed", "codes": [], "command": command, "text": text}
            if kind == "row":
                return value
            command = value

    @property
    def is_usable(self) -> bool:
        return self.process.is_alive() and self.done < FILES_PER_PROCESS

    def end(self) -> None:
        """This process and what it started, nothing else."""
        if self.process.pid and self.process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()


def run(tasks: Iterable[Task], options: argparse.Namespace) -> list[Row]:
    """One row per file; those in the log are taken from there."""
    known = Log(options.log, "kind", "seed")
    rows: list[Row] = []
    worker: Worker | None = None
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "stack.txt"
        for task in tasks:
            if task in known:
                rows.append(known[task])
                continue
            if worker is None or not worker.is_usable:
                if worker is not None:
                    worker.end()
                worker = Worker(options)
            begin = time.monotonic()
            found = worker.one(task, trace)
            seconds = round(time.monotonic() - begin, 2)
            rows.append({"kind": task[0], "seed": task[1], **found, "seconds": seconds})
            known.add(rows[-1])
            _note(rows[-1], options)
    if worker is not None:
        worker.end()
    return rows


def _note(row: Row, options: argparse.Namespace) -> None:
    if row["outcome"] not in FAILURES:
        return
    told = f"FAILED {row['outcome']} in {row.get('command', '?')}: {again(row)}"
    say(f"{told}\n{row.get('text', '')[-600:]}")
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        data = text_of((row["kind"], row["seed"]))
        (options.keep / f"m{row['seed']}.{row['kind']}").write_bytes(data)


def again(row: Row) -> str:
    """The command that repeats one file."""
    return f"python benchmarks/run.py mutants --{row['kind']} {row['seed']} --keep mutants"


def report(rows: list[Row]) -> Row:
    def counts(some: list[Row]) -> Row:
        return {
            "files": len(some),
            "outcomes": dict(Counter(r["outcome"] for r in some)),
            "refused_by": dict(
                Counter(r["codes"][-1] for r in some if r["outcome"] == "refused").most_common()
            ),
        }

    each = sorted(r["seconds"] for r in rows) or [0.0]
    return {
        "seconds_per_file": {"median": each[len(each) // 2], "most": each[-1]},
        "onnx": counts([r for r in rows if r["kind"] == "onnx"]),
        "mlir": counts([r for r in rows if r["kind"] == "mlir"]),
        "failures": [{**r, "again": again(r)} for r in rows if r["outcome"] in FAILURES],
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--onnx", type=seeds, help="FROM:TO, or one seed")
    parser.add_argument("--mlir", type=seeds, help="FROM:TO, or one seed")
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds of each search")
    parser.add_argument("--wall", type=float, default=60.0, help="seconds for one file")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB of address space")
    parser.add_argument("--without", default=[], action="append", help="a command left out")
    parser.add_argument("--keep", type=Path, help="keep the files that fail in this folder")
    logs(parser, "file")


def measured(options: argparse.Namespace) -> Row:
    given = {k: getattr(options, k) for k in ("onnx", "mlir")}
    if not any(v is not None for v in given.values()):
        given = dict.fromkeys(given, range(500))
    tasks = [(kind, seed) for kind, seeds in given.items() for seed in seeds or ()]
    found = report(run(tasks, options))
    return {"ok": not found["failures"]} | found
