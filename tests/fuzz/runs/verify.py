"""Does `verify` catch wrong results and leave right ones alone? JSON (docs/verification.md).

A hundred wrong programs are forced into the executor in place of the chosen one, once so that
`verify` sees the wrong program (a wrong rewrite), once so that it sees the right one (a wrong
executor). A hundred right programs that lose digits are searched, executed and verified.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from gates import say
from illconditioned import cases
from wrongprograms import change, wrong_programs

import eqsat
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.execute.executable import xla_executable
from eqsat.execute.executors import Witness, build_executable
from eqsat.execute.kernels import runtime
from eqsat.execute.verify import verify
from eqsat.model.limits import WORK_LIMIT
from fuzz.largefaults import change as changed
from fuzz.largefaults import schedule_faults
from fuzz.networks import network
from fuzz.programs import Maker

LIBRARY = (
    "two_packs", "residual.eqs", "permuted_consumer.eqs", "padded_chain", "folded_batch",
    "transposed_pack.eqs", "quantized_matmul.eqs",
)  # fmt: skip
FORCED = ("tiles_forced=true", "tiles.matmul=[{mnk: [4, 8, 4], rate: 1.0}]")
LARGE = {
    "nerf": f"{Path(__file__).parents[1] / 'nerf.py'}:nerf", "llama": "llama.py:llama",
    "gpt2_decode": "gpt2.py:gpt2_decode", "resnet50": "resnet50.py:resnet50",
    "bert": "bert.py:bert",
}  # fmt: skip
ABOVE_ROUNDING = 1e-4  # a fault that changes less is none: f32 sums of the same programs do
OF_EACH = 4
Row = dict[str, Any]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0, help="right programs to leave out")
    parser.add_argument("--only", choices=("wrong", "right", "large"))
    parser.add_argument("--runs", type=Path, help="of --only large: where searches are kept")
    parser.add_argument("--models", nargs="*", default=list(LARGE), help="of --only large")


def measured(asked: argparse.Namespace) -> Row:
    """What was caught and what passed; not ok if a wrong program passed or a right one did not."""
    found: Row = {"ok": True}
    if asked.only == "large":
        found |= large(asked.models, asked.runs, asked.count)
    if asked.only in (None, "wrong"):
        rows = wrong(asked.count)
        found["wrong"] = {
            "programs": len(rows),
            "caught": sum(r["rewrite"] == "mismatch" for r in rows),
            "caught_in_the_executor": sum(r["executor"] == "mismatch" for r in rows),
            "faults": dict(Counter(r["fault"] for r in rows)),
            "missed": [r for r in rows if {r["rewrite"], r["executor"]} != {"mismatch"}],
        }
    if asked.only in (None, "right"):
        rows = right(asked.skip, asked.count)
        found["right"] = {
            "programs": len(rows),
            "passed": sum(r["outcome"] == "ok" for r in rows),
            "outcomes": dict(Counter(r["outcome"] for r in rows)),
            "failed": [r for r in rows if r["outcome"] != "ok"],
            "rows": rows,
        }
    found["ok"] = not any(
        found.get(w, {}).get(k) for w, k in (("wrong", "missed"), ("right", "failed"))
    )
    return found


# ---- wrong ---------------------------------------------------------------------------------------
def wrong(count: int) -> list[Row]:
    """Rows of `count` faults, a few per program."""
    rows: list[Row] = []
    for name, run in searched():
        taken = 0
        assert run.schedule is not None
        for fault, program in wrong_programs(run.schedule.program, random.Random(name)):
            row = forced(run, name, fault, program)
            if row is not None:
                rows.append(row)
                taken += 1
                say(f"{len(rows):4} {name}: {fault}: {row['rewrite']}, {row['executor']}")
            if taken == OF_EACH or len(rows) == count:
                break
        if len(rows) == count:
            break
    return rows


def searched() -> Iterator[tuple[str, eqsat.Run]]:
    """Library programs, networks and random programs, with packs where they may have any."""
    for name in LIBRARY:
        yield name, eqsat.optimize(eqsat.read(name), target="avx512-xla", settings=FORCED)
    for seed in range(1000):
        make = (network, lambda s: Maker(s, exact=False).program(6))[seed % 2]
        program = make(seed)
        source = eqsat.Source(program, drawn_weights(program))
        yield program.name, eqsat.optimize(source, target="avx512-xla", time_limit=5)


def forced(run: eqsat.Run, name: str, fault: str, program: Any) -> Row | None:
    """One fault; None if it changes nothing."""
    source, schedule = run.source, run.schedule
    assert schedule is not None
    weights = {**drawn_weights(source.program, source.weights), **source.weights}
    inputs = random_inputs(source.program, np.random.default_rng(1))

    def executed(p: Any) -> Any:
        return Witness(p, weights, source.opaque)(inputs)

    size = change(schedule.program, program, inputs, weights, source.opaque, executed)
    if size < ABOVE_ROUNDING:
        return None
    call = xla_executable(replace(schedule, program=program), source.opaque, weights).compile()
    seen = {"rewrite": program, "executor": schedule.program}
    outcomes = {
        k: verify(source.program, call, weights, source.opaque, chosen=p).outcome
        for k, p in seen.items()
    }
    return {"program": name, "fault": fault, "change": size} | outcomes


# ---- right ---------------------------------------------------------------------------------------
def right(skip: int, count: int) -> list[Row]:
    """Rows of `count` ill-conditioned programs."""
    rows = []
    for name, function, args in islice(cases(), skip, skip + count):
        run = packed(function, *args)
        begin = time.process_time()
        v = run.verify(samples=2)
        seconds = round(time.process_time() - begin, 2)
        row = {
            "program": name, "outcome": v.outcome, "max_error": v.max_error, "limit": v.limit,
            "where": v.where, "reason": v.reason, "verify_cpu_s": seconds,
        }  # fmt: skip
        rows.append(row)
        say(f"{len(rows):4} {name}: {v.outcome} {v.max_error:.1e} of {v.limit:.1e} {v.reason}")
    return rows


def packed(function: Any, *args: Any) -> eqsat.Run:
    """With every contraction in tiles, if all of them have any."""
    try:
        return eqsat.optimize(function, *args, target="avx512-xla", settings=FORCED, time_limit=5)
    except eqsat.EqsatError as error:
        if error.exit_code != 3:
            raise
        return eqsat.optimize(function, *args, target="avx512-xla", time_limit=5)


# ---- large ---------------------------------------------------------------------------------------
def large(models: list[str], runs: Path | None, count: int) -> Row:
    """Verdicts and seconds of each model, and of its share of so many faults."""
    found: Row = {"models": [], "wrong": []}
    for number, name in enumerate(models):
        run, searched_s = large_run(name, runs)
        for limit in (WORK_LIMIT, 1):
            found["models"].append(
                {"model": name, "searched_cpu_s": searched_s} | timed(run, limit)
            )
            say(json.dumps(found["models"][-1]))
        share = count // len(models) + (number < count % len(models))
        found["wrong"] += spoiled(run, name, share)
    views = [r[v] for r in found["wrong"] for v in ("executor", "rewrite") if v in r]
    outcomes = Counter(v["outcome"] for v in views)
    seconds = sorted(v["cpu_s"] for v in views)
    return found | {
        "faults": len(found["wrong"]), "verdicts": len(views), "outcomes": dict(outcomes),
        "kinds": dict(Counter(r["fault"] for r in found["wrong"])),
        "cpu_s": {"median": seconds[len(seconds) // 2], "most": seconds[-1]} if seconds else {},
    }  # fmt: skip


def large_run(name: str, runs: Path | None) -> tuple[eqsat.Run, float]:
    """The search of a model on this machine's target, and its CPU seconds; 0 if it was kept."""
    kept = None if runs is None else runs / name
    if kept is not None and kept.exists():
        return eqsat.load(kept), 0.0
    begin = time.process_time()
    run = eqsat.optimize(eqsat.read(LARGE[name]), target="auto", time_limit=60)
    seconds = round(time.process_time() - begin, 1)
    if kept is not None:
        run.save(kept)
    return run, seconds


def timed(run: eqsat.Run, limit: float) -> Row:
    """Of one verification: what it says, and the CPU seconds of compiling and of all else."""
    kept = run.seconds.get("compile") or 0.0
    begin = time.process_time()
    v = run.verify(work_limit=limit)
    seconds = time.process_time() - begin
    compiled = (run.seconds["compile"] or 0.0) - kept
    return {
        "work_limit": limit, "outcome": v.outcome, "how": v.how, "max_error": v.max_error,
        "limit": v.limit, "elements": v.elements, "checked": v.checked, "reason": v.reason,
        "cpu_s": round(seconds, 2), "of_these_compiling_wall_s": round(compiled, 2),
    }  # fmt: skip


def spoiled(run: eqsat.Run, name: str, count: int) -> list[Row]:
    """Rows of so many faults of one model that change its results."""
    # it would refuse wrong plans: verify has to see them
    runtime.plan_faults = lambda nest, plan: iter(())
    source, schedule, rng = run.source, run.need_schedule(), random.Random(name)
    weights = {**drawn_weights(source.program, source.weights), **source.weights}
    inputs = random_inputs(source.program, np.random.default_rng(1))
    right_one = build_executable(schedule, source.opaque, weights, run.runs_on)
    wanted = right_one.compile()(*inputs)
    rows: list[Row] = []
    for fault in schedule_faults(schedule, rng):
        if len(rows) == count:
            break
        executable = build_executable(fault.schedule, source.opaque, weights, run.runs_on)
        executable.packed = right_one.packed
        fault.apply(executable)
        call = executable.compile()
        size = changed(call(*inputs), wanted)
        if size < ABOVE_ROUNDING:
            continue
        row: Row = {"model": name, "fault": fault.kind, "dispatch": fault.dispatch, "change": size}
        seen = {"executor": schedule} | ({"rewrite": fault.schedule} if fault.is_rewrite else {})
        for view, s in seen.items():
            begin = time.process_time()
            v = verify(
                source.program, call, weights, source.opaque, chosen=s.program, schedule=s,
                executable=executable,
            )  # fmt: skip
            seconds = round(time.process_time() - begin, 2)
            row[view] = {
                "outcome": v.outcome, "how": v.how, "where": v.where, "reason": v.reason,
                "cpu_s": seconds,
            }  # fmt: skip
        rows.append(row)
        say(f"{len(rows):4} {json.dumps(row)}")
    return rows
