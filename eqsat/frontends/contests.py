"""Problems of solvers' contests: buffers to place (CSV), nodes to shard (IOPDDL JSON).

Each is read whole, or every problem of the file is told with its place.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from eqsat.frontends.serialized import JsonPlaces, Key, parsed
from eqsat.model.diag import Diagnostic, EqsatError, Span, did_you_mean, fail, sort_diagnostics
from eqsat.model.files import read_text
from eqsat.model.sharding import (
    FORBIDDEN,
    LARGEST_TOTAL,
    Lifetime,
    ShardEdge,
    ShardNode,
    ShardProblem,
)

COLUMNS = ("id", "lower", "upper", "size")
LARGEST_CSV_BYTES = 64 * 2**20
LARGEST = 2**53  # a step or a size
MOST_BYTES = 2**60  # of all buffers together, so that the solvers' integers cannot overflow
MOST_BUFFERS = 10_000  # each may conflict with each
MOST_SHOWN = 20  # problems of one file
# columns of the public format that change what a solution is
REFUSED = {
    "start": "the older format's last step is inclusive: rename to `lower`, `upper` = `end` + 1",
    "begin": "the older format's last step is inclusive: rename to `lower`, `upper` = `end` + 1",
    "end": "the older format's last step is inclusive: rename to `lower`, `upper` = `end` + 1",
    "gaps": "buffers are live without gaps here: split the buffer, or leave the column out",
    "alignment": "offsets are not aligned here: round the sizes up, or leave the column out",
    "offset": "buffers cannot be fixed where they are here: leave the column out",
}
NEUTRAL = {"alignment": ("", "1"), "gaps": ("",), "offset": ("",)}  # values that ask for nothing
IGNORED = ("hint",)  # where a search may start


def read_buffers(path: str | Path) -> list[Lifetime]:
    """Read `id,lower,upper,size` rows, in any order of columns.

    This is the format of the public MiniMalloc instances: a buffer of `size` bytes is live in every
    step t with lower <= t < upper (half-open), so one may lie where another ended at that step.
    Their optional columns: `hint` is ignored; `alignment`, `gaps` and `offset` are refused unless
    they are empty (or an alignment of 1). EqsatError E350 holds all that is wrong with the file.
    """
    lines = _lines(Path(path))
    rows = _Rows(str(path), lines)
    buffers = rows.read()
    if not rows.problems:
        rows.check_total(buffers)
    if rows.problems:
        shown = rows.problems[:MOST_SHOWN]
        if len(rows.problems) > MOST_SHOWN:
            more = f"{path}: and {len(rows.problems) - MOST_SHOWN} more problems"
            shown = [*shown, Diagnostic("E350", more)]
        raise EqsatError(*shown)
    return buffers


def _lines(path: Path) -> list[str]:
    text = read_text(path, "E350", LARGEST_CSV_BYTES, ": is it a CSV file?")
    if "\0" in text:
        raise fail("E350", f"`{path}` holds null characters: is it a CSV file?")
    return text.splitlines()


class _Rows:
    """Rows one by one; `problems` collects what is wrong with them."""

    def __init__(self, file: str, lines: list[str]):
        self.file, self.lines = file, lines
        self.problems: list[Diagnostic] = []
        self.columns: list[str] = []
        self.seen: dict[str, int] = {}  # name -> line
        self.refused: set[str] = set()  # columns

    def read(self) -> list[Lifetime]:
        rows = self._rows()
        header = next(rows, None)
        if header is None:
            self._problem(1, f"the file is empty; it needs `{','.join(COLUMNS)}` and a row each")
            return []
        self._header(*header)
        if self.problems:
            return []
        buffers = [b for line, cells in rows if (b := self._buffer(line, cells))]
        if not buffers and not self.problems:
            self._problem(header[0], "there are no buffers below the header")
        return buffers

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line numbers and cells of every line that is not blank."""
        for number, text in enumerate(self.lines, 1):
            if not text.strip():
                continue
            try:
                cells = next(csv.reader([text], strict=True))
            except csv.Error as e:
                self._problem(number, f"not a line of CSV: {e}")
                continue
            yield number, [c.strip() for c in cells]

    def _header(self, line: int, cells: Sequence[str]) -> None:
        self.columns = [c.lower() for c in cells]
        columns = {*COLUMNS, *REFUSED, *IGNORED}
        for c in dict.fromkeys(self.columns):
            if self.columns.count(c) > 1:
                self._problem(line, f"column `{c}` is there twice")
            elif c not in columns:
                self._problem(line, f"unknown column `{_short(c)}`")
            elif c in REFUSED and c not in NEUTRAL:
                self._problem(line, f"column `{c}` is not read", REFUSED[c])
        missing = [c for c in COLUMNS if c not in self.columns]
        if missing:
            names = ", ".join(f"`{c}`" for c in missing)
            self._problem(line, f"no column {names}", f"the columns are `{','.join(COLUMNS)}`")

    def _buffer(self, line: int, cells: Sequence[str]) -> Lifetime | None:
        """The row's buffer; None, and a problem, if it makes no sense."""
        if len(cells) != len(self.columns):
            self._problem(line, f"{len(cells)} values, the header has {len(self.columns)} columns")
            return None
        row = dict(zip(self.columns, cells, strict=True))
        before = len(self.problems)
        for name, allowed in NEUTRAL.items():
            if row.get(name, "") not in allowed and name not in self.refused:
                self.refused.add(name)  # once, as every line may have it
                self._problem(line, f"column `{name}` is not supported", REFUSED[name])
        name = row["id"]
        if not name:
            self._problem(line, "the `id` is empty")
        elif name in self.seen:
            self._problem(line, f"`{_short(name)}` is there already, in line {self.seen[name]}")
        self.seen.setdefault(name, line)
        lower, upper, size = (self._number(line, c, row[c]) for c in COLUMNS[1:])
        if lower is not None and upper is not None and upper <= lower:
            self._problem(line, f"`upper` {upper} is not after `lower` {lower}")
        if size is not None and size < 0:
            self._problem(line, f"`size` {size} is negative")
        if len(self.problems) > before or lower is None or upper is None or size is None:
            return None
        return Lifetime(name, lower, upper, size)

    def _number(self, line: int, column: str, text: str) -> int | None:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()):
            self._problem(line, f"`{column}` is not a whole number: `{_short(text)}`")
            return None
        if len(digits) > 30 or abs(int(text)) > LARGEST:
            self._problem(line, f"`{column}` is out of range: `{_short(text)}`, at most {LARGEST}")
            return None
        return int(text)

    def check_total(self, buffers: Sequence[Lifetime]) -> None:
        if len(buffers) > MOST_BUFFERS:
            self._problem(1, f"there are {len(buffers)} buffers, at most {MOST_BUFFERS} are placed")
        total = sum(b.size for b in buffers)
        if total > MOST_BYTES:
            self._problem(1, f"the sizes sum to {total} bytes, at most {MOST_BYTES}")

    def _problem(self, line: int, message: str, help: str = "") -> None:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        span = Span(self.file, line, 1, len(text) + 1, text if len(text) <= 200 else "")
        self.problems.append(Diagnostic("E350", message, span, help=help))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def placed_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows of id, lower, upper, size and offset as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([(*COLUMNS, "offset"), *rows])
    return out.getvalue()


LARGEST_JSON_BYTES = 512 * 2**20  # of text
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
    data = parsed(text, places, "E351")
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
        return read_text(path, "E351", LARGEST_JSON_BYTES, ": is it JSON?")
    try:
        with gzip.open(path) as file:
            data = file.read(LARGEST_JSON_BYTES + 1)
    except (OSError, EOFError, zlib.error) as e:
        raise fail("E351", f"`{path}` cannot be decompressed: {e}") from None
    if len(data) > LARGEST_JSON_BYTES:
        raise fail("E351", f"`{path}` holds more than {LARGEST_JSON_BYTES} bytes of text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise fail("E351", f"the text in `{path}` is not UTF-8 at byte {e.start}") from None


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
