"""What `full` takes beside `default`, and what it finds, on whole models.

    python benchmarks/run.py sets [--only NAME …] [--target T] [--limit S] [--page] [--out FILE]

NAME is `encoder-N`, `llama-N` (N layers), or what `eqsat optimize` takes. Every search has a
process of its own, and both sets have the same time limit (wall). Prints one JSON object
with a row per program and set: process seconds of saturation (`saturate`) and of the whole search
behind reading (`cpu`), e-nodes, predicted microseconds of the answer and its gap, and per rule set
that grew the e-graph its e-nodes (`grown`). `cost` has per program the ratio of the process
seconds, of the e-nodes and of the answers; `growth` per kind of layer the e-nodes that a layer
adds. `--page` writes the table into docs/algebra.md. Not ok if an answer of `full` is worse,
or its search takes more than three times as long.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gates import Log, alone, asked_and_told, logs, say
from layers import program

import eqsat
from eqsat.lang.rulesets import load_rulesets

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "algebra.md"
LAYERS = (2, 4, 8, 12)
MODELS = (
    "encoder-1", "minilm", "bert", "gpt2.py:gpt2", "gpt2.py:gpt2_decode", "llama.py:llama2_7b",
    "stablelm", "resnet50", "unet", "swin",
)  # fmt: skip
PROGRAMS = (*MODELS, *(f"{kind}-{n}" for kind in ("encoder", "llama") for n in LAYERS))
SETS = ("default", "full")
KILL = 900.0  # seconds of a process
MOST = 3.0  # times the process seconds of `default`
SAME = 1e-4  # relative: answers that differ by less are equal
HEAD = (
    "| program | e-nodes | CPU s of saturation | of the whole search | answer, us | gap"
    " | grown by |"
)

Row = dict[str, Any]


# ---- in a process of its own ---------------------------------------------------------------------
def searched(name: str, rules: str, target: str, limit: float) -> Row:
    """One search of a program that is read before its clock starts."""
    source = program(name)
    eqsat.rules(rules)  # reading files is no part of a search
    begin = time.process_time()
    eqsat.optimize(source, target=target, rules=rules, time_limit=limit, stop_after="egraph")
    saturating = time.process_time() - begin
    begin = time.process_time()
    run = eqsat.optimize(source, target=target, rules=rules, time_limit=limit)
    cpu = time.process_time() - begin
    s = run.summary()
    assert run.egraph is not None
    return {
        "saturate": round(saturating, 2),
        "cpu": round(cpu, 2),
        "nodes": s["egraph"]["nodes"],
        "stop": s["stop"],
        "saturation_stop": s["egraph"]["stop"],
        "us": s["goals"]["time_us"]["value"],
        "gap": s["goals"]["time_us"]["gap"],
        "grown": grown(run.egraph.rules),
    }


def grown(stats: Sequence[Any]) -> dict[str, int]:
    """E-nodes by the file of the rule that made them, most first."""
    home = {r.name: (r.ruleset or "").rpartition("/")[2] for r in load_rulesets(["full"]).rules}
    nodes: Counter[str] = Counter()
    for stat in stats:
        nodes[str(home.get(stat.name, stat.name))] += stat.nodes
    return {name: count for name, count in nodes.most_common() if count}


# ---- the process that starts them ----------------------------------------------------------------
def asked(name: str, rules: str, o: argparse.Namespace) -> Row:
    """A row with its figures, or with how its process ended."""
    words = ["--one", name, rules, "--target", o.target, "--limit", str(o.limit)]
    return {"program": name, "rules": rules} | alone(__file__, words, KILL)


def cost(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Per program `full` over `default`: process seconds, those of saturation, e-nodes, answer."""
    at = {(r["program"], r["rules"]): r for r in rows if "us" in r}
    names = [n for n in dict.fromkeys(r["program"] for r in rows) if (n, "full") in at]
    return {
        n: {
            key: round(at[n, "full"][key] / at[n, "default"][key], 4)
            for key in ("cpu", "saturate", "nodes", "us")
        }
        for n in names
        if (n, "default") in at
    }


def growth(rows: Sequence[Row]) -> dict[str, dict[str, list[float]]]:
    """Per kind of layer and set, e-nodes per layer between the numbers of layers searched."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        kind, _, count = row["program"].partition("-")
        if count.isdigit() and int(count) in LAYERS and "us" in row:
            sizes = found.setdefault(kind, {}).setdefault(row["rules"], [])
            sizes.append(row["nodes"])
    steps = [b - a for a, b in pairwise(LAYERS)]
    return {
        kind: {
            rules: [(b - a) / s for a, b, s in zip(n, n[1:], steps, strict=True)]
            for rules, n in sets.items()
            if len(n) == len(LAYERS)
        }
        for kind, sets in found.items()
    }


def worse(costs: dict[str, dict[str, float]]) -> list[str]:
    """What `full` promises and does not keep."""
    late = [f"{n}: {c['cpu']:.2f} times the CPU" for n, c in costs.items() if c["cpu"] > MOST]
    return late + [f"{n}: a worse answer" for n, c in costs.items() if c["us"] > 1 + SAME]


def table(rows: Sequence[Row]) -> str:
    """Both sets beside each other, a line per program."""
    at = {(r["program"], r["rules"]): r for r in rows if "us" in r}
    lines = [
        HEAD,
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r["program"] for r in rows):
        a, b = (at.get((name, rules)) for rules in SETS)
        if a is None or b is None:
            continue
        both = [f"{a[k]:,} → {b[k]:,}" for k in ("nodes", "saturate", "cpu")]
        both.append(f"{a['us']:,.1f} → {b['us']:,.1f}")
        both.append(f"{_percent(a['gap'])} → {_percent(b['gap'])}")
        new = {k: n - a["grown"].get(k, 0) for k, n in b["grown"].items()}
        most = sorted((k for k, n in new.items() if n > 0), key=lambda k: -new[k])[:3]
        both.append(", ".join(f"{k} {new[k]}" for k in most))
        lines.append(f"| {name} | {' | '.join(both)} |")
    return "\n".join(lines)


def _percent(gap: float | None) -> str:
    return "–" if gap is None else "0" if gap == 0 else f"{100 * gap:.2g} %"


def written(page: str, rows: Sequence[Row]) -> str:
    """The page with its table as it is now."""
    begin = page.index(HEAD)
    end = page.index("\n\n", begin)
    return page[:begin] + table(rows) + page[end:]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", default=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--target", default="avx512-xla")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of each search")
    parser.add_argument("--page", action="store_true", help="write the table of docs/algebra.md")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    logs(parser, "row")


def measured(o: argparse.Namespace) -> Row:
    rows = Log(o.log, "program", "rules")
    for name, rules in ((n, r) for n in o.only for r in SETS if (n, r) not in rows):
        rows.add(asked(name, rules, o))
        shown = {k: v for k, v in rows[name, rules].items() if k != "grown"}
        say(" ".join(map(str, shown.values())))
    listed = list(rows.values())
    costs = cost(listed)
    missed = worse(costs) + [f"{r['program']}: no answer" for r in listed if "us" not in r]
    mean = math.exp(sum(math.log(c["cpu"]) for c in costs.values()) / max(len(costs), 1))
    if o.page:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), listed), encoding="utf-8")
    found = {"target": o.target, "limit": o.limit, "mean_cpu": round(mean, 3), "missed": missed}
    return {"ok": not missed} | found | {"cost": costs, "growth": growth(listed), "rows": listed}


def one(o: argparse.Namespace) -> Row:
    """A process of `asked`."""
    name, rules = o.one
    return searched(name, rules, o.target, o.limit)


if __name__ == "__main__":
    sys.exit(asked_and_told(__doc__, options, measured, one=one))
