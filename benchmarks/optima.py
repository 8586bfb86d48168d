"""The optima of every program of the library on every shipped target, of two versions of eqsat.

    python benchmarks/optima.py collect LOG [--only NAME …] [--targets T …] [--limit S] [--kill S]
    python benchmarks/optima.py compare OLD NEW [--out FILE]

`collect` adds a line to LOG for every search that is not in it yet: value and bound of every goal
as integers (ps, bytes, counts), why the search stopped, how many candidates were left out. Which
version is searched is decided by PYTHONPATH, so the same script collects from any checkout. A
search that is not back at `--kill` is kept as `slow`.

`compare` reads two logs and prints one JSON object: a row per search that both have, and what
became of it. A search is `same` if every goal is, else `better` or `worse` by the first goal that
differs. Where both sides proved that goal and all before it, over all candidates, its values have
to be equal: `wrong` if they are not. Exit code 1 if a search is worse or wrong.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limits import LIBRARY, TARGETS

import eqsat
from eqsat.model.diag import EqsatError

# the small ones first, so that a run that is cut short has most of the table
ORDER = (
    "transposed_pack", "permuted_consumer", "residual", "folded_batch", "two_packs", "padded_chain",
    "three_readers", "quantized_matmul", "conv_qdq_residual", "mlp.py:mlp_784", "mlp.py:mlp_1024",
    "bottlenecks", "encoder", "stablecode.py:stable_code_block",
    "stablelm", "llama", "llama.py:llama_64", "sdxl.py:residual", "unet", "resnet50",
    "sdxl.py:transformer", "train.py:step", "llama.py:llama_4", "gpt2.py:gpt2_decode", "minilm",
    "gpt2.py:gpt2", "bert", "swin", "deep", "deep.py:mixed", "llama.py:llama2_7b",
)  # fmt: skip
NAMES = (*ORDER, *(n for n in LIBRARY if n not in ORDER))
OUTCOMES = ("same", "better", "worse", "wrong", "refused", "slow")

Row = dict[str, Any]


class TooSlow(BaseException):
    """Not an Exception: nobody on the way may take it for an answer."""


def collect(options: argparse.Namespace) -> int:
    """Search what the log does not have yet."""

    def ring(*_: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, ring)
    known = {(r["program"], r["target"]) for r in _logged(options.log)}
    for name in options.only:
        missing = [t for t in options.targets if (name, t) not in known]
        source = eqsat.read(name) if missing else None
        for target in missing:
            assert source is not None
            row = {"program": name, "target": target} | _asked(source, target, options)
            with options.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), file=sys.stderr, flush=True)
    return 0


def _asked(source: eqsat.Source, target: str, options: argparse.Namespace) -> Row:
    """One search; what it cost is process time, as the machine may be busy."""
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, options.kill)
    try:
        run = eqsat.optimize(source, target=target, time_limit=options.limit)
    except EqsatError as error:
        return {"refused": [d.code for d in error.diagnostics]}
    except TooSlow:
        return {"slow": options.kill}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert run.selection is not None
    s = run.selection
    return {
        "goals": {k: [g.value, g.bound] for k, g in s.goals},
        "stop": s.stop,
        "cuts": sum(c.count for c in s.cuts),
        "nodes": run.summary()["egraph"]["nodes"],
        "cpu": round(time.process_time() - begin, 2),
    }


def _logged(log: Path) -> list[Row]:
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def compare(options: argparse.Namespace) -> int:
    """Print the table; 1 if a search is worse or wrong."""
    old, new = (
        {(r["program"], r["target"]): r for r in _logged(log)} for log in (options.old, options.new)
    )
    rows = list(_compared(old, new))
    counts = Counter(r["outcome"] for r in rows)
    for r in rows:
        if r["outcome"] in ("worse", "wrong", "refused", "slow"):
            print(json.dumps(r), file=sys.stderr)
    cpu = {k: round(sum(r["cpu"][k] for r in rows if r["cpu"]), 1) for k in ("old", "new")}
    found = {
        "format": 1, "searches": len(rows), "only_old": len(old.keys() - new.keys()),
        "outcomes": {k: counts[k] for k in OUTCOMES}, "cpu_seconds": cpu, "rows": rows,
    }  # fmt: skip
    text = json.dumps(found, indent=1) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return int(bool(counts["worse"] or counts["wrong"]))


def _compared(old: dict[tuple[str, str], Row], new: dict[tuple[str, str], Row]) -> Iterator[Row]:
    for key, was in old.items():
        if key in new:
            now = new[key]
            has_cpu = "cpu" in was and "cpu" in now
            yield {
                "program": key[0], "target": key[1], "outcome": outcome(was, now),
                "old": _told(was), "new": _told(now),
                "cpu": {"old": was["cpu"], "new": now["cpu"]} if has_cpu else None,
            }  # fmt: skip


def outcome(was: Row, now: Row) -> str:
    """What became of one search: one of OUTCOMES; by the first goal that differs."""
    if "goals" not in was and "goals" not in now:
        return "slow" if "slow" in (was | now) else "same" if was == now else "refused"
    if "goals" not in was:
        return "better" if "slow" in was else "refused"
    if "goals" not in now:
        return "slow" if "slow" in now else "refused"
    proven = was["cuts"] == 0 == now["cuts"]
    for goal, (before, least_before) in was["goals"].items():
        after, least = now["goals"][goal]
        proven &= before <= least_before and after <= least
        if before != after:
            if proven:
                return "wrong"
            return "better" if after < before else "worse"
    return "same"


def _told(row: Row) -> Row:
    return {k: v for k, v in row.items() if k not in ("program", "target")}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("collect", help="search, and add a line per search to a log")
    one.add_argument("log", type=Path)
    one.add_argument("--only", nargs="+", default=list(NAMES), metavar="NAME")
    one.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="TARGET")
    one.add_argument("--limit", type=float, default=60.0, help="seconds of each search")
    one.add_argument("--kill", type=float, default=300.0, help="seconds after which it is left")
    one.set_defaults(part=collect)
    two = parts.add_parser("compare", help="compare two logs; JSON")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    two.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    two.set_defaults(part=compare)
    options = parser.parse_args()
    return options.part(options)


if __name__ == "__main__":
    sys.exit(main())
