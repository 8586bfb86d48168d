"""Python expression syntax as a notation: text → `ast`, with the place of every piece."""

from __future__ import annotations

import ast
import warnings
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from eqsat.lang.source import Placed
from eqsat.model.diag import Diagnostic, Span


@dataclass(frozen=True)
class Tree:
    """A parsed text; `body` is the expression, `span` gives the place of any node in it."""

    placed: Placed
    body: ast.expr
    symbols: Mapping[str, int] = field(default_factory=dict)  # extents that may stand for numbers

    def range(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """Characters of the text a node covers (`ast` counts UTF-8 bytes)."""
        start, end = node.col_offset, node.end_col_offset or node.col_offset + 1
        if self.placed.text.isascii():
            return start, end
        return bisect_left(self._bytes, start), bisect_left(self._bytes, end)

    @cached_property
    def _bytes(self) -> list[int]:
        """The UTF-8 byte at which each character begins."""
        return [0, *accumulate(len(c.encode()) for c in self.placed.text)]

    def span(self, node: ast.expr | ast.keyword) -> Span:
        return self.placed.span(*self.range(node))

    def text(self, node: ast.expr | ast.keyword) -> str:
        """The piece of the text a node was read from."""
        start, end = self.range(node)
        return self.placed.text[start:end]

    def key(self, node: ast.keyword) -> Span:
        """The place of the key of `key=value`."""
        start, _ = self.range(node)
        return self.placed.span(start, start + len(node.arg or "**"))


def parse(
    placed: Placed,
    code: str,
    masked: str | None = None,
    symbols: Mapping[str, int] | None = None,
) -> Tree | Diagnostic:
    """The tree of a text, or what is wrong with it under `code`.

    masked: the same text, of the same length, with words replaced that Python reserves. symbols:
    names that may stand where a whole number is wanted.
    """
    text = placed.text if masked is None else masked
    # same length, so that offsets stay: line breaks of a folded term mean nothing
    flat = text.replace("\n", " ").replace("\t", " ")
    lead = len(flat) - len(flat.lstrip())
    if not flat.strip():
        return Diagnostic(code, "cannot read this term: it is empty", placed.whole())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # e.g. `1 is x`, refused later
            body = ast.parse(flat.strip(), mode="eval").body
    except SyntaxError as error:
        at = lead + max((error.offset or 1) - 1, 0)
        return Diagnostic(code, f"cannot read this term: {error.msg}", placed.span(at, at + 1))
    except (RecursionError, ValueError, MemoryError):
        return Diagnostic(code, "cannot read this term: it is nested too deeply", placed.whole())
    rest = Placed(placed.text[lead:], placed.lines, placed.offsets[lead:])
    return Tree(rest, body, symbols or {})
