"""`#iree_encoding.encoding` → `Encoding`: which operand of which contraction a tensor is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from eqsat.frontends.mlir.expressions import affine_of
from eqsat.frontends.mlir.items import Environment, Item, element_type
from eqsat.frontends.mlir.parser import parse_attribute
from eqsat.model.affine import Map, dim
from eqsat.model.attr import Shape
from eqsat.model.layout import ROLES, Encoding
from eqsat.model.leaves import Leaf
from eqsat.model.program import Program

_FIELD = re.compile(r"(\w+)\s*=\s*")
_SIZES = re.compile(r"iteration_sizes\s*=\s*\[([^\]]*)\]")
_TYPES = re.compile(r"element_types\s*=\s*\[([^\]]*)\]")
_OP = re.compile(r"op_type\s*=\s*(\w+)")
_INDEX = re.compile(r"operand_index\s*=\s*(\d+)")


def set_encoding(scope: Environment, op: Any) -> list[Item]:
    """The encoding is in the type of the result."""
    return _encoded(scope, op, "set_encoding", op.results[0])


def unset_encoding(scope: Environment, op: Any) -> list[Item]:
    """The encoding is in the type of the operand."""
    return _encoded(scope, op, "unset_encoding", op.operands[0])


def _encoded(scope: Environment, op: Any, name: str, typed: Any) -> list[Item]:
    x = scope.tensor(op.operands[0], op)
    encoding = encoding_of(scope, op, typed.type, x.shape)
    return [scope.ctx.add(name, (scope.ctx.materialise(x),), encoding)]


def border_encoding(scope: Environment, op: Any, type_: Any, shape: Shape) -> Encoding | None:
    """The encoding of an argument or result of this type; None if it is a plain tensor.

    EqsatError E379 for a layout of IREE's that is no request.
    """
    text = str(getattr(type_, "encoding", None) or "")
    if not text.startswith("#iree_encoding.") or text.startswith("#iree_encoding.identity"):
        return None
    return encoding_of(scope, op, type_, shape)


def encodings_of(program: Program) -> Iterator[Encoding]:
    """Every encoding that a program names."""
    for n in program.nodes:
        layout = n.attr.layout if isinstance(n.attr, Leaf) else n.attr
        if isinstance(layout, Encoding):
            yield layout


def encoding_of(scope: Environment, op: Any, type_: Any, shape: Shape) -> Encoding:
    """The encoding of a tensor type for a tensor of this shape; EqsatError E379."""
    attribute = type_.encoding
    text = str(attribute)
    if attribute is None or not text.startswith("#iree_encoding.encoding<"):
        why = f"`{text[:60]}` is no encoding that says what the tensor is for"
        raise scope.fail("E379", why, op, help="write `#iree_encoding.encoding<operand_index = …>`")
    kind, index = _OP.search(text), _INDEX.search(text)
    number = int(index[1]) if index else 0
    if kind is None or kind[1] not in ("matmul", "conv") or number >= len(ROLES):
        why = f"an encoding of operand {number} of `{kind[1] if kind else '?'}` has no meaning here"
        raise scope.fail("E379", why, op, help="encodings of matmul and conv are read")
    types = tuple(element_type(t, scope.where(op)) for t in _TYPES.findall(text)[0].split(","))
    maps, dims = _maps(scope, op, text, number)
    sizes = _sizes(text, maps, dims, number, shape)
    loops = scope.contractions.get(maps_text(text), ())
    if len(loops) == len(sizes):
        sizes = tuple(s or f for s, f in zip(sizes, loops, strict=True))
    contraction = "matmul" if kind[1] == "matmul" else "conv2d"
    return Encoding(shape, ROLES[number], contraction, types, sizes, maps, dims)


def _maps(
    scope: Environment, op: Any, text: str, number: int
) -> tuple[tuple[Map, ...], tuple[int, ...]]:
    """The maps of lhs, rhs and result, and the dims of the operand this tensor holds."""
    listed = maps_text(text)
    if not listed:
        return (), ()
    maps, dims = [], ()
    for i, entry in enumerate(parse_attribute(op, listed)):
        chain = [a.value for a in entry] if str(entry).startswith("[") else [entry.value]
        maps.append(_map(scope, op, chain[0]))
        if i == number:
            dims = _held(scope, op, chain[1:], len(chain[0].results))
    if len(maps) != len(ROLES):
        raise scope.fail("E379", f"an encoding has {len(maps)} maps; a contraction has three", op)
    return tuple(maps), dims


def maps_text(text: str) -> str:
    """The list of maps of an encoding as it is written, "" if it has none."""
    start = text.find("user_indexing_maps")
    return _bracketed(text, text.index("[", start)) if start >= 0 else ""


def note_contraction(scope: Environment, op: Any, sizes: Sequence[int]) -> None:
    """Remember the loops of a contraction whose operands are encoded."""
    for value in op.operands:
        text = str(value.type)
        if "#iree_encoding.encoding<" in text:
            loops = tuple(sizes)
            held = scope.contractions.setdefault(maps_text(text), loops)
            if held != loops:
                scope.contractions[maps_text(text)] = ()


def _bracketed(text: str, start: int) -> str:
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "[") - (text[at] == "]")
        if depth == 0:
            return text[start : at + 1]
    return text[start:]


def _map(scope: Environment, op: Any, amap: Any) -> Map:
    loops = [dim(i) for i in range(amap.n_dims)]
    exprs = [affine_of(e, loops) for e in amap.results]
    if None in exprs:
        raise scope.fail("E379", f"`{amap}` of an encoding is no sum of multiples of loops", op)
    return tuple(e for e in exprs if e is not None)


def _held(scope: Environment, op: Any, chain: list[Any], rank: int) -> tuple[int, ...]:
    """Per dim of the tensor, the operand's dim it holds: the maps after the first, composed."""
    dims = tuple(range(rank))
    for amap in chain:
        step = [e.dim for e in _map(scope, op, amap)]
        if any(d is not None and d >= len(dims) for d in step):
            raise scope.fail("E379", f"`{amap}` of an encoding does not fit the one before", op)
        dims = tuple(-1 if d is None else dims[d] for d in step)
    return dims if chain else ()


def _sizes(
    text: str, maps: tuple[Map, ...], dims: tuple[int, ...], number: int, shape: Shape
) -> Shape:
    """Extents of the contraction's loops: those written, and those the tensor itself has."""
    loops = {d for m in maps for e in m for d, _ in e.terms}
    written = _SIZES.search(text)
    words = [w.strip() for w in written[1].split(",") if w.strip()] if written else []
    sizes = [int(w) if w.isdigit() else 0 for w in words] or [0] * (max(loops, default=-1) + 1)
    exprs = maps[number] if maps else ()
    for size, d in zip(shape, dims or range(len(exprs)), strict=False):
        loop = exprs[d].dim if 0 <= d < len(exprs) else None
        if loop is not None and loop < len(sizes) and sizes[loop] == 0:
            sizes[loop] = size
    return tuple(sizes)


ENCODINGS = {
    "iree_encoding.set_encoding": set_encoding,
    "iree_encoding.unset_encoding": unset_encoding,
}
