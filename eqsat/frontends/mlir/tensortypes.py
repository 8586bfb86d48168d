"""Tensor types of MLIR beside the element type: open sizes, and encodings.

Of the `?` of a function's arguments: which are equal, which are known, which are symbols. Of an
`#iree_encoding.encoding`: which operand of which contraction a tensor is; of a
`#iree_encoding.padding`: how much longer its rows are in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.frontends.mlir.expressions import affine_of
from eqsat.frontends.mlir.items import (
    Environment,
    Item,
    element_type,
    is_index,
    ranked_type,
    segments,
)
from eqsat.frontends.mlir.parser import parse_attribute
from eqsat.model.affine import Map, dim
from eqsat.model.attr import Shape
from eqsat.model.extents import is_symbolic
from eqsat.model.layout import ROLES, ROWS, Encoding, Held, padded_layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Program
from eqsat.model.symbols import DEFAULT_SIZE, Symbol, check_names, sized
from eqsat.model.tensor import TensorType

Size = int  # ≥ 0 known, < 0 the class of an unknown one
_SAME = (
    "iree_encoding.set_encoding", "iree_encoding.unset_encoding", "tensor.cast",
    "flow.tensor.transfer", "hal.tensor.export", "flow.tensor.tie_shape",
)  # fmt: skip


@dataclass
class SizeClasses:
    """Sizes of every value of a function, unknown ones united where an op makes them equal."""

    scope: Environment
    shapes: dict[Any, list[Size]] = field(default_factory=dict)
    indices: dict[Any, Size] = field(default_factory=dict)
    parents: dict[Size, Size] = field(default_factory=dict)

    def fresh(self) -> Size:
        number = -1 - len(self.parents)
        self.parents[number] = number
        return number

    def find(self, s: Size) -> Size:
        while s < 0 and self.parents[s] != s:
            s = self.parents[s]
        return s

    def unite(self, a: Size, b: Size) -> None:
        """Both are one; two known sizes that differ are left for the reader to refuse."""
        a, b = self.find(a), self.find(b)
        if a < 0:
            self.parents[a] = b
        elif b < 0:
            self.parents[b] = a

    def of(self, value: Any) -> list[Size]:
        """The sizes of a value, new where its type does not know them."""
        if value not in self.shapes:
            dims, _ = ranked_type(value.type, None)
            self.shapes[value] = [self.fresh() if d is None else d for d in dims]
        return self.shapes[value]

    def same(self, a: Any, b: Any) -> None:
        for x, y in zip(self.of(a), self.of(b), strict=False):
            self.unite(x, y)

    def read(self, block: Any) -> None:
        """Every operation of a function's block."""
        for o in block.operations:
            self._op(o.operation)

    def _op(self, op: Any) -> None:
        rule = _RULES.get(op.name)
        if rule is not None:
            rule(self, op)
        elif op.name in _SAME:
            self.same(op.operands[0], op.results[0])
        elif op.name.startswith(("arith.", "math.")) and len(op.results) == 1:
            for value in op.operands:
                if "tensor<" in str(value.type):
                    self.same(value, op.results[0])

    def index(self, value: Any) -> Size:
        if value not in self.indices:
            self.indices[value] = self.fresh()
        return self.indices[value]


def _constant(sizes: SizeClasses, op: Any) -> None:
    if is_index(op.results[0].type):
        sizes.indices[op.results[0]] = max(int(op.attributes["value"].value), 0)


def _dim(sizes: SizeClasses, op: Any) -> None:
    source, at = op.operands
    shape, where = sizes.of(source), sizes.indices.get(at, -1)
    if 0 <= where < len(shape):
        sizes.indices[op.results[0]] = shape[where]


def _empty(sizes: SizeClasses, op: Any) -> None:
    dynamic = iter(op.operands)
    dims, _ = ranked_type(op.results[0].type, None)
    sizes.shapes[op.results[0]] = [sizes.index(next(dynamic)) if d is None else d for d in dims]


def _generic(sizes: SizeClasses, op: Any) -> None:
    inputs, outputs = segments(op)
    loops: dict[int, Size] = {}
    for value, attribute in zip((*inputs, *outputs), op.attributes["indexing_maps"], strict=False):
        amap = attribute.value
        dims = [dim(i) for i in range(amap.n_dims)]
        for e, size in zip(amap.results, sizes.of(value), strict=False):
            index = affine_of(e, dims)
            if index is not None and index.dim is not None:
                sizes.unite(loops.setdefault(index.dim, size), size)
    for value, result in zip(outputs, op.results, strict=False):
        sizes.same(value, result)


_RULES: Mapping[str, Callable[[SizeClasses, Any], None]] = {
    "arith.constant": _constant,
    "tensor.dim": _dim,
    "tensor.empty": _empty,
    "linalg.generic": _generic,
}


def argument_sizes(
    scope: Environment, block: Any, names: Sequence[str], asked: Mapping[str, int] | None
) -> tuple[list[tuple[int, ...]], tuple[Symbol, ...]]:
    """The shape of every argument, and a symbol for every size that nothing decides.

    A symbol is named after the first dim that has it, `NAME_DIM`. EqsatError E385, E386.
    """
    sizes = SizeClasses(scope)
    given = [sizes.of(a) for a in block.arguments]
    if not any(s < 0 for shape in given for s in shape):
        check_names(asked, ())
        return [tuple(shape) for shape in given], ()
    sizes.read(block)
    symbols: dict[Size, Symbol] = {}
    shapes = []
    for name, shape in zip(names, given, strict=True):
        extents = []
        for d, size in enumerate(shape):
            s = sizes.find(size)
            if s < 0 and s not in symbols:
                symbols[s] = sized(f"{name}_{d}", 1, DEFAULT_SIZE, asked)
            extents.append(symbols[s].extent if s < 0 else s)
        shapes.append(tuple(extents))
    check_names(asked, symbols.values())
    return shapes, tuple(symbols.values())


_FIELD = re.compile(r"(\w+)\s*=\s*")
_SIZES = re.compile(r"iteration_sizes\s*=\s*\[([^\]]*)\]")
_TYPES = re.compile(r"element_types\s*=\s*\[([^\]]*)\]")
_OP = re.compile(r"op_type\s*=\s*(\w+)")
_PADDING = re.compile(r"#iree_encoding\.(?:layout<\[#iree_encoding\.)?padding<\[([^\]]*)\]>")
_INDEX = re.compile(r"operand_index\s*=\s*(\d+)")


def set_encoding(scope: Environment, op: Any) -> list[Item]:
    """The encoding is in the type of the result."""
    return _encoded(scope, op, "set_encoding", op.results[0])


def unset_encoding(scope: Environment, op: Any) -> list[Item]:
    """The encoding is in the type of the operand."""
    return _encoded(scope, op, "unset_encoding", op.operands[0])


def _encoded(scope: Environment, op: Any, name: str, typed: Any) -> list[Item]:
    """A tensor in longer rows is the plain one that is unpacked from it, for all that reads it."""
    x = scope.tensor(op.operands[0], op)
    held = encoding_of(scope, op, typed.type, x.shape)
    is_asked = isinstance(held, Encoding)
    if held is None or (name == "unset_encoding" and (not is_asked or held.role == ROWS)):
        return [x]
    node = scope.ctx.materialise(x)
    if isinstance(held, Encoding):
        return [scope.ctx.add(name, (node,), held)]
    packed = scope.ctx.add("pack", (node,), held)
    return [scope.ctx.add("unpack", (scope.ctx.materialise(packed),), held)]


def border_encoding(scope: Environment, op: Any, type_: Any, shape: Shape) -> Held | None:
    """The encoding or longer rows of an argument or result of this type; None if it is plain.

    EqsatError E379 for another layout of IREE's.
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


def encoding_of(scope: Environment, op: Any, type_: Any, shape: Shape) -> Held | None:
    """The encoding of a tensor type for a tensor of this shape, or its layout in longer rows.

    None: no row is longer. EqsatError E379.
    """
    attribute = type_.encoding
    text = str(attribute)
    padding = _PADDING.match(text)
    if padding is not None:
        words = [w.strip() for w in padding[1].split(",") if w.strip()]
        return _longer_rows(scope, op, words, TensorType(ranked_type(type_, None)[1], shape))
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


def _longer_rows(scope: Environment, op: Any, words: list[str], t: TensorType) -> Held | None:
    """What `padding<[…]>` says: elements behind each dim, `?` for what the target asks for."""
    text = f"padding<[{', '.join(words)}]>"
    if len(words) != t.rank:
        why = f"`{text}` pads {len(words)} dims of a tensor that has {t.rank}"
        raise scope.fail("E379", why, op, help="write one number per dim, 0 for none")
    if words[-1:] == ["?"] and {*words[:-1]} <= {"0"}:
        return Encoding(t.shape, ROWS, "", (t.dtype,))
    if "?" in words:
        why = f"`{text}` leaves more open than the last dim, or pads others beside it"
        raise scope.fail("E379", why, op, help="write the numbers")
    padding = tuple(map(int, words))
    from_first = t.shape[next((d for d, p in enumerate(padding) if p), t.rank) :]
    if any(is_symbolic(s) or s == 0 for s in from_first):
        why = f"`{text}` pads a dim without a known size, or one in front of it"
        raise scope.fail("E379", why, op, help="give the dim a size, or pad dims behind it")
    return padded_layout(t.shape, padding) if from_first else None


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
