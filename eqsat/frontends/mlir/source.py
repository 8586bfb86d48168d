"""The text of an MLIR file, what the parser reads instead of it, and places in the user's file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eqsat.model.diag import Span, fail
from eqsat.model.files import read_text

LARGEST_FILE_BYTES = 256 * 2**20
DEEPEST = 256  # brackets inside one another; the parser recurses on its stack
LONGEST_EXPRESSION = 1000  # operators of one affine map; parsed recursively too
_SKIPPED = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|//[^\n]*')
_BRACKETS = re.compile(r"->|>=|[\[\](){}<>]")
_AFFINE = re.compile(r"affine_(?:map|set)<([^<{}]*)")
_OPERATOR = re.compile(r"[-+*]|mod|div")
_OPEN, _CLOSE = "[({<", "])}>"


@dataclass(frozen=True, order=True)
class Edit:
    """`text` in place of the characters from `start` to `end` of the original."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class ModuleText:
    """A file as it was written, and the edits that make it today's spelling."""

    file: str
    original: str
    edits: tuple[Edit, ...] = ()

    @cached_property
    def text(self) -> str:
        """What the parser reads."""
        pieces, at = [], 0
        for e in self.edits:
            pieces += [self.original[at : e.start], e.text]
            at = e.end
        return "".join([*pieces, self.original[at:]])

    @cached_property
    def _lines(self) -> list[int]:
        """Where every line of `text` starts."""
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    @cached_property
    def _original_lines(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer("\n", self.original))]

    def span(self, line: int, column: int) -> Span:
        """The place in the original of a place in `text`; columns of MLIR count bytes, from 1."""
        line = min(max(line, 1), len(self._lines))
        start = self._lines[line - 1]
        row = self.text[start:].split("\n", 1)[0] if line == len(self._lines) else None
        row = self.text[start : self._lines[line] - 1] if row is None else row
        before = row.encode()[: max(column - 1, 0)].decode(errors="ignore")
        return self.at(self._back(start + len(before)))

    def _back(self, offset: int) -> int:
        """The offset in the original; inside an edit, where the edit starts."""
        shift = 0
        for e in self.edits:
            start = e.start + shift
            if offset < start:
                break
            if offset < start + len(e.text):
                return e.start
            shift += len(e.text) - (e.end - e.start)
        return offset - shift

    def at(self, offset: int) -> Span:
        """The place of a character of the original."""
        line = bisect_right(self._original_lines, offset)
        start = self._original_lines[line - 1]
        end = self.original.find("\n", start)
        row = self.original[start : len(self.original) if end < 0 else end].rstrip("\r")
        word = re.match(r"[%@#!]?[\w.$-]+|.", row[offset - start :])
        width = len(word[0]) if word else 1
        return Span(self.file, line, offset - start + 1, offset - start + 1 + width, row)

    def word(self, line: int, column: int) -> str:
        """The identifier at a place of `text`, "" if there is none."""
        at = self.span(line, column)
        found = re.match(r"%([\w$.-]+)", at.text[at.column - 1 :])
        return found[1] if found else ""


def without_comments(text: str) -> str:
    """The text with strings and comments blanked, every other character in its place."""
    return _SKIPPED.sub(lambda m: " " * len(m[0]), text)


def load_text(path: Path) -> ModuleText:
    """The file, bounded in size and nesting; EqsatError E370 or E371."""
    source = ModuleText(str(path), read_text(path, "E370", LARGEST_FILE_BYTES))
    if "\0" in source.original:
        raise fail("E370", f"`{path}` is no MLIR text: it holds null characters")
    check_nesting(source)
    return source


def check_nesting(source: ModuleText) -> None:
    """EqsatError E371 before a parser that recurses once per bracket or operator meets too many."""
    text = without_comments(source.original)
    depth = 0
    for m in _BRACKETS.finditer(text):
        if m[0] in _OPEN:
            depth += 1
        elif m[0] in _CLOSE:
            depth = max(depth - 1, 0)
        if depth > DEEPEST:
            at = source.at(m.start())
            raise fail("E371", f"brackets are nested more than {DEEPEST} deep", at)
    for m in _AFFINE.finditer(text):
        if len(_OPERATOR.findall(m[1])) > LONGEST_EXPRESSION:
            why = f"an affine map has more than {LONGEST_EXPRESSION} operators"
            raise fail("E371", why, source.at(m.start()))


def edited(source: ModuleText, edits: Iterable[Edit]) -> ModuleText:
    """The source with these edits of its original; where two overlap, the earlier one holds."""
    kept: list[Edit] = []
    for e in sorted(edits):
        if not kept or e.start >= kept[-1].end:
            kept.append(e)
    return ModuleText(source.file, source.original, tuple(kept))
