"""Equal programs, equal answers: respelled random programs, JAX functions in several spellings.

    python benchmarks/run.py equal [--seeds 0:320] [--jobs N] [--kinds A,B] [--identities]
                                   [--time-limit S] [--whole] [--log FILE] [--out FILE]

Every pair is evaluated in float64 first; then both sides are searched on six set-ups and in three
orders of goals, and where all is proven the optimum of every goal is compared. Prints one JSON
object: counts per kind, machine and first goal, and every difference as two small programs, with
the reason if one is known. `--identities` only inserts what does nothing (transposes, reshapes,
packs, copies) and counts the answers that it makes better. Not ok if a respelling is wrong, or
if more than `--most` of the pairs differ.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

from gates import grouped, rows_of_seeds, seeded

from fuzz.equal import answer, compare, hunt, remembered
from fuzz.respell import IDENTITIES, RESPELLINGS
from fuzz.spellings import FAMILIES, spelled_pairs

Row = dict[str, Any]
OUTCOMES = ("same", "different", "unproven", "refused", "unequal")


def rows_of(seed: int, kinds: Sequence[str], seconds: float, shrink: bool) -> list[Row]:
    return [pair.to_json() for pair in hunt(seed, kinds, seconds, shrink)]


def rows_of_family(name: str, seconds: float) -> list[Row]:
    """JAX functions in several spellings."""
    ask = remembered(answer)
    return [compare(pair, ask).to_json() for pair in spelled_pairs(name, seconds)]


def measured(options: argparse.Namespace) -> Row:
    kinds: Sequence[str] = [k for k in options.kinds.split(",") if k]
    kinds = kinds or list(IDENTITIES if options.identities else RESPELLINGS)
    seconds = options.time_limit
    ask = partial(rows_of, kinds=kinds, seconds=seconds, shrink=not options.whole)
    spelled = FAMILIES if set(kinds) == set(RESPELLINGS) else ()
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        families = list(pool.map(partial(rows_of_family, seconds=seconds), spelled))
    rows = [row for some in families for row in some]
    found = report(rows + rows_of_seeds(ask, options.seeds, options.jobs, options.log))
    share = found["totals"]["different_share"] or 0.0
    return {"ok": not found["unequal"] and share <= options.most} | found


def report(rows: list[Row]) -> Row:
    different = [r for r in rows if r["outcome"] == "different"]
    return {
        "totals": totals(rows),
        "by": {
            "kind": _grouped(rows, lambda r: r["kind"]),
            "machine": _grouped(rows, lambda r: r["machine"]),
            "goals": _grouped(rows, lambda r: " ".join(r["goals"])),
        },
        "differences": different,
        "refused": [r for r in rows if r["outcome"] == "refused"],
        "unequal": [r for r in rows if r["outcome"] == "unequal"],
    }


def totals(rows: Iterable[Row]) -> Row:
    """improved: pairs with one identity more that have a better answer."""
    rows = list(rows)
    count = Counter(r["outcome"] for r in rows)
    different = [r for r in rows if r["outcome"] == "different"]
    return {
        "pairs": len(rows),
        **{outcome: count[outcome] for outcome in OUTCOMES},
        "different_share": round(count["different"] / len(rows), 4) if rows else None,
        "without_reason": sum(not r["reason"] for r in different),
        "improved": sum(r["better"] and r["kind"] in IDENTITIES for r in different),
    }


def _grouped(rows: list[Row], key: Any) -> dict[str, Row]:
    return {name: totals(some) for name, some in grouped(rows, key).items()}


def options(parser: argparse.ArgumentParser) -> None:
    seeded(parser, 320, "seed")
    parser.add_argument("--kinds", default="", help="respellings, with commas; all by default")
    parser.add_argument("--identities", action="store_true", help="only what does nothing")
    parser.add_argument("--time-limit", type=float, default=6.0, help="seconds of each search")
    parser.add_argument(
        "--whole", action="store_true", help="report differences as they were drawn"
    )
    parser.add_argument("--most", type=float, default=0.005, help="share of pairs that may differ")
