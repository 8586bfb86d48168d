"""Tensors in longer rows: IREE's padding encodings, in place of packs by one open block."""

from __future__ import annotations

from eqsat.export.mlir import syntax
from eqsat.export.mlir.syntax import Value, Writer
from eqsat.model.affine import Map
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.program import Node, Program
from eqsat.model.tensor import TensorType
from eqsat.ops.targets.rows import longer_rows_of


def encoded_nodes(program: Program) -> dict[int, Layout]:
    """Packs, arguments and results in longer rows, if nothing reads what is behind a row."""
    readers: dict[int, set[int]] = {}
    for r, n in enumerate(program.nodes):
        for o in n.operands:
            readers.setdefault(o, set()).add(r)
    encoded: dict[int, Layout] = {}
    for i in reversed(range(len(program.nodes))):
        layout = longer_rows_of(program.nodes[i])
        if layout is not None:
            nodes = {r: program.nodes[r] for r in readers.get(i, ())}
            relaxed = {r for r, n in nodes.items() if n.op == "relax" and r in encoded}
            if all(r in relaxed or _reads_rows(n, i, layout) for r, n in nodes.items()):
                encoded[i] = layout
    return encoded


def _reads_rows(n: Node, o: int, layout: Layout) -> bool:
    """Whether a node reads the plain tensor of operand o."""
    if not isinstance(n.attr, Generic):
        return n.op == "unpack" and n.attr == layout
    read = (m for x, m in zip(n.operands, n.attr.maps, strict=True) if x == o)
    return all(plain_map(layout, m, n.attr) is not None for m in read)


def encoded_type(layout: Layout, t: TensorType) -> str:
    """`tensor<512x4096xf16, #iree_encoding.padding<[0, 64]>>`."""
    plain = syntax.tensor(t.with_shape(layout.source))
    return f"{plain[:-1]}, #iree_encoding.padding<{syntax.ints(layout.row_padding)}>>"


def type_text(w: Writer, x: Value) -> str:
    """The type of a value, with its encoding if it has one."""
    layout = w.rows.get(x.name)
    return syntax.tensor(x.type) if layout is None else encoded_type(layout, x.type)


def write_encoded(w: Writer, layout: Layout, x: Value, name: str) -> str:
    """The plain tensor x in longer rows."""
    types = f"{syntax.tensor(x.type)} -> {encoded_type(layout, x.type)}"
    w.rows[name] = layout
    return w.op(f"iree_encoding.set_encoding {x.name} : {types}", name)


def write_plain(w: Writer, x: Value, name: str = "") -> Value:
    """The plain tensor of x, which is encoded."""
    layout = w.rows[x.name]
    t = x.type.with_shape(layout.source)
    types = f"{encoded_type(layout, t)} -> {syntax.tensor(t)}"
    return Value(w.op(f"iree_encoding.unset_encoding {x.name} : {types}", name), t)


def plain_map(layout: Layout, m: Map, g: Generic) -> Map | None:
    """How a generic reads the plain tensor; None if it reads blocks of it."""
    first, count = len(layout.source) - len(layout.pos), len(layout.pos)
    blocks, inside = m[first : first + count], m[first + count :]
    ends = [e.constant + sum(s * (g.sizes[d] - 1) for d, s in e.terms) for e in inside]
    is_within = all(e < s for e, s in zip(ends, layout.source[first:], strict=True))
    at_first = all(not e.terms and not e.constant for e in blocks)
    return (*m[:first], *inside) if is_within and at_first else None
