"""Every rule at length: hunted, checked exhaustively where that is possible, mutated, and chained.

    python benchmarks/run.py rules [--jobs N] [--instances N] [--chains N] [RULE or FILE …]

Prints one JSON object: per rule the instances tried and how often each condition was met and
missed, what became of its mutants, and per chain what it held to what. Not ok if a rule is
refuted, a mutant is missed, or a chain fails; exit code 2 if a rule file is wrong.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

from gates import say

import eqsat
from eqsat.hunt.search import hunt
from eqsat.model.rules import Rule, RuleSet
from eqsat.plugins import find_names
from fuzz.chains import chain
from fuzz.exhaustive import exhaust, is_index_map
from fuzz.judge import EVIDENCE, MISSED, judge

INSTANCES, CHAINS = 200, 600
MOST_INSTANCES = 60_000  # of one rule and rank, exhaustively
LISTED = ("sound", MISSED)  # verdicts that a person should read


def wanted_rules(named: list[str]) -> list[Rule]:
    """Those of the named files and those of ours with these names; all of ours if none is named."""
    files = [name for name in named if name.endswith(".yaml")]
    ours = _own_rules(find_names("rules", ".yaml")) if len(files) < len(named) or not named else []
    return _own_rules(files) + [r for r in ours if not named or r.name in named]


def _own_rules(sets: Iterable[str]) -> list[Rule]:
    """Every rule once, where it is defined."""
    found = map(eqsat.rules, sets)
    own = {(r.ruleset, r.name): r for s in found for r in s.rules if r.ruleset == s.name}
    return list(own.values())


def look_at(task: tuple[Rule, int, int]) -> dict[str, Any]:
    """All figures of one rule."""
    rule, instances, evidence = task
    begin = time.perf_counter()
    found = hunt(rule, instances=instances)
    hunted = time.perf_counter()
    verdicts = judge(rule, evidence=evidence)
    judged = time.perf_counter()
    return {
        "rule": rule.name,
        "ruleset": rule.ruleset,
        "instances": found.instances,
        "padded": found.padded,
        "refused": found.refused,
        "conditions": [[c.text, c.met, c.missed] for c in found.conditions],
        "counterexample": str(found.counterexample) if found.counterexample else None,
        "exhaustive": _exhausted(rule),
        "mutants": dict(Counter(v.verdict for v in verdicts)),
        "to_read": [str(v) for v in verdicts if v.verdict in LISTED],
        "seconds": {"hunt": round(hunted - begin, 2), "mutants": round(judged - hunted, 2)},
    }


def _exhausted(rule: Rule) -> dict[str, Any] | None:
    """Ranks 1 … 4 of a rule that only moves elements; None for others."""
    if not is_index_map(rule):
        return None
    rows: dict[str, Any] = {}
    for rank in range(1, 5):
        found = exhaust(rule, rank, most=MOST_INSTANCES)
        why = str(found.counterexample) if found.counterexample else None
        rows[str(rank)] = {
            "instances": found.instances, "complete": found.complete, "counterexample": why,
        }  # fmt: skip
    return rows


@cache
def default_rules() -> RuleSet:
    """Read once per process."""
    return eqsat.rules("default")


def link(seed: int) -> dict[str, Any]:
    found = chain(seed, default_rules())
    row = {k: getattr(found, k) for k in ("seed", "ops", "rules", "nodes", "compared", "stop")}
    return row | {"failure": str(found.failure) if found.failure else None}


def measured(options: argparse.Namespace) -> dict[str, Any]:
    rules = wanted_rules(options.rules)
    tasks = [(r, options.instances, options.evidence) for r in rules]
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = list(_told(pool.map(look_at, tasks), lambda r: f"{r['rule']}: {r['mutants']}"))
        seeds = range(options.seed, options.seed + options.chains)
        links = list(_told(pool.map(link, seeds, chunksize=8), lambda r: r["failure"] or ""))
    verdicts = sum((Counter(r["mutants"]) for r in rows), Counter[str]())
    found = {
        "totals": {
            "rules": len(rows),
            "refuted": sum(r["counterexample"] is not None for r in rows),
            "short": [r["rule"] for r in rows if r["instances"] < options.instances],
            "mutants": sum(verdicts.values()),
            "verdicts": dict(verdicts),
            "chains": len(links),
            "chains_failed": sum(c["failure"] is not None for c in links),
            "nodes_compared": sum(c["compared"] for c in links),
            "stops": dict(Counter(c["stop"] for c in links)),
        },
        "rules": rows,
        "chain_failures": [c for c in links if c["failure"]],
    }
    return {"ok": is_good(found)} | found


def _told(rows: Iterable[dict[str, Any]], text: Callable[[dict[str, Any]], str]) -> Iterable[Any]:
    """The rows, each with a line on stderr as it comes."""
    for row in rows:
        line = text(row)
        if line:
            say(line)
        yield row


def is_good(found: dict[str, Any]) -> bool:
    totals = found["totals"]
    is_refuted = any(
        e["counterexample"] for r in found["rules"] for e in (r["exhaustive"] or {}).values()
    )
    missed = totals["verdicts"].get(MISSED, 0)
    return not (totals["refuted"] or is_refuted or missed or totals["chains_failed"])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", nargs="*", help="names or files; all of ours if none")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--instances", type=int, default=INSTANCES, help="per rule")
    parser.add_argument("--evidence", type=int, default=EVIDENCE, help="to call a mutant sound")
    parser.add_argument("--chains", type=int, default=CHAINS, help="random programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first chain")
