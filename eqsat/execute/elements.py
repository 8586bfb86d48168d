"""Single elements of an op's result → the elements of its operands that they are made of.

What comes in are an op and flat indices into its result. What goes out is, for movement, where each
element was moved from; for a loop nest, the same nest over these elements alone. Only what ops mean
is asked: nothing of nests, plans or kernels.

Open elements are those that may hold anything: padding `?`, and what reads it. They follow from the
program alone; verification leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eqsat.execute.reference import PER_ELEMENT
from eqsat.model.affine import Map, dim, map_loops
from eqsat.model.attr import Attr, Shape
from eqsat.model.control import Control
from eqsat.model.generic import Generic, Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom, Leaf
from eqsat.model.movement import Move, Transpose
from eqsat.model.program import Node, Program
from eqsat.ops.builtin.layouts import pack, unpack
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import evaluate_node
from eqsat.ops.meaning.structured import product_factors, strided_view
from eqsat.ops.registry import dependent_lanes

Array = np.ndarray[Any, Any]
MOST_READ = 2**22  # elements that one narrowed nest reads of an operand, if it can be cut


# ---- movement ------------------------------------------------------------------------------------
class MovedFrom(NamedTuple):
    """parts: (operand, which elements come from it, where they lie in it). fills: (which elements,
    the text of what they hold instead); the last that names an element decides."""

    parts: list[tuple[int, Array, Array]]
    fills: list[tuple[Array, str]]


def moved(node: Node, flat: Array) -> MovedFrom | None:
    """Where these elements of a movement come from; None of an op that is none, and of a gather."""
    find = _MOVED.get(node.op)
    if find is None:
        return None
    places = coordinates(flat, node.type.shape)
    return find(node.attr, places, flat)


def coordinates(flat: Array, shape: Shape) -> list[Array]:
    """Per dim the index of each element."""
    indices: list[Array] = []
    for size in reversed(shape):
        flat, index = np.divmod(flat, max(1, size))
        indices.append(index)
    return indices[::-1]


def distinct_indices(numbers: Array) -> Array:
    """Distinct indices, ascending."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def flat_indices(places: Sequence[Array], shape: Shape, count: int) -> Array:
    """Undo `coordinates`, for so many elements."""
    flat = np.zeros(count, np.int64)
    for index, size in zip(places, shape, strict=True):
        flat = flat * size + index
    return flat


def _same(attr: Attr, places: Sequence[Array], flat: Array) -> MovedFrom:
    return MovedFrom([(0, np.ones(len(flat), bool), flat)], [])


def _transposed(attr: Attr, places: Sequence[Array], flat: Array) -> MovedFrom:
    assert isinstance(attr, Transpose)
    source = [places[attr.perm.index(d)] for d in range(len(attr.perm))]
    return _same(attr, places, flat_indices(source, attr.source, len(flat)))


def _sliced(attr: Attr, places: Sequence[Array], flat: Array) -> MovedFrom:
    assert isinstance(attr, Move)
    start, _, step = attr.args
    source = [p * k + a for p, a, k in zip(places, start, step, strict=True)]
    return _same(attr, places, flat_indices(source, attr.sources[0], len(flat)))


def _padded(attr: Attr, places: Sequence[Array], flat: Array) -> MovedFrom:
    assert isinstance(attr, Move)
    low, _, text = attr.args
    source = [p - a for p, a in zip(places, low, strict=True)]
    beyond = [((p < 0) | (p >= s), str(text)) for p, s in zip(source, attr.sources[0], strict=True)]
    return _within(source, attr.sources[0], beyond, len(flat))


def _within(
    source: Sequence[Array], shape: Shape, fills: list[tuple[Array, str]], count: int
) -> MovedFrom:
    """Elements of operand 0 but where a fill says what they hold."""
    inside = np.ones(count, bool)
    for beyond, _ in fills:
        inside &= ~beyond
    held = flat_indices([p[inside] for p in source], shape, int(inside.sum()))
    return MovedFrom([(0, inside, held)], fills)


def _joined(attr: Attr, places: Sequence[Array], flat: Array) -> MovedFrom:
    assert isinstance(attr, Move)
    (axis,) = attr.args
    parts, start = [], 0
    for i, shape in enumerate(attr.sources):
        which = (places[axis] >= start) & (places[axis] < start + shape[axis])
        local = [(p - start if d == axis else p)[which] for d, p in enumerate(places)]
        parts.append((i, which, flat_indices(local, shape, int(which.sum()))))
        start += shape[axis]
    return MovedFrom(parts, [])


def _lanes(layout: Layout, places: Sequence[Array]) -> tuple[list[Array], list[tuple[Array, str]]]:
    """Elements of a packed tensor: their places in the source, and which are beyond its end."""
    rank = len(layout.source)
    tile = dict(zip(layout.pos, layout.tiles, strict=True))
    source = [places[layout.outer.index(d)] * tile.get(d, 1) for d in range(rank)]
    for n, d in enumerate(layout.pos):
        source[d] = source[d] + places[rank + n]
    padded = [(d, text) for d, _, text in layout.padded_dims if text != "-"]
    return source, [(source[d] >= layout.source[d], text) for d, text in padded]


def _packed(attr: Attr, places: Sequence[Array], flat: Array) -> MovedFrom:
    assert isinstance(attr, Layout)
    source, fills = _lanes(attr, places)
    return _within(source, attr.source, fills, len(flat))


def _unpacked(attr: Attr, places: Sequence[Array], flat: Array) -> MovedFrom:
    assert isinstance(attr, Layout)
    tile = dict(zip(attr.pos, attr.tiles, strict=True))
    outer = [places[d] // tile.get(d, 1) for d in attr.outer]
    inner = [places[d] % t for d, t in zip(attr.pos, attr.tiles, strict=True)]
    return _same(attr, places, flat_indices([*outer, *inner], attr.packed_shape, len(flat)))


def _retyped(attr: Attr, places: Sequence[Array], flat: Array) -> MovedFrom:
    assert isinstance(attr, Layout)
    _, fills = _lanes(attr, places)
    return _within(places, attr.packed_shape, fills, len(flat))


_MOVED: Mapping[str, Callable[[Attr, Sequence[Array], Array], MovedFrom]] = {
    "transpose": _transposed, "reshape": _same, "slice": _sliced, "pad": _padded,
    "concat": _joined, "pack": _packed, "unpack": _unpacked, "retype": _retyped, "relax": _same,
    "set_encoding": _same, "unset_encoding": _same, "transfer": _same,
}  # fmt: skip


def indices_of(attr: Move, flat: Array) -> Array:
    """Of elements of a gather: where the index of each lies in the index tensor."""
    _, indices = attr.sources
    (axis,) = attr.args
    places = coordinates(flat, attr.shape)[axis : axis + len(indices)]
    return flat_indices(places, indices, len(flat))


def gathered(attr: Move, flat: Array, picked: Array) -> Array:
    """Of elements of a gather, with the index of each: where they lie in the table."""
    table, indices = attr.sources
    (axis,) = attr.args
    places = coordinates(flat, attr.shape)
    row = np.clip(picked, 0, table[axis] - 1).astype(np.int64)
    source = [*places[:axis], row, *places[axis + len(indices) :]]
    return flat_indices(source, table, len(flat))


# ---- loop nests ----------------------------------------------------------------------------------
class _Frame(NamedTuple):
    """The axes of a narrowed nest, results first: how long they are, and where each loop runs."""

    rank: int
    sizes: tuple[int, ...]
    loops: dict[int, tuple[int, Array]]  # loop → its axis, and its index at each place there

    def used(self, m: Map) -> list[int]:
        """The axes over which an operand with this map is read."""
        return sorted({self.loops[d][0] for d in map_loops(m)})


@dataclass(frozen=True)
class Narrow:
    """A loop nest over some elements of its result, which lie at `places` of its own, flat result.

    elements: which of the elements asked for these are.
    """

    whole: Generic
    frame: _Frame
    elements: Array
    places: Array

    @cached_property
    def generic(self) -> Generic:
        """The nest, over operands of the shapes of `read`."""
        used = [self.frame.used(m) for m in self.whole.maps]
        shapes = tuple(tuple(self.frame.sizes[a] for a in axes) for axes in used)
        maps = tuple(tuple(map(dim, axes)) for axes in used)
        return replace(
            self.whole, sizes=self.frame.sizes, rank=self.frame.rank, maps=maps, shapes=shapes,
            tile=(), order=(),
        )  # fmt: skip

    def read(self, operand: int) -> Array:
        """The flat indices of what is read of an operand, in the shape in which it is read."""
        m, shape = self.whole.maps[operand], self.whole.shapes[operand]
        used = self.frame.used(m)
        flat: Array = np.zeros([1] * len(used), np.int64)
        for e, size in zip(m, shape, strict=True):
            index: Any = e.constant
            for d, stride in e.terms:
                axis, indices = self.frame.loops[d]
                index = index + stride * indices.reshape([-1 if a == axis else 1 for a in used])
            flat = flat * size + index
        return np.broadcast_to(flat, self.generic.shapes[operand])


def narrowed_nests(g: Generic, flat: Array) -> Iterator[Narrow]:
    """The nest over these elements, in parts that read no more than `MOST_READ` where that can be.

    Either one axis has the elements, or every loop runs over the indices that occur in it: elements
    that share rows and columns are one product.
    """
    stack = [np.arange(len(flat))]
    while stack:
        part = stack.pop()
        places = coordinates(flat[part], g.result_shape)
        kinds = [distinct_indices(p) for p in places]
        by_loops = _fits_loops(g, kinds, len(part))
        frame = _by_loops(g, kinds) if by_loops else _by_elements(g, places, len(part))
        if _most_read(g, frame) > MOST_READ and len(part) > 1:
            widest = max(range(g.rank), key=lambda d: len(kinds[d]))
            order = np.argsort(places[widest], kind="stable")
            stack += np.array_split(part[order], 2)
            continue
        at = np.arange(len(part))
        if by_loops:
            rows = [np.searchsorted(k, p) for k, p in zip(kinds, places, strict=True)]
            at = flat_indices(rows, frame.sizes[: g.rank], len(part))
        yield Narrow(g, frame, part, at)


def _by_elements(g: Generic, places: Sequence[Array], count: int) -> _Frame:
    loops = {d: (0, p) for d, p in enumerate(places)}
    loops |= {d: (1 + n, np.arange(g.sizes[d])) for n, d in enumerate(g.reductions)}
    return _Frame(1, (count, *(g.sizes[d] for d in g.reductions)), loops)


def _by_loops(g: Generic, kinds: Sequence[Array]) -> _Frame:
    indices = [*kinds, *(np.arange(g.sizes[d]) for d in g.reductions)]
    return _Frame(g.rank, tuple(map(len, indices)), {d: (d, x) for d, x in enumerate(indices)})


def _fits_loops(g: Generic, kinds: Sequence[Array], count: int) -> bool:
    """Whether it is less work to run over all that occurs in each loop."""
    sizes = [*map(len, kinds), *(g.sizes[d] for d in g.reductions)]
    reduced = math.prod(g.sizes[d] for d in g.reductions)
    used = [map_loops(m) for m in g.maps]
    read = sum(math.prod(sizes[d] for d in loops) for loops in used)
    each = sum(math.prod(g.sizes[d] for d in loops if d >= g.rank) for loops in used)
    per = PER_ELEMENT * sum(1 + scalar.cost(y.body) for y in g.yields)
    per = 1 if product_factors(g) is not None else per
    whole = math.prod(sizes) * per + PER_ELEMENT * read
    return g.rank > 0 and whole <= count * (reduced * per + PER_ELEMENT * each)


def _most_read(g: Generic, frame: _Frame) -> int:
    return max((math.prod(frame.sizes[a] for a in frame.used(m)) for m in g.maps), default=0)


Mask = Array | None  # true where an element may hold anything; None: nowhere


def open_elements(program: Program) -> dict[int, Array]:
    """Node → its open elements, a bool each; nodes without any are not there.

    Of an op with several results it is one array for all of them.
    """
    masks: dict[int, Array] = {}
    for i, n in enumerate(program.nodes):
        mask = _of(program, n, [masks.get(o) for o in n.operands])
        if mask is not None and mask.any():
            masks[i] = mask
    return masks


def _of(program: Program, n: Node, masks: Sequence[Mask]) -> Mask:
    attr = n.attr
    if isinstance(attr, Leaf):
        return _padding(attr.layout) if isinstance(attr.layout, Layout) else None
    if isinstance(attr, Layout):
        return _of_layout(n, attr, masks[0])
    if isinstance(attr, Result):
        maker = program.nodes[n.operands[0]].attr
        if isinstance(maker, Control) and attr.index >= len(maker.result_types):
            return np.ones(n.type.shape, bool)  # bytes for temporaries
    if all(m is None for m in masks):
        return None
    if isinstance(attr, Result):
        assert masks[0] is not None
        return np.broadcast_to(masks[0], n.type.shape)
    if isinstance(attr, Generic):
        return _of_generic(attr, masks)
    return _of_other(program, n, masks)


def _padding(layout: Layout) -> Mask:
    """The lanes of padding `?` of a packed tensor."""
    return pack(_marked(layout), np.zeros(layout.source, bool)) if "?" in layout.pads else None


def _marked(layout: Layout) -> Layout:
    """The layout that pads with true where it was open, else with false."""
    marks = {"-": "-", "?": "1"}
    return replace(layout, pads=tuple(marks.get(p, "0") for p in layout.pads))


def _of_layout(n: Node, layout: Layout, mask: Mask) -> Mask:
    if n.op == "unpack":
        return None if mask is None else unpack(layout, mask)
    padding = _padding(layout)
    if mask is None:
        return padding
    if n.op == "relax":
        return mask if padding is None else mask | padding
    return pack(_marked(layout), unpack(layout, mask) if n.op == "retype" else mask)


def _of_generic(g: Generic, masks: Sequence[Mask]) -> Mask:
    """Where a loop nest reads an open element in any of its iterations."""
    if 0 in g.sizes:
        return None
    is_open = np.zeros(g.result_shape, bool)
    read = {o for y in g.yields for o in y.body.operands()}
    for at, mask in enumerate(masks):
        if mask is not None and at in read:
            is_open |= strided_view(mask, g.maps[at], g.sizes).any(axis=tuple(g.reductions))
    return is_open


def _of_other(program: Program, n: Node, masks: Sequence[Mask]) -> Mask:
    types = [program.nodes[o].type for o in n.operands]
    full = [np.zeros(t.shape, bool) if m is None else m for m, t in zip(masks, types, strict=True)]
    attr = n.attr
    if isinstance(attr, Custom):
        held = [np.zeros(t.shape, scalar.held_dtype(t.dtype)) for t in types]
        return dependent_lanes(attr, held, full)
    if n.op == "gather" and isinstance(attr, Move):
        return _of_gather(attr, *full)
    if n.op == "pad" and isinstance(attr, Move):
        attr = replace(attr, args=(*attr.args[:2], "0"))
    if isinstance(attr, Move) or (len(types) == 1 and n.op != "opaque"):
        return evaluate_node(n.op, attr, full)[0]
    return np.ones((), bool)  # of a loop, or of an op nobody modelled: all of its results


def _of_gather(attr: Move, table: Array, indices: Array) -> Array:
    """Any slice may be taken."""
    (axis,) = attr.args
    rows = table.any(axis=axis)
    ends = rows.shape[:axis], rows.shape[axis:]
    around = rows.reshape(*ends[0], *[1] * indices.ndim, *ends[1])
    return around | indices.reshape(*indices.shape, *[1] * len(ends[1]))
