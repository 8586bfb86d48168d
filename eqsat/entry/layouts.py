"""The layouts of a value that an e-graph has, by the words in which users write them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eqsat.lang.borders import read_layout
from eqsat.model.classnames import AT
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.egraph import ENode
from eqsat.model.layout import ROW_MAJOR, Layout
from eqsat.model.movement import Transpose
from eqsat.model.tensor import TensorType
from eqsat.report.origins import Names

_TILES = re.compile(r"\d+(?:x\d+)*")
_TYPE = re.compile(r"\w+\[[\d, ]*\]")
FORMS = (
    f"write `{ROW_MAJOR}`, the tiles (`16x16`), `pack(pos=[0, 1], tiles=[16, 16])`,"
    " `transpose(perm=[1, 0])`, a layout (`@16x16.p1.0`) or type as `eqsat explain` prints it"
)
Known = dict[int, list[Layout]]  # class → how it holds a value


def layouts_of(names: Names, eclass: int) -> Known:
    """The classes that hold the data of a class in another layout, without the class itself."""
    egraph, same = names.egraph, names.logical[eclass]
    found: Known = {eclass: []}
    for n in egraph.nodes:
        if names.logical[n.eclass] != same:
            continue
        held = _held(n)
        if held is None:
            continue
        plain, packed, layout = held
        if (
            egraph.types[plain] == egraph.types[eclass]
            and names.buffer[plain] == (names.buffer[eclass])
        ):
            listed = found.setdefault(packed, [])
            listed += [layout] if layout not in listed and packed != eclass else []
    return found


def _held(n: ENode) -> tuple[int, int, Layout] | None:
    """(plain class, packed class, how) of a node that lays a value out."""
    if n.op == "transpose" and isinstance(n.attr, Transpose):
        return n.children[0], n.eclass, Layout(n.attr.source, (), (), n.attr.perm, ())
    if not isinstance(n.attr, Layout) or n.op not in ("pack", "unpack"):
        return None
    ends = (n.children[0], n.eclass) if n.op == "pack" else (n.eclass, n.children[0])
    return (*ends, n.attr)


def ways_text(layouts: Sequence[Layout]) -> str:
    """`pack(pos=[0, 1], …) or transpose(…)`; `row-major` for the program's own."""
    return " or ".join(map(_one, layouts)) or ROW_MAJOR


def _one(layout: Layout) -> str:
    if not layout.tiles:
        return f"transpose(perm={list(layout.outer)})"
    return f"pack({layout.text('pack')})"


def wanted(text: str, of: TensorType, names: Names, known: Known) -> list[int]:
    """Classes that hold a value in the layout that a text names; EqsatError E394 if none."""
    plain = next(iter(known))
    if text == ROW_MAJOR:
        return [plain]
    if _TILES.fullmatch(text):
        tiles = tuple(map(int, text.split("x")))
        return [c for c, layouts in known.items() if any(x.tiles == tiles for x in layouts)]
    if _TYPE.fullmatch(text):
        same = names.logical[plain]
        shape = text.replace(" ", "")
        every = [c for c, v in enumerate(names.logical) if v == same]
        return [c for c in every if names.type_of(c).replace(" ", "") == shape]
    said = text.removeprefix("%").rpartition(AT)[2]
    called = [c for c in known if names.of(c).removeprefix("%").partition(AT)[2] == said]
    if called:
        return called
    if "(" not in text:
        words = did_you_mean(text, [ROW_MAJOR])
        raise fail("E394", f"`--force {text}` names no layout", help=f"{words}; {FORMS}")
    layout = read_layout(text, of, "--force")
    return [c for c, layouts in known.items() if layout in layouts]
