"""Every kind of kernel at the edges of its sizes, per vector width, between guard pages.

    python benchmarks/run.py edges [--seeds 0:40] [--kinds KIND …] [--jobs N] [--patience S]

A number is one set of sizes of every form (`fuzz.edgeprograms`) on every machine that this CPU can
be. Kernels run in processes of their own: where one leaves a buffer, the process says which one and
ends, LLVM's crashes and endless loops end it too, and each is a finding, as are alarms: what the
checks of nests and plans say of kernels that are right. Prints one JSON object: kernels by kind of
plan and by what plans do, why cases are no kernels, and every finding with the text of its program;
not ok if there is one.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.pool import ThreadPool
from typing import Any

from gates import say, seeded

from fuzz import guarded
from fuzz.edgeprograms import KINDS
from fuzz.edges import Edge, cases, checked

Row = dict[str, Any]


def work(edges: Sequence[Edge], pipe: Connection) -> None:
    """Every case as a row; what is wrong with the buffers of one as a text."""
    guarded.tell_strays(pipe.send)
    for edge in edges:
        pipe.send(checked(edge))


def rows_of(edges: Sequence[Edge], patience: float) -> Iterator[Row]:
    """A row per case; a process ends with a case that strays, crashes or takes too long."""
    context = get_context("spawn")
    left = list(edges)
    while left:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(left, theirs), daemon=True)
        process.start()
        theirs.close()
        while left:
            row = _next(ours, patience)
            edge = left.pop(0)
            if isinstance(row, str):
                process.kill()
                process.join()
                yield {"case": str(edge), "kind": edge.kind, "wrong": row, "text": edge.text}
                break
            yield row | ({"text": edge.text} if is_bad(row) else {})
        process.join()


def _next(pipe: Connection, patience: float) -> Row | str:
    """The next row, or why there is none."""
    if not pipe.poll(patience):
        return f"nothing for {patience:.0f} seconds"
    try:
        return pipe.recv()
    except EOFError:
        return "its process ended"


def is_bad(row: Row) -> bool:
    return "wrong" in row or "alarm" in row


def totals(rows: Sequence[Row]) -> Row:
    kernels = [r for r in rows if "plan" in r]
    refused = Counter(f"{_form(r)}: {r['refused']}" for r in rows if "refused" in r)
    return {
        "cases": len(rows),
        "kernels": len(kernels),
        "wrong": sum("wrong" in r for r in rows),
        "alarms": sum("alarm" in r for r in rows),
        "plans": dict(Counter(r["plan"] for r in kernels)),
        "traits": dict(Counter(t for r in kernels for t in r["traits"])),
        "refused": dict(refused.most_common()),
    }


def _form(row: Row) -> str:
    return row["case"].split(".")[1]


def numbers(seeds: range, kinds: Sequence[str], patience: float, number: int) -> list[Row]:
    return list(rows_of(list(cases(kinds, seeds[number : number + 1])), patience))


def options(parser: argparse.ArgumentParser) -> None:
    seeded(parser, 40, "number")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), metavar="KIND")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds of one case")


def measured(o: argparse.Namespace) -> Row:
    rows: list[Row] = []
    ask = partial(numbers, o.seeds, o.kinds, o.patience)
    with ThreadPool(o.jobs) as pool:
        for some in pool.imap(ask, range(len(o.seeds))):
            rows += some
            for r in filter(is_bad, some):
                say(json.dumps(r))
    bad = [r for r in rows if is_bad(r)]
    by_kind = {k: totals([r for r in rows if r["kind"] == k]) for k in o.kinds}
    return {"ok": not bad, "totals": totals(rows), "by_kind": by_kind, "bad": bad}
