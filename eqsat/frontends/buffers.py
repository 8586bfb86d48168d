"""A CSV file of buffers → lifetimes, or every problem of the file with its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from eqsat.model.diag import Diagnostic, EqsatError, Span, fail
from eqsat.model.files import read_text
from eqsat.model.placement import Lifetime

COLUMNS = ("id", "lower", "upper", "size")
LARGEST_FILE_BYTES = 64 * 2**20
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
    text = read_text(path, "E350", LARGEST_FILE_BYTES, ": is it a CSV file?")
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
