"""Searches on a busy machine, and how soon a search has its first answer.

    python benchmarks/run.py busy [--only NAME …] [--target T] [--beside N]

Ten programs are searched alone, then beside N processes that do nothing but count: the same
dispatches at the same prices both times. Every program of the library is searched until there is an
answer, which is when the program as it is has been priced: `first_cpu` seconds after reading. Not
ok if an answer differs, or one comes later than a second.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gates import Row, say
from layers import LIBRARY

import eqsat
from eqsat.model.control import controls
from eqsat.model.deadline import Stop
from eqsat.model.diag import EqsatError
from eqsat.model.progress import Progress

SEARCHED = (
    "encoder", "minilm", "mlp.py:mlp_784", "deep", "conv_qdq_residual", "bottlenecks", "two_packs",
    "three_readers", "sdxl.py:residual", "stablecode.py:stable_code_block",
)  # fmt: skip
LATE_SECONDS = 1.0


def searched(name: str, target: str) -> Row:
    """The groups and values of an answer, with what the search took by both clocks."""
    wall, cpu = time.perf_counter(), time.process_time()
    run = eqsat.optimize(name, target=target)
    assert run.selection is not None
    answer = run.selection
    return {
        "wall": round(time.perf_counter() - wall, 2), "cpu": round(time.process_time() - cpu, 2),
        "stop": answer.stop, "goals": {n: r.value for n, r in answer.goals},
        "groups": [[list(g.members), g.time_ps, g.step] for g in answer.groups],
    }  # fmt: skip


def first(name: str, target: str) -> Row:
    """CPU seconds from the end of reading to the first answer; the search ends with it."""
    begin, seen, stop = [0.0], list[float](), Stop()

    def listen(now: Progress) -> None:
        begin[0] = begin[0] or time.process_time()  # the first phase behind reading
        if stop.has_answer and not seen:
            seen.append(time.process_time() - begin[0])
            stop.request()

    try:
        run = eqsat.optimize(name, target=target, stop=stop, progress=listen)
    except EqsatError as e:
        return {"refused": str(e)}
    has_loops = bool(controls(run.canonical))
    return {"first_cpu": round(seen[0], 3) if seen else None, "has_loops": has_loops}


def _counting() -> None:
    while True:
        pass


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that do nothing but count."""
    others = [multiprocessing.Process(target=_counting, daemon=True) for _ in range(count)]
    for o in others:
        o.start()
    try:
        yield
    finally:
        for o in others:
            o.terminate()


def in_process(function: Any, *asked: Any) -> Row:
    """A process of its own each, whose first search it is."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, asked)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", help="names; all if none")
    parser.add_argument("--target", default="avx512", help="of all searches")
    parser.add_argument("--beside", type=int, default=4, help="processes that count")


def measured(options: argparse.Namespace) -> Row:
    answers, firsts = dict[str, Row](), dict[str, Row]()
    for name in [n for n in SEARCHED if not options.only or n in options.only]:
        alone = in_process(searched, name, options.target)
        with busy(options.beside):
            beside = in_process(searched, name, options.target)
        is_same = all(alone[k] == beside[k] for k in ("goals", "groups"))
        clocks = {k: [alone[k], beside[k]] for k in ("wall", "cpu", "stop")}
        answers[name] = {"same": is_same, **clocks}
        say(f"{name}: {answers[name]}")
    for name in [n for n in LIBRARY if not options.only or n in options.only]:
        firsts[name] = in_process(first, name, options.target)
        say(f"{name}: {firsts[name]}")
    late = [n for n, r in firsts.items() if (r.get("first_cpu") or 0.0) > LATE_SECONDS]
    none = [n for n, r in firsts.items() if r.get("first_cpu") is None]
    differ = [n for n, r in answers.items() if not r["same"]]
    found = {"differ": differ, "late": late, "without": none, "searches": answers, "first": firsts}
    return {"ok": not (late or differ)} | found
