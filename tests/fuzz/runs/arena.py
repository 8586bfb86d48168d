"""Every schedule on one arena: the program library and random programs, on every shipped target.

    python benchmarks/run.py arena [--seeds 0:1000] [--jobs N] [--targets T …] [--each] [--library]
                                   [--only NAME …] [--limit S] [--patience S] [--work W]
                                   [--log FILE]

A schedule is executed in NumPy, dispatch by dispatch, every temporary at its offset in one arena
(`eqsat.execute.arena`), and its results are verified against the float64 reference; and every
dispatch that is a nest is run as a kernel, by its plan and by one for small caches, beside its ops.
Then faults are put in: lifetimes that end or begin one step off, and pairs of offsets swapped so
that values that are live together share bytes. Each has to be caught.

Random program number s is searched on target s mod their count (`--each`: on all of them), with
the rules, settings, goals and budget that `never-worse` draws for it. With
`--library` the programs of the library are searched on every target instead; those whose reference
takes more than W operations are not executed, and named. Dims that a program leaves open have the
sizes they are priced at. A case that takes longer than `--patience` is left as `slow`. Not ok
if something is wrong or not caught.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from gates import Log, TooSlow, as_they_come, left_after, say, seeded
from layers import LIBRARY, TARGETS

import eqsat
from eqsat.api import Source
from eqsat.execute.arena import Arena, ArenaFault
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.model.diag import EqsatError
from eqsat.model.dispatch import Machine
from eqsat.model.rules import RuleSet, SpreadRule
from eqsat.model.schedule import Schedule
from fuzz.arenas import verify_on_arena
from fuzz.dispatched import beside_ops
from fuzz.searches import LIMITS, NOTHING_ADMISSIBLE, VARIED, make_case

Row = dict[str, Any]
FAULTS = 2  # of each kind, in one schedule
PATIENCE = 300.0  # seconds of one case: a model of the library is executed up to ten times


def case(what: tuple[int | str, str], limit: float, work: float, patience: float = PATIENCE) -> Row:
    """One search and its schedule on the arena; what: seed or name of a program, and a target."""
    program, target = what
    row: Row = {"program": program, "target": target, "outcome": "slow"}
    begin = time.perf_counter()
    try:
        with left_after(patience), np.errstate(all="ignore"):
            row |= _judged(*searched(program, target, limit), work)
    except EqsatError as error:
        nothing = error.exit_code == NOTHING_ADMISSIBLE
        row |= {"outcome": "inadmissible" if nothing else "failed", "reason": str(error)[:300]}
    except TooSlow:
        pass
    except Exception as error:  # whatever goes wrong in a valid program is a finding
        row |= {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"[:300]}
    return row | {"seconds": round(time.perf_counter() - begin, 2)}


def searched(
    program: int | str, target: str, limit: float
) -> tuple[Source, Schedule, Machine | None]:
    """A program by name or seed at the sizes it is priced at, its weights, and its schedule; the
    machine of its plans."""
    if isinstance(program, str):
        source = eqsat.read(program)
        run = eqsat.optimize(source, target=target, time_limit=limit)
    else:
        drawn = make_case(program)
        source = Source(drawn.program, drawn_weights(drawn.program))
        run = eqsat.optimize(
            source, rules=_with_spreads(drawn.rules), target=target,
            settings=VARIED[drawn.names["setting"]], budget=drawn.budget, goals=drawn.goals,
            limits=LIMITS, time_limit=limit, seed=program,
        )  # fmt: skip
    assert run.schedule is not None
    source = run.source
    weights = {**source.weights, **drawn_weights(source.program, source.weights)}
    own = run.target.machine if run.target.kernels else None
    return replace(source, weights=weights), run.schedule, own


@cache
def _spreads() -> tuple[SpreadRule, ...]:
    return eqsat.rules("spread").spreads


def _with_spreads(rules: RuleSet) -> RuleSet:
    """With the rules that say how programs are cut over a mesh, if there are none (E233)."""
    return rules if rules.spreads else replace(rules, spreads=_spreads())


def _judged(source: Source, schedule: Schedule, own: Machine | None, work: float) -> Row:
    row: Row = {
        "dispatches": len(schedule.dispatches),
        "temporaries": len(schedule.temporaries),
        "arena_bytes": schedule.arena_bytes,
        "arena_bound": schedule.arena_bound,
        "loops": len(schedule.held),
        "devices": len({d.device for d in schedule.dispatches}),
    }
    program, weights = source.program, source.weights
    found = verify_on_arena(program, schedule, weights, source.opaque, work_limit=work)
    row |= {"outcome": {"ok": "right", "mismatch": "wrong"}.get(found.outcome, "unproven")}
    if found.outcome != "ok":
        row |= {"reason": found.reason}
    executed = found.samples > 0 and found.outcome != "mismatch"
    return row | (_beside(source, schedule, own) | _faults(source, schedule) if executed else {})


def _beside(source: Source, schedule: Schedule, own: Machine | None) -> Row:
    """Every dispatch as a kernel by its plan, beside its ops."""
    found = beside_ops(schedule, source.weights, source.opaque, own, seed=0)
    row: Row = {"kernels": found.kernels, "plans": found.plans}
    if found.wrong:
        row |= {"outcome": "wrong", "reason": "; ".join(found.wrong)[:2000]}
    return row


def _faults(source: Source, schedule: Schedule) -> Row:
    """Faults put in, and those that were not caught."""
    inputs = random_inputs(source.program, np.random.default_rng(0))
    put_in, missed = 0, []
    for text, wrong in wrong_schedules(schedule):
        put_in += 1
        try:
            Arena(wrong, source.opaque)(inputs, source.weights)
        except ArenaFault:
            continue
        missed.append(text)
    return {"put_in": put_in, "missed": missed}


def wrong_schedules(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """The schedule with one fault each; swaps that are as good a placement are no faults."""
    rng = random.Random(0)
    temporaries = [b for b in schedule.temporaries if b.nbytes]
    for b in rng.sample(temporaries, min(FAULTS, len(temporaries))):
        for changed in (replace(b, last=b.last - 1), replace(b, first=b.first + 1)):
            text = f"%{b.node} live from {changed.first} to {changed.last}"
            yield text, _with(schedule, {b.node: changed})
    pairs = [(a, b) for a in temporaries for b in temporaries if a.node < b.node]
    swaps = 0
    for a, b in rng.sample(pairs, min(20 * FAULTS, len(pairs))):
        moved = {a.node: replace(a, offset=b.offset), b.node: replace(b, offset=a.offset)}
        wrong = _with(schedule, moved)
        try:
            wrong.verify()
        except ValueError:
            swaps += 1
            yield f"%{a.node} and %{b.node} swapped", wrong
        if swaps == FAULTS:
            return


def _with(schedule: Schedule, changed: dict[int, Any]) -> Schedule:
    return replace(schedule, buffers=tuple(changed.get(b.node, b) for b in schedule.buffers))


def run(cases: Sequence[tuple[int | str, str]], options: argparse.Namespace) -> list[Row]:
    """One row per case, in their order; those in the log are taken from there."""
    rows = Log(options.log, "program", "target")
    missing = [c for c in cases if c not in rows]
    ask = partial(case, limit=options.limit, work=options.work, patience=options.patience)
    for n, row in enumerate(as_they_come(ask, missing, options.jobs), 1):
        rows.add(row)
        if is_bad(row):
            say(f"{n}/{len(missing)} {json.dumps(row)}")
    return [rows[c] for c in cases]


def is_bad(row: Row) -> bool:
    return row["outcome"] in ("wrong", "failed") or bool(row.get("missed"))


def totals(rows: Sequence[Row]) -> Row:
    """Counts over some cases. fragmented: schedules whose arena is larger than its bound."""
    return {
        "cases": len(rows),
        **Counter(r["outcome"] for r in rows),
        "dispatches": sum(r.get("dispatches", 0) for r in rows),
        "kernels": sum(r.get("kernels", 0) for r in rows),
        "plans": sum(r.get("plans", 0) for r in rows),
        "temporaries": sum(r.get("temporaries", 0) for r in rows),
        "with_loops": sum(bool(r.get("loops")) for r in rows),
        "fragmented": sum((r.get("arena_bytes") or 0) > r.get("arena_bound", 0) for r in rows),
        "faults_put_in": sum(r.get("put_in", 0) for r in rows),
        "faults_missed": sum(len(r.get("missed", ())) for r in rows),
    }


def options(parser: argparse.ArgumentParser) -> None:
    seeded(parser, 1000, "case")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--each", action="store_true", help="every seed on every target")
    parser.add_argument("--library", action="store_true", help="the program library instead")
    parser.add_argument("--only", nargs="+", default=list(LIBRARY), metavar="NAME")
    parser.add_argument("--limit", type=float, default=5.0, help="seconds of each search")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds of each case")
    parser.add_argument("--work", type=float, default=5e10, help="operations of the reference")


def cases_of(o: argparse.Namespace) -> list[tuple[int | str, str]]:
    """The library on every target, or every seed on one target in turn."""
    if o.library:
        return [(n, t) for n in o.only for t in o.targets]
    if getattr(o, "each", False):
        return [(s, t) for s in o.seeds for t in o.targets]
    return [(s, o.targets[s % len(o.targets)]) for s in o.seeds]


def measured(o: argparse.Namespace) -> Row:
    rows = run(cases_of(o), o)
    bad = [r for r in rows if is_bad(r)]
    return {
        "ok": not bad,
        "totals": totals(rows),
        "by_target": {t: totals([r for r in rows if r["target"] == t]) for t in o.targets},
        "not_executed": [
            f"{r['program']} on {r['target']}: {r['outcome']}, {r.get('reason', '')}"
            for r in rows
            if r["outcome"] in ("slow", "unproven")
        ],
        "bad": bad,
    }
