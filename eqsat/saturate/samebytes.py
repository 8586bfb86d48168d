"""Layouts of one value that are the same bytes: a reshape leads from one to the other.

Rules write a conversion that moves nothing as a reshape, but two conversions in a row may undo each
other as well: NCHW packed and packed again is NHWC. Every layout of a value is a list of digits of
the place that its elements have in one of them: conversions without padding permute digits, and
reshapes cut or join them. Equal lists are equal bytes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from eqsat.model.attr import Attr, Shape
from eqsat.model.egraph import EGraph, ENode, RuleStat
from eqsat.model.layout import Layout
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.sets import union_find
from eqsat.ops.movement.lists import inverse, undone

NAME = "same-bytes"
DOC = "layouts that are the same bytes are reshapes of each other"


class LayoutDigit(NamedTuple):
    """A part of a place: `size` values, `weight` places apart in the first layout."""

    size: int
    weight: int


Digits = tuple[LayoutDigit, ...]  # the slowest first


def with_same_bytes(egraph: EGraph) -> EGraph:
    """The e-graph with a reshape from one layout to each that is the same bytes.

    As it is where rules replaced nodes: what they took out of the search would be back.
    """
    if any(n.subsumed for n in egraph.nodes):
        return egraph
    groups = _groups(egraph)
    shapes = [(n.eclass, n.children[0]) for n in egraph.nodes if n.op == "reshape"]
    buffer = union_find(len(egraph.types), shapes)
    pairs: list[tuple[int, int]] = []
    for group in groups:
        first: dict[int, int] = {}  # buffer -> its first class
        # by shapes, as numbers would lead another way in another block
        for c in sorted(group, key=lambda c: (egraph.types[c][0].shape, c)):
            first.setdefault(buffer[c], c)
        one, *others = first.values()
        pairs += [(one, c) for c in others]
    if not pairs:
        return egraph
    reached = [any(not egraph.nodes[i].extra for i in c) for c in egraph.classes]
    nodes = tuple(
        ENode(
            "reshape",
            Reshape(egraph.types[a][0].shape, egraph.types[b][0].shape),
            (a,), b, len(egraph.rules), extra=not (reached[a] and reached[b]),
        )
        for a, b in pairs
    )  # fmt: skip
    stat = RuleStat(NAME, "", DOC, len(nodes), len(nodes), 0.0)
    return replace(egraph, nodes=egraph.nodes + nodes, rules=(*egraph.rules, stat))


def _groups(egraph: EGraph) -> Iterator[tuple[int, ...]]:
    """Classes of the same bytes, where there are several."""
    leads: dict[int, list[tuple[str, Attr, int]]] = defaultdict(list)
    for n in egraph.nodes:
        if _permutes(n.op, n.attr):
            (a,) = n.children
            leads[a].append((n.op, n.attr, n.eclass))
            leads[n.eclass].append((*_inverse(n.op, n.attr), a))
    grouped: set[int] = set()
    for start in range(len(egraph.types)):
        if start in grouped or start not in leads:
            continue
        digits_of = {start: _plain(egraph.types[start][0].shape)}
        waiting = [start]
        while waiting:
            at = waiting.pop()
            for op, attr, to in leads[at]:
                if (
                    to not in digits_of
                    and (digits := _applied(op, attr, digits_of[at])) is not None
                ):
                    digits_of[to] = digits
                    waiting.append(to)
        grouped.update(digits_of)
        alike: dict[Digits, list[int]] = defaultdict(list)
        for c in sorted(digits_of):
            alike[_joined(digits_of[c])].append(c)
        yield from (tuple(same) for same in alike.values() if len(same) > 1)


def _permutes(op: str, attr: Attr) -> bool:
    """Whether an op only puts the elements of its operand into another order, of known sizes."""
    if op not in ("reshape", "transpose", "pack", "unpack"):
        return False
    operands, shape = attr.operand_shapes(op), attr.value_shape(op)
    assert operands is not None
    assert shape is not None
    sizes = (*operands[0], *shape)
    is_whole = not isinstance(attr, Layout) or not attr.is_padded
    return is_whole and all(type(s) is int and s > 0 for s in sizes)


def _inverse(op: str, attr: Attr) -> tuple[str, Attr]:
    if isinstance(attr, Reshape):
        return op, undone(attr)
    if isinstance(attr, Transpose):
        return op, Transpose(attr.result_shape, inverse(attr.perm))
    return "unpack" if op == "pack" else "pack", attr


def _plain(shape: Shape) -> Digits:
    """Of a layout whose elements lie in their order."""
    return (LayoutDigit(math.prod(shape), 1),)


def _applied(op: str, attr: Attr, digits: Digits) -> Digits | None:
    """The digits of a result; None if one of them would be cut where it cannot be."""
    if isinstance(attr, Transpose):
        shape, perm = attr.source, attr.perm
    elif isinstance(attr, Layout) and op == "pack":
        shape, perm = attr.blocked(attr.source)
    elif isinstance(attr, Layout):
        shape, perm = attr.packed_shape, attr.unblocked(attr.packed_shape)[0]
    else:
        return digits
    dims = _cut(digits, shape)
    return None if dims is None else tuple(d for p in perm for d in dims[p])


def _cut(digits: Digits, shape: Sequence[int]) -> list[list[LayoutDigit]] | None:
    """Per dim of this shape its digits."""
    left, dims = list(reversed(digits)), list[list[LayoutDigit]]()
    for size in shape:
        dim, wanted = list[LayoutDigit](), size
        while wanted > 1:
            d = left.pop()
            part = math.gcd(d.size, wanted)
            if part not in (d.size, wanted):
                return None
            rest = d.size // part
            dim.append(LayoutDigit(part, d.weight * rest))
            if rest > 1:
                left.append(LayoutDigit(rest, d.weight))
            wanted //= part
        dims.append(dim)
    return dims


def _joined(digits: Digits) -> Digits:
    """With digits joined that lie side by side, as they are in every other list of the same."""
    joined: list[LayoutDigit] = []
    for d in digits:
        if joined and joined[-1].weight == d.size * d.weight:
            joined[-1] = LayoutDigit(joined[-1].size * d.size, d.weight)
        elif d.size > 1:
            joined.append(d)
    return tuple(joined)
