"""The order of scalar expressions as their texts compare."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

from eqsat.model.expr import Expr, call_text


class TextOrder:
    """Compares expressions as their texts written out in full would compare, and writes none.

    Equal parts are skipped and what was found is kept, so that ordering all parts of a body is
    linear in the body.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Expr, Expr], int] = {}
        self.key: Any = cmp_to_key(self.compare)

    def compare(self, a: Expr, b: Expr) -> int:
        """-1, 0 or 1."""
        trail: list[tuple[Expr, Expr]] = []
        found = 0
        while a is not b:
            if (a, b) in self._known:
                found = self._known[a, b]
                break
            trail.append((a, b))
            heads = _head(a), _head(b)
            other = [(x, y) for x, y in zip(a.args, b.args, strict=False) if x is not y]
            if heads[0] != heads[1] or not other:
                # of two casts of one value the type decides
                texts = heads if heads[0] != heads[1] else (str(a.value), str(b.value))
                found = (texts[0] > texts[1]) - (texts[0] < texts[1])
                break
            a, b = other[0]
        self._known.update(dict.fromkeys(trail, found))
        return found


def _head(e: Expr) -> str:
    return f"{e.fn}(" if e.args else call_text(e, ())
