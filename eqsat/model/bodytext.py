"""Scalar bodies as text, and the order of such texts.

    add(mul(x0, x1), 0.5)
    (t0 := exp(x0), div(t0, add(t0, 1.0)))

Parts that are used more than once have names; the last piece is the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

from eqsat.model.expr import BottomUp, Expr, literal

DEEPEST = 64  # nested calls, then a part gets a name: parsers of expressions are recursive
SHOWN = 400  # characters of a body that a person is shown


def body_text(root: Expr) -> str:
    """The body in the `.eqs` notation, linear in its distinct parts.

    A part with arguments that is used twice, or that `DEEPEST` calls lead down from, is named
    where it is first needed. Bodies without such parts are one nested call.
    """
    uses = Counter(a for e in root.walk() for a in e.args)
    named: list[str] = []

    def step(e: Expr, inner: Sequence[tuple[str, int]]) -> tuple[str, int]:
        text, depth = _call(e, [t for t, _ in inner]), 1 + max((d for _, d in inner), default=0)
        if not e.args or e is root or (uses[e] < 2 and depth < DEEPEST):
            return text, depth
        named.append(f"t{len(named)} := {text}")
        return f"t{len(named) - 1}", 1

    text, _ = BottomUp(step)(root)
    return f"({', '.join([*named, text])})" if named else text


def short_body(root: Expr) -> str:
    """The body as a person reads it: how it begins, how it ends, and how much of it there is."""
    text = body_text(root)
    if len(text) <= SHOWN:
        return text
    return f"{text[: SHOWN // 2]} … {text[-SHOWN // 2 :]} [{root.count()} operations]"


def _call(e: Expr, inner: Sequence[str]) -> str:
    if not e.args:
        return f"x{e.value}" if e.fn == "arg" else literal(e.value)
    return f"{e.fn}({', '.join([*inner, e.value] if e.fn == 'cast' else inner)})"


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
    return f"{e.fn}(" if e.args else _call(e, ())
