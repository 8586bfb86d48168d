"""Equal programs, equal answers: respelled random programs, JAX functions in several spellings.

    python benchmarks/equal.py [--seeds 0:320] [--jobs N] [--kinds A,B] [--identities]
                               [--time-limit S] [--whole] [--log FILE] [--out FILE]

Every pair is evaluated in float64 first; then both sides are searched on six set-ups and in three
orders of goals, and where all is proven the optimum of every goal is compared. Prints one JSON
object: counts per kind, machine and first goal, and every difference as two small programs, with
the reason if one is known. `--identities` only inserts what does nothing (transposes, reshapes,
packs, copies) and counts the answers that it makes better. Exit code 1 if a respelling is wrong, or
if more than `--most` of the pairs differ.

With `--log FILE` each pair is a line of that file as soon as its seed is done, and seeds that are
there already are not run again.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hunts.equal import answer, compare, hunt, remembered
from hunts.respell import IDENTITIES, RESPELLINGS
from hunts.spellings import FAMILIES, spelled_pairs
from seeded import add_to, logged, parser_of, tell

Row = dict[str, Any]
OUTCOMES = ("same", "different", "unproven", "refused", "unequal")


def rows_of(seed: int, kinds: Sequence[str], seconds: float, shrink: bool) -> list[Row]:
    return [pair.to_json() for pair in hunt(seed, kinds, seconds, shrink)]


def rows_of_family(name: str, seconds: float) -> list[Row]:
    """JAX functions in several spellings."""
    ask = remembered(answer)
    return [compare(pair, ask).to_json() for pair in spelled_pairs(name, seconds)]


def run(
    seeds: range, jobs: int, kinds: Sequence[str], seconds: float, shrink: bool, log: Path | None
) -> list[Row]:
    """The rows of all seeds, in order; those in the log are taken from there."""
    known = logged(log)
    missing = [s for s in seeds if s not in known]
    ask = partial(rows_of, kinds=kinds, seconds=seconds, shrink=shrink)
    spelled = FAMILIES if set(kinds) == set(RESPELLINGS) else ()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        families = pool.map(partial(rows_of_family, seconds=seconds), spelled)
        for seed, rows in zip(missing, pool.map(ask, missing), strict=True):
            known[seed] = rows
            add_to(log, seed, rows)
        found = [row for rows in families for row in rows]
    return found + [row for s in seeds for row in known[s]]


def report(rows: list[Row], seconds: float) -> Row:
    different = [r for r in rows if r["outcome"] == "different"]
    return {
        "format": 1,
        "seconds": round(seconds, 1),
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
    found: dict[str, list[Row]] = {}
    for r in rows:
        found.setdefault(key(r), []).append(r)
    return {name: totals(some) for name, some in sorted(found.items())}


def main() -> int:
    parser = parser_of(__doc__, 320, "seed")
    parser.add_argument("--kinds", default="", help="respellings, with commas; all by default")
    parser.add_argument("--identities", action="store_true", help="only what does nothing")
    parser.add_argument("--time-limit", type=float, default=6.0, help="seconds of each search")
    parser.add_argument(
        "--whole", action="store_true", help="report differences as they were drawn"
    )
    parser.add_argument("--most", type=float, default=0.005, help="share of pairs that may differ")
    options = parser.parse_args()
    kinds = [k for k in options.kinds.split(",") if k]
    kinds = kinds or list(IDENTITIES if options.identities else RESPELLINGS)
    begin = time.perf_counter()
    shrink = not options.whole
    rows = run(options.seeds, options.jobs, kinds, options.time_limit, shrink, options.log)
    found = report(rows, time.perf_counter() - begin)
    tell(found, options.out)
    share = found["totals"]["different_share"] or 0.0
    return 1 if found["unequal"] or share > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
