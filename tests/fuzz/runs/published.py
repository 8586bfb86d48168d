"""Public rules about tensors: which of them hold here, by proof or by what they would gain.

    python benchmarks/run.py published [--only TEXT …] [--rules SET] [--log FILE] [--page]

A rule (`tests/fuzz/publicrules`) is `proven` if both its sides end in one class of the e-graph when
they are saturated side by side. Else it is `matched` if the answer to its left side is predicted to
take no longer than the answer to its right side: nothing would be gained by it. Else it is
`missing`, and has a reason. `--page` writes the table of benchmarks/published.md. Not ok if
fewer are proven or matched than wanted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gates import Log, logs, say

import eqsat
from eqsat.api.reading import source_of
from eqsat.hunt.instances import side_by_side
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.ops.spelling.passes import canonical
from eqsat.saturate import saturate
from fuzz.publicrules import REASONS, Rule, public_rules
from fuzz.runs.pairs import SAME

PAGE = Path(__file__).resolve().parents[3] / "benchmarks" / "published.md"
HEAD = "| rule | source | status |\n|---|---|---|\n"
WANTED = 0.95  # of the rules
TARGET = "avx512-xla"
PROVEN, MATCHED, MISSING = "proven", "matched", "missing"
SECONDS = 60.0  # of a search: enough on a busy machine, too, as all are proven in a few

Row = dict[str, Any]


def row(rule: Rule, rules: Sequence[str]) -> Row:
    """What a rule is here, and the predicted times of both answers where it is not proven."""
    found: Row = {"rule": rule.name, "source": rule.source}
    try:
        left, right = (program_of(f, rule) for f in (rule.left, rule.right))
    except EqsatError as problem:
        return found | {"status": MISSING, "problem": str(problem.diagnostics[0].message)}
    if is_proven(left, right, rules):
        return found | {"status": PROVEN}
    left_us, right_us = (predicted_us(p, rules) for p in (left, right))
    status = MATCHED if left_us <= right_us * (1 + SAME) else MISSING
    return found | {"status": status, "left_us": left_us, "right_us": right_us}


def program_of(function: Any, rule: Rule) -> Program:
    """A side, its inputs named by number, as both sides have to have the same ones."""

    def side(*args: Any) -> Any:
        return function(*args)

    return source_of(side, tuple(i.spec for i in rule.inputs), {}, ()).program


def is_proven(left: Program, right: Program, rules: Sequence[str]) -> bool:
    """Whether all results of both programs end in the same classes."""
    both = side_by_side(canonical(left), canonical(right))
    graph = saturate(both, eqsat.rules(*rules), eqsat.target(TARGET))
    half = len(graph.roots) // 2
    return graph.roots[:half] == graph.roots[half:]


def predicted_us(program: Program, rules: Sequence[str]) -> float:
    """Of the best program the rules reach."""
    run = eqsat.optimize(program, rules=rules, target=TARGET, goals=("time",), time_limit=SECONDS)
    return run.summary()["goals"]["time_us"]["value"]


# ---- telling -------------------------------------------------------------------------------------
def table(rows: Sequence[Row]) -> str:
    """The table in Markdown; a rule that is missing tells its reason."""
    lines = []
    for r in rows:
        why = f": {REASONS[r['rule']]}" if r["status"] == MISSING else ""
        lines.append(f"| {r['rule']} | {r['source']} | {r['status']}{why} |\n")
    return HEAD + "".join(lines)


def written(page: str, rows: Sequence[Row]) -> str:
    """The page with its table as it is now, and the sentence in front of it that counts."""
    start = page.index(HEAD)
    begin = page.rindex("\n\n", 0, start - 2) + 2  # the sentence, a paragraph of its own
    end = page.index("\n\n", start) + 1 if "\n\n" in page[start:] else len(page)
    return page[:begin] + counted(rows) + "\n\n" + table(rows) + page[end:]


def counted(rows: Sequence[Row]) -> str:
    """One line."""
    found = Counter(r["status"] for r in rows)
    return (
        f"Of {len(rows)} rules {found[PROVEN]} are proven, {found[MATCHED]} matched in cost, "
        f"{found[MISSING]} missing."
    )


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rules whose names contain it")
    parser.add_argument("--rules", nargs="+", default=["full"], metavar="SET")
    parser.add_argument("--page", action="store_true", help="write the table of published.md")
    logs(parser, "rule")


def measured(options: argparse.Namespace) -> Row:
    if options.page and options.only:
        raise SystemExit("--page needs all rules: leave --only out")
    sets, log, rows = " ".join(options.rules), Log(options.log, "rule", "sets"), []
    for rule in public_rules():
        if options.only and not any(t in rule.name for t in options.only):
            continue
        if (rule.name, sets) not in log:
            log.add(row(rule, options.rules) | {"sets": sets})
        rows.append(log[rule.name, sets])
        say(f"{rows[-1]['status']:8} {rule.source}: {rule.name}")
    if options.page:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written(text, rows), encoding="utf-8")
    counts = Counter(r["status"] for r in rows)
    enough = counts[MISSING] <= (1 - WANTED) * len(rows)
    return {"ok": enough, "rules": options.rules, "counts": counts, "rows": rows}
