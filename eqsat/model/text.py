"""Printing of attributes and programs in the `.eqs` notation (read back by `lang.programs`)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eqsat.model.attr import Attr, listed
from eqsat.model.control import Control
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.tensor import TensorType

if TYPE_CHECKING:
    from eqsat.model.program import Program


def op_text(op: str, attr: Attr, operands: Sequence[TensorType]) -> str:
    """An op by what it does to operands of these types: `transpose(f32[4, 8], perm=[1, 0])`."""
    words = [*map(str, operands), attr.text(op)]
    return f"{op}({', '.join(filter(None, words))})"


def _bodies(name: str, a: Control) -> tuple[list[str], str]:
    """The lines that define the bodies of a value, and the keywords that name them."""
    names = [f"{name}/{label}" for label in a.labels]
    lines: list[str] = []
    for body, program in zip(names, a.bodies, strict=True):
        inner = program_text(program).splitlines()[1:]
        lines += [f"body {body}", *(f"  {line}" for line in inner), "end"]
    return lines, f"{a.keywords}, bodies={listed(map(json.dumps, names))}"


# names of leaves that a term can hold as they are, e.g. `x`, `params['w1']`, `layers[0].bias`
_PLAIN = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*|\[(?:\d+|'[\w ]*'|\"[\w ]*\")\])*")


_WORD = re.compile(r"[^\s#'\"]+")


def _word(text: str) -> str:
    """One word as it is, anything else as a JSON string."""
    return text if _WORD.fullmatch(text) else json.dumps(text)


def _leaf(i: int, op: str, leaf: Leaf, argument: int, taken: set[str]) -> tuple[str, str]:
    """The line of a leaf and the name that terms use for it: `%3` if its own name will not do.

    The name of an input that arrives packed is that of the tensor, so terms that read what arrives
    say `%3`.
    """
    plain = _PLAIN.fullmatch(leaf.name) is not None and leaf.name not in taken
    keeps_name = plain and not isinstance(leaf.layout, Layout)
    name = leaf.name if keeps_name else f"%{i}"
    shown = leaf.name if plain else json.dumps(leaf.name)
    shown = name if keeps_name else f"{shown} as {name}"
    key = f" key={_word(leaf.key)}" if leaf.key else ""
    index = f" index={leaf.index}" if op == "input" and leaf.index != argument else ""
    layout = "" if leaf.layout is None else f" layout={layout_text(leaf.layout)}"
    return f"{op} {shown}: {leaf.plain}{key}{index}{layout}", name


def layout_text(layout: Layout | Encoding) -> str:
    """The op that makes a layout, without its operand: `pack(pos=[0], tiles=[16], …)`."""
    if isinstance(layout, Encoding):
        return f"set_encoding({layout.text('set_encoding')})"
    if not layout.tiles:
        return f"transpose(perm={listed(layout.outer)})"
    return f"pack({layout.text('pack')})"


_NUMBER = re.compile(r"%(\d+)(?![.@~]?\w)")


def with_names(program: Program, text: str) -> str:
    """A sentence about nodes of a program, `%3`, with the names of their values instead."""
    count = len(program.nodes)

    def name(match: re.Match[str]) -> str:
        i = int(match[1])
        return program.value_name(i) if i < count else match[0]

    return _NUMBER.sub(name, text)


def program_text(program: Program) -> str:
    """One line per node; leaves by their names, other values as `%h.matmul`, or `%3` without one.

    The bodies of a loop or branch stand in front of it, each from `body` to `end`.
    """
    names: dict[int, str] = {}
    lines = [f"program {_word(program.name)}", *map(str, program.symbols)]
    arguments = 0
    taken: set[str] = set()
    for i, n in enumerate(program.nodes):
        if isinstance(n.attr, Leaf):
            line, names[i] = _leaf(i, n.op, n.attr, arguments, taken)
            taken.add(names[i])
            lines.append(line)
            arguments += n.op == "input"
            continue
        names[i] = program.value_name(i)
        inner = [names[o] for o in n.operands]
        if isinstance(n.attr, Control):
            bodies, text = _bodies(names[i], n.attr)
            lines += bodies
        else:
            text = n.attr.text(n.op)
        types = ", ".join(map(str, n.types))
        lines.append(
            f"{names[i]} = {n.op}({', '.join([*inner, text] if text else inner)}) : {types}"
        )
    lines.append("return " + ", ".join(names[r] for r in program.results))
    return "\n".join(lines) + "\n"
