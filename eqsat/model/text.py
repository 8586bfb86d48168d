"""Printing of attributes and programs in the `.eqs` notation (read back by `lang.programs`)."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

from eqsat.model.affine import Map
from eqsat.model.attr import Attr
from eqsat.model.control import COND, SCAN, Control
from eqsat.model.devices import Transfer
from eqsat.model.expr import literal
from eqsat.model.foreign import Custom, Opaque
from eqsat.model.generic import Generic, Result
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.precision import DEFAULT, NONE

if TYPE_CHECKING:
    from eqsat.model.program import Program


def _ints(values: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


def _map(m: Map) -> str:
    return "[" + ", ".join(map(str, m)) + "]"


def _pads(pads: tuple[str, ...]) -> str:
    words = ["none" if p == "-" else "any" if p == "?" else p for p in pads]
    padded = {w for w in words if w != "none"}
    if not padded:
        return ""
    return f", pad={padded.pop()}" if len(padded) == 1 else f", pad=[{', '.join(words)}]"


def _generic(g: Generic) -> str:
    parts = [f"loops={_ints(g.sizes)}"]
    parts.append("maps=[" + ", ".join(_map(m) for m in g.maps) + "]")
    bodies = [str(y.body) for y in g.yields]
    parts.append("body=" + (bodies[0] if len(bodies) == 1 else f"[{', '.join(bodies)}]"))
    if g.combine:
        combines = [y.combine for y in g.yields]
        parts.append(
            "combine=" + (combines[0] if len(combines) == 1 else f"[{', '.join(combines)}]")
        )
    if g.tile:
        parts.append(f"tile={_ints(g.tile)}")
    if g.precision not in (NONE, DEFAULT):
        parts.append(f"precision={g.precision}")
    if g.order:
        parts.append(f"order={_ints(g.order)}")
    return ", ".join(parts)


def _layout(a: Layout) -> str:
    return f"pos={_ints(a.pos)}, tiles={_ints(a.tiles)}, outer={_ints(a.outer)}{_pads(a.pads)}"


def _move(a: Move) -> str:
    if a.op == "pad":
        return f"low={_ints(a.args[0])}, high={_ints(a.args[1])}, value={a.args[2]}"
    if a.op == "slice":
        return f"start={_ints(a.args[0])}, limit={_ints(a.args[1])}, stride={_ints(a.args[2])}"
    return f"axis={a.args[0]}"


def _encoding(a: Encoding) -> str:
    names = ", ".join(f'"{d}"' for d in a.dtypes)
    text = f'role="{a.role}", contraction="{a.contraction}", dtypes=[{names}]'
    if a.maps:
        maps = ", ".join(map(_map, a.maps))
        text += f", loops={_ints(a.sizes)}, maps=[{maps}]"
    return text + (f", dims={_ints(a.dims)}" if a.dims else "")


def _value(value: int | float | str | tuple[int, ...]) -> str:
    """A value of a plug-in's op."""
    if isinstance(value, tuple):
        return _ints(value)
    return json.dumps(value) if isinstance(value, str) else literal(value)


def attr_text(op: str, attr: Attr) -> str:
    """The keywords of an op, e.g. `perm=[1, 0]`; empty for leaves."""
    match attr:
        case Generic():
            return _generic(attr)
        case Transpose():
            order = f", order={_ints(attr.order)}" if attr.order else ""
            return f"perm={_ints(attr.perm)}{order}"
        case Reshape():
            return f"shape={_ints(attr.shape)}"
        case Layout():
            shape = f", shape={_ints(attr.source)}" if op != "pack" else ""
            return _layout(attr) + shape
        case Move():
            return _move(attr)
        case Encoding():
            return _encoding(attr)
        case Transfer():
            return f"origin={json.dumps(attr.origin)}, device={json.dumps(attr.device)}"
        case Fill():
            return f"value={literal(attr.value)}"
        case Opaque() | Control():
            return _keyed(attr)
        case Result():
            return f"index={attr.index}"
        case Custom():
            return ", ".join(f"{key}={_value(value)}" for key, value in attr.values)
    return ""


def _keyed(a: Opaque | Control) -> str:
    """What the op is, and a key that stands for the rest of it."""
    if isinstance(a, Opaque):
        return f'primitive="{a.primitive}", key="{a.key}"'
    return f'{_control(a)}, key="{_digest(a)}"'


def _control(a: Control) -> str:
    """The keywords of a loop or branch, without its bodies."""
    parts = [f"consts={a.consts}"]
    parts += [f"carries={a.carries}"] if a.op != COND else []
    parts += [f"length={a.length}"] if a.op == SCAN else []
    return ", ".join([*parts, "reverse=true"] if a.reverse else parts)


def _digest(a: Control) -> str:
    """What the bodies are, in a word: loops with equal ones are equal."""
    texts = "".join(program_text(p) for p in a.bodies)
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def _bodies(i: int, a: Control) -> tuple[list[str], str]:
    """The lines that define the bodies of node i, and the keywords that name them."""
    names = [f"%{i}/{label}" for label in a.labels]
    lines: list[str] = []
    for name, program in zip(names, a.bodies, strict=True):
        inner = program_text(program).splitlines()[1:]
        lines += [f"body {name}", *(f"  {line}" for line in inner), "end"]
    return lines, f"{_control(a)}, bodies=[{', '.join(map(json.dumps, names))}]"


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
    own = plain and not isinstance(leaf.layout, Layout)
    name = leaf.name if own else f"%{i}"
    shown = leaf.name if plain else json.dumps(leaf.name)
    shown = name if own else f"{shown} as {name}"
    key = f" key={_word(leaf.key)}" if leaf.key else ""
    index = f" index={leaf.index}" if op == "input" and leaf.index != argument else ""
    layout = "" if leaf.layout is None else f" layout={layout_text(leaf.layout)}"
    return f"{op} {shown}: {leaf.plain}{key}{index}{layout}", name


def layout_text(layout: Layout | Encoding) -> str:
    """The op that lays a tensor out so, without its operand: `pack(pos=[0], tiles=[16], …)`."""
    if isinstance(layout, Encoding):
        return f"set_encoding({_encoding(layout)})"
    if not layout.tiles:
        return f"transpose(perm={_ints(layout.outer)})"
    return f"pack({_layout(layout)})"


def program_text(program: Program) -> str:
    """One line per node; leaves by their names, other values as `%3`.

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
        names[i] = f"%{i}"
        inner = [names[o] for o in n.operands]
        text = "" if isinstance(n.attr, Control) else attr_text(n.op, n.attr)
        if isinstance(n.attr, Control):
            bodies, text = _bodies(i, n.attr)
            lines += bodies
        types = ", ".join(map(str, n.types))
        lines.append(f"%{i} = {n.op}({', '.join([*inner, text] if text else inner)}) : {types}")
    lines.append("return " + ", ".join(names[r] for r in program.results))
    return "\n".join(lines) + "\n"
