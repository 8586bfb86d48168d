"""A state that a program reads and hands on: kept in another layout between one call and the next.

A cache of keys and values is an argument and a result. Packed for the matmuls that read it, it
would be unpacked at the end of every call and packed again at the begin of the next, if the caller
insists on plain arrays; if it stays packed, both are paid once, at the very begin and end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eqsat.model.egraph import EGraph
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.program import Builder, Program
from eqsat.ops.lists import inverse


@dataclass(frozen=True)
class State:
    """Input number `input` of a call is result number `result` of the call before."""

    input: int
    result: int


def demanded(egraph: EGraph) -> dict[int, tuple[Layout, ...]]:
    """Per input number: the layouts that some op of the e-graph wants it in, without padding.

    A layout without tiles is a permutation of the dims.
    """
    leaves = ((n.eclass, n.attr) for n in egraph.nodes if n.op == "input")
    inputs = {c: leaf.index for c, leaf in leaves if isinstance(leaf, Leaf)}
    found: dict[int, dict[Layout, None]] = {}
    for n in egraph.nodes:
        at = inputs.get(n.children[0]) if len(n.children) == 1 else None
        layout = _layout(n.attr) if at is not None and n.op in ("pack", "transpose") else None
        if at is not None and layout is not None and not layout.is_padded:
            found.setdefault(at, {})[layout] = None
    return {at: tuple(layouts) for at, layouts in found.items()}


def _layout(attr: object) -> Layout | None:
    if isinstance(attr, Transpose):
        return Layout(attr.source, (), (), attr.perm, ())
    return attr if isinstance(attr, Layout) else None


def kept_in(program: Program, layouts: Mapping[State, Layout]) -> Program:
    """The same program, but these states come and go in these layouts; ShapeError if one is wrong.

    For every state x: f'(pack(x)) = pack(f(x)).
    """
    b = Builder(program.name)
    by_input = {program.inputs[s.input]: layout for s, layout in layouts.items()}
    new: dict[int, int] = {}
    for i, n in enumerate(program.nodes):
        if i in by_input:
            new[i] = _unpacked_leaf(b, n.attr, by_input[i])
        else:
            new[i] = b.append(n.op, tuple(new[o] for o in n.operands), n.attr)
    results = [new[r] for r in program.results]
    for s, layout in layouts.items():
        results[s.result] = _packed(b, results[s.result], layout)
    return b.build(results, program.symbols)


def _unpacked_leaf(b: Builder, leaf: object, layout: Layout) -> int:
    assert isinstance(leaf, Leaf)
    held = replace(leaf, type=leaf.type.with_shape(layout.packed_shape))
    node = b.append("input", (), held)
    if layout.tiles:
        return b.append("unpack", (node,), layout)
    return b.append("transpose", (node,), Transpose(layout.packed_shape, inverse(layout.outer)))


def _packed(b: Builder, node: int, layout: Layout) -> int:
    if layout.tiles:
        return b.append("pack", (node,), layout)
    return b.append("transpose", (node,), Transpose(layout.source, layout.outer))
