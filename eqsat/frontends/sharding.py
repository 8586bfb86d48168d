"""IOPDDL JSON, compressed or not → ShardProblem, or every problem of the file with its place.

The format is that of the ASPLOS 2025 contest on intra-operator parallelism (google/iopddl).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from eqsat.frontends.jsonplaces import JsonPlaces, Key
from eqsat.model.diag import Diagnostic, EqsatError, did_you_mean, fail, sort_diagnostics
from eqsat.model.files import read_text
from eqsat.model.sharding import FORBIDDEN, LARGEST_TOTAL, ShardEdge, ShardNode, ShardProblem

LARGEST_FILE_BYTES = 512 * 2**20  # of text
MOST_SHOWN = 20  # problems of one file
LARGEST_STEP = 2**53
GZIP_MAGIC = b"\x1f\x8b"

Path_ = tuple[Key, ...]
Trouble = tuple[str, Path_, str]  # message, where, help


def read_sharding(path: Path) -> ShardProblem:
    """Read `{"problem": {"nodes", "edges", "usage_limit"}}`; EqsatError E351 holds all faults.

    nodes: `costs` and `usages` (a list per node, an entry per strategy) and `intervals` (`[lower,
    upper]` per node, live in the steps lower <= t < upper). edges: `nodes` (two numbers per edge)
    and `costs` (row-major: a row per strategy of the first node). All are whole numbers; costs of
    10^18 and more are never chosen. Other keys are left alone.
    """
    text = _text(path)
    places = JsonPlaces(str(path), text)
    data = _parse(text, places)
    troubles = list(_shape(data))
    if not troubles:
        problem = data["problem"]
        troubles = [*_nodes(problem["nodes"]), *_edges(problem), *_limit(problem)]
    if not troubles:
        troubles = list(_totals(data["problem"]))
    if troubles:
        diagnostics = [
            Diagnostic("E351", m, places.of(*at), help=h) for m, at, h in troubles[:MOST_SHOWN]
        ]
        diagnostics = sort_diagnostics(diagnostics)
        if len(troubles) > MOST_SHOWN:
            more = f"{path}: and {len(troubles) - MOST_SHOWN} more problems"
            diagnostics = [*diagnostics, Diagnostic("E351", more)]
        raise EqsatError(*diagnostics)
    return _problem(data["problem"])


def _text(path: Path) -> str:
    """The text of a file, decompressed if it is gzip."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
    except (OSError, ValueError):
        packed = False
    if not packed:
        return read_text(path, "E351", LARGEST_FILE_BYTES, ": is it JSON?")
    try:
        with gzip.open(path) as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as e:
        raise fail("E351", f"`{path}` cannot be decompressed: {e}") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise fail("E351", f"`{path}` holds more than {LARGEST_FILE_BYTES} bytes of text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise fail("E351", f"the text in `{path}` is not UTF-8 at byte {e.start}") from None


def _parse(text: str, places: JsonPlaces) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as e:
        at = places.at(min(e.pos, max(len(text) - 1, 0)))
        raise fail("E351", f"not JSON: {e.msg[0].lower()}{e.msg[1:]}", at) from None
    except RecursionError:
        raise fail("E351", f"`{places.file}` is nested too deeply") from None
    except ValueError:  # Python's limit of digits
        raise fail("E351", f"`{places.file}` holds a number that is too long") from None


# ---- shape ---------------------------------------------------------------------------------------
def _shape(data: Any) -> Iterator[Trouble]:
    """Are the lists there, and do they belong together?"""
    if not isinstance(data, dict) or not isinstance(data.get("problem"), dict):
        hint = did_you_mean("problem", data) if isinstance(data, dict) else ""
        yield "the file has to be an object with an object `problem`", (), hint
        return
    problem = data["problem"]
    if "usage_limit" not in problem:
        hint = did_you_mean("usage_limit", problem)
        yield "`usage_limit` is missing", ("problem",), hint
    for part, columns in (("nodes", ("costs", "usages", "intervals")), ("edges", _EDGE_COLUMNS)):
        yield from _columns(problem, part, columns)


_EDGE_COLUMNS = ("nodes", "costs")


def _columns(problem: dict[str, Any], part: str, columns: tuple[str, ...]) -> Iterator[Trouble]:
    table = problem.get(part)
    if not isinstance(table, dict):
        message = f"`{part}` has to be an object of lists: {', '.join(columns)}"
        yield message, ("problem", part) if part in problem else ("problem",), ""
        return
    lengths: dict[str, int] = {}
    for c in columns:
        if not isinstance(table.get(c), list):
            at = ("problem", part, c) if c in table else ("problem", part)
            yield f"`{c}` of `{part}` has to be a list", at, did_you_mean(c, table)
        else:
            lengths[c] = len(table[c])
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"`{c}` has {k}" for c, k in lengths.items())
        yield f"the lists of `{part}` differ in length: {sizes}", ("problem", part), ""
    if part == "nodes" and lengths.get("costs") == 0:
        yield "there are no nodes", ("problem", "nodes", "costs"), ""


# ---- numbers -------------------------------------------------------------------------------------
def _whole(values: Any) -> bool:
    """Is this a list of whole numbers that are not absurd?"""
    if not isinstance(values, list) or not set(map(type, values)) <= {int}:
        return False
    return not values or (max(values) < 2**63 and min(values) > -FORBIDDEN)


def _nodes(nodes: dict[str, Any]) -> Iterator[Trouble]:
    rows = zip(nodes["costs"], nodes["usages"], nodes["intervals"], strict=True)
    numbers = "has to be a list of whole numbers above -10^18 and below 2^63"
    for i, (costs, usages, interval) in enumerate(rows):
        base: Path_ = ("problem", "nodes")
        fine = _whole(costs) and _whole(usages)
        for name, values in (("costs", costs), ("usages", usages)):
            if not _whole(values):
                yield f"`{name}` of node {i} {numbers}", (*base, name, i), ""
        if fine and not costs:
            yield f"node {i} has no strategies", (*base, "costs", i), ""
        elif fine and len(costs) != len(usages):
            message = f"node {i} has {len(costs)} costs and {len(usages)} usages"
            yield message, (*base, "usages", i), ""
        elif fine and min(usages) < 0:
            yield f"a usage of node {i} is negative", (*base, "usages", i), ""
        if not _whole(interval) or len(interval) != 2 or max(map(abs, interval)) > LARGEST_STEP:
            message = f"the interval of node {i} has to be `[lower, upper]`, whole numbers"
            yield message, (*base, "intervals", i), ""


def _edges(problem: dict[str, Any]) -> Iterator[Trouble]:
    sizes = [len(c) if isinstance(c, list) else 0 for c in problem["nodes"]["costs"]]
    base: Path_ = ("problem", "edges")
    rows = zip(problem["edges"]["nodes"], problem["edges"]["costs"], strict=True)
    for i, (ends, costs) in enumerate(rows):
        if not _whole(ends) or len(ends) != 2:
            hint = "edges of more nodes are not read: split them, or add a node for them"
            yield f"the nodes of edge {i} have to be two whole numbers", (*base, "nodes", i), hint
            continue
        if not all(0 <= j < len(sizes) for j in ends):
            wrong = next(j for j in ends if not 0 <= j < len(sizes))
            message = f"edge {i} names node {wrong}; there are nodes 0 to {len(sizes) - 1}"
            yield message, (*base, "nodes", i), ""
            continue
        wanted = sizes[ends[0]] * sizes[ends[1]]
        if not _whole(costs):
            message = f"`costs` of edge {i} has to be a list of whole numbers below 2^63"
            yield message, (*base, "costs", i), ""
        elif len(costs) != wanted:
            message = (
                f"edge {i} has {len(costs)} costs; its nodes have {sizes[ends[0]]} and"
                f" {sizes[ends[1]]} strategies, so {wanted} are needed"
            )
            yield message, (*base, "costs", i), ""


def _limit(problem: dict[str, Any]) -> Iterator[Trouble]:
    limit = problem["usage_limit"]
    if type(limit) is not int or not 0 <= limit < 2**63:
        message = "`usage_limit` has to be a whole number, not negative, below 2^63"
        yield message, ("problem", "usage_limit"), ""


def _totals(problem: dict[str, Any]) -> Iterator[Trouble]:
    """Sums of whatever is chosen have to fit the search's integers."""
    nodes = problem["nodes"]
    rows = chain(nodes["costs"], problem["edges"]["costs"])
    costs = sum(max((abs(c) for c in r if c < FORBIDDEN), default=0) for r in rows)
    for name, total in (("costs", costs), ("usages", sum(map(max, nodes["usages"])))):
        if total > LARGEST_TOTAL:
            message = f"the largest {name} sum to {total}; at most {LARGEST_TOTAL} is searched"
            yield message, ("problem", "nodes", name), "divide all of them by a number"


def _problem(problem: dict[str, Any]) -> ShardProblem:
    table, edges = problem["nodes"], problem["edges"]
    rows = zip(table["costs"], table["usages"], table["intervals"], strict=True)
    nodes = [ShardNode(c, u, lower, upper) for c, u, (lower, upper) in rows]
    pairs = zip(edges["nodes"], edges["costs"], strict=True)
    joined = [ShardEdge(first, second, c) for (first, second), c in pairs]
    return ShardProblem(nodes, joined, min(problem["usage_limit"], LARGEST_TOTAL))
