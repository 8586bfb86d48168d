"""Names of the classes of an e-graph: values of the program, and values that rules added.

A value of the program has its name. The same data in another layout or shape is `name@…`: `@16x16`
in tiles of 16 by 16 (of the last dims, `.p1.0` of others, `.o1.0` if the blocks lie in another
order, `.pad0` or `.padany` with lanes beyond the end), `@t1.0` transposed, `@r4x64` reshaped. A new
value is called after the nearest value that needs it, and its own op: `h.sum.matmul`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.model.attr import Attr
from eqsat.model.control import Control
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.ops import CONVERSIONS, VIEWS
from eqsat.model.origin import spoken, unique
from eqsat.model.program import word

if TYPE_CHECKING:
    from eqsat.model.egraph import EGraph, ENode

MOVED = CONVERSIONS | VIEWS - {"result"}  # the same data, laid out or seen otherwise
_SPEAKABLE = re.compile(r"\w[\w.@~-]*")
AT = "@"  # between a name and a layout
AGAIN = "~"  # between a name and a number, where the same value is computed once more


class ClassNames:
    """Names every class once, without the `%` that the text of a program puts in front."""

    def __init__(self, egraph: EGraph):
        self.egraph = egraph
        self.found: dict[int, str] = {}
        self.of: dict[int, str] = {}  # class → the value of the program it is called after
        self.taken: dict[str, int] = {}
        self._values()
        self._layouts(self.found)
        self._loops()
        self._new()

    @property
    def names(self) -> tuple[str, ...]:
        """Per class; one that leads to no value of the program is `new`."""
        for c in range(len(self.egraph.types)):
            if c not in self.found:
                self._give(c, "new", "new")
        return tuple(self.found[c] for c in range(len(self.egraph.types)))

    def _give(self, c: int, name: str, of: str, mark: str = "_") -> None:
        self.found[c] = free = unique(name, self.taken, mark)
        self.taken.setdefault(free, 1)
        self.of[c] = of

    def _values(self) -> None:
        for i, c in enumerate(self.egraph.values):
            if c not in self.found:
                name = self.egraph.value_name(i)
                self._give(c, name, name if _SPEAKABLE.fullmatch(name) else spoken(name) or "new")

    # ---- the same data -------------------------------------------------------------------------
    @cached_property
    def _moves(self) -> dict[int, list[tuple[int, str]]]:
        """Per class the classes that hold its data in another way, and how."""
        found: dict[int, list[tuple[int, str]]] = {}
        for n in self.egraph.nodes:
            if n.op in MOVED and len(n.children) == 1:
                (c,) = n.children
                found.setdefault(c, []).append((n.eclass, layout_name(n.op, n.attr)))
                found.setdefault(n.eclass, []).append((c, layout_name(n.op, n.attr, back=True)))
        return found

    def _layouts(self, known: Iterable[int]) -> list[int]:
        """Name what is one of these in another layout; all that now have names.

        By as few steps as there are, then by the shortest name.
        """
        named, last = list(known), list(known)
        while last:
            names: dict[int, tuple[int, str, str]] = {}
            for c in last:
                for other, how in self._moves.get(c, ()):
                    name = f"{self._plain(c)}{AT}{how}"
                    best = (len(name), name, self.of[c])
                    if other not in self.found and best < names.get(other, (1 << 30, "", "")):
                        names[other] = best
            last = sorted(names)
            for c in last:
                self._give(c, *names[c][1:])
            named += last
        return named

    def _plain(self, c: int) -> str:
        """The name of a class, as one that may stand in a text behind `%`."""
        name = self.found[c]
        return name if _SPEAKABLE.fullmatch(name) else self.of[c]

    # ---- new values ----------------------------------------------------------------------------
    def _loops(self) -> None:
        """A loop with other bodies is one more form of the loop it stands for."""
        nodes = self.egraph.nodes
        for n in nodes:
            if isinstance(n.attr, Control) and n.source >= 0 and n.eclass not in self.found:
                loop = nodes[n.source].eclass
                if loop in self.found:
                    self._give(n.eclass, self.found[loop], self.of[loop], AGAIN)

    def _new(self) -> None:
        """Name what values are made of, from them down, and the layouts of that."""
        waiting = deque(sorted(self.found))
        while waiting:
            c = waiting.popleft()
            for i in self.egraph.classes[c]:
                for child in self.egraph.nodes[i].children:
                    if child not in self.found:
                        self._give(child, f"{self.of[c]}.{self._word(child)}", self.of[c])
                        waiting += self._layouts([child])

    def _word(self, c: int) -> str:
        """What the first op of a class computes, or how it moves data if none does."""
        nodes = [self.egraph.nodes[i] for i in self.egraph.classes[c]]
        computing = [n for n in nodes if n.op not in MOVED]
        return _op(next(iter(computing or nodes)))


def _op(n: ENode) -> str:
    return spoken(n.attr.name) or n.op if isinstance(n.attr, Leaf) else word(n.op, n.attr)


def layout_name(op: str, attr: Attr, back: bool = False) -> str:
    """The layout that a movement op makes, in a word; back: the layout before it."""
    if isinstance(attr, Layout):
        lies_plain = (op == "unpack") != back
        return "plain" if lies_plain else _tiled(attr) + (".open" if op == "relax" else "")
    if isinstance(attr, Transpose):
        perm = attr.perm
        if back:
            perm = tuple(sorted(range(len(perm)), key=lambda d: perm[d]))
        return f"t{_numbers(perm)}"
    if isinstance(attr, Reshape):
        return f"r{'x'.join(map(str, attr.source if back else attr.shape))}".replace(" ", "")
    if isinstance(attr, Encoding):
        is_asked = (op == "set_encoding") != back
        return f"{attr.role}-of-{attr.contraction}" if is_asked else "plain"
    return op


def _tiled(layout: Layout) -> str:
    rank = len(layout.source)
    last = tuple(range(rank - len(layout.pos), rank))
    parts = ["x".join(map(str, layout.tiles))]
    parts += [] if layout.pos == last else [f"p{_numbers(layout.pos)}"]
    parts += [] if layout.is_outer_identity else [f"o{_numbers(layout.outer)}"]
    if layout.is_padded:
        pads = dict.fromkeys({"?": "any", "-": "none"}.get(p, p) for p in layout.pads)
        one = [p for p in pads if p != "none"]
        parts += [f"pad{p}" for p in (one if len(one) == 1 else pads)]
    return ".".join(p for p in parts if p)


def _numbers(some: Sequence[int]) -> str:
    return ".".join(map(str, some))
